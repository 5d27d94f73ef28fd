//! Whether this host makes progress with a kind of work, such as the events of a listener.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox_event::time::{Timestamp, system_clock};
use tokio::time::Instant;

/// How long a stall outlasts its last failure: longer than the longest delay of an event (15 minutes, `Retry-After`). After that its events
/// may no longer exist.
const REMEMBERED: Duration = Duration::from_secs(20 * 60);

/// Whether the last steps of a kind of work succeeded or failed.
#[derive(Debug, Default)]
#[doc(hidden)] // for the host
pub struct Progress {
    /// Whether the last steps failed. Each success reads this flag first, and so takes no lock.
    is_stalled: AtomicBool,
    stall: Mutex<Option<Stall>>,
}

/// Since when, and why, a kind of work fails without any success.
#[derive(Clone, Debug)]
#[doc(hidden)] // for the host
pub struct Stall {
    /// When the first step failed.
    pub since: Instant,
    /// The same, by the system's clock.
    pub since_time: Timestamp,
    /// When the last step failed.
    pub last: Instant,
    /// Why the last step failed.
    pub reason: String,
}

impl Progress {
    /// Notes a success.
    pub fn succeeded(&self) {
        if self.is_stalled.load(Ordering::Relaxed) {
            let mut stall = self.lock();
            *stall = None;
            self.is_stalled.store(false, Ordering::Relaxed);
        }
    }

    /// Notes a failure.
    pub fn failed(&self, reason: &str, now: Instant) {
        let mut stall = self.lock();
        let new = || Stall { since: now, since_time: system_clock().now(), last: now, reason: String::new() };
        let stall = stall.get_or_insert_with(new);
        stall.last = now;
        if stall.reason != reason {
            reason.clone_into(&mut stall.reason);
        }
        self.is_stalled.store(true, Ordering::Relaxed);
    }

    /// The stall. `None` if the last step succeeded, or if the last failure is too long ago.
    #[must_use]
    pub fn stall(&self, now: Instant) -> Option<Stall> {
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
    fn a_stall_begins_with_the_first_failure_and_ends_with_any_success() {
        let (progress, start) = (Progress::default(), Instant::now());
        let stall = |now| progress.stall(now).map(|stall| (stall.last - stall.since, stall.reason));
        assert_eq!(stall(start), None);

        progress.failed("no broker", start);
        assert_eq!(stall(start), Some((Duration::ZERO, "no broker".to_owned())));
        let last = start + Duration::from_secs(3);
        progress.failed("no network", last);

        assert_eq!(stall(last), Some((Duration::from_secs(3), "no network".to_owned())));
        assert_eq!(stall(last + REMEMBERED), None, "its events are gone");
        progress.succeeded();
        assert_eq!(stall(last), None);
        progress.failed("no broker", last);
        assert_eq!(stall(last), Some((Duration::ZERO, "no broker".to_owned())), "it begins again");
    }
}
