//! Order by aggregate: who works on which partition, and what waits behind which event.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::row::{count, optional_time, sequence};
use crate::event::{OwnerId, Status};
use crate::store::firsts::Waiting;
use crate::store::number::signed;
use crate::store::settlement::delay_micros;
use crate::store::{BlockedKey, Blocker, StoreError, WaitsFor};

/// Renews, then takes. A lease that is over may have been somebody else's meanwhile: it is taken anew. A partition that another
/// node is just taking is stepped over. $1 the owner, $2 the lease in microseconds, $3 how many to hold in all, $4 the number
/// of partitions.
const KEEP: &str = "
WITH kept AS (
  UPDATE outbox_event_partition SET lease_end = now() + $2::bigint * interval '1 microsecond'
  WHERE owner = $1::text AND lease_end > now() RETURNING partition_id),
free AS (
  SELECT partition_id FROM outbox_event_partition
  WHERE partition_id < $4::integer AND (owner IS NULL OR lease_end <= now()) ORDER BY partition_id
  LIMIT greatest($3::bigint - (SELECT count(*) FROM kept), 0) FOR UPDATE SKIP LOCKED),
taken AS (
  UPDATE outbox_event_partition SET owner = $1::text, lease_end = now() + $2::bigint * interval '1 microsecond'
  FROM free WHERE outbox_event_partition.partition_id = free.partition_id RETURNING outbox_event_partition.partition_id)
SELECT partition_id FROM kept UNION ALL SELECT partition_id FROM taken ORDER BY partition_id";

/// $1 the owner, $2 partitions.
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL WHERE owner = $1::text AND partition_id = ANY ($2::smallint[])";

/// $1 events, $2 the states of events that are waited for.
pub(super) const HEADS: &str = "
SELECT outbox_event.seq,
       (SELECT earlier.seq FROM outbox_event AS earlier
        WHERE earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
          AND (earlier.status IN (0, 2) OR earlier.blocks = 1) AND earlier.status = ANY ($2::smallint[])
          AND earlier.available_at <= now() AND earlier.seq < outbox_event.seq
        ORDER BY earlier.aggregate_type, earlier.aggregate_id, earlier.seq LIMIT 1)
FROM outbox_event WHERE seq = ANY ($1::bigint[]) AND status IN (0, 2)";

/// One row for each: all that wait behind an event are of its aggregate. $1 partitions, $2 the last one of the page before, $3
/// most rows.
const BLOCKERS: &str = "
SELECT DISTINCT ON (behind) behind, aggregate_type, coalesce(aggregate_id, '') FROM outbox_event
WHERE behind > $2::bigint AND partition_id = ANY ($1::smallint[]) ORDER BY behind LIMIT $3::bigint";

/// The first that waits behind each. $1 events.
const FIRSTS: &str = "
SELECT given.sequence, (SELECT seq FROM outbox_event WHERE behind = given.sequence ORDER BY behind, seq LIMIT 1)
FROM unnest($1::bigint[]) AS given (sequence)";

/// $1 events, $2 most rows behind each.
pub(super) const UNBLOCK: &str = "
UPDATE outbox_event SET due_at = now(), behind = NULL
WHERE ctid = ANY (ARRAY (
  SELECT waiting.place FROM unnest($1::bigint[]) AS given (sequence),
    LATERAL (SELECT ctid AS place FROM outbox_event WHERE behind = given.sequence ORDER BY behind, seq LIMIT $2::bigint
             FOR UPDATE SKIP LOCKED) AS waiting))";

/// $1 most keys.
const BLOCKED_KEYS: &str = "
SELECT waits.behind, waits.aggregate_type, waits.aggregate_id, waits.waiting, event_id, event_type, status, due_at, last_error
FROM (SELECT behind, aggregate_type, coalesce(aggregate_id, '') AS aggregate_id, count(*) AS waiting FROM outbox_event
      WHERE behind IS NOT NULL GROUP BY behind, aggregate_type, aggregate_id
      ORDER BY waiting DESC, behind LIMIT $1::bigint) AS waits
LEFT JOIN outbox_event ON outbox_event.seq = waits.behind
ORDER BY waits.waiting DESC, waits.behind";

/// The states of events that are waited for, among those that are unresolved.
pub(super) fn waited_for(waits_for: WaitsFor) -> Vec<i16> {
    match waits_for {
        WaitsFor::Unresolved => vec![0, 2, 3],
        WaitsFor::Untried => vec![0],
        WaitsFor::Nothing => Vec::new(),
    }
}

/// Partitions as the column counts them; one that it cannot hold is no partition.
pub(super) fn partitions(partitions: &[u16]) -> Vec<i16> {
    partitions.iter().filter_map(|partition| i16::try_from(*partition).ok()).collect()
}

pub(super) async fn keep(
    store: &PostgresStore,
    owner: &OwnerId,
    lease: Duration,
    most: u16,
    of: u16,
) -> Result<Vec<u16>, StoreError> {
    let action = "keep partitions";
    let statement =
        store.statement(KEEP).bind(owner.as_str()).bind(delay_micros(lease)).bind(i64::from(most)).bind(i32::from(of));
    let rows = store.all(action, statement).await?;
    rows.iter()
        .map(|row| row.try_get::<i16, _>(0).map(|partition| u16::try_from(partition).unwrap_or(0)))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(|error| store.failed(action, error))
}

pub(super) async fn release(store: &PostgresStore, owner: &OwnerId, given: &[u16]) -> Result<(), StoreError> {
    store.execute("give partitions back", store.statement(RELEASE).bind(owner.as_str()).bind(partitions(given))).await?;
    Ok(())
}

pub(super) async fn heads(store: &PostgresStore, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
    let action = "look for the heads of queues";
    let events: Vec<i64> = events.iter().copied().map(signed).collect();
    let rows = store.all(action, store.statement(HEADS).bind(events).bind(waited_for(waits_for))).await?;
    let mut heads = Vec::with_capacity(rows.len());
    for row in &rows {
        let head: Option<i64> = row.try_get(1).map_err(|error| store.failed(action, error))?;
        if let Some(head) = head.and_then(|head| u64::try_from(head).ok()) {
            heads.push((sequence(row)?, head));
        }
    }
    Ok(heads)
}

pub(super) async fn blockers(store: &PostgresStore, held: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
    let action = "look for events that others wait behind";
    let statement = store.statement(BLOCKERS).bind(partitions(held)).bind(signed(after)).bind(i64::from(limit));
    let rows = store.all(action, statement).await?;
    let text = |row: &PgRow, index: usize| row.try_get::<String, _>(index).map_err(|error| store.failed(action, error));
    let blocker = |row| Ok(Blocker { sequence: sequence(row)?, aggregate_type: text(row, 1)?, aggregate_id: text(row, 2)? });
    rows.iter().map(blocker).collect()
}

impl Waiting for PostgresStore {
    async fn firsts(&self, blockers: &[u64]) -> Result<Vec<(u64, Option<u64>)>, StoreError> {
        let action = "look for the first that waits behind others";
        let blockers: Vec<i64> = blockers.iter().copied().map(signed).collect();
        let rows = self.all(action, self.statement(FIRSTS).bind(blockers)).await?;
        let first = |row: &PgRow| row.try_get::<Option<i64>, _>(1).map_err(|error| self.failed(action, error));
        rows.iter().map(|row| Ok((sequence(row)?, first(row)?.and_then(|first| first.try_into().ok())))).collect()
    }

    async fn let_go(&self, blockers: &[u64], limit: u32) -> Result<(), StoreError> {
        let blockers: Vec<i64> = blockers.iter().copied().map(signed).collect();
        let statement = self.statement(UNBLOCK).bind(blockers).bind(i64::from(limit));
        self.execute("let waiting events go on", statement).await?;
        Ok(())
    }
}

pub(super) async fn blocked_keys(store: &PostgresStore, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
    let action = "list blocked aggregates";
    let rows = store.all(action, store.statement(BLOCKED_KEYS).bind(i64::from(limit))).await?;
    rows.iter().map(key).collect::<Result<_, _>>().map_err(|error| store.failed(action, error))
}

fn key(row: &PgRow) -> Result<BlockedKey, sqlx::Error> {
    let id: Option<&str> = row.try_get("event_id")?;
    let status: Option<i16> = row.try_get("status")?;
    Ok(BlockedKey {
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        seq: count(row, "behind")?,
        event_id: id.and_then(|id| id.parse().ok()),
        event_type: row.try_get("event_type")?,
        status: status.and_then(|status| Status::from_code(status.into())),
        due_at: optional_time(row, "due_at")?,
        last_error: row.try_get("last_error")?,
        waiting: count(row, "waiting")?,
    })
}
