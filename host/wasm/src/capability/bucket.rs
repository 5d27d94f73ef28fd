//! A token bucket: so much a second, and ten times as much at once after a rest.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::RngExt;

/// How many seconds' worth of tokens a bucket holds.
const BURST_SECONDS: u32 = 10;
/// The shortest and the longest rest of a caller that is put off.
const RESTS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(300));

/// A token bucket, full at first.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: u32,
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    /// Below zero after more was spent than was there.
    tokens: f64,
    at: Instant,
    /// When the caller that was put off last may come back.
    next: Instant,
}

impl Bucket {
    /// `per_second` is at least 1.
    pub(crate) fn new(per_second: u32) -> Self {
        let (per_second, now) = (per_second.max(1), Instant::now());
        let level = Level { tokens: f64::from(per_second) * f64::from(BURST_SECONDS), at: now, next: now };
        Self { per_second, level: Mutex::new(level) }
    }

    /// Takes this many tokens, if they are there.
    pub(crate) fn take(&self, tokens: u32, now: Instant) -> bool {
        let mut level = self.filled(now);
        let is_there = level.tokens >= f64::from(tokens);
        if is_there {
            level.tokens -= f64::from(tokens);
        }
        is_there
    }

    /// Takes this many tokens, whether they are there or not.
    pub(crate) fn spend(&self, tokens: u32, now: Instant) {
        self.filled(now).tokens -= f64::from(tokens);
    }

    /// How long to stay away while no token is there; `None` when one is. Callers come back one after another, as tokens come
    /// in, so that many of them do not ask again and again.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        let mut level = self.filled(now);
        if level.tokens >= 1.0 {
            return None;
        }
        let (shortest, longest) = RESTS;
        let rate = f64::from(self.per_second);
        let first = Duration::from_secs_f64((1.0 - level.tokens) / rate).min(longest);
        let next = level.next.max(now + first) + Duration::from_secs_f64(1.0 / rate);
        let rest = next - now;
        if rest > longest {
            // Whoever raises the rate does not want to wait for what was reckoned before.
            return Some(longest.mul_f64(rand::rng().random_range(0.5..1.0)));
        }
        level.next = next;
        Some(rest.max(shortest))
    }

    /// With the tokens that have come in.
    fn filled(&self, now: Instant) -> MutexGuard<'_, Level> {
        let mut level = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        let rested = now.saturating_duration_since(level.at).as_secs_f64();
        let rate = f64::from(self.per_second);
        level.tokens = (level.tokens + rested * rate).min(rate * f64::from(BURST_SECONDS));
        level.at = now.max(level.at);
        level
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
    fn what_was_spent_beyond_the_tokens_has_to_come_in_first() {
        let bucket = Bucket::new(4);
        let now = Instant::now();
        assert_eq!(bucket.rest(now), None);
        bucket.spend(48, now);
        // Eight missing, and one to take: 2.25 s, and the one after it.
        assert_eq!(bucket.rest(now), Some(Duration::from_millis(2_500)));
        assert!(!bucket.take(1, now + Duration::from_millis(2_200)));
        assert_eq!(bucket.rest(now + Duration::from_millis(2_300)), None);
    }

    #[test]
    fn those_who_are_put_off_come_back_one_after_another_and_within_the_longest_rest() {
        let bucket = Bucket::new(4);
        let now = Instant::now();
        bucket.spend(40, now);
        let rests: Vec<Duration> = (0..3_000).map(|_| bucket.rest(now).expect("no token is there")).collect();
        assert_eq!(rests[..3], [500, 750, 1_000].map(Duration::from_millis));
        let (shortest, longest) = RESTS;
        assert!(rests.iter().all(|rest| (shortest..=longest).contains(rest)));
        let within = |seconds| rests.iter().filter(|rest| rest.as_secs() < seconds).count();
        assert!(within(60) <= 4 * 60, "{}", within(60));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let bucket = Bucket::new(1);
        let later = Instant::now() + Duration::from_secs(60);
        assert!(bucket.take(10, later));
        assert!(!bucket.take(1, Instant::now()) && !bucket.take(1, later));
    }
}
