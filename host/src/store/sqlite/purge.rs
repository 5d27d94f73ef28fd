//! Old finished rows away.

use sqlx::Row;

use super::SqliteStore;
use super::open::failed;
use crate::store::{PurgeBatch, PurgeRequest, StoreError};
use crate::time::{Timestamp, micros};

/// ?1 status, ?2 the cut-off, ?3 most rows. Walks its own index from the oldest.
pub(super) const PURGE: &str = "
DELETE FROM outbox_event
WHERE seq IN (
  SELECT seq FROM outbox_event WHERE status = ?1 AND done_at IS NOT NULL AND done_at <= ?2 ORDER BY done_at LIMIT ?3)
RETURNING done_at";

const COUNT: &str = "SELECT count(*) FROM outbox_event WHERE status = ?1 AND done_at IS NOT NULL AND done_at <= ?2";

pub(super) async fn purge(store: &SqliteStore, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
    let action = "purge finished events";
    let rows = sqlx::query(store.table.sql(PURGE))
        .bind(request.status.code())
        .bind(cutoff(store, request))
        .bind(i64::from(request.limit))
        .fetch_all(&store.writer)
        .await
        .map_err(|error| failed(action, error))?;
    let mut batch = PurgeBatch::default();
    for row in &rows {
        let done_at = Timestamp::from_micros(row.try_get(0).map_err(|error| failed(action, error))?);
        batch.add(PurgeBatch { count: 1, first: Some(done_at), last: Some(done_at) });
    }
    Ok(batch)
}

pub(super) async fn count(store: &SqliteStore, request: PurgeRequest) -> Result<u64, StoreError> {
    let action = "count finished events";
    let row = sqlx::query(store.table.sql(COUNT))
        .bind(request.status.code())
        .bind(cutoff(store, request))
        .fetch_one(&store.readers)
        .await
        .map_err(|error| failed(action, error))?;
    let count: i64 = row.try_get(0).map_err(|error| failed(action, error))?;
    Ok(u64::try_from(count).unwrap_or(0))
}

fn cutoff(store: &SqliteStore, request: PurgeRequest) -> i64 {
    store.now_micros().saturating_sub(micros(request.older_than))
}
