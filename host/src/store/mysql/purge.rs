//! Deletes old finished rows.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, Row};

use super::MySqlStore;
use super::row::{bound, numbers};
use super::transaction::{self, Patience};
use crate::store::row::sequence;
use crate::store::settle::delay_micros;
use crate::store::{PurgeBatch, PurgeRequest, PurgeStore, Purgeable, StoreError};
use crate::time::Timestamp;

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

type Statement<'q> = Query<'q, MySql, MySqlArguments>;

#[async_trait]
impl PurgeStore for MySqlStore {
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let chosen = || {
            let PurgeRequest { status, finished_before, limit } = request;
            sqlx::query(self.table.sql(CHOOSE)).bind(status.code()).bind(bound(finished_before)).bind(i64::from(limit))
        };
        delete_chosen(self, "purge finished events", chosen).await
    }

    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError> {
        let failed = |error| self.failed("count finished events", error);
        let row = sqlx::query(self.table.sql(COUNT))
            .bind(request.status.code())
            .bind(bound(request.finished_before))
            .fetch_one(&self.pool)
            .await
            .map_err(failed)?;
        let number = |column: usize| -> Result<u64, StoreError> {
            let number: i64 = row.try_get(column).map_err(failed)?;
            Ok(u64::try_from(number).unwrap_or(0))
        };
        Ok(Purgeable { count: number(0)?, blocking: number(1)? })
    }

    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError> {
        let age = delay_micros(older_than);
        let chosen = || sqlx::query(self.table.sql(CHOOSE_UNDELIVERED)).bind(age).bind(age).bind(i64::from(limit));
        delete_chosen(self, "purge undelivered events", chosen).await
    }
}

/// Chooses and locks rows, each with a time, and deletes them.
async fn delete_chosen<'q>(
    store: &MySqlStore,
    action: &'static str,
    choose: impl Fn() -> Statement<'q> + Send,
) -> Result<PurgeBatch, StoreError> {
    let mut patience = Patience::new();
    loop {
        match try_delete(store, action, choose()).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_delete(store: &MySqlStore, action: &'static str, choose: Statement<'_>) -> Result<PurgeBatch, StoreError> {
    let failed = |error| store.failed(action, error);
    let mut transaction = transaction::begin(store).await?;
    let rows = choose.fetch_all(&mut *transaction).await.map_err(failed)?;
    if rows.is_empty() {
        transaction::rollback(transaction).await?;
        return Ok(PurgeBatch::default());
    }
    let mut batch = PurgeBatch::default();
    let mut chosen = Vec::with_capacity(rows.len());
    for row in &rows {
        let time = Timestamp::from_micros(row.try_get(1).map_err(failed)?);
        batch.add(PurgeBatch { count: 1, first: Some(time), last: Some(time) });
        chosen.push(sequence(row)?);
    }
    sqlx::query(store.table.sql(DELETE)).bind(numbers(&chosen)).execute(&mut *transaction).await.map_err(failed)?;
    transaction::commit(transaction).await?;
    Ok(batch)
}
