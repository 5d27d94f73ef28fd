//! The receivers of a sink that are unavailable, and the outage of the whole sink that follows from them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outbox_event::SinkOutage;

use crate::SinkError;
use crate::outage::Outage;

/// After so many silent receivers in a row, the sink counts as down: the fault is more likely in between.
const MANY_SILENT: usize = 3;
/// After so many receivers in a row that refuse, the sink counts as down: more likely, they refuse this host or its credentials. One
/// alone may be gone, or limit the rate.
pub(super) const MANY_REFUSING: usize = 10;
/// The only receiver must not have answered for so long before an outage is reported. One that limits the rate refuses single messages
/// among many that it takes. If the sink is the only receiver, its messages must have failed for so long: one message alone may have a
/// destination that takes nothing.
pub(super) const REPORTED_AFTER: Duration = Duration::from_secs(3);
/// If no receiver has answered for so long, a receiver that was counted before the last answer counts again.
pub(super) const RECOUNTED_AFTER: Duration = Duration::from_secs(60);

/// The key of the only receiver of a sink.
const ONLY_RECEIVER: u64 = 0;

/// The receivers that took no message since any receiver did, and the outage of the sink that follows.
#[derive(Debug, Default)]
pub(crate) struct UnavailableReceivers(Mutex<Unavailable>);

/// How a receiver is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailability {
    /// It does not answer, or says no more than that it takes no message now.
    Silent,
    /// It answers, but denies every message, or says when it takes messages again.
    Refuses,
}

#[derive(Debug, Default)]
struct Unavailable {
    silent: Counted,
    refusing: Counted,
    /// Reported to operators: the sink is down, or its only receiver has not answered for a while.
    outage: Option<Outage>,
}

/// Receivers that were unavailable in a row.
#[derive(Debug, Default)]
struct Counted {
    /// The keys of the first of them.
    keys: BTreeSet<u64>,
    /// When the first of them was added; `None` if there are no keys.
    since: Option<Instant>,
    /// When an answer last ended the row; `None` if none has.
    cleared_at: Option<Instant>,
}

impl Counted {
    /// Adds a receiver, unless there are `enough`. `was_counted`: whether it was added since its last answer of another kind; then it is
    /// added again only if no answer has ended the row for long. Returns whether it was added since that answer.
    fn add(&mut self, key: u64, was_counted: bool, enough: usize, now: Instant) -> bool {
        let is_long_ago = self.cleared_at.is_none_or(|at| now.saturating_duration_since(at) >= RECOUNTED_AFTER);
        if (!was_counted || is_long_ago) && self.keys.len() < enough {
            self.keys.insert(key);
            self.since = self.since.or(Some(now));
        }
        was_counted || self.keys.contains(&key)
    }

    fn clear(&mut self, now: Instant) {
        self.keys.clear();
        self.since = None;
        self.cleared_at = Some(now);
    }
}

impl Unavailable {
    fn is_sink_down(&self) -> bool {
        self.silent.keys.len() >= MANY_SILENT || self.refusing.keys.len() >= MANY_REFUSING
    }
}

impl UnavailableReceivers {
    /// Adds an unavailable receiver, unless there are enough. `was_counted`: whether it was added as such since its last other answer.
    /// Returns whether it was added since then.
    pub(super) fn add(&self, key: u64, how: Unavailability, was_counted: bool, now: Instant) -> bool {
        let mut unavailable = self.lock();
        match how {
            Unavailability::Silent => unavailable.silent.add(key, was_counted, MANY_SILENT, now),
            Unavailability::Refuses => {
                // Its answer proves that receivers can be reached.
                unavailable.silent.clear(now);
                let was_added = unavailable.refusing.add(key, was_counted, MANY_REFUSING, now);
                if !unavailable.is_sink_down() {
                    unavailable.outage = None;
                }
                was_added
            }
        }
    }

    /// Whether there are so many that the sink counts as down.
    pub(super) fn is_sink_down(&self) -> bool {
        self.lock().is_sink_down()
    }

    /// Removes all receivers and ends the outage, since a receiver looked at a message.
    pub(super) fn clear(&self, now: Instant) {
        let mut unavailable = self.lock();
        unavailable.silent.clear(now);
        unavailable.refusing.clear(now);
        unavailable.outage = None;
    }

    /// Begins the outage of the sink, or notes its last reason and its next try. `has_others`: whether the sink has several receivers.
    /// Does nothing if too few receivers are unavailable, because another receiver has just answered.
    pub(super) fn note_outage(&self, has_others: bool, reason: String, rest: Duration, now: Instant) {
        let mut unavailable = self.lock();
        let is_over = if has_others { !unavailable.is_sink_down() } else { unavailable.silent.keys.is_empty() };
        if is_over {
            return;
        }
        unavailable.outage = Some(Outage::new(unavailable.outage.as_ref(), reason, rest, now));
    }

    /// Notes an answer of a sink whose link has no [`Receiver`](super::Receiver)s: the sink is their only one. `is_of_sink`: whether a
    /// failure says something about the sink. That of a message whose destination a plugin chose does not, nor that of a topic or node
    /// which the link counts.
    pub(crate) fn note(&self, answer: &Result<(), SinkError>, is_of_sink: bool, now: Instant) {
        match answer {
            Err(SinkError::Unavailable { reason, .. } | SinkError::Closed { reason }) if is_of_sink => {
                self.add(ONLY_RECEIVER, Unavailability::Silent, false, now);
                if self.has_been_silent(now) {
                    let rest = match answer {
                        Err(SinkError::Unavailable { retry_after, .. }) => retry_after.unwrap_or_default(),
                        _ => Duration::ZERO,
                    };
                    self.note_outage(false, reason.clone(), rest, now);
                }
            }
            Err(SinkError::Unavailable { .. } | SinkError::Closed { .. }) => {}
            // The message was not sent, or the breaker of the sink has the outage.
            Err(SinkError::Crowded { .. } | SinkError::Down { .. }) => {}
            Ok(()) | Err(_) => self.clear(now),
        }
    }

    /// Whether a receiver answered a short while ago.
    pub(super) fn has_just_answered(&self, now: Instant) -> bool {
        self.lock().silent.cleared_at.is_some_and(|at| now.saturating_duration_since(at) < REPORTED_AFTER)
    }

    /// Whether messages have failed for a while, and no receiver answered since the first of them.
    fn has_been_silent(&self, now: Instant) -> bool {
        self.lock().silent.since.is_some_and(|since| now.saturating_duration_since(since) >= REPORTED_AFTER)
    }

    /// The outage of the sink; `None` if a receiver answered, or too few are unavailable.
    pub(crate) fn outage(&self) -> Option<SinkOutage> {
        self.lock().outage.as_ref().map(Outage::report)
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
        let note =
            |unavailable: &UnavailableReceivers| unavailable.note_outage(true, "503".to_owned(), Duration::from_secs(1), now);
        for key in 0..3 {
            assert!(unavailable.add(key, Unavailability::Silent, false, now));
        }
        unavailable.clear(now);
        assert!(unavailable.add(3, Unavailability::Silent, false, now));
        note(&unavailable);
        assert_eq!(unavailable.outage(), None);

        for key in 4..6 {
            assert!(unavailable.add(key, Unavailability::Silent, false, now));
        }
        note(&unavailable);
        assert!(unavailable.outage().is_some());
    }

    #[test]
    fn sink_is_down_once_its_messages_have_failed_for_three_seconds() {
        let (unavailable, start) = (UnavailableReceivers::default(), Instant::now());
        let full = || Err(SinkError::closed("the stream is full"));
        let is_down = |answer: Result<(), SinkError>, is_of_sink: bool, after: Duration| {
            unavailable.note(&answer, is_of_sink, start + after);
            unavailable.outage().is_some()
        };

        assert!(!is_down(full(), true, Duration::ZERO), "its destination alone may take nothing");
        assert!(!is_down(full(), true, REPORTED_AFTER / 2));
        assert!(!is_down(full(), false, REPORTED_AFTER), "a plugin chose its destination");
        assert!(is_down(full(), true, REPORTED_AFTER));
        assert!(!is_down(Ok(()), false, REPORTED_AFTER), "it takes messages");
        assert!(!is_down(full(), true, 3 * REPORTED_AFTER), "the failures begin again");
        assert!(is_down(full(), true, 4 * REPORTED_AFTER));
    }
}
