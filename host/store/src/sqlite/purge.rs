//! Deletes old finished rows.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::micros;

use super::error::failed;
use super::run::Statement;
use super::{Run, SqliteStore};
use crate::row::{Columns, filled};
use crate::{PurgeBatch, PurgeRequest, PurgeStore, Purgeable, StoreError, row};

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
        let PurgeRequest { status, finished_before, limit } = request;
        let statement = self.statement(PURGE).bind(status.code()).bind(finished_before.as_micros()).bind(i64::from(limit));
        delete(self, "purge finished events", statement).await
    }

    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError> {
        let statement = self.statement(COUNT).bind(request.status.code()).bind(request.finished_before.as_micros());
        self.read_one("count finished events", statement, row::purgeable).await
    }

    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError> {
        let now = self.now_micros();
        let statement =
            self.statement(UNDELIVERED).bind(now.saturating_sub(micros(older_than))).bind(i64::from(limit)).bind(now);
        delete(self, "purge undelivered events", statement).await
    }
}

/// Runs a statement that deletes rows and answers with a time of each.
async fn delete(store: &SqliteStore, action: &'static str, statement: Statement<'_>) -> Result<PurgeBatch, StoreError> {
    let mut connection = store.writing(|error| failed(action, error)).await?;
    let rows = statement.fetch_all(&mut *connection).await.map_err(|error| failed(action, error))?;
    let times = rows.iter().map(|row| filled(0, row.time(0))).collect::<Result<Vec<_>, _>>();
    Ok(PurgeBatch::of(&times.map_err(|error| failed(action, error))?))
}
