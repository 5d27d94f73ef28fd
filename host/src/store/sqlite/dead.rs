//! Dead events: count, bring back, delete.

use sqlx::Row;

use super::SqliteStore;
use super::open::failed;
use crate::event::EventId;
use crate::store::{DeadFilter, StoreError};

/// Nothing bound means any. ?1 event type, ?2 aggregate type, ?3 tenant, ?4 text of the error, ?5 latest time of death.
const COUNT: &str = "
SELECT count(*) FROM outbox_event
WHERE status = 3 AND (?1 IS NULL OR event_type = ?1) AND (?2 IS NULL OR aggregate_type = ?2)
  AND (?3 IS NULL OR tenant_id = ?3) AND (?4 IS NULL OR instr(last_error, ?4) > 0) AND (?5 IS NULL OR done_at <= ?5)";

/// claim_seq goes on, so an outcome of the earlier life stays fenced off. ?1 the id, ?2 now.
const REPLAY: &str = "
UPDATE outbox_event
SET status = 0, attempts = 0, deferrals = 0, claims = 0, replays = replays + 1, done_at = NULL, due_at = ?2, expires_at = NULL
WHERE event_id = ?1 AND status = 3";

/// ?1 to ?5 as above, ?6 now, ?7 most rows.
const REPLAY_BATCH: &str = "
UPDATE outbox_event
SET status = 0, attempts = 0, deferrals = 0, claims = 0, replays = replays + 1, done_at = NULL, due_at = ?6, expires_at = NULL
WHERE seq IN (
  SELECT seq FROM outbox_event
  WHERE status = 3 AND (?1 IS NULL OR event_type = ?1) AND (?2 IS NULL OR aggregate_type = ?2)
    AND (?3 IS NULL OR tenant_id = ?3) AND (?4 IS NULL OR instr(last_error, ?4) > 0) AND (?5 IS NULL OR done_at <= ?5)
  ORDER BY seq LIMIT ?7)";

const DISCARD: &str = "DELETE FROM outbox_event WHERE event_id = ?1 AND status = 3";

pub(super) async fn count(store: &SqliteStore, filter: &DeadFilter) -> Result<u64, StoreError> {
    let action = "count dead events";
    let row = sqlx::query(store.table.sql(COUNT))
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.tenant_id)
        .bind(&filter.error)
        .bind(filter.dead_before.map(crate::time::Timestamp::as_micros))
        .fetch_one(&store.readers)
        .await
        .map_err(|error| failed(action, error))?;
    let count: i64 = row.try_get(0).map_err(|error| failed(action, error))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

pub(super) async fn replay(store: &SqliteStore, id: EventId) -> Result<bool, StoreError> {
    let result = sqlx::query(store.table.sql(REPLAY))
        .bind(id.as_str())
        .bind(store.now_micros())
        .execute(&store.writer)
        .await
        .map_err(|error| failed("replay a dead event", error))?;
    Ok(result.rows_affected() == 1)
}

pub(super) async fn replay_batch(store: &SqliteStore, filter: &DeadFilter, limit: u32) -> Result<u64, StoreError> {
    let result = sqlx::query(store.table.sql(REPLAY_BATCH))
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.tenant_id)
        .bind(&filter.error)
        .bind(filter.dead_before.map(crate::time::Timestamp::as_micros))
        .bind(store.now_micros())
        .bind(i64::from(limit))
        .execute(&store.writer)
        .await
        .map_err(|error| failed("replay dead events", error))?;
    Ok(result.rows_affected())
}

pub(super) async fn discard(store: &SqliteStore, id: EventId) -> Result<bool, StoreError> {
    let result = sqlx::query(store.table.sql(DISCARD))
        .bind(id.as_str())
        .execute(&store.writer)
        .await
        .map_err(|error| failed("discard a dead event", error))?;
    Ok(result.rows_affected() == 1)
}
