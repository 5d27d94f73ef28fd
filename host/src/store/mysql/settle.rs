//! Outcomes into rows: one statement for each kind of outcome, all of them in one transaction.
//!
//! Every statement names the fence, the lock that the claim took and the states that an outcome may leave: a late outcome
//! changes nothing, and neither does the same one a second time. The driver asks the server to count the rows that a statement
//! matched, changed or not, so what is missing from the count is what was fenced off. Each statement reads its rows as JSON:
//! one shape for any number of them, so it is prepared once, and its join goes row by row to the primary key.
//! Text says its character set, which is the database's otherwise.

use serde_json::{Value, json};
use sqlx::SqlStr;
use sqlx::mysql::MySqlConnection;

use super::MySqlStore;
use super::transaction::{self, Patience};
use crate::event::Fence;
use crate::store::settlement::delay_micros;
use crate::store::{Settled, Settlement, StoreError};

/// Rows of [seq, fence].
pub(super) const DONE: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET status = 1, done_at = UTC_TIMESTAMP(6), due_at = NULL, claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// [`DONE`] for outcomes whose cost is kept, apart from it because it writes one column more. Rows of [seq, fence, cost].
const DONE_WITH_COST: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]',
                                     cost TEXT CHARACTER SET utf8mb4 PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET status = 1, done_at = UTC_TIMESTAMP(6), due_at = NULL, last_cost = settled.cost, claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Rows of [seq, fence].
const ERASED: &str = "
DELETE outbox_event
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Rows of [seq, fence, delay, cost].
const DEFERRED: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]', delay BIGINT PATH '$[2]',
                                     cost TEXT CHARACTER SET utf8mb4 PATH '$[3]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET status = 0, due_at = UTC_TIMESTAMP(6) + INTERVAL settled.delay MICROSECOND, deferrals = deferrals + 1,
    last_cost = COALESCE(settled.cost, last_cost), claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Rows of [seq, fence, delay, error, cost].
const RETRY: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]', delay BIGINT PATH '$[2]',
                                     error TEXT CHARACTER SET utf8mb4 PATH '$[3]',
                                     cost TEXT CHARACTER SET utf8mb4 PATH '$[4]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET status = 2, due_at = UTC_TIMESTAMP(6) + INTERVAL settled.delay MICROSECOND, attempts = attempts + 1,
    last_error = settled.error, last_cost = settled.cost, claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Without an aggregate id there is nothing to block. Rows of [seq, fence, counted, error, blocks, cost].
const DEAD: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]', counted INT PATH '$[2]',
                                     error TEXT CHARACTER SET utf8mb4 PATH '$[3]', stops INT PATH '$[4]',
                                     cost TEXT CHARACTER SET utf8mb4 PATH '$[5]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET status = 3, done_at = UTC_TIMESTAMP(6), due_at = NULL, attempts = attempts + settled.counted, last_error = settled.error,
    last_cost = settled.cost, blocks = CASE WHEN aggregate_id IS NULL THEN 0 ELSE settled.stops END, claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Rows of [seq, fence, reason].
const PARKED: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]',
                                     reason TEXT CHARACTER SET utf8mb4 PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET due_at = NULL, parked = settled.reason, claims = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// The claim is given back: the event never started. Rows of [seq, fence, the event before].
const BEHIND: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]', earlier BIGINT PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET due_at = NULL, behind = settled.earlier, claims = GREATEST(claims - 1, 0),
    locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// The claim is given back: the event never started. Without a delay it keeps its place among those that are due. Rows of
/// [seq, fence, delay].
const RELEASED: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]', delay BIGINT PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET due_at = CASE WHEN settled.delay > 0 THEN UTC_TIMESTAMP(6) + INTERVAL settled.delay MICROSECOND ELSE due_at END,
    claims = GREATEST(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE claim_seq = settled.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Longest stored error, in characters. Source: specification 8.3.
const MAX_ERROR_CHARS: usize = 4_000;

const ACTION: &str = "store outcomes";

pub(super) async fn settle(store: &MySqlStore, settled: &[Settled]) -> Result<u64, StoreError> {
    if settled.is_empty() {
        return Ok(0);
    }
    let statements = statements(store, settled.iter());
    let mut patience = Patience::new();
    let changed = loop {
        match write(store, &statements).await {
            Err(error) if patience.allows(&error).await => {}
            result => break result?,
        }
    };
    Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
}

async fn write(store: &MySqlStore, statements: &[(SqlStr, String)]) -> Result<u64, StoreError> {
    if let [(sql, rows)] = statements {
        // A single statement is its own transaction.
        let mut connection = store.pool.acquire().await.map_err(|error| store.failed(ACTION, error))?;
        return run(store, &mut connection, sql, rows).await;
    }
    let mut changed = 0;
    let mut transaction = transaction::begin(store).await?;
    for (sql, rows) in statements {
        changed += run(store, &mut transaction, sql, rows).await?;
    }
    transaction::commit(transaction).await?;
    Ok(changed)
}

/// Writes outcomes in the transaction that is open on the connection. Returns how many.
pub(super) async fn settle_in(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    settled: &[&Settled],
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for (sql, rows) in statements(store, settled.iter().copied()) {
        changed += run(store, connection, &sql, &rows).await?;
    }
    Ok(changed)
}

async fn run(store: &MySqlStore, connection: &mut MySqlConnection, sql: &SqlStr, rows: &str) -> Result<u64, StoreError> {
    let result = sqlx::query(sql.clone()).bind(rows).execute(connection).await.map_err(|error| store.failed(ACTION, error))?;
    Ok(result.rows_affected())
}

/// The statements that have something to do, with their rows in the order in which everybody locks them.
fn statements<'s>(store: &MySqlStore, settled: impl Iterator<Item = &'s Settled>) -> Vec<(SqlStr, String)> {
    const KINDS: [&str; 9] = [DONE, ERASED, DEFERRED, RETRY, DEAD, PARKED, BEHIND, RELEASED, DONE_WITH_COST];
    let mut sorted: Vec<&Settled> = settled.collect();
    sorted.sort_unstable_by_key(|settled| settled.fence.sequence);
    let mut rows: [Vec<Value>; KINDS.len()] = Default::default();
    for settled in sorted {
        let (kind, row) = row(settled);
        rows[kind].push(row);
    }
    KINDS
        .into_iter()
        .zip(rows)
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(sql, rows)| (store.table.sql(sql), Value::Array(rows).to_string()))
        .collect()
}

/// Which statement an outcome belongs to, and what it reads of it.
fn row(Settled { fence, settlement, cost }: &Settled) -> (usize, Value) {
    let Fence { sequence, claim } = fence;
    // An element that is not there is NULL in every version; a JSON null may become a text.
    let with_cost = |row: Value| match (row, cost) {
        (Value::Array(mut row), Some(cost)) => {
            row.push(Value::String(cost.to_column()));
            Value::Array(row)
        }
        (row, _) => row,
    };
    match settlement {
        Settlement::Done if cost.is_some() => (8, with_cost(json!([sequence, claim]))),
        Settlement::Done => (0, json!([sequence, claim])),
        Settlement::Erased => (1, json!([sequence, claim])),
        Settlement::Deferred { after } => (2, with_cost(json!([sequence, claim, delay_micros(*after)]))),
        Settlement::Retry { after, error } => (3, with_cost(json!([sequence, claim, delay_micros(*after), cut(error)]))),
        Settlement::Dead { error, counted, blocks } => {
            (4, with_cost(json!([sequence, claim, u8::from(*counted), cut(error), u8::from(*blocks)])))
        }
        Settlement::Parked { reason } => (5, json!([sequence, claim, cut(reason)])),
        Settlement::Behind { sequence: earlier } => (6, json!([sequence, claim, earlier])),
        Settlement::Released { after } => (7, json!([sequence, claim, delay_micros(*after)])),
    }
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
