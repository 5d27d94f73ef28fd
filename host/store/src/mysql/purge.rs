//! Deletes old rows.

use async_trait::async_trait;
use outbox_event::Status;
use outbox_event::time::Timestamp;
use sqlx::mysql::MySqlConnection;

use super::patience::patiently;
use super::primary::on_primary;
use super::row::bound;
use super::run::Statement;
use super::{MySqlStore, Run};
use crate::number::numbers;
use crate::row::purge_row;
use crate::run::commit_if_some;
use crate::settle::delay_micros;
use crate::{PurgeBatch, PurgeRequest, PurgeRow, PurgeStore, PurgeTarget, Purgeable, StoreError, row};

/// Walks its own index from the oldest; two purges at once pass by each other's rows. A read-only server locks rows too, so it is
/// refused like any read. Bound: status, the earliest and the latest time in
/// microseconds, the seq of rows to skip with commas between them, most rows.
pub(super) const CHOOSE: &str = concat!(
    "
SELECT seq, event_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', done_at) FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = ? AND done_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND AND blocks = 0 AND FIND_IN_SET(seq, ?) = 0
  AND ",
    on_primary!(),
    "
ORDER BY done_at, seq LIMIT ?
FOR UPDATE SKIP LOCKED"
);

/// Walks the index of what is due. What its writer dated back is as old as its row, no older. Bound: the age in microseconds
/// twice, the earliest time in microseconds, the seq of rows to skip with commas between them, most rows.
const CHOOSE_UNDELIVERED: &str = concat!(
    "
SELECT seq, event_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) FROM outbox_event FORCE INDEX (outbox_due)
WHERE due_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
  AND due_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND AND status = 0 AND claim_seq = 0
  AND FIND_IN_SET(seq, ?) = 0
  AND NOT EXISTS (SELECT 1 FROM outbox_event_node AS node WHERE node.alive_until > UTC_TIMESTAMP(6))
  AND ",
    on_primary!(),
    "
ORDER BY due_at, seq LIMIT ?
FOR UPDATE SKIP LOCKED"
);

/// Bound: a JSON list of seq.
const DELETE: &str = "
DELETE outbox_event FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq";

/// Bound: status, the cut-off in microseconds.
const OLDEST: &str = concat!(
    "
SELECT seq, event_id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', done_at) FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = ? AND done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND AND blocks = 0 AND ",
    on_primary!(),
    "
ORDER BY done_at, seq LIMIT 1"
);

/// Bound: status, the cut-off in microseconds.
const COUNT: &str = concat!(
    "
SELECT COUNT(IF(blocks = 0, 1, NULL)), COUNT(IF(blocks = 1, 1, NULL)) FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = ? AND done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND AND ",
    on_primary!()
);

#[async_trait]
impl PurgeStore for MySqlStore {
    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        patiently(self, || try_delete(self, request)).await
    }

    /// Locks the row for a moment: a row that another transaction has locked is not the next one.
    async fn next_to_purge(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
        self.read_optional(request.target.action(), self.choose(request, 1), purge_row).await
    }

    async fn oldest_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Option<PurgeRow>, StoreError> {
        let statement = self.statement(OLDEST).bind(status.code()).bind(bound(finished_before));
        self.read_optional("read the oldest finished event", statement, purge_row).await
    }

    async fn count_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Purgeable, StoreError> {
        let statement = self.statement(COUNT).bind(status.code()).bind(bound(finished_before));
        self.read_one("count finished events", statement, row::purgeable).await
    }
}

impl MySqlStore {
    fn choose(&self, request: &PurgeRequest, limit: u32) -> Statement<'_> {
        let earliest = bound(request.from.unwrap_or(Timestamp::from_micros(i64::MIN)));
        let statement = match request.target {
            PurgeTarget::Finished { status, finished_before } => {
                self.statement(CHOOSE).bind(status.code()).bind(earliest).bind(bound(finished_before))
            }
            PurgeTarget::Undelivered { older_than } => {
                let age = delay_micros(older_than);
                self.statement(CHOOSE_UNDELIVERED).bind(age).bind(age).bind(earliest)
            }
        };
        let skip: Vec<String> = request.skip.iter().map(u64::to_string).collect();
        statement.bind(skip.join(",")).bind(i64::from(limit))
    }
}

/// Chooses and locks rows, and deletes them.
async fn try_delete(store: &MySqlStore, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
    let mut transaction = store.transaction().await?;
    let deleted = delete_in(store, &mut transaction, request).await;
    Ok(commit_if_some(store, transaction, deleted).await?.unwrap_or_default())
}

/// This database has no way to accept a DELETE and keep a row, so all rows that were chosen are gone.
async fn delete_in(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    request: &PurgeRequest,
) -> Result<Option<PurgeBatch>, StoreError> {
    let failed = |error| store.failed(request.target.action(), error);
    let rows = store.choose(request, request.limit).fetch_all(&mut *connection).await.map_err(failed)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let chosen = rows.iter().map(purge_row).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let (chosen, times): (Vec<u64>, Vec<Timestamp>) = chosen.iter().map(|row| (row.seq, row.at)).unzip();
    store.statement(DELETE).bind(numbers(&chosen)).execute(connection).await.map_err(failed)?;
    Ok(Some(PurgeBatch::of(&times)))
}
