//! Deletes old finished rows.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;

use super::inspect::state;
use super::time::Moment;
use super::{PostgresStore, Run};
use crate::row::Named;
use crate::settle::delay_micros;
use crate::{PurgeBatch, PurgeRequest, PurgeStore, Purgeable, StoreError, row};

/// Walks its own index from the oldest; what another host is just purging is stepped over.
/// $1 status, $2 the cut-off, $3 most rows.
pub(super) const PURGE: &str = "
WITH purged AS (
  DELETE FROM outbox_event
  WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM outbox_event
    WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= $2::timestamptz
      AND blocks = 0
    ORDER BY status, done_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED))
  RETURNING done_at)
SELECT count(*) AS count, min(done_at) AS first, max(done_at) AS last FROM purged";

/// $1 status, $2 the cut-off.
const COUNT: &str = "
SELECT count(*) FILTER (WHERE blocks = 0) AS count, count(*) FILTER (WHERE blocks = 1) AS blocking FROM outbox_event
WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= $2::timestamptz";

/// Walks the index of what is due. What its writer dated back is as old as its row, no older. A host that lives is going to
/// deliver what is due, however late: it is looked for in each batch, since it may have come a moment ago. $1 the age in
/// microseconds, $2 most rows.
const UNDELIVERED: &str = "
WITH purged AS (
  DELETE FROM outbox_event
  WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM outbox_event
    WHERE due_at <= now() - $1::bigint * interval '1 microsecond'
      AND created_at <= now() - $1::bigint * interval '1 microsecond' AND status = 0 AND claim_seq = 0
      AND NOT EXISTS (SELECT 1 FROM outbox_event_node WHERE alive_until > now())
    ORDER BY due_at, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED))
  RETURNING due_at)
SELECT count(*) AS count, min(due_at) AS first, max(due_at) AS last FROM purged";

#[async_trait]
impl PurgeStore for PostgresStore {
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let PurgeRequest { status, finished_before, limit } = request;
        let statement = self.statement(PURGE).bind(state(status)).bind(Moment(finished_before)).bind(i64::from(limit));
        self.read_one("purge finished events", statement, batch).await
    }

    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError> {
        let statement = self.statement(COUNT).bind(state(request.status)).bind(Moment(request.finished_before));
        self.read_one("count finished events", statement, row::purgeable).await
    }

    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError> {
        let statement = self.statement(UNDELIVERED).bind(delay_micros(older_than)).bind(i64::from(limit));
        self.read_one("purge undelivered events", statement, batch).await
    }
}

fn batch(row: &PgRow) -> Result<PurgeBatch, sqlx::Error> {
    Ok(PurgeBatch { count: row.count("count")?, first: row.optional_moment("first")?, last: row.optional_moment("last")? })
}
