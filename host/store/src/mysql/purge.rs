//! Deletes old finished rows.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use sqlx::mysql::MySqlConnection;

use super::patience::patiently;
use super::row::bound;
use super::run::Statement;
use super::{MySqlStore, Run};
use crate::number::numbers;
use crate::row::{Columns, Named, filled};
use crate::run::commit_if_some;
use crate::settle::delay_micros;
use crate::{PurgeBatch, PurgeRequest, PurgeStore, Purgeable, StoreError, row};

/// Walks its own index from the oldest; two purges at once pass by each other's rows. Bound: status, the cut-off in
/// microseconds, most rows.
pub(super) const CHOOSE: &str = "
SELECT seq, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', done_at) FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = ? AND done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND AND blocks = 0
ORDER BY done_at, seq LIMIT ?
FOR UPDATE SKIP LOCKED";

/// Walks the index of what is due. What its writer dated back is as old as its row, no older. Bound: the age in microseconds
/// twice, most rows.
const CHOOSE_UNDELIVERED: &str = "
SELECT seq, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) FROM outbox_event FORCE INDEX (outbox_due)
WHERE due_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
  AND status = 0 AND claim_seq = 0
  AND NOT EXISTS (SELECT 1 FROM outbox_event_node AS node WHERE node.alive_until > UTC_TIMESTAMP(6))
ORDER BY due_at, seq LIMIT ?
FOR UPDATE SKIP LOCKED";

/// Bound: a JSON list of seq.
const DELETE: &str = "
DELETE outbox_event FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq";

/// Bound: status, the cut-off in microseconds.
const COUNT: &str = "
SELECT COUNT(IF(blocks = 0, 1, NULL)), COUNT(IF(blocks = 1, 1, NULL)) FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = ? AND done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND";

#[async_trait]
impl PurgeStore for MySqlStore {
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let PurgeRequest { status, finished_before, limit } = request;
        let choose = || self.statement(CHOOSE).bind(status.code()).bind(bound(finished_before)).bind(i64::from(limit));
        patiently(self, || try_delete(self, "purge finished events", choose())).await
    }

    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError> {
        let statement = self.statement(COUNT).bind(request.status.code()).bind(bound(request.finished_before));
        self.read_one("count finished events", statement, row::purgeable).await
    }

    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError> {
        let age = delay_micros(older_than);
        let choose = || self.statement(CHOOSE_UNDELIVERED).bind(age).bind(age).bind(i64::from(limit));
        patiently(self, || try_delete(self, "purge undelivered events", choose())).await
    }
}

/// Chooses and locks rows, each with a time, and deletes them.
async fn try_delete(store: &MySqlStore, action: &'static str, choose: Statement<'_>) -> Result<PurgeBatch, StoreError> {
    let mut transaction = store.transaction().await?;
    let deleted = delete_in(store, &mut transaction, action, choose).await;
    Ok(commit_if_some(store, transaction, deleted).await?.unwrap_or_default())
}

async fn delete_in(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    action: &'static str,
    choose: Statement<'_>,
) -> Result<Option<PurgeBatch>, StoreError> {
    let failed = |error| store.failed(action, error);
    let rows = choose.fetch_all(&mut *connection).await.map_err(failed)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let chosen = rows.iter().map(|row| Ok((row.number(0)?, filled(1, row.time(1))?))).collect::<Result<Vec<_>, _>>();
    let (chosen, times): (Vec<u64>, Vec<Timestamp>) = chosen.map_err(failed)?.into_iter().unzip();
    store.statement(DELETE).bind(numbers(&chosen)).execute(connection).await.map_err(failed)?;
    Ok(Some(PurgeBatch::of(&times)))
}
