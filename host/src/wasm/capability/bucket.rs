//! A token bucket: so much a second, and ten times as much at once after a rest.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many seconds' worth of tokens a bucket holds.
const BURST_SECONDS: u32 = 10;
/// How far ahead callers that are put off are spread; beyond it the spreading begins anew.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A token bucket, full at first.
#[derive(Debug)]
pub(in crate::wasm) struct Bucket {
    per_second: u32,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    tokens: f64,
    at: Instant,
    /// When the caller that was put off last may come back.
    next: Instant,
}

impl Bucket {
    /// `per_second` is at least 1.
    pub(in crate::wasm) fn new(per_second: u32) -> Self {
        let now = Instant::now();
        let level = Level { tokens: f64::from(per_second) * f64::from(BURST_SECONDS), at: now, next: now };
        Self { per_second: per_second.max(1), level: Mutex::new(level) }
    }

    /// The most tokens that it ever holds.
    pub(in crate::wasm) fn capacity(&self) -> u32 {
        self.per_second.saturating_mul(BURST_SECONDS)
    }

    /// Takes so many tokens, if they are there.
    pub(in crate::wasm) fn take(&self, tokens: u32, now: Instant) -> bool {
        let mut level = self.lock();
        let rested = now.saturating_duration_since(level.at).as_secs_f64() * f64::from(self.per_second);
        let there = (level.tokens + rested).min(f64::from(self.capacity()));
        let left = there - f64::from(tokens);
        level.tokens = if left < 0.0 { there } else { left };
        level.at = now.max(level.at);
        left >= 0.0
    }

    /// Gives back tokens that were taken and not used.
    pub(in crate::wasm) fn give_back(&self, tokens: u32) {
        let mut level = self.lock();
        level.tokens = (level.tokens + f64::from(tokens)).min(f64::from(self.capacity()));
    }

    /// How long to stay away before asking for so many tokens again. Those who are told to wait come back one after another, as
    /// tokens come in, and not all at once; what is there then may have gone to others.
    pub(in crate::wasm) fn wait(&self, tokens: u32, now: Instant) -> Duration {
        let mut level = self.lock();
        let far = level.next.saturating_duration_since(now) > LONGEST_WAIT;
        let after = if far { now } else { level.next.max(now) };
        level.next = after + Duration::from_secs(1) * tokens / self.per_second;
        level.next - now
    }

    fn lock(&self) -> MutexGuard<'_, Level> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
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
    fn what_is_given_back_can_be_taken_again_and_is_never_more_than_it_holds() {
        let bucket = Bucket::new(2);
        let now = Instant::now();
        assert!(bucket.take(20, now) && !bucket.take(1, now));
        bucket.give_back(5);
        assert!(bucket.take(5, now) && !bucket.take(1, now));
        bucket.give_back(100);
        assert!(bucket.take(bucket.capacity(), now) && !bucket.take(1, now));
    }

    #[test]
    fn those_who_wait_come_back_one_after_another() {
        let bucket = Bucket::new(4);
        let now = Instant::now();
        let waits: Vec<Duration> = (0..100).map(|_| bucket.wait(2, now)).collect();
        assert_eq!(waits[..3], [500, 1_000, 1_500].map(Duration::from_millis));
        assert!(waits.iter().all(|wait| *wait <= LONGEST_WAIT + Duration::from_millis(500)), "{waits:?}");
        let at_once = |instant: Duration| waits.iter().filter(|wait| **wait == instant).count();
        assert!(waits.iter().all(|wait| at_once(*wait) <= 5), "{waits:?}");
        let later = now + Duration::from_secs(60);
        assert_eq!(bucket.wait(2, later), Duration::from_millis(500));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let bucket = Bucket::new(1);
        let later = Instant::now() + Duration::from_secs(60);
        assert!(bucket.take(10, later));
        assert!(!bucket.take(1, Instant::now()) && !bucket.take(1, later));
    }
}
