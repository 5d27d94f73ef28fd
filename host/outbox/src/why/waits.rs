//! Due events that wait: which reasons are findings of their own, and whether the hosts are too slow.

use std::time::Duration;

use crate::node::{Relays, names_sink, sinks_by_host};
use crate::store::{NodeRecord, RouteRecord, Stats, WaitReason};
use crate::time::Timestamp;

/// A due event that has waited for this long has waited too long.
pub const LONG_WAIT: Duration = Duration::from_secs(60);

/// The wait reasons that are findings of their own. Skips events that wait for a sink that is down: they belong to the finding of that
/// sink.
#[must_use]
pub fn waits_without_down_sinks<'w>(
    waits: &'w [WaitReason],
    nodes: &[NodeRecord],
    routes: &[RouteRecord],
) -> Vec<&'w WaitReason> {
    let sinks = sinks_by_host(nodes);
    let hosts: Vec<Relays<'_>> = sinks.iter().map(|sinks| Relays::of(sinks)).collect();
    let is_of = |wait: &WaitReason, known: &RouteRecord| {
        known.route.aggregate_type.as_str() == wait.aggregate_type && known.route.event_type.as_str() == wait.event_type
    };
    let is_sink_down = |known: &RouteRecord| hosts.iter().any(|relays| relays.is_sink_down(known));
    let is_explained_by_sink =
        |wait: &&WaitReason| names_sink(&wait.reason) && routes.iter().any(|known| is_of(wait, known) && is_sink_down(known));
    waits.iter().filter(|wait| !is_explained_by_sink(wait)).collect()
}

/// How long the oldest due event has waited, and what follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldestWait {
    /// No event is due.
    Nothing,
    /// No live host delivers it.
    NoHost(Duration),
    /// It has not waited for long.
    Short(Duration),
    /// It has waited for long, and a host reports why an event waits: the hosts are not too slow.
    Explained(Duration),
    /// It has waited for long, and no host reports why: the hosts are too slow.
    TooSlow(Duration),
}

impl OldestWait {
    /// Compares the wait with what hosts report: the reasons for which events wait, and events that are stuck. `now` is the database's
    /// time.
    #[must_use]
    pub fn of(stats: &Stats, nodes: &[NodeRecord], waits: &[WaitReason], now: Timestamp) -> Self {
        let Some(oldest) = stats.oldest_pending() else { return Self::Nothing };
        if !nodes.iter().any(|node| node.alive) {
            return Self::NoHost(oldest);
        }
        if oldest < LONG_WAIT {
            return Self::Short(oldest);
        }
        let stuck = nodes.iter().filter(|node| node.alive).flat_map(|node| &node.stuck).flat_map(|stuck| &stuck.first);
        let mut since = waits.iter().map(|wait| wait.since).chain(stuck.map(|event| event.since));
        let is_explained = since.any(|since| now.since(since) + LONG_WAIT >= oldest);
        if is_explained { Self::Explained(oldest) } else { Self::TooSlow(oldest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{OwnerId, Route};
    use crate::store::Node;

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    #[test]
    fn hosts_are_too_slow_if_no_report_explains_a_long_wait() {
        let node = NodeRecord::new(&Node::new(OwnerId::generate("web-1"), "web-1", "multi_node", "0.1.0"), NOW);
        let gone = changed!(NodeRecord { alive: false, ..node.clone() });
        let waited = |seconds| changed!(Stats { oldest_pending_seconds: Some(seconds), ..Stats::default() });
        let route = Route::new("Order", "Paid").expect("valid");
        let wait = |seconds| WaitReason::new(&route, "its listener is busy", 1, NOW.minus(Duration::from_secs(seconds)));
        let (nodes, seconds) = ([node], Duration::from_secs);

        assert_eq!(OldestWait::of(&Stats::default(), &nodes, &[], NOW), OldestWait::Nothing);
        assert_eq!(OldestWait::of(&waited(5.0), &[gone], &[], NOW), OldestWait::NoHost(seconds(5)));
        assert_eq!(OldestWait::of(&waited(59.0), &nodes, &[], NOW), OldestWait::Short(seconds(59)));
        assert_eq!(OldestWait::of(&waited(240.0), &nodes, &[wait(230)], NOW), OldestWait::Explained(seconds(240)));
        assert_eq!(OldestWait::of(&waited(240.0), &nodes, &[wait(100)], NOW), OldestWait::TooSlow(seconds(240)));
    }
}
