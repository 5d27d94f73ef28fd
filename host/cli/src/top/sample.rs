//! What one look brings, and what two of them tell.

use std::cmp::Reverse;

use outbox::node::HostSink;
use outbox::store::{NodeRecord, RouteRecord, Stats};
use outbox::time::Timestamp;
use serde::Serialize;

/// The outbox at one moment.
#[derive(Debug, Serialize)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    /// The number of the newest row; `None` when there is none.
    #[serde(skip)]
    pub(super) seq: Option<u64>,
    #[serde(flatten)]
    pub(super) stats: Stats,
    #[serde(skip)]
    pub(super) routes: Vec<RouteRecord>,
    #[serde(skip)]
    pub(super) nodes: Vec<NodeRecord>,
    /// The sinks of each live host.
    pub(super) sinks: Vec<HostSink>,
}

impl Sample {
    /// How many hosts are alive.
    pub(super) fn hosts(&self) -> usize {
        self.nodes.iter().filter(|node| node.alive).count()
    }

    /// The routes with the most unfinished events first, then those with the most dead events.
    pub(super) fn busiest_routes(&self) -> Vec<&RouteRecord> {
        let mut routes: Vec<&RouteRecord> = self.routes.iter().collect();
        routes.sort_by_key(|known| (Reverse(known.waiting + known.parked + known.blocked), Reverse(known.dead)));
        routes
    }

    /// Events that are not finished.
    fn waiting(&self) -> u64 {
        let stats = &self.stats;
        stats.new + stats.retry + stats.parked + stats.blocked
    }
}

/// Events per second between two looks; `None` when that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) written_per_second: Option<f64>,
    pub(super) delivered_per_second: Option<f64>,
}

impl Rates {
    /// Delivered is what came and waits no longer, but for what died: the rows of delivered events may be gone already.
    pub(super) fn between(before: &Sample, after: &Sample) -> Self {
        let seconds = after.at.since(before.at).as_secs_f64();
        // After a rebuilt table the numbers begin again.
        let written = match (before.seq, after.seq) {
            (None, None) => Some(0),
            (None, Some(_)) => None,
            (Some(before), Some(after)) => after.checked_sub(before),
            // The newest row was delivered and purged.
            (Some(_), None) => None,
        };
        let Some(written) = written.filter(|_| seconds > 0.0) else { return Self::default() };
        let undelivered = |sample: &Sample| i128::from(sample.waiting()) + i128::from(sample.stats.dead);
        let delivered = (i128::from(written) + undelivered(before) - undelivered(after)).max(0);
        let rate = |events: i128| Some(((events as f64 / seconds) * 10.0).round() / 10.0);
        Self { written_per_second: rate(written.into()), delivered_per_second: rate(delivered) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64, seq: Option<u64>, stats: Stats) -> Sample {
        let at = Timestamp::from_micros(second * 1_000_000);
        Sample { at, seq, stats, routes: Vec::new(), nodes: Vec::new(), sinks: Vec::new() }
    }

    fn stats(new: u64, dead: u64, done: u64, parked: u64) -> Stats {
        let mut stats = Stats::default();
        (stats.new, stats.dead, stats.done, stats.parked) = (new, dead, done, parked);
        stats
    }

    #[test]
    fn rates_are_what_came_and_what_waits_no_longer() {
        let before = sample(10, Some(100), stats(50, 1, 40, 0));
        let after = sample(12, Some(180), stats(20, 3, 0, 4));
        let rates = Rates::between(&before, &after);
        assert_eq!(rates.written_per_second, Some(40.0));
        assert_eq!(rates.delivered_per_second, Some(52.0), "80 came, 24 fewer wait or are dead, whatever a purge took");
    }

    #[test]
    fn what_is_not_known_is_no_number() {
        let empty = |second| sample(second, None, Stats::default());
        let some = |second, seq| sample(second, Some(seq), stats(1, 0, 0, 0));
        assert_eq!(Rates::between(&empty(1), &empty(2)).written_per_second, Some(0.0));
        for (before, after) in
            [(empty(1), some(2, 9)), (some(1, 9), empty(2)), (some(1, 9), some(2, 3)), (some(1, 3), some(1, 9))]
        {
            assert_eq!(Rates::between(&before, &after), Rates::default(), "{before:?} {after:?}");
        }
    }
}
