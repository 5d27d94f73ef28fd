//! What an outcome means for the row. Pure, so every row of the specification's table is a plain test.

use crate::listener::{Cause, Failure, FailureKind, Outcome, RetryPolicy, is_unroutable};
use crate::store::{ASKED_FOR_LATER, Settlement};

/// The limits that decide what an outcome leads to.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// When a failed event is tried again.
    pub retry: &'a dyn RetryPolicy,
    /// Counted failures after which it is dead.
    pub max_attempts: u32,
    /// Deferrals after which it is dead.
    pub max_deferrals: u32,
    /// Whether an event without a listener is parked; otherwise it is dead.
    pub park_unroutable: bool,
}

/// Turns an outcome into what the store must write, for an event that failed `attempts` times and was deferred `deferrals`
/// times before. Delays, not times: the database's clock turns them into times. Source: specification 9.3, 12.4.
#[must_use]
pub fn settle(outcome: Outcome, attempts: u32, deferrals: u32, policy: &Policy<'_>) -> Settlement {
    match outcome {
        Outcome::Done => Settlement::Done,
        Outcome::RetryAfter(_) if deferrals >= policy.max_deferrals => Settlement::Dead {
            error: format!("{ASKED_FOR_LATER}{deferrals} times, which is the limit"),
            counted: false,
            blocks: false,
        },
        Outcome::RetryAfter(after) => Settlement::Deferred { after },
        Outcome::Dead(error) => Settlement::Dead { error: by_listener(error), counted: false, blocks: false },
        Outcome::Failed(failure) => settle_failure(&failure, attempts, policy),
        Outcome::Unroutable(reason) if policy.park_unroutable => Settlement::Parked { reason },
        Outcome::Unroutable(error) => Settlement::Dead { error, counted: false, blocks: false },
        Outcome::Busy { after } => Settlement::Released { after },
    }
}

fn settle_failure(failure: &Failure, attempts: u32, policy: &Policy<'_>) -> Settlement {
    let error = match failure.cause {
        Cause::Listener => by_listener(failure.to_string()),
        // Begins with its code.
        _ => failure.to_string(),
    };
    let attempt = attempts.saturating_add(1);
    let delay = match failure.kind {
        FailureKind::Unrecoverable => return Settlement::Dead { error, counted: false, blocks: false },
        _ if attempt >= policy.max_attempts => None,
        FailureKind::RetryableAfter(delay) => Some(delay),
        FailureKind::Retryable => policy.retry.delay(attempt, failure),
    };
    match delay {
        Some(after) => Settlement::Retry { after, error },
        None => Settlement::Dead { error, counted: true, blocks: false },
    }
}

/// What a listener said, marked where it begins like what this host says of an event: whoever explains the event believes the host.
fn by_listener(error: String) -> String {
    if is_unroutable(&error) || error.starts_with(ASKED_FOR_LATER) { format!("the listener said: {error}") } else { error }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::listener::Fixed;

    const SECOND: Duration = Duration::from_secs(1);

    fn settled(outcome: Outcome, attempts: u32) -> Settlement {
        let policy = Policy { retry: &Fixed(SECOND), max_attempts: 3, max_deferrals: 2, park_unroutable: false };
        settle(outcome, attempts, 0, &policy)
    }

    #[test]
    fn every_row_of_the_specification() {
        let error = || "no".to_owned();
        assert_eq!(settled(Outcome::Done, 0), Settlement::Done);
        assert_eq!(settled(Outcome::RetryAfter(SECOND), 2), Settlement::Deferred { after: SECOND });
        assert_eq!(settled(Outcome::Dead(error()), 0), Settlement::Dead { error: error(), counted: false, blocks: false });
        let failed = |failure: Failure, attempts| settled(Outcome::Failed(failure), attempts);
        assert_eq!(failed(Failure::retryable("no"), 0), Settlement::Retry { after: SECOND, error: error() });
        assert_eq!(failed(Failure::retryable("no"), 2), Settlement::Dead { error: error(), counted: true, blocks: false });
        let own = Failure::retryable_after(SECOND * 9, "no");
        assert_eq!(failed(own.clone(), 1), Settlement::Retry { after: SECOND * 9, error: error() });
        assert_eq!(failed(own, 2), Settlement::Dead { error: error(), counted: true, blocks: false });
        assert_eq!(failed(Failure::unrecoverable("no"), 0), Settlement::Dead { error: error(), counted: false, blocks: false });
        assert_eq!(
            settled(Outcome::Unroutable(error()), 0),
            Settlement::Dead { error: error(), counted: false, blocks: false }
        );
        assert_eq!(settled(Outcome::Busy { after: SECOND }, 0), Settlement::Released { after: SECOND });
    }

    #[test]
    fn a_listener_does_not_speak_for_the_host() {
        for said in ["no listener answers Order/Paid", "no listener answers", "the listener asked for later 100 times"] {
            let error = format!("the listener said: {said}");
            assert!(!is_unroutable(&error) && !error.starts_with(ASKED_FOR_LATER));
            let dead = Settlement::Dead { error: error.clone(), counted: false, blocks: false };
            assert_eq!(settled(Outcome::Dead(said.to_owned()), 0), dead);
            assert_eq!(settled(Outcome::Failed(Failure::unrecoverable(said)), 0), dead);
            assert_eq!(settled(Outcome::Failed(Failure::retryable(said)), 0), Settlement::Retry { after: SECOND, error });
            let dead = Settlement::Dead { error: said.to_owned(), counted: false, blocks: false };
            assert_eq!(settled(Outcome::Unroutable(said.to_owned()), 0), dead, "the host's own word stays");
        }
    }

    #[test]
    fn deferring_for_ever_ends() {
        let policy = Policy { retry: &Fixed(SECOND), max_attempts: 3, max_deferrals: 2, park_unroutable: true };
        assert_eq!(settle(Outcome::RetryAfter(SECOND), 0, 1, &policy), Settlement::Deferred { after: SECOND });
        assert!(matches!(settle(Outcome::RetryAfter(SECOND), 0, 2, &policy), Settlement::Dead { counted: false, .. }));
    }

    #[test]
    fn an_event_whose_listener_is_away_is_parked() {
        let policy = Policy { retry: &Fixed(SECOND), max_attempts: 3, max_deferrals: 2, park_unroutable: true };
        let settlement = settle(Outcome::Unroutable("away".to_owned()), 0, 0, &policy);
        assert_eq!(settlement, Settlement::Parked { reason: "away".to_owned() });
    }

    #[test]
    fn a_policy_may_decide_that_an_error_is_not_worth_another_attempt() {
        #[derive(Debug)]
        struct Never;
        impl RetryPolicy for Never {
            fn delay(&self, _: u32, _: &Failure) -> Option<Duration> {
                None
            }
        }
        let policy = Policy { retry: &Never, max_attempts: 3, max_deferrals: 2, park_unroutable: true };
        let settlement = settle(Outcome::Failed(Failure::retryable("no")), 0, 0, &policy);
        assert_eq!(settlement, Settlement::Dead { error: "no".to_owned(), counted: true, blocks: false });
    }
}
