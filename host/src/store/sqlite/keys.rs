//! Order by aggregate: who works on which partition, and what waits behind which event.

use std::fmt::Display;

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::error::failed;
use super::inspect::{column, optional};
use super::row::sequence;
use super::transaction;
use crate::event::{OwnerId, Status};
use crate::store::firsts::Waiting;
use crate::store::{BlockedKey, Blocker, StoreError, WaitsFor};
use crate::time::Timestamp;

/// ?1 the owner, ?2 now, ?3 the new end of the lease. One that is over may have been somebody else's meanwhile: it is taken
/// anew.
const RENEW: &str = "UPDATE outbox_event_partition SET lease_end = ?3 WHERE owner = ?1 AND lease_end > ?2";

/// ?1 the owner, ?2 now, ?3 the end of the lease, ?4 the number of partitions, ?5 how many to hold in all.
const TAKE: &str = "
UPDATE outbox_event_partition SET owner = ?1, lease_end = ?3
WHERE partition_id IN (
  SELECT partition_id FROM outbox_event_partition WHERE partition_id < ?4 AND (owner IS NULL OR lease_end <= ?2) ORDER BY partition_id
  LIMIT max(?5 - (SELECT count(*) FROM outbox_event_partition WHERE owner = ?1 AND lease_end > ?2), 0))";

const HELD: &str = "SELECT partition_id FROM outbox_event_partition WHERE owner = ?1 AND lease_end > ?2 ORDER BY partition_id";

/// ?1 the owner, ?2 partitions as a JSON list.
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL WHERE owner = ?1 AND partition_id IN (SELECT value FROM json_each(?2))";

/// ?1 events as a JSON list, ?2 who is waited for, ?3 now.
pub(super) const HEADS: &str = "
SELECT seq, head FROM (
  SELECT outbox_event.seq AS seq,
         (SELECT earlier.seq FROM outbox_event AS earlier
          WHERE earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
            AND earlier.aggregate_id IS NOT NULL AND (earlier.status IN (0, 2) OR earlier.blocks = 1)
            AND (?2 = 0 OR earlier.status = 0) AND earlier.available_at <= ?3 AND earlier.seq < outbox_event.seq
          ORDER BY earlier.seq LIMIT 1) AS head
  FROM outbox_event WHERE seq IN (SELECT value FROM json_each(?1)) AND status IN (0, 2))
WHERE head IS NOT NULL AND ?2 < 2";

/// One row for each: all that wait behind an event are of its aggregate. ?1 partitions as a JSON list, ?2 the last one of the
/// page before, ?3 most rows.
const BLOCKERS: &str = "
SELECT behind, aggregate_type, coalesce(aggregate_id, '') FROM outbox_event INDEXED BY outbox_event_behind
WHERE behind IS NOT NULL AND behind > ?2 AND partition_id IN (SELECT value FROM json_each(?1)) GROUP BY behind ORDER BY behind LIMIT ?3";

/// The first that waits behind each. ?1 events as a JSON list.
const FIRSTS: &str = "
SELECT value, (SELECT min(seq) FROM outbox_event WHERE behind IS NOT NULL AND behind = value) AS first FROM json_each(?1)";

/// ?1 events as a JSON list, ?2 now, ?3 most rows behind each.
pub(super) const UNBLOCK: &str = "
UPDATE outbox_event SET due_at = ?2, behind = NULL
WHERE seq IN (
  SELECT waiting.seq FROM json_each(?1) AS given JOIN outbox_event AS waiting ON waiting.seq IN (
    SELECT seq FROM outbox_event WHERE behind IS NOT NULL AND behind = given.value ORDER BY seq LIMIT ?3))";

/// ?1 most keys.
const BLOCKED_KEYS: &str = "
SELECT waits.behind, waits.aggregate_type, waits.aggregate_id, waits.waiting, event_id, event_type, status, due_at, last_error
FROM (SELECT behind, aggregate_type, aggregate_id, count(*) AS waiting FROM outbox_event
      WHERE behind IS NOT NULL GROUP BY behind, aggregate_type, aggregate_id ORDER BY waiting DESC, behind LIMIT ?1) AS waits
LEFT JOIN outbox_event ON outbox_event.seq = waits.behind
ORDER BY waits.waiting DESC, waits.behind";

/// Who is waited for, as the statements know it.
pub(super) fn rule(waits_for: WaitsFor) -> i64 {
    match waits_for {
        WaitsFor::Unresolved => 0,
        WaitsFor::Untried => 1,
        WaitsFor::Nothing => 2,
    }
}

/// A JSON list of numbers.
pub(super) fn numbers<N: Display>(numbers: &[N]) -> String {
    let numbers: Vec<String> = numbers.iter().map(N::to_string).collect();
    format!("[{}]", numbers.join(","))
}

pub(super) async fn keep(store: &SqliteStore, owner: &OwnerId, lease: i64, most: u16, of: u16) -> Result<Vec<u16>, StoreError> {
    let action = "keep partitions";
    let mut transaction = transaction::begin(store).await?;
    // Only now: while others had the writer, time went by.
    let now = store.now_micros();
    for (statement, bounds) in [(RENEW, None), (TAKE, Some((of, most)))] {
        let mut query = sqlx::query(store.table.sql(statement)).bind(owner.as_str()).bind(now).bind(now.saturating_add(lease));
        if let Some((of, most)) = bounds {
            query = query.bind(i64::from(of)).bind(i64::from(most));
        }
        query.execute(&mut *transaction).await.map_err(|error| failed(action, error))?;
    }
    let rows = sqlx::query(store.table.sql(HELD))
        .bind(owner.as_str())
        .bind(now)
        .fetch_all(&mut *transaction)
        .await
        .map_err(|error| failed(action, error))?;
    transaction::commit(transaction).await?;
    rows.iter().map(|row| sequence(row).map(|partition| u16::try_from(partition).unwrap_or(0))).collect()
}

pub(super) async fn release(store: &SqliteStore, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError> {
    sqlx::query(store.table.sql(RELEASE))
        .bind(owner.as_str())
        .bind(numbers(partitions))
        .execute(&store.writer)
        .await
        .map_err(|error| failed("give partitions back", error))?;
    Ok(())
}

pub(super) async fn heads(store: &SqliteStore, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
    let action = "look for the heads of queues";
    let rows = sqlx::query(store.table.sql(HEADS))
        .bind(numbers(events))
        .bind(rule(waits_for))
        .bind(store.now_micros())
        .fetch_all(&store.readers)
        .await
        .map_err(|error| failed(action, error))?;
    rows.iter().map(|row| Ok((sequence(row)?, column(row, "head").map_err(|error| failed(action, error))?))).collect()
}

pub(super) async fn blockers(
    store: &SqliteStore,
    partitions: &[u16],
    after: u64,
    limit: u32,
) -> Result<Vec<Blocker>, StoreError> {
    let action = "look for events that others wait behind";
    let rows = sqlx::query(store.table.sql(BLOCKERS))
        .bind(numbers(partitions))
        .bind(i64::try_from(after).unwrap_or(i64::MAX))
        .bind(i64::from(limit))
        .fetch_all(&store.readers)
        .await
        .map_err(|error| failed(action, error))?;
    // This database keeps any bytes as text: a name that cannot be read must not hide the other blockers.
    let text = |row: &SqliteRow, index: usize| row.try_get::<String, _>(index).unwrap_or_default();
    let blocker = |row| Ok(Blocker { sequence: sequence(row)?, aggregate_type: text(row, 1), aggregate_id: text(row, 2) });
    rows.iter().map(blocker).collect()
}

impl Waiting for SqliteStore {
    async fn firsts(&self, blockers: &[u64]) -> Result<Vec<(u64, Option<u64>)>, StoreError> {
        let failed = |error| failed("look for the first that waits behind others", error);
        let query = sqlx::query(self.table.sql(FIRSTS)).bind(numbers(blockers));
        let rows = query.fetch_all(&self.readers).await.map_err(failed)?;
        let first = |row| optional(row, "first").map_err(failed);
        rows.iter().map(|row| Ok((sequence(row)?, first(row)?.and_then(|first| u64::try_from(first).ok())))).collect()
    }

    async fn let_go(&self, blockers: &[u64], limit: u32) -> Result<(), StoreError> {
        sqlx::query(self.table.sql(UNBLOCK))
            .bind(numbers(blockers))
            .bind(self.now_micros())
            .bind(i64::from(limit))
            .execute(&self.writer)
            .await
            .map_err(|error| failed("let waiting events go on", error))?;
        Ok(())
    }
}

pub(super) async fn blocked_keys(store: &SqliteStore, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
    let action = "list blocked aggregates";
    let rows = sqlx::query(store.table.sql(BLOCKED_KEYS))
        .bind(i64::from(limit))
        .fetch_all(&store.readers)
        .await
        .map_err(|error| failed(action, error))?;
    rows.iter()
        .map(|row| {
            let id: Option<&str> = row.try_get("event_id")?;
            let status: Option<i32> = row.try_get("status")?;
            Ok(BlockedKey {
                aggregate_type: row.try_get("aggregate_type")?,
                aggregate_id: row.try_get("aggregate_id")?,
                seq: column(row, "behind")?,
                event_id: id.and_then(|id| id.parse().ok()),
                event_type: row.try_get("event_type")?,
                status: status.and_then(Status::from_code),
                due_at: optional(row, "due_at")?.map(Timestamp::from_micros),
                last_error: row.try_get("last_error")?,
                waiting: column(row, "waiting")?,
            })
        })
        .collect::<Result<_, sqlx::Error>>()
        .map_err(|error| failed(action, error))
}
