//! Outcomes into rows: one statement for each kind of outcome, all of them in one transaction.
//!
//! Every statement names the fence, the lock that the claim took and the states that an outcome may leave: a late outcome
//! changes nothing, and neither does the same one a second time.

use async_trait::async_trait;
use sqlx::SqlStr;
use sqlx::sqlite::SqliteConnection;

use super::claim::fences;
use super::error::failed;
use super::{SqliteStore, TransactionalStore};
use crate::store::settle::{Statements, Written, grouped};
use crate::store::{SettleStore, Settled, StoreError};

/// ?1 an object of seq → fence, ?2 now.
pub(super) const DONE: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = ?2, due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM json_each(?1) AS settled
WHERE outbox_event.seq = CAST(settled.key AS INTEGER) AND claim_seq & 4294967295 = settled.value & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.value >> 32
                                          AND held.epoch > 0))";

/// [`DONE`] for outcomes whose cost is kept, apart from it because it writes one column more. ?1 rows of [seq, fence, cost], ?2 now.
const DONE_WITH_COST: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = ?2, due_at = NULL, last_cost = settled.value ->> 2, claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq & 4294967295 = (settled.value ->> 1) & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (settled.value ->> 1) >> 32
                                          AND held.epoch > 0))";

/// ?1 an object of seq → fence.
const ERASED: &str = "
DELETE FROM outbox_event
WHERE seq IN (
  SELECT seq FROM json_each(?1) AS settled CROSS JOIN outbox_event ON seq = CAST(settled.key AS INTEGER)
  WHERE claim_seq & 4294967295 = settled.value & 4294967295 AND status IN (0, 2)
    AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.value >> 32
                                          AND held.epoch > 0)))";

/// ?1 rows of [seq, fence, delay, cost], ?2 now.
const DEFERRED: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 0, due_at = ?2 + (settled.value ->> 2), deferrals = deferrals + 1,
    last_cost = coalesce(settled.value ->> 3, last_cost), claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq & 4294967295 = (settled.value ->> 1) & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (settled.value ->> 1) >> 32
                                          AND held.epoch > 0))";

/// ?1 rows of [seq, fence, delay, error, cost], ?2 now.
const RETRY: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 2, due_at = ?2 + (settled.value ->> 2), attempts = attempts + 1, last_error = settled.value ->> 3,
    last_cost = settled.value ->> 4, claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq & 4294967295 = (settled.value ->> 1) & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (settled.value ->> 1) >> 32
                                          AND held.epoch > 0))";

/// Without an aggregate id there is nothing to block. ?1 rows of [seq, fence, counted, error, blocks, cost], ?2 now.
const DEAD: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 3, done_at = ?2, due_at = NULL, attempts = attempts + (settled.value ->> 2), last_error = settled.value ->> 3,
    last_cost = settled.value ->> 5, blocks = iif(aggregate_id IS NULL, 0, settled.value ->> 4), claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq & 4294967295 = (settled.value ->> 1) & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (settled.value ->> 1) >> 32
                                          AND held.epoch > 0))";

/// ?1 rows of [seq, fence, reason].
const PARKED: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    due_at = NULL, parked = settled.value ->> 2, claims = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq & 4294967295 = (settled.value ->> 1) & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (settled.value ->> 1) >> 32
                                          AND held.epoch > 0))";

/// ?1 rows of [seq, fence, the event before]. The claim is given back: the event never started.
const BEHIND: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    due_at = NULL, behind = settled.value ->> 2, claims = max(claims - 1, 0),
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq & 4294967295 = (settled.value ->> 1) & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (settled.value ->> 1) >> 32
                                          AND held.epoch > 0))";

/// ?1 rows of [seq, fence, delay], ?2 now. The claim is given back: the event never started. Without a delay it keeps its place
/// among those that are due.
const RELEASED: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    due_at = iif(settled.value ->> 2 > 0, ?2 + (settled.value ->> 2), due_at), claims = max(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM jsonb_each(?1) AS settled
WHERE outbox_event.seq = settled.value ->> 0 AND claim_seq & 4294967295 = (settled.value ->> 1) & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (settled.value ->> 1) >> 32
                                          AND held.epoch > 0))";

const STATEMENTS: Statements = Statements {
    done: DONE,
    done_with_cost: DONE_WITH_COST,
    erased: ERASED,
    deferred: DEFERRED,
    retry: RETRY,
    dead: DEAD,
    parked: PARKED,
    behind: BEHIND,
    released: RELEASED,
};

#[async_trait]
impl SettleStore for SqliteStore {
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        if settled.is_empty() {
            return Ok(0);
        }
        let statements = statements(self, settled);
        let mut changed = 0;
        if let [(sql, rows)] = statements.as_slice() {
            // A single statement is its own transaction.
            let mut connection = self.writer.acquire().await.map_err(|error| failed("store outcomes", error))?;
            changed += run(self, &mut connection, sql.clone(), rows.clone()).await?;
        } else {
            let mut transaction = self.begin().await?;
            for (sql, rows) in statements {
                changed += run(self, &mut transaction, sql, rows).await?;
            }
            Self::commit(transaction).await?;
        }
        Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
    }

    /// None: the file is locked as a whole.
    async fn locked(&self, _sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }
}

/// Writes outcomes in the transaction that is open on the connection. Returns how many.
pub(super) async fn settle_in(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    settled: &[&Settled],
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for (sql, rows) in statements(store, settled.iter().copied()) {
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

/// The statements that have something to do, with their rows.
fn statements<'s>(store: &SqliteStore, settled: impl IntoIterator<Item = &'s Settled>) -> Vec<(SqlStr, String)> {
    let rows = |sql, written: Vec<Written<'_>>| match sql {
        DONE | ERASED => fences(written.iter().map(|written| &written.fence)),
        _ => written.into_iter().map(Written::json).collect::<serde_json::Value>().to_string(),
    };
    grouped(settled, &STATEMENTS).into_iter().map(|(sql, written)| (store.table.sql(sql), rows(sql, written))).collect()
}
