//! How long to wait before the next attempt. Source: specification 12.

use std::time::Duration;

use rand::RngExt;

use super::Failure;

/// Decides when a failed event is tried again.
pub trait RetryPolicy: Send + Sync + std::fmt::Debug + 'static {
    /// The rest before the next attempt, after the `attempt`th (from 1) failed; `None` when this failure is not worth another.
    fn delay(&self, attempt: u32, failure: &Failure) -> Option<Duration>;
}

/// Doubles from `base` with every attempt, varied by half either way, never above `max`. Default 200 ms and 60 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponential {
    /// The rest after the first failure.
    pub base: Duration,
    /// The longest rest.
    pub max: Duration,
}

impl Default for Exponential {
    fn default() -> Self {
        Self { base: Duration::from_millis(200), max: Duration::from_secs(60) }
    }
}

impl RetryPolicy for Exponential {
    fn delay(&self, attempt: u32, _: &Failure) -> Option<Duration> {
        let doublings = attempt.saturating_sub(1).min(63);
        let factor = u32::try_from(1_u64 << doublings).unwrap_or(u32::MAX);
        let delay = self.base.saturating_mul(factor).min(self.max);
        // The cap comes last: varied after it, a delay could be half as long again as the longest.
        Some(delay.mul_f64(rand::rng().random_range(0.5..1.5)).min(self.max))
    }
}

/// Always the same rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub Duration);

impl RetryPolicy for Fixed {
    fn delay(&self, _: u32, _: &Failure) -> Option<Duration> {
        Some(self.0)
    }
}

/// Another policy's rest, varied by half either way, so that what failed together does not come back together.
#[derive(Clone, Copy, Debug)]
pub struct Jittered<P>(pub P);

impl<P: RetryPolicy> RetryPolicy for Jittered<P> {
    fn delay(&self, attempt: u32, failure: &Failure) -> Option<Duration> {
        Some(self.0.delay(attempt, failure)?.mul_f64(rand::rng().random_range(0.5..1.5)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_doubles_within_its_jitter_and_never_passes_the_longest() {
        let policy = Exponential::default();
        let failure = Failure::retryable("");
        for attempt in 1..200 {
            let ideal = Duration::from_millis(200).saturating_mul(1 << (attempt - 1).min(20)).min(policy.max);
            let delay = policy.delay(attempt, &failure).expect("always another attempt");
            assert!(delay >= ideal / 2 && delay <= policy.max, "attempt {attempt}: {delay:?}");
        }
    }
}
