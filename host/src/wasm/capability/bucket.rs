//! A token bucket: so much a second, and ten times as much at once after a rest.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The tokens of a rest, in seconds.
const REST_S: f64 = 10.0;

/// A token bucket, full at first.
#[derive(Debug)]
pub(in crate::wasm) struct Bucket {
    per_second: f64,
    level: Mutex<(f64, Instant)>,
}

impl Bucket {
    pub(in crate::wasm) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, level: Mutex::new((per_second * REST_S, Instant::now())) }
    }

    /// Takes so many tokens, if they are there.
    pub(in crate::wasm) fn take(&self, tokens: u32, now: Instant) -> bool {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = now.saturating_duration_since(level.1).as_secs_f64() * self.per_second;
        let there = (level.0 + rested).min(self.per_second * REST_S);
        let left = there - f64::from(tokens);
        *level = (if left < 0.0 { there } else { left }, now.max(level.1));
        left >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_gives_what_has_come_in_and_no_more() {
        let bucket = Bucket::new(2);
        let now = Instant::now();
        let after = |millis| now + Duration::from_millis(millis);
        assert!(bucket.take(20, now) && !bucket.take(1, now), "ten seconds' worth at first");
        assert!(!bucket.take(1, after(499)) && bucket.take(1, after(501)) && !bucket.take(1, after(501)));
        assert!(!bucket.take(21, after(3_600_000)), "never more than that");
        assert!(bucket.take(20, after(3_600_000)));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let bucket = Bucket::new(1);
        let later = Instant::now() + Duration::from_secs(60);
        assert!(bucket.take(10, later));
        assert!(!bucket.take(1, Instant::now()) && !bucket.take(1, later));
    }
}
