//! What an outcome means for the row, and what a host does with events that it gives up by itself.

use std::fmt::Display;
use std::time::Duration;

use super::waits;
use crate::listener::{Cause, Failure, FailureKind, Outcome, RetryPolicy, is_unroutable};
use crate::store::{ASKED_FOR_LATER, AttemptEnd, EXPIRED, Settlement};
use crate::units::span;

/// The rest of an event whose effects the database does not take.
const NOT_TAKEN: Duration = Duration::from_secs(10);
/// The shortest and the longest rest of an event without a listener.
const SHORTEST_REST: Duration = Duration::from_millis(250);
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The least rest of an event whose listener had no place for it.
const SOON: Duration = Duration::from_millis(1);

/// What an outbox does with its events, whoever their listener is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettlementRules {
    /// Whether the row of a DONE event is deleted.
    pub erase_done: bool,
    /// Whether a DEAD event blocks the later ones of its aggregate.
    pub dead_blocks: bool,
    /// Whether the row says what attempts cost that ended well, too, and not only those that failed.
    pub all_costs: bool,
    /// Whether an event is parked whose route never had a listener; otherwise it is dead.
    pub park_unroutable: bool,
    /// How long after its time an event waits whose route never had a listener, before it is dead. Zero if it is parked.
    pub unroutable_grace: Duration,
    /// Deferrals after which an event is dead.
    pub max_deferrals: u32,
    /// How often an event may stop its host before it is dead.
    pub max_starts: u32,
}

/// What holds for one event beside the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy<'a> {
    /// When it is tried again after a failure.
    pub retry: &'a dyn RetryPolicy,
    /// Counted failures after which it is dead.
    pub max_attempts: u32,
    /// Whether its route waits for a listener or for the end of a pause: then it is parked, whatever the rules say.
    pub awaits_listener: bool,
}

impl Policy<'_> {
    /// Whether a failure of the next attempt is the last one, after this many counted failures.
    #[must_use]
    pub(crate) fn is_last(&self, attempts: u32) -> bool {
        attempts.saturating_add(1) >= self.max_attempts
    }
}

impl SettlementRules {
    /// Turns an outcome into what the store must write, for an event that failed `attempts` times and was deferred `deferrals`
    /// times before. Delays, not times: the database's clock turns them into times.
    #[must_use]
    pub(crate) fn settle(self, outcome: Outcome, attempts: u32, deferrals: u32, policy: &Policy<'_>) -> Settlement {
        match outcome {
            Outcome::Done if self.erase_done => Settlement::Erased,
            Outcome::Done => Settlement::Done,
            Outcome::RetryAfter(_) if deferrals >= self.max_deferrals => {
                self.dead(format!("{ASKED_FOR_LATER}{deferrals} times, which is the limit"))
            }
            Outcome::RetryAfter(after) => Settlement::Deferred { after },
            Outcome::Dead(error) => self.dead(by_listener(error)),
            Outcome::Failed(failure) => self.failed(&failure, attempts, policy),
            Outcome::Unroutable(reason) if self.park_unroutable || policy.awaits_listener => Settlement::Parked { reason },
            Outcome::Unroutable(error) => self.dead(error),
            // Later than at once, so that it is written: the next call has another number.
            Outcome::Busy { after, reason } => waits(after.max(SOON), reason),
        }
    }

    fn failed(self, failure: &Failure, attempts: u32, policy: &Policy<'_>) -> Settlement {
        let error = match failure.cause {
            Cause::Listener => by_listener(failure.to_string()),
            // Begins with its code.
            _ => failure.to_string(),
        };
        let delay = match failure.kind {
            FailureKind::Unrecoverable => return self.dead(error),
            _ if policy.is_last(attempts) => None,
            FailureKind::RetryableAfter(delay) => Some(delay),
            FailureKind::Retryable => policy.retry.delay(attempts.saturating_add(1), failure),
        };
        match delay {
            Some(after) => Settlement::Retry { after, error },
            None => self.dead_by_attempt(error),
        }
    }

    /// The database does not take what the answer to an event emitted or keeps. `is_last` is whether the event has failed as
    /// often as it may.
    pub(crate) fn not_taken(self, is_last: bool, error: String) -> Settlement {
        if is_last { self.dead_by_attempt(error) } else { Settlement::Retry { after: NOT_TAKEN, error } }
    }

    /// The time in which the writer of an event wanted it done is over.
    pub(crate) fn expired(self) -> Settlement {
        self.dead(EXPIRED.to_owned())
    }

    /// The row of an event cannot be read.
    pub(crate) fn unreadable(self, why: impl Display) -> Settlement {
        self.dead(format!("the row cannot be read: {why}"))
    }

    /// So often a host started an event alone and left no outcome. `None` while the event may be delivered once more.
    pub(crate) fn stopped_its_host(self, starts: u32) -> Option<Settlement> {
        let error = || format!("its host stopped {starts} times while it delivered this event and no other");
        (starts >= self.max_starts).then(|| self.dead(error()))
    }

    /// The rest of an event without a listener, after it has waited for so long: half as long again, and 5 s at most, so that it is
    /// written a few times and is delivered soon after its listener has come. `None` once it is given up.
    pub(crate) fn rest_without_listener(self, waited: Duration) -> Option<Duration> {
        let left = self.unroutable_grace.saturating_sub(waited);
        (!left.is_zero()).then(|| (waited / 2).clamp(SHORTEST_REST, LONGEST_REST).min(left))
    }

    /// Why an event without a listener waits.
    pub(crate) fn awaited(self, unroutable: &str) -> String {
        format!(
            "{unroutable}; it is dead if none comes within {} after its time, or after the last change of its host's listeners",
            span(self.unroutable_grace)
        )
    }

    /// Whether the row says what an attempt cost that is settled like this.
    pub(crate) fn records_cost(self, settlement: &Settlement) -> bool {
        AttemptEnd::of(settlement).is_some_and(|end| end.is_failure() || self.all_costs)
    }

    fn dead(self, error: String) -> Settlement {
        Settlement::Dead { error, counted: false, blocks: self.dead_blocks }
    }

    /// The same after a failure that counts as an attempt.
    fn dead_by_attempt(self, error: String) -> Settlement {
        Settlement::Dead { error, counted: true, blocks: self.dead_blocks }
    }
}

/// What a listener said, marked where it begins like what this host says of an event: whoever explains the event believes the host.
fn by_listener(error: String) -> String {
    if is_unroutable(&error) || error.starts_with(ASKED_FOR_LATER) { format!("the listener said: {error}") } else { error }
}

#[cfg(test)]
mod tests;
