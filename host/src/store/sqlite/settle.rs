//! Outcomes into rows: one statement for each kind of outcome, all of them in one transaction.
//!
//! Every statement names the fence, the lock that the claim took and the states that an outcome may leave: a late outcome
//! changes nothing, and neither does the same one a second time.

use serde_json::json;
use sqlx::SqlStr;
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::claim::fences;
use super::error::failed;
use super::transaction;
use crate::event::Fence;
use crate::store::settlement::delay_micros;
use crate::store::{AttemptCost, Settled, Settlement, StoreError};

/// ?1 an object of seq → fence, ?2 now.
pub(super) const DONE: &str = "
UPDATE outbox_event
SET status = 1, done_at = ?2, due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM json_each(?1) AS settled
WHERE outbox_event.seq = CAST(settled.key AS INTEGER) AND claim_seq = settled.value AND locked_by IS NOT NULL AND status IN (0, 2)";

/// [`DONE`] for outcomes whose cost is kept, apart from it because it writes one column more. ?1 rows of [seq, fence, cost], ?2 now.
const DONE_WITH_COST: &str = "
UPDATE outbox_event
SET status = 1, done_at = ?2, due_at = NULL, last_cost = settled.value ->> 2, claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq = settled.value ->> 1 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// ?1 an object of seq → fence.
const ERASED: &str = "
DELETE FROM outbox_event
WHERE locked_by IS NOT NULL AND status IN (0, 2)
  AND (seq, claim_seq) IN (SELECT CAST(settled.key AS INTEGER), settled.value FROM json_each(?1) AS settled)";

/// ?1 rows of [seq, fence, delay, cost], ?2 now.
const DEFERRED: &str = "
UPDATE outbox_event
SET status = 0, due_at = ?2 + (settled.value ->> 2), deferrals = deferrals + 1,
    last_cost = coalesce(settled.value ->> 3, last_cost), claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq = settled.value ->> 1 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// ?1 rows of [seq, fence, delay, error, cost], ?2 now.
const RETRY: &str = "
UPDATE outbox_event
SET status = 2, due_at = ?2 + (settled.value ->> 2), attempts = attempts + 1, last_error = settled.value ->> 3,
    last_cost = settled.value ->> 4, claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq = settled.value ->> 1 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Without an aggregate id there is nothing to block. ?1 rows of [seq, fence, counted, error, blocks, cost], ?2 now.
const DEAD: &str = "
UPDATE outbox_event
SET status = 3, done_at = ?2, due_at = NULL, attempts = attempts + (settled.value ->> 2), last_error = settled.value ->> 3,
    last_cost = settled.value ->> 5, blocks = iif(aggregate_id IS NULL, 0, settled.value ->> 4), claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq = settled.value ->> 1 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// ?1 rows of [seq, fence, reason].
const PARKED: &str = "
UPDATE outbox_event
SET due_at = NULL, parked = settled.value ->> 2, claims = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq = settled.value ->> 1 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// ?1 rows of [seq, fence, the event before]. The claim is given back: the event never started.
const BEHIND: &str = "
UPDATE outbox_event
SET due_at = NULL, behind = settled.value ->> 2, claims = max(claims - 1, 0),
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq = settled.value ->> 1 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// ?1 rows of [seq, fence, delay], ?2 now. The claim is given back: the event never started. Without a delay it keeps its place
/// among those that are due.
const RELEASED: &str = "
UPDATE outbox_event
SET due_at = iif(settled.value ->> 2 > 0, ?2 + (settled.value ->> 2), due_at), claims = max(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq = settled.value ->> 1 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Longest stored error, in characters. Source: specification 8.3.
const MAX_ERROR_CHARS: usize = 4_000;

/// What one batch of outcomes asks of each statement.
#[derive(Default)]
struct Sorted {
    done: Vec<Fence>,
    done_with_cost: Vec<serde_json::Value>,
    erased: Vec<Fence>,
    deferred: Vec<serde_json::Value>,
    retry: Vec<serde_json::Value>,
    dead: Vec<serde_json::Value>,
    parked: Vec<serde_json::Value>,
    behind: Vec<serde_json::Value>,
    released: Vec<serde_json::Value>,
}

pub(super) async fn settle(store: &SqliteStore, settled: &[Settled]) -> Result<u64, StoreError> {
    if settled.is_empty() {
        return Ok(0);
    }
    let statements = sort(settled.iter()).statements(store);
    let mut changed = 0;
    if let [(sql, rows)] = statements.as_slice() {
        // A single statement is its own transaction.
        let mut connection = store.writer.acquire().await.map_err(|error| failed("store outcomes", error))?;
        changed += run(store, &mut connection, sql.clone(), rows.clone()).await?;
    } else {
        let mut transaction = transaction::begin(store).await?;
        for (sql, rows) in statements {
            changed += run(store, &mut transaction, sql, rows).await?;
        }
        transaction::commit(transaction).await?;
    }
    Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
}

/// Writes outcomes in the transaction that is open on the connection. Returns how many.
pub(super) async fn settle_in(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    settled: &[&Settled],
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for (sql, rows) in sort(settled.iter().copied()).statements(store) {
        changed += run(store, connection, sql, rows).await?;
    }
    Ok(changed)
}

async fn run(store: &SqliteStore, connection: &mut SqliteConnection, sql: SqlStr, rows: String) -> Result<u64, StoreError> {
    let result = sqlx::query(sql)
        .bind(rows)
        .bind(store.now_micros())
        .execute(connection)
        .await
        .map_err(|error| failed("store outcomes", error))?;
    Ok(result.rows_affected())
}

fn sort<'s>(settled: impl Iterator<Item = &'s Settled>) -> Sorted {
    let mut sorted = Sorted::default();
    for Settled { fence, settlement, cost } in settled {
        let Fence { sequence, claim } = *fence;
        let cost = cost.as_deref().map(AttemptCost::to_column);
        match settlement {
            Settlement::Done if cost.is_some() => sorted.done_with_cost.push(json!([sequence, claim, cost])),
            Settlement::Done => sorted.done.push(*fence),
            Settlement::Erased => sorted.erased.push(*fence),
            Settlement::Deferred { after } => sorted.deferred.push(json!([sequence, claim, delay_micros(*after), cost])),
            Settlement::Retry { after, error } => {
                sorted.retry.push(json!([sequence, claim, delay_micros(*after), cut(error), cost]));
            }
            Settlement::Dead { error, counted, blocks } => {
                sorted.dead.push(json!([sequence, claim, u8::from(*counted), cut(error), u8::from(*blocks), cost]));
            }
            Settlement::Behind { sequence: before } => sorted.behind.push(json!([sequence, claim, before])),
            Settlement::Parked { reason } => sorted.parked.push(json!([sequence, claim, cut(reason)])),
            Settlement::Released { after } => sorted.released.push(json!([sequence, claim, delay_micros(*after)])),
        }
    }
    sorted
}

impl Sorted {
    /// The statements that have something to do, with their rows.
    fn statements(self, store: &SqliteStore) -> Vec<(SqlStr, String)> {
        let mut statements = Vec::with_capacity(1);
        for (sql, rows) in [(DONE, self.done), (ERASED, self.erased)] {
            if !rows.is_empty() {
                statements.push((store.table.sql(sql), fences(rows.iter())));
            }
        }
        let others = [
            (DONE_WITH_COST, self.done_with_cost),
            (DEFERRED, self.deferred),
            (RETRY, self.retry),
            (DEAD, self.dead),
            (PARKED, self.parked),
            (BEHIND, self.behind),
            (RELEASED, self.released),
        ];
        for (sql, rows) in others {
            if !rows.is_empty() {
                statements.push((store.table.sql(sql), serde_json::Value::Array(rows).to_string()));
            }
        }
        statements
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
