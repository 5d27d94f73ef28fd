//! The receivers of a sink that are unavailable, and the outage of the whole sink that follows from them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outbox_event::SinkOutage;
use outbox_event::time::system_clock;

/// After so many unavailable receivers in a row, the sink counts as down: the fault is more likely in between.
pub(super) const MANY_RECEIVERS: usize = 3;
/// The only receiver must not have answered for so long before an outage is reported. One that limits the rate refuses single messages
/// among many that it takes.
pub(super) const REPORTED_AFTER: Duration = Duration::from_secs(3);
/// If no receiver has answered for so long, a receiver that was counted before the last answer counts again.
pub(super) const RECOUNTED_AFTER: Duration = Duration::from_secs(60);

/// The receivers that were unavailable since any receiver answered, and the outage of the sink that follows.
#[derive(Debug, Default)]
pub(crate) struct UnavailableReceivers(Mutex<Unavailable>);

#[derive(Debug, Default)]
struct Unavailable {
    /// The keys of the receivers; at most [`MANY_RECEIVERS`].
    keys: BTreeSet<u64>,
    /// When a receiver last answered, and so removed the keys; `None` if no receiver has.
    answered_at: Option<Instant>,
    /// Reported to operators: the sink is down, or its only receiver has not answered for a while.
    outage: Option<SinkOutage>,
}

impl UnavailableReceivers {
    /// Adds an unavailable receiver, unless there are enough. `was_counted`: whether it was added since its last answer; then it
    /// is added again only if no receiver has answered for long. Returns whether it was added since its last answer.
    pub(super) fn add(&self, key: u64, was_counted: bool, now: Instant) -> bool {
        let mut unavailable = self.lock();
        let is_silent = unavailable.answered_at.is_none_or(|at| now.saturating_duration_since(at) >= RECOUNTED_AFTER);
        let is_due = !was_counted || is_silent;
        if is_due && unavailable.keys.len() < MANY_RECEIVERS {
            unavailable.keys.insert(key);
        }
        was_counted || unavailable.keys.contains(&key)
    }

    /// Whether there are so many that the sink counts as down.
    pub(super) fn is_sink_down(&self) -> bool {
        self.lock().keys.len() >= MANY_RECEIVERS
    }

    /// Removes all receivers and ends the outage, since a receiver answered.
    pub(super) fn clear(&self, now: Instant) {
        *self.lock() = Unavailable { answered_at: Some(now), ..Unavailable::default() };
    }

    /// Begins the outage of the sink, or notes its last reason and its next try. Does nothing if fewer than `least` receivers are
    /// unavailable, because another receiver has just answered.
    pub(super) fn note_outage(&self, least: usize, reason: String, rest: Duration) {
        let mut unavailable = self.lock();
        if unavailable.keys.len() < least {
            return;
        }
        let now = system_clock().now();
        let since = unavailable.outage.as_ref().map_or(now, |outage| outage.since);
        unavailable.outage = Some(SinkOutage { since, reason, next_try: now.plus(rest) });
    }

    /// Whether a receiver answered a short while ago.
    pub(super) fn has_just_answered(&self, now: Instant) -> bool {
        self.lock().answered_at.is_some_and(|at| now.saturating_duration_since(at) < REPORTED_AFTER)
    }

    /// The outage of the sink; `None` if a receiver answered, or too few are unavailable.
    pub(crate) fn outage(&self) -> Option<SinkOutage> {
        self.lock().outage.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Unavailable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_outage_begins_if_an_answer_came_before_it_was_noted() {
        let (unavailable, now) = (UnavailableReceivers::default(), Instant::now());
        let note = |unavailable: &UnavailableReceivers| {
            unavailable.note_outage(MANY_RECEIVERS, "503".to_owned(), Duration::from_secs(1))
        };
        for key in 0..3 {
            assert!(unavailable.add(key, false, now));
        }
        unavailable.clear(now);
        assert!(unavailable.add(3, false, now));
        note(&unavailable);
        assert_eq!(unavailable.outage(), None);

        for key in 4..6 {
            assert!(unavailable.add(key, false, now));
        }
        note(&unavailable);
        assert!(unavailable.outage().is_some());
    }
}
