//! Outcomes into rows: one statement for a batch, whatever its kinds; rows that are deleted besides need a second one.
//!
//! Every statement compares the fence and the states that an outcome may leave. The row must also be locked by its claim, or its partition
//! must still have the epoch of the fence. So a late outcome changes nothing, and neither does a repeated one.

use async_trait::async_trait;
use outbox_event::Settled;
use sqlx::SqlStr;
use sqlx::sqlite::SqliteConnection;

use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore};
use crate::row::sequence;
use crate::settle::{Statements, Written, fenced, grouped, objects};
use crate::{SettleStore, StoreError};

/// The outcomes of a list of [seq, fence, id], as rows.
macro_rules! listed {
    () => {
        "(SELECT value ->> 0 AS sequence, value ->> 1 AS fence, value ->> 2 AS id FROM jsonb_each(?1)) AS settled"
    };
}

/// The rows that belong to the outcomes `settled` and are still ours. An id that is NULL is not known.
macro_rules! held {
    () => {
        "WHERE outbox_event.seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (settled.id IS NULL OR event_id = settled.id)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))"
    };
}

/// ?1 a list of [seq, fence, id], ?2 now.
pub(super) const DONE: &str = concat!("
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = ?2, due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM ", listed!(), "
", held!());

/// [`DONE`] for outcomes whose cost is kept, which writes one column more. ?1 objects with seq, fence, id and cost, ?2 now.
const DONE_WITH_COST: &str = concat!(
    "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = ?2, due_at = NULL, last_cost = settled.cost, claims = 0, starts = 0, parked = NULL, locked_by = NULL,
    locked_at = NULL, lease_end = NULL
FROM (SELECT value ->> 'seq' AS sequence, value ->> 'fence' AS fence, value ->> 'id' AS id, value ->> 'cost' AS cost
      FROM jsonb_each(?1)) AS settled
",
    held!()
);

/// ?1 a list of [seq, fence, id].
const ERASED: &str = concat!(
    "
DELETE FROM outbox_event
WHERE seq IN (SELECT outbox_event.seq FROM ",
    listed!(),
    " CROSS JOIN outbox_event
",
    held!(),
    ")"
);

/// Outcomes of any kinds but erased ones: what each kind does to a column stands beside the others. A number is a delay in
/// microseconds, or how many failures are counted; the blocker is the event that this one waits behind. Where an event never
/// started (behind, released), its claim is given back; released without a delay, it keeps its place among those that are due. Without
/// an aggregate nothing is blocked. ?1 objects with the columns of `settled`, ?2 now.
pub(super) const MIXED: &str = concat!(
    "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = CASE settled.kind WHEN 'done' THEN 1 WHEN 'deferred' THEN 0 WHEN 'retry' THEN 2 WHEN 'dead' THEN 3 ELSE status END,
    done_at = CASE WHEN settled.kind IN ('done', 'dead') THEN ?2 ELSE done_at END,
    due_at = CASE WHEN settled.kind IN ('deferred', 'retry') OR (settled.kind = 'released' AND settled.number > 0) THEN ?2 + settled.number
                  WHEN settled.kind = 'released' THEN due_at END,
    attempts = min(attempts + CASE settled.kind WHEN 'retry' THEN 1 WHEN 'dead' THEN settled.number ELSE 0 END, 2147483647),
    deferrals = min(deferrals + (settled.kind = 'deferred'), 2147483647),
    last_error = CASE WHEN settled.kind IN ('retry', 'dead') THEN settled.note ELSE last_error END,
    wait_reason = CASE settled.kind WHEN 'released' THEN settled.note WHEN 'done' THEN wait_reason END,
    wait_since = CASE WHEN settled.kind = 'released' AND settled.note IS NOT NULL THEN coalesce(wait_since, ?2) WHEN settled.kind IN ('released', 'done') THEN wait_since END,
    last_cost = CASE WHEN settled.kind IN ('retry', 'dead') THEN settled.cost ELSE coalesce(settled.cost, last_cost) END,
    blocks = CASE WHEN settled.kind <> 'dead' THEN blocks WHEN nullif(aggregate_id, '') IS NULL THEN 0 ELSE settled.stops END,
    parked = CASE settled.kind WHEN 'parked' THEN settled.note WHEN 'done' THEN NULL WHEN 'dead' THEN NULL ELSE parked END,
    behind = CASE settled.kind WHEN 'behind' THEN settled.blocker ELSE behind END,
    claims = CASE WHEN settled.kind NOT IN ('behind', 'released') THEN 0 WHEN locked_by IS NULL THEN claims ELSE max(claims, 1) - 1 END,
    starts = CASE WHEN settled.kind IN ('parked', 'behind', 'released') THEN starts ELSE 0 END,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM (SELECT value ->> 'seq' AS sequence, value ->> 'fence' AS fence, value ->> 'id' AS id, value ->> 'kind' AS kind,
             value ->> 'number' AS number, value ->> 'behind' AS blocker,
             value ->> 'text' AS note, value ->> 'stops' AS stops, value ->> 'cost' AS cost
      FROM jsonb_each(?1)) AS settled
",
    held!()
);

/// The events for which these outcomes can still be written. ?1 a list of [seq, fence, id].
const UNSETTLED: &str = concat!(
    "
SELECT outbox_event.seq FROM ",
    listed!(),
    " CROSS JOIN outbox_event
",
    held!()
);

const STATEMENTS: Statements = Statements { done: DONE, done_with_cost: DONE_WITH_COST, erased: ERASED, mixed: MIXED };

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
            let mut connection = self.writing(|error| failed("store outcomes", error)).await?;
            changed += run(self, &mut connection, sql.clone(), rows.clone()).await?;
        } else {
            let mut transaction = self.begin().await?;
            for (sql, rows) in statements {
                changed += run(self, &mut transaction, sql, rows).await?;
            }
            self.finish(transaction).await?;
        }
        Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
    }

    /// None: the file is locked as a whole.
    async fn locked(&self, _sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    async fn unsettled(&self, settled: &[Settled]) -> Result<Vec<u64>, StoreError> {
        let settled = settled.iter().map(|settled| (settled.fence.sequence, settled.fence.claim, &settled.id));
        let statement = self.statement(UNSETTLED).bind(fenced(settled));
        self.all("look for events without an outcome", statement).await?.iter().map(sequence).collect()
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
    let rows = |sql, written: &[Written]| match sql {
        DONE | ERASED => fenced(written.iter().map(|one| (one.seq, one.fence, &one.id))),
        _ => objects(written),
    };
    grouped(settled, &STATEMENTS).iter().map(|(sql, written)| (store.table.sql(sql), rows(*sql, written))).collect()
}
