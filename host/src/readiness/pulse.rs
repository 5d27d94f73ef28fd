//! When something that goes on for ever last came to the end of a turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When something that goes on for ever last came to the end of a turn.
#[derive(Debug)]
pub(crate) struct Pulse {
    made: Instant,
    /// In milliseconds since then.
    beat: AtomicU64,
}

impl Pulse {
    /// As if a turn had just ended.
    pub(crate) fn new() -> Self {
        Self { made: Instant::now(), beat: AtomicU64::new(0) }
    }

    /// A turn has ended.
    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(now, Ordering::Relaxed);
    }

    /// How long ago the last turn ended.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let last = Duration::from_millis(self.beat.load(Ordering::Relaxed));
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
}
