//! Old finished rows away.

use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::inspect::state;
use super::row::{count as number, optional_time};
use crate::store::settlement::delay_micros;
use crate::store::{PurgeBatch, PurgeRequest, StoreError};

/// Walks its own index from the oldest; what another node is just purging is stepped over.
/// $1 status, $2 the age in microseconds, $3 most rows.
pub(super) const PURGE: &str = "
WITH purged AS (
  DELETE FROM outbox_event
  WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM outbox_event
    WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= now() - $2::bigint * interval '1 microsecond'
    ORDER BY status, done_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED))
  RETURNING done_at)
SELECT count(*) AS count, min(done_at) AS first, max(done_at) AS last FROM purged";

/// $1 status, $2 the age in microseconds.
const COUNT: &str = "
SELECT count(*) AS count FROM outbox_event
WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= now() - $2::bigint * interval '1 microsecond'";

pub(super) async fn purge(store: &PostgresStore, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
    let action = "purge finished events";
    let statement = store
        .statement(PURGE)
        .bind(state(request.status))
        .bind(delay_micros(request.older_than))
        .bind(i64::from(request.limit));
    let row = store.one(action, statement).await?;
    batch(&row).map_err(|error| store.failed(action, error))
}

fn batch(row: &PgRow) -> Result<PurgeBatch, sqlx::Error> {
    Ok(PurgeBatch { count: number(row, "count")?, first: optional_time(row, "first")?, last: optional_time(row, "last")? })
}

pub(super) async fn count(store: &PostgresStore, request: PurgeRequest) -> Result<u64, StoreError> {
    let action = "count finished events";
    let statement = store.statement(COUNT).bind(state(request.status)).bind(delay_micros(request.older_than));
    let row = store.one(action, statement).await?;
    number(&row, "count").map_err(|error| store.failed(action, error))
}
