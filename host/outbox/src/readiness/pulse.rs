//! When a loop last completed a turn, and when it last ended one, well or not.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When a loop last completed a turn. A failed turn is recorded apart: it shows that the loop still runs.
#[derive(Debug)]
pub(crate) struct Pulse {
    made: Instant,
    /// When a turn last ended well, in milliseconds since then.
    beat: AtomicU64,
    /// When a turn last ended, well or not.
    moved: AtomicU64,
    /// The error of the last failed turn, if the loop gave it.
    error: Mutex<Option<String>>,
}

impl Pulse {
    /// As if a turn had just ended.
    pub(crate) fn new() -> Self {
        Self { made: Instant::now(), beat: AtomicU64::new(0), moved: AtomicU64::new(0), error: Mutex::default() }
    }

    /// A turn has ended well.
    pub(crate) fn beat(&self) {
        let now = self.now();
        self.beat.store(now, Ordering::Relaxed);
        self.moved.store(now, Ordering::Relaxed);
    }

    /// A turn has failed.
    pub(crate) fn failed(&self) {
        self.moved.store(self.now(), Ordering::Relaxed);
    }

    /// A turn has failed with this error. Keeps its message without its causes, since anyone may ask a host whether it is ready.
    pub(crate) fn failed_with(&self, error: &impl Error) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        self.failed();
    }

    /// The error of the last failed turn. `None` if a turn has ended well since, or if the loop gives no errors.
    pub(crate) fn error(&self) -> Option<String> {
        self.is_failing().then(|| self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()).flatten()
    }

    /// As if the last turn had ended once more: the loop waits for something between two turns.
    pub(crate) fn repeat(&self) {
        if self.is_failing() { self.failed() } else { self.beat() }
    }

    /// Whether a turn has failed since the last one that ended well.
    pub(crate) fn is_failing(&self) -> bool {
        self.moved.load(Ordering::Relaxed) > self.beat.load(Ordering::Relaxed)
    }

    /// How long ago the last turn ended well.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        self.since(&self.beat, now)
    }

    /// How long ago the last turn ended, well or not.
    pub(crate) fn stillness(&self, now: Instant) -> Duration {
        self.since(&self.moved, now)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn since(&self, last: &AtomicU64, now: Instant) -> Duration {
        let last = Duration::from_millis(last.load(Ordering::Relaxed));
        now.saturating_duration_since(self.made).saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_grows_until_the_next_beat() {
        let pulse = Pulse::new();
        let later = pulse.made + Duration::from_secs(60);
        assert_eq!(pulse.silence(later), Duration::from_secs(60));

        pulse.beat.store(59_000, Ordering::Relaxed);

        assert_eq!(pulse.silence(later), Duration::from_secs(1));
        pulse.beat();
        assert!(pulse.silence(Instant::now()) < Duration::from_secs(60), "it has just beaten");
    }

    #[test]
    fn a_failed_turn_ends_stillness_and_not_silence() {
        let pulse = Pulse { made: Instant::now() - Duration::from_secs(60), ..Pulse::new() };

        pulse.failed();

        let now = Instant::now();
        assert!(pulse.stillness(now) < Duration::from_secs(60), "{:?}", pulse.stillness(now));
        assert!(pulse.silence(now) >= Duration::from_secs(60), "{:?}", pulse.silence(now));
        pulse.beat();
        assert!(pulse.silence(Instant::now()) < Duration::from_secs(60));
    }

    #[test]
    fn repeated_turn_ends_as_the_last_one_did() {
        let pulse = Pulse { made: Instant::now() - Duration::from_secs(60), ..Pulse::new() };
        pulse.repeat();
        assert!(pulse.silence(Instant::now()) < Duration::from_secs(60) && !pulse.is_failing());

        pulse.beat.store(0, Ordering::Relaxed);
        pulse.moved.store(1, Ordering::Relaxed);
        pulse.repeat();

        let now = Instant::now();
        assert!(pulse.is_failing() && pulse.silence(now) >= Duration::from_secs(60), "{pulse:?}");
        assert!(pulse.stillness(now) < Duration::from_secs(59), "{pulse:?}");
    }

    #[test]
    fn error_of_a_failed_turn_is_kept_until_the_next_beat() {
        let pulse = Pulse { made: Instant::now() - Duration::from_secs(60), ..Pulse::new() };
        assert_eq!(pulse.error(), None);

        pulse.failed_with(&std::io::Error::from(std::io::ErrorKind::ConnectionRefused));

        assert_eq!(pulse.error().as_deref(), Some("connection refused"));
        pulse.beat();
        assert_eq!(pulse.error(), None);
    }
}
