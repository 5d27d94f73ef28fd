//! Outcomes into rows: one statement for a batch, whatever its kinds; rows that are deleted besides need a second one.
//!
//! Every statement compares the fence and the states that an outcome may leave. The row must also be locked by its claim, or its partition
//! must still have the epoch of the fence. So a late outcome changes nothing, and neither does a repeated one.
//!
//! The driver asks the server to count the rows that a statement matched, changed or not, so the rows missing from the count were fenced
//! off. Each statement reads its rows as JSON: one shape for any number of them, so it is prepared once, and its join goes row by row to
//! the primary key. Text names its character set, which is the database's otherwise. An ID also names its collation: a binary one is comparable
//! with any other collation that the table may have got.
//!
//! An UPDATE of a join locks what its subqueries read, shared, until the commit: here the epoch of the event's partition, so
//! that no other owner takes the partition before the outcome is stored. The lock lies on the entry of the index
//! `outbox_epoch`, which has all columns that the subquery reads, and not on the partition's row. A host that
//! takes partitions skips those whose entries are locked.

use async_trait::async_trait;
use outbox_event::Settled;
use sqlx::SqlStr;
use sqlx::mysql::MySqlConnection;

use super::lock::{THERE, free};
use super::patience::patiently;
use super::primary::on_primary;
use super::{MySqlStore, Run};
use crate::number::numbers;
use crate::row::sequence;
use crate::run::{answered, commit_or_roll_back};
use crate::settle::{Statements, Written, fenced, grouped, objects};
use crate::{SettleStore, StoreError};

/// The rows that are still ours of those that the outcomes `settled` are joined with. An id that is NULL is not known.
macro_rules! held {
    () => {
        "WHERE claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (settled.id IS NULL OR outbox_event.event_id = settled.id)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held FORCE INDEX (outbox_epoch)
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))"
    };
}
pub(super) use held;

/// Rows of [seq, fence, id].
pub(super) const DONE: &str = concat!(
    "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
         seq BIGINT UNSIGNED PATH '$[0]', fence BIGINT PATH '$[1]',
         id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET claim_seq = claim_seq + 1,
    status = 1, done_at = UTC_TIMESTAMP(6), due_at = NULL, claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
",
    held!()
);

/// [`DONE`] for outcomes whose cost is kept, apart from it because it writes one column more. Objects with seq, fence, id and cost.
const DONE_WITH_COST: &str = concat!(
    "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
         seq BIGINT UNSIGNED PATH '$.seq', fence BIGINT PATH '$.fence',
         id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.id',
         cost TEXT CHARACTER SET utf8mb4 PATH '$.cost')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET claim_seq = claim_seq + 1,
    status = 1, done_at = UTC_TIMESTAMP(6), due_at = NULL, last_cost = settled.cost, claims = 0, starts = 0, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
",
    held!()
);

/// Rows of [seq, fence, id].
const ERASED: &str = concat!(
    "
DELETE outbox_event
FROM JSON_TABLE(?, '$[*]' COLUMNS (
         seq BIGINT UNSIGNED PATH '$[0]', fence BIGINT PATH '$[1]',
         id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
",
    held!()
);

/// Outcomes of any kinds but erased ones: what each kind does to a column stands beside the others. A number is a delay in
/// microseconds, or how many failures are counted; the blocker is the event that this one waits behind. Where an event never
/// started (behind, released), its claim is given back; released without a delay, it keeps its place among those that are due. Without
/// an aggregate nothing is blocked. Objects with the columns of `settled`.
pub(super) const MIXED: &str = concat!("
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
         seq BIGINT UNSIGNED PATH '$.seq', fence BIGINT PATH '$.fence',
         id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.id',
         kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin PATH '$.kind',
         number BIGINT PATH '$.number', blocker BIGINT UNSIGNED PATH '$.behind',
         note TEXT CHARACTER SET utf8mb4 PATH '$.text', stops INT PATH '$.stops',
         cost TEXT CHARACTER SET utf8mb4 PATH '$.cost')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
SET claim_seq = claim_seq + 1,
    status = CASE settled.kind WHEN 'done' THEN 1 WHEN 'deferred' THEN 0 WHEN 'retry' THEN 2 WHEN 'dead' THEN 3 ELSE status END,
    done_at = CASE WHEN settled.kind IN ('done', 'dead') THEN UTC_TIMESTAMP(6) ELSE done_at END,
    due_at = CASE WHEN settled.kind IN ('deferred', 'retry') OR (settled.kind = 'released' AND settled.number > 0)
                    THEN UTC_TIMESTAMP(6) + INTERVAL settled.number MICROSECOND
                  WHEN settled.kind = 'released' THEN due_at END,
    attempts = LEAST(attempts + CASE settled.kind WHEN 'retry' THEN 1 WHEN 'dead' THEN settled.number ELSE 0 END, 2147483647),
    deferrals = LEAST(deferrals + (settled.kind = 'deferred'), 2147483647),
    last_error = CASE WHEN settled.kind IN ('retry', 'dead') THEN settled.note ELSE last_error END,
    wait_reason = CASE settled.kind WHEN 'released' THEN settled.note WHEN 'done' THEN wait_reason END,
    wait_since = CASE WHEN settled.kind = 'released' AND settled.note IS NOT NULL THEN COALESCE(wait_since, UTC_TIMESTAMP(6)) WHEN settled.kind IN ('released', 'done') THEN wait_since END,
    last_cost = CASE WHEN settled.kind IN ('retry', 'dead') THEN settled.cost ELSE COALESCE(settled.cost, last_cost) END,
    blocks = CASE WHEN settled.kind <> 'dead' THEN blocks WHEN NULLIF(aggregate_id, '') IS NULL THEN 0 ELSE settled.stops END,
    parked = CASE settled.kind WHEN 'parked' THEN settled.note WHEN 'done' THEN NULL WHEN 'dead' THEN NULL ELSE parked END,
    behind = CASE settled.kind WHEN 'behind' THEN settled.blocker ELSE behind END,
    claims = CASE WHEN settled.kind NOT IN ('behind', 'released') THEN 0 WHEN locked_by IS NULL THEN claims ELSE GREATEST(claims, 1) - 1 END,
    starts = CASE WHEN settled.kind IN ('parked', 'behind', 'released') THEN starts ELSE 0 END,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
", held!());

/// Of these fences, those under which an outcome can still be written. Rows of [seq, fence].
const UNSETTLED: &str = concat!(
    "
SELECT outbox_event.seq
FROM JSON_TABLE(?, '$[*]' COLUMNS (
         seq BIGINT UNSIGNED PATH '$[0]', fence BIGINT PATH '$[1]',
         id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
",
    held!(),
    " AND ",
    on_primary!()
);

const ACTION: &str = "store outcomes";
const LOOK: &str = "look for locked events";

const STATEMENTS: Statements = Statements { done: DONE, done_with_cost: DONE_WITH_COST, erased: ERASED, mixed: MIXED };

#[async_trait]
impl SettleStore for MySqlStore {
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        if settled.is_empty() {
            return Ok(0);
        }
        let statements = statements(self, settled);
        let changed = patiently(self, || write(self, &statements)).await?;
        Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
    }

    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        answered(self.longest, locked(self, sequences), |silence| self.failed(LOOK, silence)).await
    }

    async fn unsettled(&self, settled: &[Settled]) -> Result<Vec<u64>, StoreError> {
        let statement = self.statement(UNSETTLED).bind(rows_of(settled.iter()));
        self.all("look for events without an outcome", statement).await?.iter().map(sequence).collect()
    }
}

async fn locked(store: &MySqlStore, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
    let mut transaction = store.transaction().await?;
    let locked = locked_by_others(store, &mut transaction, sequences).await;
    commit_or_roll_back(store, transaction, locked).await
}

/// Those that are in the table, and whose rows somebody else has locked.
async fn locked_by_others(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    sequences: &[u64],
) -> Result<Vec<u64>, StoreError> {
    let free = free(store, connection, sequences).await?;
    let query = store.statement(THERE).bind(numbers(sequences));
    let there = query.fetch_all(connection).await.map_err(|error| store.failed(LOOK, error))?;
    let mut there = there.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
    there.retain(|sequence| !free.contains(sequence));
    Ok(there)
}

async fn write(store: &MySqlStore, statements: &[(SqlStr, String)]) -> Result<u64, StoreError> {
    if let [(sql, rows)] = statements {
        // A single statement is its own transaction.
        let mut connection = store.connection(ACTION).await?;
        return run(store, &mut connection, sql, rows).await;
    }
    let mut transaction = store.transaction().await?;
    let changed = run_all(store, &mut transaction, statements).await;
    commit_or_roll_back(store, transaction, changed).await
}

/// Writes outcomes in the transaction that is open on the connection. Returns how many.
pub(super) async fn settle_in(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    settled: &[&Settled],
) -> Result<u64, StoreError> {
    run_all(store, connection, &statements(store, settled.iter().copied())).await
}

async fn run_all(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    statements: &[(SqlStr, String)],
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for (sql, rows) in statements {
        changed += run(store, connection, sql, rows).await?;
    }
    Ok(changed)
}

async fn run(store: &MySqlStore, connection: &mut MySqlConnection, sql: &SqlStr, rows: &str) -> Result<u64, StoreError> {
    let result = sqlx::query(sql.clone()).bind(rows).execute(connection).await.map_err(|error| store.failed(ACTION, error))?;
    Ok(result.rows_affected())
}

/// Rows of [seq, fence, id], in the order of `seq`.
pub(super) fn rows_of<'s>(settled: impl Iterator<Item = &'s Settled>) -> String {
    let mut sorted: Vec<&Settled> = settled.collect();
    sorted.sort_unstable_by_key(|settled| settled.fence.sequence);
    fenced(sorted.into_iter().map(|settled| (settled.fence.sequence, settled.fence.claim, &settled.id)))
}

/// The statements that have something to do, with their rows.
fn statements<'s>(store: &MySqlStore, settled: impl IntoIterator<Item = &'s Settled>) -> Vec<(SqlStr, String)> {
    let rows = |sql, written: &[Written]| match sql {
        DONE | ERASED => fenced(written.iter().map(|one| (one.seq, one.fence, &one.id))),
        _ => objects(written),
    };
    grouped(settled, &STATEMENTS).iter().map(|(sql, written)| (store.table.sql(sql), rows(*sql, written))).collect()
}
