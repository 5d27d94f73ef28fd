//! Outcomes into rows: one statement for each kind of outcome, all of them in one transaction.
//!
//! Every statement names the fence, the lock that the claim took and the states that an outcome may leave: a late outcome
//! changes nothing, and neither does the same one a second time.

use sqlx::postgres::PgConnection;

use super::PostgresStore;
use super::row::sequence;
use super::run::Statement;
use super::transaction;
use crate::event::Fence;
use crate::store::number::signed;
use crate::store::settlement::delay_micros;
use crate::store::{Settled, Settlement, StoreError};

/// $1 and $2 the fences.
pub(super) const DONE: &str = "
UPDATE outbox_event
SET status = 1, done_at = now(), due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[]) AS settled (sequence, fence)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// $1 and $2 the fences.
const ERASED: &str = "
DELETE FROM outbox_event
USING unnest($1::bigint[], $2::bigint[]) AS settled (sequence, fence)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// $1 and $2 the fences, $3 delays in microseconds.
const DEFERRED: &str = "
UPDATE outbox_event
SET status = 0, due_at = now() + delay * interval '1 microsecond', deferrals = deferrals + 1, claims = 0, starts = 0, locked_by = NULL,
    locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS settled (sequence, fence, delay)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// $1 and $2 the fences, $3 delays in microseconds, $4 errors.
const RETRY: &str = "
UPDATE outbox_event
SET status = 2, due_at = now() + delay * interval '1 microsecond', attempts = attempts + 1, last_error = error, claims = 0, starts = 0,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS settled (sequence, fence, delay, error)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// $1 and $2 the fences, $3 how much each counts and whether it blocks (1 counted, 2 blocks, 3 both), $4 errors. Without an
/// aggregate there is nobody to block.
const DEAD: &str = "
UPDATE outbox_event
SET status = 3, done_at = now(), due_at = NULL, attempts = attempts + (flags & 1)::integer, last_error = error, claims = 0, starts = 0,
    blocks = CASE WHEN aggregate_id IS NULL THEN 0 ELSE (flags >> 1) & 1 END, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS settled (sequence, fence, flags, error)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// $1 and $2 the fences, $3 reasons.
const PARKED: &str = "
UPDATE outbox_event
SET due_at = NULL, parked = reason, claims = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS settled (sequence, fence, reason)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// $1 and $2 the fences, $3 whom each waits behind. The claim is given back: the event never started.
const BEHIND: &str = "
UPDATE outbox_event
SET due_at = NULL, behind = blocker, claims = greatest(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS settled (sequence, fence, blocker)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// $1 and $2 the fences, $3 delays in microseconds. The claim is given back: the event never started. Without a delay it keeps
/// its place among those that are due.
const RELEASED: &str = "
UPDATE outbox_event
SET due_at = CASE WHEN delay > 0 THEN now() + delay * interval '1 microsecond' ELSE due_at END,
    claims = greatest(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS settled (sequence, fence, delay)
WHERE seq = settled.sequence AND claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Locks all rows of a batch in the order of their `seq`, as the renewal does: several statements in one transaction would
/// lock them by kind of outcome, and the two could wait for each other. $1 their `seq`.
const LOCK: &str = "
SELECT 1 FROM outbox_event WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE";

/// Of some events, those that somebody else has locked, against an outcome. $1 their `seq`.
const LOCKED: &str = "
WITH free AS MATERIALIZED (SELECT seq FROM outbox_event WHERE seq = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED)
SELECT seq FROM outbox_event WHERE seq = ANY ($1::bigint[]) AND seq NOT IN (SELECT seq FROM free)";

/// Longest stored error, in characters. Source: specification 8.3.
const MAX_ERROR_CHARS: usize = 4_000;

const ACTION: &str = "store outcomes";

/// What one statement writes: a list for each of its columns.
#[derive(Default)]
struct Columns {
    sequences: Vec<i64>,
    fences: Vec<i64>,
    numbers: Vec<i64>,
    texts: Vec<String>,
}

impl Columns {
    fn push(&mut self, fence: Fence, number: Option<i64>, text: Option<&str>) {
        self.sequences.push(signed(fence.sequence));
        self.fences.push(signed(fence.claim));
        self.numbers.extend(number);
        self.texts.extend(text.map(cut));
    }

    fn bind<'q>(self, statement: Statement<'q>) -> Statement<'q> {
        let mut statement = statement.bind(self.sequences).bind(self.fences);
        if !self.numbers.is_empty() {
            statement = statement.bind(self.numbers);
        }
        if !self.texts.is_empty() {
            statement = statement.bind(self.texts);
        }
        statement
    }
}

pub(super) async fn settle(store: &PostgresStore, settled: &[Settled]) -> Result<u64, StoreError> {
    let mut sorted: Vec<&Settled> = settled.iter().collect();
    sorted.sort_unstable_by_key(|settled| settled.fence.sequence);
    let statements = statements(&sorted);
    let mut changed = 0;
    if statements.len() <= 1 {
        // A single statement is its own transaction.
        for (sql, columns) in statements {
            changed += store.execute(ACTION, columns.bind(store.statement(sql))).await?;
        }
    } else {
        let sequences: Vec<i64> = sorted.iter().map(|settled| signed(settled.fence.sequence)).collect();
        let mut transaction = transaction::begin(&store.host).await?;
        store.statement(LOCK).bind(sequences).execute(&mut *transaction).await.map_err(|error| store.failed(ACTION, error))?;
        changed = run(store, &mut transaction, statements).await?;
        transaction::commit(transaction).await?;
    }
    Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
}

/// Writes outcomes in the transaction that is open on the connection, whose rows it has locked. Returns how many.
pub(super) async fn settle_locked(
    store: &PostgresStore,
    connection: &mut PgConnection,
    settled: &[&Settled],
) -> Result<u64, StoreError> {
    run(store, connection, statements(settled)).await
}

async fn run(
    store: &PostgresStore,
    connection: &mut PgConnection,
    statements: Vec<(&'static str, Columns)>,
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for (sql, columns) in statements {
        let statement = columns.bind(store.statement(sql));
        let result = statement.execute(&mut *connection).await.map_err(|error| store.failed(ACTION, error))?;
        changed += result.rows_affected();
    }
    Ok(changed)
}

pub(super) async fn locked(store: &PostgresStore, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
    let sequences: Vec<i64> = sequences.iter().copied().map(signed).collect();
    store.all("look for locked events", store.statement(LOCKED).bind(sequences)).await?.iter().map(sequence).collect()
}

/// The statements that have something to do, with their columns.
fn statements(sorted: &[&Settled]) -> Vec<(&'static str, Columns)> {
    let mut statements: Vec<(&'static str, Columns)> = Vec::with_capacity(1);
    for Settled { fence, settlement } in sorted {
        let (sql, number, text) = written(settlement);
        let known = statements.iter().position(|(other, _)| *other == sql);
        let index = known.unwrap_or_else(|| {
            statements.push((sql, Columns::default()));
            statements.len() - 1
        });
        statements[index].1.push(*fence, number, text);
    }
    statements
}

/// The statement for an outcome, and what it writes beside the fence.
fn written(settlement: &Settlement) -> (&'static str, Option<i64>, Option<&str>) {
    match settlement {
        Settlement::Done => (DONE, None, None),
        Settlement::Erased => (ERASED, None, None),
        Settlement::Deferred { after } => (DEFERRED, Some(delay_micros(*after)), None),
        Settlement::Retry { after, error } => (RETRY, Some(delay_micros(*after)), Some(error)),
        Settlement::Dead { error, counted, blocks } => (DEAD, Some(i64::from(*counted) | i64::from(*blocks) << 1), Some(error)),
        Settlement::Parked { reason } => (PARKED, None, Some(reason)),
        Settlement::Behind { sequence } => (BEHIND, Some(signed(*sequence)), None),
        Settlement::Released { after } => (RELEASED, Some(delay_micros(*after)), None),
    }
}

/// At most 4,000 characters, without NUL, which SQL text cannot carry.
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
