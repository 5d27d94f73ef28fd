//! Deletes old finished rows.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::error::failed;
use crate::store::{PurgeBatch, PurgeRequest, PurgeStore, Purgeable, StoreError};
use crate::time::{Timestamp, micros};

/// ?1 status, ?2 the cut-off, ?3 most rows. Walks its own index from the oldest.
pub(super) const PURGE: &str = "
DELETE FROM outbox_event
WHERE seq IN (
  SELECT seq FROM outbox_event WHERE status = ?1 AND done_at IS NOT NULL AND done_at <= ?2 AND blocks = 0
  ORDER BY done_at LIMIT ?3)
RETURNING done_at";

const COUNT: &str = "
SELECT count(*) FILTER (WHERE blocks = 0), count(*) FILTER (WHERE blocks = 1)
FROM outbox_event WHERE status = ?1 AND done_at IS NOT NULL AND done_at <= ?2";

/// Walks the index of what is due. What its writer dated back is as old as its row, no older. ?1 the cut-off, ?2 most rows.
const UNDELIVERED: &str = "
DELETE FROM outbox_event
WHERE seq IN (
  SELECT seq FROM outbox_event WHERE due_at <= ?1 AND created_at <= ?1 AND status = 0 AND claim_seq = 0
    AND NOT EXISTS (SELECT 1 FROM outbox_event_node WHERE alive_until > ?3)
  ORDER BY due_at, seq LIMIT ?2)
RETURNING due_at";

#[async_trait]
impl PurgeStore for SqliteStore {
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let action = "purge finished events";
        let rows = sqlx::query(self.table.sql(PURGE))
            .bind(request.status.code())
            .bind(request.finished_before.as_micros())
            .bind(i64::from(request.limit))
            .fetch_all(&self.writer)
            .await;
        rows.and_then(|rows| batch(&rows)).map_err(|error| failed(action, error))
    }

    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError> {
        let action = "count finished events";
        let row = sqlx::query(self.table.sql(COUNT))
            .bind(request.status.code())
            .bind(request.finished_before.as_micros())
            .fetch_one(&self.readers)
            .await
            .map_err(|error| failed(action, error))?;
        let number = |column: usize| -> Result<u64, StoreError> {
            let number: i64 = row.try_get(column).map_err(|error| failed(action, error))?;
            Ok(u64::try_from(number).unwrap_or(0))
        };
        Ok(Purgeable { count: number(0)?, blocking: number(1)? })
    }

    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError> {
        let rows = sqlx::query(self.table.sql(UNDELIVERED))
            .bind(self.now_micros().saturating_sub(micros(older_than)))
            .bind(i64::from(limit))
            .bind(self.now_micros())
            .fetch_all(&self.writer)
            .await;
        rows.and_then(|rows| batch(&rows)).map_err(|error| failed("purge undelivered events", error))
    }
}

fn batch(rows: &[SqliteRow]) -> Result<PurgeBatch, sqlx::Error> {
    let mut batch = PurgeBatch::default();
    for row in rows {
        let time = Timestamp::from_micros(row.try_get(0)?);
        batch.add(PurgeBatch { count: 1, first: Some(time), last: Some(time) });
    }
    Ok(batch)
}
