//! Old finished rows away.

use sqlx::Row;

use super::MySqlStore;
use super::row::{numbers, sequence};
use super::transaction::{self, Patience};
use crate::store::settlement::delay_micros;
use crate::store::{PurgeBatch, PurgeRequest, StoreError};
use crate::time::Timestamp;

/// Walks its own index from the oldest; two purges at once pass by each other's rows. Bound: status, the age in microseconds,
/// most rows.
pub(super) const CHOOSE: &str = "
SELECT seq, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', done_at) FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = ? AND done_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
ORDER BY done_at, seq LIMIT ?
FOR UPDATE SKIP LOCKED";

/// Bound: a JSON list of seq.
const DELETE: &str = "
DELETE outbox_event FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq";

/// Bound: status, the age in microseconds.
const COUNT: &str = "
SELECT COUNT(*) FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = ? AND done_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND";

pub(super) async fn purge(store: &MySqlStore, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
    let mut patience = Patience::new();
    loop {
        match try_purge(store, request).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_purge(store: &MySqlStore, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
    let failed = |error| store.failed("purge finished events", error);
    let mut transaction = transaction::begin(store).await?;
    let rows = sqlx::query(store.table.sql(CHOOSE))
        .bind(request.status.code())
        .bind(delay_micros(request.older_than))
        .bind(i64::from(request.limit))
        .fetch_all(&mut *transaction)
        .await
        .map_err(failed)?;
    if rows.is_empty() {
        transaction::rollback(transaction).await?;
        return Ok(PurgeBatch::default());
    }
    let mut batch = PurgeBatch::default();
    let mut chosen = Vec::with_capacity(rows.len());
    for row in &rows {
        let done_at = Timestamp::from_micros(row.try_get(1).map_err(failed)?);
        batch.add(PurgeBatch { count: 1, first: Some(done_at), last: Some(done_at) });
        chosen.push(sequence(row)?);
    }
    sqlx::query(store.table.sql(DELETE)).bind(numbers(&chosen)).execute(&mut *transaction).await.map_err(failed)?;
    transaction::commit(transaction).await?;
    Ok(batch)
}

pub(super) async fn count(store: &MySqlStore, request: PurgeRequest) -> Result<u64, StoreError> {
    let row = sqlx::query(store.table.sql(COUNT))
        .bind(request.status.code())
        .bind(delay_micros(request.older_than))
        .fetch_one(&store.pool)
        .await;
    let count: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| store.failed("count finished events", error))?;
    Ok(u64::try_from(count).unwrap_or(0))
}
