//! What an outcome writes.

use std::time::Duration;

use async_trait::async_trait;
#[cfg(any(feature = "sqlite", feature = "mysql"))]
use serde_json::Value;

use super::number::signed;
use super::{AttemptCost, StoreError};
use crate::event::Fence;
use crate::time::micros;

/// Writing outcomes.
#[async_trait]
pub trait SettleStore: Send + Sync {
    /// Writes outcomes, each under its fence, all or none. Returns how many were dropped because somebody else holds the
    /// event by now, or it is finished.
    ///
    /// Each outcome raises the `claim_seq` under which its event was taken, so a delivery has one outcome. One of an event that was
    /// read without a claim is dropped as well once its partition has got another owner. On SQLite and MySQL nobody becomes the
    /// owner while an outcome is being stored. PostgreSQL judges by the epochs as they were when the statement began: an outcome
    /// that was waiting for its row meanwhile counts, although the next owner may have read the event by then. The listener is
    /// called a second time then, as after every lease that ended too early, and the outcome of that call is dropped.
    ///
    /// # Errors
    /// The database's own. A repeat is safe: what was written is fenced off.
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError>;

    /// Which of these events somebody else has locked just now, of those that there are. Their outcomes would have to wait, and
    /// the whole batch with them. None where a database is locked as a whole.
    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError>;
}

/// What the store writes for one outcome. Delays, not times: the database's clock turns them into times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Finished.
    Done,
    /// Finished, and not kept: its row is deleted.
    Erased,
    /// Later, not counted as an attempt.
    Deferred {
        /// How much later.
        after: Duration,
    },
    /// Failed, counted, and tried again.
    Retry {
        /// How much later.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// Given up.
    Dead {
        /// Why.
        error: String,
        /// Whether the failure that ended it counts as an attempt.
        counted: bool,
        /// Whether later events of its aggregate wait until it is replayed, skipped or discarded.
        blocks: bool,
    },
    /// Set aside until a listener is there.
    Parked {
        /// Why.
        reason: String,
    },
    /// Never started: an earlier event of its aggregate is not resolved. Given back as if it had not been claimed, and not due
    /// until [`KeyStore::unblock`](super::KeyStore::unblock) finds that event out of the way.
    Behind {
        /// The `seq` of the event that it waits behind.
        sequence: u64,
    },
    /// Given back, uncounted, as if it had not been claimed.
    Released {
        /// How much later it may be claimed again; zero for at once.
        after: Duration,
    },
}

/// A settlement, and the claim under which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The proof that the claim is still ours.
    pub fence: Fence,
    /// What to write.
    pub settlement: Settlement,
    /// What the attempt cost, to be kept beside that. `None` leaves what was kept before as it is, but for a failure, which then
    /// has no cost.
    pub cost: Option<Box<AttemptCost>>,
}

impl Settled {
    /// A settlement without a cost.
    #[must_use]
    pub const fn new(fence: Fence, settlement: Settlement) -> Self {
        Self { fence, settlement, cost: None }
    }
}

/// The longest delay that is kept: a thousand years. A listener may ask for more than the columns can count, and a time that
/// does not fit would make the whole table unreadable.
const LONGEST_DELAY: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// A delay in whole microseconds, as it is added to the time.
pub(super) fn delay_micros(after: Duration) -> i64 {
    micros(after.min(LONGEST_DELAY))
}

/// The statements of a database, one for each kind of outcome.
pub(super) struct Statements {
    pub(super) done: &'static str,
    /// The same for outcomes whose cost is kept.
    pub(super) done_with_cost: &'static str,
    pub(super) erased: &'static str,
    pub(super) deferred: &'static str,
    pub(super) retry: &'static str,
    pub(super) dead: &'static str,
    pub(super) parked: &'static str,
    pub(super) behind: &'static str,
    pub(super) released: &'static str,
}

/// What one outcome writes beside its fence: `None` for a column that its statement does not have.
pub(super) struct Written<'s> {
    pub(super) fence: Fence,
    /// A delay, the event that it waits behind, or how many failures it adds.
    pub(super) number: Option<i64>,
    pub(super) text: Option<String>,
    pub(super) blocks: Option<bool>,
    pub(super) cost: Option<Option<&'s AttemptCost>>,
}

impl<'s> Written<'s> {
    /// What this outcome writes, and by which statement.
    fn of(settled: &'s Settled, statements: &Statements) -> (&'static str, Self) {
        let only = |number, text| Self { fence: settled.fence, number, text, blocks: None, cost: None };
        let cost = Some(settled.cost.as_deref());
        match &settled.settlement {
            Settlement::Done if settled.cost.is_some() => (statements.done_with_cost, Self { cost, ..only(None, None) }),
            Settlement::Done => (statements.done, only(None, None)),
            Settlement::Erased => (statements.erased, only(None, None)),
            Settlement::Deferred { after } => (statements.deferred, Self { cost, ..only(Some(delay_micros(*after)), None) }),
            Settlement::Retry { after, error } => {
                (statements.retry, Self { cost, ..only(Some(delay_micros(*after)), Some(cut(error))) })
            }
            Settlement::Dead { error, counted, blocks } => {
                let written = only(Some(i64::from(*counted)), Some(cut(error)));
                (statements.dead, Self { blocks: Some(*blocks), cost, ..written })
            }
            Settlement::Parked { reason } => (statements.parked, only(None, Some(cut(reason)))),
            Settlement::Behind { sequence } => (statements.behind, only(Some(signed(*sequence)), None)),
            Settlement::Released { after } => (statements.released, only(Some(delay_micros(*after)), None)),
        }
    }

    /// As a JSON list: `[seq, fence, …]`. A cost that is none is left out: an element that is not there is NULL in every database, and a
    /// JSON null may become a text.
    #[cfg(any(feature = "sqlite", feature = "mysql"))]
    pub(super) fn json(self) -> Value {
        let mut row = vec![self.fence.sequence.into(), self.fence.claim.into()];
        row.extend(self.number.map(Value::from));
        row.extend(self.text.map(Value::from));
        row.extend(self.blocks.map(|blocks| u8::from(blocks).into()));
        row.extend(self.cost.flatten().map(|cost| cost.to_column().into()));
        Value::Array(row)
    }
}

/// The statements that have something to do, each with what it writes, in the order of `seq`, in which everybody locks.
pub(super) fn grouped<'s>(
    settled: impl IntoIterator<Item = &'s Settled>,
    statements: &Statements,
) -> Vec<(&'static str, Vec<Written<'s>>)> {
    let mut sorted: Vec<&Settled> = settled.into_iter().collect();
    sorted.sort_unstable_by_key(|settled| settled.fence.sequence);
    let mut groups: Vec<(&'static str, Vec<Written<'s>>)> = Vec::with_capacity(1);
    for settled in sorted {
        let (sql, written) = Written::of(settled, statements);
        match groups.iter_mut().find(|(other, _)| *other == sql) {
            Some((_, group)) => group.push(written),
            None => groups.push((sql, vec![written])),
        }
    }
    groups
}

/// Longest stored error, in characters. Source: specification 8.3.
const MAX_ERROR_CHARS: usize = 4_000;

/// At most 4,000 characters, without NUL, which SQL text cannot carry everywhere.
fn cut(error: &str) -> String {
    error.chars().filter(|c| *c != '\0').take(MAX_ERROR_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_cut_on_a_character() {
        assert_eq!(cut(&"ü".repeat(5_000)), "ü".repeat(4_000));
        assert_eq!(cut("a\0b"), "ab");
    }
}
