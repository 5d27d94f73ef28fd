//! Whether this host makes progress with the events of a listener.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox_event::time::{Timestamp, system_clock};
use tokio::time::Instant;

/// How long a stall outlasts the last event that was given back: longer than the longest delay of an event (15 minutes, `Retry-After`).
/// After that its events may no longer exist.
const REMEMBERED: Duration = Duration::from_secs(20 * 60);

/// Whether the last events of a listener were answered or given back undelivered.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Whether the last events were given back. Each answer reads this flag first, and so takes no lock.
    is_stalled: AtomicBool,
    stall: Mutex<Option<Stall>>,
}

/// Since when, and why, the events of a listener are given back without any answer.
#[derive(Clone, Debug)]
#[doc(hidden)] // for the host
pub struct Stall {
    /// When the first of them was given back.
    pub since: Instant,
    /// The same, by the system's clock.
    pub since_time: Timestamp,
    /// When the last of them was given back.
    pub last: Instant,
    /// Why the last of them was given back.
    pub reason: String,
}

impl Progress {
    /// Notes that an event was answered, whatever the answer was.
    pub(super) fn answered(&self) {
        if self.is_stalled.load(Ordering::Relaxed) {
            let mut stall = self.lock();
            *stall = None;
            self.is_stalled.store(false, Ordering::Relaxed);
        }
    }

    /// Notes that an event was given back, because its listener cannot answer it on this host now.
    pub(super) fn gave_back(&self, reason: &str, now: Instant) {
        let mut stall = self.lock();
        let new = || Stall { since: now, since_time: system_clock().now(), last: now, reason: String::new() };
        let stall = stall.get_or_insert_with(new);
        stall.last = now;
        if stall.reason != reason {
            reason.clone_into(&mut stall.reason);
        }
        self.is_stalled.store(true, Ordering::Relaxed);
    }

    /// The stall, if there is one. Ignored if its last event was given back too long ago: its events may no longer exist.
    pub(super) fn stall(&self, now: Instant) -> Option<Stall> {
        if !self.is_stalled.load(Ordering::Relaxed) {
            return None;
        }
        self.lock().as_ref().filter(|stall| now.saturating_duration_since(stall.last) < REMEMBERED).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stall>> {
        self.stall.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_begins_with_the_first_event_given_back_and_ends_with_any_answer() {
        let (progress, start) = (Progress::default(), Instant::now());
        let stall = |now| progress.stall(now).map(|stall| (stall.last - stall.since, stall.reason));
        assert_eq!(stall(start), None);

        progress.gave_back("no broker", start);
        assert_eq!(stall(start), Some((Duration::ZERO, "no broker".to_owned())));
        let last = start + Duration::from_secs(3);
        progress.gave_back("no network", last);

        assert_eq!(stall(last), Some((Duration::from_secs(3), "no network".to_owned())));
        assert_eq!(stall(last + REMEMBERED), None, "its events are gone");
        progress.answered();
        assert_eq!(stall(last), None);
        progress.gave_back("no broker", last);
        assert_eq!(stall(last), Some((Duration::ZERO, "no broker".to_owned())), "it begins again");
    }
}
