//! How long to wait before the next attempt.

use std::time::Duration;

use outbox_event::Failure;
use outbox_event::units::LONGEST;
use rand::RngExt;

/// Decides when a failed event is tried again.
///
/// ```
/// # mod outbox { pub use outbox_event::Failure; pub use outbox_listener::{self as listener, Registration}; }
/// use std::time::Duration;
///
/// use outbox::Failure;
/// use outbox::listener::RetryPolicy;
///
/// /// Three times at once, then every hour.
/// #[derive(Debug)]
/// struct Patient;
///
/// impl RetryPolicy for Patient {
///     fn delay(&self, attempt: u32, _failure: &Failure) -> Option<Duration> {
///         Some(if attempt <= 3 { Duration::ZERO } else { Duration::from_secs(3_600) })
///     }
/// }
///
/// # use outbox::Registration;
/// # fn registration(registration: Registration) -> Registration {
/// registration.retry(Patient)
/// # }
/// ```
pub trait RetryPolicy: Send + Sync + std::fmt::Debug + 'static {
    /// The delay before the next attempt, after the `attempt`th (from 1) failed. `None` to make no further attempt.
    fn delay(&self, attempt: u32, failure: &Failure) -> Option<Duration>;
}

/// Exponential backoff with jitter: the delay doubles from `base` with every attempt, varies by up to half either way, and never exceeds
/// `max`. Default 200 ms and 60 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponential {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for Exponential {
    fn default() -> Self {
        Self { base: Duration::from_millis(200), max: Duration::from_secs(60) }
    }
}

impl Exponential {
    /// The fault in these values, by the names that the fields have below `[retry]`. `None` if there is no fault.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        (self.max < self.base).then_some("retry.max is below retry.base; it is the longest rest, so make it at least as long")
    }
}

impl RetryPolicy for Exponential {
    fn delay(&self, attempt: u32, _: &Failure) -> Option<Duration> {
        let doublings = attempt.saturating_sub(1).min(63);
        let factor = u32::try_from(1_u64 << doublings).unwrap_or(u32::MAX);
        let delay = self.base.saturating_mul(factor).min(self.max);
        // The cap comes last: a delay that is varied after the cap could exceed it by half.
        Some(varied(delay).min(self.max))
    }
}

/// A constant delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed(pub Duration);

impl RetryPolicy for Fixed {
    fn delay(&self, _: u32, _: &Failure) -> Option<Duration> {
        Some(self.0)
    }
}

/// The delay of another policy, varied by up to half either way, so that events that failed together are not retried together.
#[derive(Clone, Copy, Debug)]
pub struct Jittered<P>(pub P);

impl<P: RetryPolicy> RetryPolicy for Jittered<P> {
    fn delay(&self, attempt: u32, failure: &Failure) -> Option<Duration> {
        Some(varied(self.0.delay(attempt, failure)?))
    }
}

/// A delay, varied by up to half either way.
fn varied(rest: Duration) -> Duration {
    // A longer delay would make no difference, and could not be multiplied.
    rest.min(LONGEST).mul_f64(rand::rng().random_range(0.5..1.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure() -> Failure {
        Failure::retryable("")
    }

    /// The shortest and the longest of many rests.
    fn spread(policy: &impl RetryPolicy, attempt: u32) -> (Duration, Duration) {
        let rests: Vec<_> = (0..2_000).map(|_| policy.delay(attempt, &failure()).expect("always another attempt")).collect();
        (*rests.iter().min().expect("many"), *rests.iter().max().expect("many"))
    }

    /// Whether two thousand rests lie within half of `ideal` either way, and reach nearly as far: one in ten of them is
    /// expected in each tenth, so that it does not happen by chance that none is.
    fn varies_by_half_around(ideal: Duration, (shortest, longest): (Duration, Duration)) -> bool {
        shortest >= ideal / 2 && shortest < ideal * 6 / 10 && longest <= ideal * 3 / 2 && longest > ideal * 14 / 10
    }

    #[test]
    fn the_rest_doubles_with_every_attempt_and_varies_by_half_either_way() {
        let policy = Exponential::default();
        for attempt in 1..=8 {
            let ideal = Duration::from_millis(200) * 2_u32.pow(attempt - 1);
            let spread = spread(&policy, attempt);
            assert!(varies_by_half_around(ideal, spread), "attempt {attempt}: {spread:?} around {ideal:?}");
        }
    }

    #[test]
    fn the_rest_never_passes_the_longest_however_many_attempts_failed() {
        let policy = Exponential::default();
        for attempt in [10, 31, 32, 33, 64, 65, 200, u32::MAX] {
            let (shortest, longest) = spread(&policy, attempt);
            assert!(shortest >= policy.max / 2 && longest == policy.max, "attempt {attempt}: {shortest:?} to {longest:?}");
        }
    }

    #[test]
    fn a_jittered_rest_varies_by_half_around_that_of_its_policy() {
        let second = Duration::from_secs(1);
        let spread = spread(&Jittered(Fixed(second)), 3);
        assert!(varies_by_half_around(second, spread), "{spread:?}");
    }

    #[test]
    fn no_rest_is_too_long_to_be_varied() {
        let endless = Exponential { base: Duration::MAX, max: Duration::MAX };
        assert!(endless.delay(u32::MAX, &failure()) >= Some(LONGEST / 2));
        assert!(Jittered(Fixed(Duration::MAX)).delay(1, &failure()) >= Some(LONGEST / 2));
    }

    #[test]
    fn a_jittered_policy_gives_up_when_its_policy_does() {
        #[derive(Debug)]
        struct Never;
        impl RetryPolicy for Never {
            fn delay(&self, _: u32, _: &Failure) -> Option<Duration> {
                None
            }
        }
        assert_eq!(Jittered(Never).delay(1, &failure()), None);
    }
}
