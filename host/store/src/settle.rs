//! What an outcome writes.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::micros;
use outbox_event::{EventId, Fence, Settled, Settlement};
use serde::Serialize;

use super::StoreError;
use super::last_cost::to_column;

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

    /// As [`settle`](Self::settle), for outcomes of which one may be slow. PostgreSQL ends a statement after `limit`; the other databases
    /// ignore the limit.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    async fn settle_within(&self, settled: &[Settled], _limit: Duration) -> Result<u64, StoreError> {
        self.settle(settled).await
    }

    /// Which of these events somebody else has locked just now, of those that there are. Their outcomes would have to wait, and
    /// the whole batch with them. None where a database is locked as a whole.
    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError>;

    /// Which of these outcomes could still be stored, by `seq`. If [`settle`](Self::settle) dropped one of them, the database accepted
    /// the statement and left the row as it was: a trigger, a rule or a row-level policy does that.
    async fn unsettled(&self, settled: &[Settled]) -> Result<Vec<u64>, StoreError>;
}

/// The longest delay that is kept: a thousand years. A listener may ask for more than the columns can count, and a time that
/// does not fit would make the whole table unreadable.
const LONGEST_DELAY: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// A delay in whole microseconds, as it is added to the time.
pub(super) fn delay_micros(after: Duration) -> i64 {
    micros(after.min(LONGEST_DELAY))
}

/// The statements of a database. Most batches are all DONE, so those have statements that write no more than they must.
pub(super) struct Statements {
    pub(super) done: &'static str,
    /// The same for outcomes whose cost is kept.
    pub(super) done_with_cost: &'static str,
    pub(super) erased: &'static str,
    /// Outcomes of all kinds but erased ones.
    pub(super) mixed: &'static str,
}

/// What one outcome writes. As JSON, what is `None` is left out: an element that is not there is NULL in every database, and a JSON
/// null may become a text.
#[derive(Serialize)]
pub(super) struct Written {
    pub(super) seq: u64,
    pub(super) fence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<EventId>,
    pub(super) kind: &'static str,
    /// A delay in microseconds, or how many failures it adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<i64>,
    /// The `seq` of the event that it waits behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) behind: Option<u64>,
    /// An error, or why the event is parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    /// 1 if later events of its aggregate wait for it.
    pub(super) stops: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<String>,
}

impl Written {
    fn of(settled: &Settled) -> Self {
        let (kind, number, text, stops) = match &settled.settlement {
            Settlement::Done => ("done", None, None, false),
            Settlement::Erased => ("erased", None, None, false),
            Settlement::Deferred { after } => ("deferred", Some(delay_micros(*after)), None, false),
            Settlement::Retry { after, error } => ("retry", Some(delay_micros(*after)), Some(cut(error)), false),
            Settlement::Dead { error, counted, blocks } => ("dead", Some(i64::from(*counted)), Some(cut(error)), *blocks),
            Settlement::Parked { reason } => ("parked", None, Some(cut(reason)), false),
            Settlement::Behind { .. } => ("behind", None, None, false),
            Settlement::Released { after, reason } => {
                ("released", Some(delay_micros(*after)), reason.as_deref().map(short), false)
            }
        };
        let behind = match settled.settlement {
            Settlement::Behind { sequence } => Some(sequence),
            _ => None,
        };
        let Fence { sequence: seq, claim: fence } = settled.fence;
        let cost = settled.cost.as_deref().map(to_column);
        Self { seq, fence, id: settled.id, kind, number, behind, text, stops: u8::from(stops), cost }
    }
}

/// The statements that have something to do, each with what it writes, in the order of `seq`, in which everybody locks. One for any
/// mixture of kinds, so that a batch is one round trip; rows that are deleted need another.
pub(super) fn grouped<'s>(
    settled: impl IntoIterator<Item = &'s Settled>,
    statements: &Statements,
) -> Vec<(&'static str, Vec<Written>)> {
    let mut sorted: Vec<&Settled> = settled.into_iter().collect();
    sorted.sort_unstable_by_key(|settled| settled.fence.sequence);
    let (erased, kept): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|settled| settled.settlement == Settlement::Erased);
    let are_done = kept.iter().all(|settled| settled.settlement == Settlement::Done);
    let of_kept = if are_done && kept.iter().all(|settled| settled.cost.is_none()) {
        statements.done
    } else if are_done && kept.iter().all(|settled| settled.cost.is_some()) {
        statements.done_with_cost
    } else {
        statements.mixed
    };
    let groups = [(statements.erased, erased), (of_kept, kept)];
    let filled = groups.into_iter().filter(|(_, group)| !group.is_empty());
    filled.map(|(sql, group)| (sql, group.into_iter().map(Written::of).collect())).collect()
}

/// Events as a JSON list of `[seq, fence, id]`.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) fn fenced<'s>(settled: impl Iterator<Item = (u64, u64, &'s Option<EventId>)>) -> String {
    serde_json::to_string(&settled.collect::<Vec<_>>()).expect("numbers and texts are JSON")
}

/// Outcomes as a list of JSON objects.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) fn objects(written: &[Written]) -> String {
    serde_json::to_string(written).expect("numbers and texts are JSON")
}

/// Longest stored error, in characters.
const MAX_ERROR_CHARS: usize = 4_000;

/// Longest stored reason of an event that was given back, in characters: it may be written for each event of a long queue.
const MAX_REASON_CHARS: usize = 300;

fn short(reason: &str) -> String {
    cut(reason).chars().take(MAX_REASON_CHARS).collect()
}

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
