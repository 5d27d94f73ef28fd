//! Looks at the table for the metrics that cost a statement, at an interval of its own: no scrape ever asks the database.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Metrics;
use crate::recurring::{Outage, Recurring};
use crate::store::{Stats, Store};

/// The most rows that are counted for one number.
const MOST: u32 = 100_000;
/// How many intervals an old look is shown for when no other has ended since.
const FRESH_FOR: u32 = 3;

/// What the table was last seen to hold.
#[derive(Debug)]
pub(crate) struct Sampled {
    interval: Duration,
    last: Mutex<Option<(Instant, Option<Stats>)>>,
}

/// What the metrics show of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Whether the last look succeeded, and is not long ago.
    pub(crate) succeeded: bool,
    /// What it found; `None` unless it succeeded: a number that cannot be had is never shown as another.
    pub(crate) stats: Option<Stats>,
}

impl Sampled {
    /// For a look at each interval.
    pub(crate) fn every(interval: Duration) -> Self {
        Self { interval, last: Mutex::default() }
    }

    fn note(&self, at: Instant, stats: Option<Stats>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, stats));
    }

    /// What is shown at this time.
    pub(crate) fn at(&self, now: Instant) -> Sample {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh_for = self.interval.saturating_mul(FRESH_FOR);
        let is_fresh = |(at, _): &(Instant, Option<Stats>)| now.saturating_duration_since(*at) <= fresh_for;
        let stats = last.filter(is_fresh).and_then(|(_, stats)| stats);
        Sample { succeeded: stats.is_some(), stats }
    }
}

/// Looks at the table, again and again.
pub(crate) struct Sampler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sampled: Arc<Sampled>,
    pub(crate) outage: Outage,
}

impl Recurring for Sampler {
    async fn run_once(&mut self) -> Duration {
        let stats = self.outage.note(
            self.store.sample(MOST).await.inspect_err(|error| self.metrics.db_error(error)),
            |error| {
                tracing::warn!(%error, "the table cannot be counted for the metrics; what it holds is left out until it can");
            },
            || tracing::info!("the table can be counted for the metrics again"),
        );
        self.sampled.note(Instant::now(), stats);
        self.sampled.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_shown_until_a_look_fails_or_none_ends_any_more() {
        let (sampled, start) = (Sampled::every(Duration::from_secs(10)), Instant::now());
        let nothing = Sample { succeeded: false, stats: None };
        let seen = changed!(Stats { new: 7, ..Stats::default() });
        assert_eq!(sampled.at(start), nothing, "nobody has looked");

        sampled.note(start, Some(seen));

        let known = Sample { succeeded: true, stats: Some(seen) };
        assert_eq!(sampled.at(start + Duration::from_secs(30)), known);
        assert_eq!(sampled.at(start + Duration::from_secs(31)), nothing, "the database does not answer");
        sampled.note(start + Duration::from_secs(40), None);
        assert_eq!(sampled.at(start + Duration::from_secs(40)), nothing, "the last look failed");
    }
}
