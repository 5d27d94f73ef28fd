//! Due events that wait: which reasons are findings of their own, and whether the hosts are too slow.

use std::time::Duration;

use crate::node::{Relays, names_sink, sinks_by_host};
use crate::store::{NodeRecord, RouteRecord, Stats, WaitReason};
use crate::time::Timestamp;

/// The most events whose wait reasons are read: of all that wait, those that are due first. An outage of one sink must not hide the events of
/// another route.
pub const MOST_WAITING: u32 = 5_000;
/// An event that waits for this long is reported.
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
    /// It has waited for long, and hosts report why: the hosts are not too slow.
    Explained(Duration),
    /// The oldest event that waits for a host has waited for long, and no host reports why: the hosts are too slow.
    TooSlow(Duration),
}

impl OldestWait {
    /// Judges the ages by cause, and by the events that hosts report as stuck. `now` is the database's time.
    #[must_use]
    pub fn of(stats: &Stats, nodes: &[NodeRecord], now: Timestamp) -> Self {
        let Some((_, oldest)) = stats.oldest_pending_seconds.longest() else { return Self::Nothing };
        if !nodes.iter().any(|node| node.alive) {
            return Self::NoHost(oldest);
        }
        if oldest < LONG_WAIT {
            return Self::Short(oldest);
        }
        let for_host =
            stats.oldest_pending_seconds.waits_for_host.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let Some(for_host) = for_host.filter(|age| *age >= LONG_WAIT) else { return Self::Explained(oldest) };
        let mut stuck = nodes.iter().filter(|node| node.alive).flat_map(|node| &node.stuck).flat_map(|stuck| &stuck.first);
        let is_stuck = stuck.any(|event| now.since(event.since) + LONG_WAIT >= for_host);
        if is_stuck { Self::Explained(oldest) } else { Self::TooSlow(for_host) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::OwnerId;
    use crate::store::{Node, OldestPending, StuckEvent, StuckEvents, StuckReason};

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    fn stats(waits_for_host: Option<f64>, given_back: Option<f64>) -> Stats {
        let oldest_pending_seconds = changed!(OldestPending { waits_for_host, given_back, ..OldestPending::default() });
        changed!(Stats { oldest_pending_seconds, ..Stats::default() })
    }

    fn host() -> NodeRecord {
        NodeRecord::new(&Node::new(OwnerId::generate("web-1"), "web-1", "multi_node", "0.1.0"), NOW)
    }

    #[test]
    fn hosts_are_too_slow_if_an_event_waits_long_for_a_host_and_is_not_stuck() {
        let gone = changed!(NodeRecord { alive: false, ..host() });
        let stuck_for = |seconds| {
            let since = NOW.minus(Duration::from_secs(seconds));
            let event = StuckEvent { seq: 1, event_id: None, error: "the row is locked".to_owned(), since };
            changed!(NodeRecord { stuck: vec![StuckEvents::new(StuckReason::OutcomeLocked, 1, [event])], ..host() })
        };
        let seconds = Duration::from_secs;

        assert_eq!(OldestWait::of(&Stats::default(), &[host()], NOW), OldestWait::Nothing);
        assert_eq!(OldestWait::of(&stats(Some(5.0), Some(90.0)), &[gone], NOW), OldestWait::NoHost(seconds(90)));
        assert_eq!(OldestWait::of(&stats(Some(59.0), None), &[host()], NOW), OldestWait::Short(seconds(59)));
        assert_eq!(OldestWait::of(&stats(Some(240.0), None), &[host()], NOW), OldestWait::TooSlow(seconds(240)));
        assert_eq!(OldestWait::of(&stats(Some(240.0), None), &[stuck_for(230)], NOW), OldestWait::Explained(seconds(240)));
        assert_eq!(OldestWait::of(&stats(Some(240.0), None), &[stuck_for(100)], NOW), OldestWait::TooSlow(seconds(240)));
    }

    /// No host ran for an hour; then one ran for half an hour, and gave the events back since their sink is down.
    #[test]
    fn a_sink_that_is_down_explains_waits_that_began_without_a_host() {
        let stats = stats(None, Some(5_400.0));
        assert_eq!(OldestWait::of(&stats, &[host()], NOW), OldestWait::Explained(Duration::from_secs(5_400)));
    }

    /// The events of another route are not given back: they wait for a host.
    #[test]
    fn a_sink_that_is_down_does_not_explain_why_other_events_wait_for_a_host() {
        let stats = stats(Some(540.0), Some(600.0));
        assert_eq!(OldestWait::of(&stats, &[host()], NOW), OldestWait::TooSlow(Duration::from_secs(540)));
    }
}
