//! Events that failed: count, bring back, hurry, let pass, delete. What is done is noted in the same transaction.

use async_trait::async_trait;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use serde_json::{Value, json};

use super::audit::note;
use super::error::failed;
use super::run::Statement;
use super::{Run, SqliteStore, TransactionalStore};
use crate::number::{numbers, signed};
use crate::row::{Named, row_id};
use crate::{Audit, DeadFilter, DeadStore, RowId, StoreError};

/// Nothing bound means any. ?1 event type, ?2 aggregate type, ?3 aggregate id, ?4 tenant, ?5 text of the error, ?6 most
/// failures, ?7 earliest and ?8 latest time of death.
const COUNT: &str = "
SELECT count(*) FROM outbox_event
WHERE status = 3 AND (?1 IS NULL OR event_type = ?1) AND (?2 IS NULL OR aggregate_type = ?2)
  AND (?3 IS NULL OR aggregate_id = ?3) AND (?4 IS NULL OR tenant_id = ?4) AND (?5 IS NULL OR instr(last_error, ?5) > 0)
  AND (?6 IS NULL OR attempts <= ?6) AND (?7 IS NULL OR done_at >= ?7) AND (?8 IS NULL OR done_at <= ?8)";

/// Raises claim_seq: outcomes of the earlier life stay fenced off, and a host sees that the row did not come back by itself. ?1 the id,
/// ?2 now.
const REPLAY: &str = "
UPDATE outbox_event
SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, replays = min(replays + 1, 2147483647),
    claim_seq = claim_seq + 1, done_at = NULL,
    due_at = ?2, expires_at = NULL, blocks = 0
WHERE event_id = ?1 AND status = 3";

/// ?1 to ?8 as above, ?9 the seq that they come after, ?10 most rows. The plus keeps the search off the primary key, which would pass
/// every finished row.
pub(super) const DEAD_ROWS: &str = "
SELECT seq, event_id FROM outbox_event
WHERE status = 3 AND (?1 IS NULL OR event_type = ?1) AND (?2 IS NULL OR aggregate_type = ?2)
  AND (?3 IS NULL OR aggregate_id = ?3) AND (?4 IS NULL OR tenant_id = ?4) AND (?5 IS NULL OR instr(last_error, ?5) > 0)
  AND (?6 IS NULL OR attempts <= ?6) AND (?7 IS NULL OR done_at >= ?7) AND (?8 IS NULL OR done_at <= ?8) AND +seq > ?9
ORDER BY seq LIMIT ?10";

/// ?1 a JSON list of seq, ?2 now, ?3 latest time of death.
const REPLAY_ROWS: &str = "
UPDATE outbox_event
SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, replays = min(replays + 1, 2147483647),
    claim_seq = claim_seq + 1, done_at = NULL,
    due_at = ?2, expires_at = NULL, blocks = 0
WHERE seq IN (SELECT value FROM json_each(?1)) AND status = 3 AND (?3 IS NULL OR done_at <= ?3)";

/// Failed and deferred events; not those that their writer delayed. Walks `outbox_event_retry`, so each batch continues where the last
/// one ended. ?1 now, ?2 most failures, ?3 the seq that they come after, ?4 most rows.
pub(super) const WAITING_ROWS: &str = "
SELECT seq, event_id FROM outbox_event INDEXED BY outbox_event_retry
WHERE due_at IS NOT NULL AND (status = 2 OR status = 0 AND deferrals > 0) AND seq > ?3 AND due_at > ?1 AND locked_by IS NULL
  AND (?2 IS NULL OR attempts <= ?2)
ORDER BY seq LIMIT ?4";

/// ?1 a JSON list of seq, ?2 now.
const RETRY_ROWS_NOW: &str = "
UPDATE outbox_event SET due_at = ?2
WHERE seq IN (SELECT value FROM json_each(?1)) AND (status = 2 OR status = 0 AND deferrals > 0) AND due_at > ?2
  AND locked_by IS NULL";

/// As [`WAITING_ROWS`] chooses. ?1 now, ?2 most failures.
const COUNT_WAITING: &str = "
SELECT count(*) FROM outbox_event
WHERE due_at > ?1 AND (status = 2 OR status = 0 AND deferrals > 0) AND locked_by IS NULL AND (?2 IS NULL OR attempts <= ?2)";

/// ?1 the id, ?2 latest time of death.
const DISCARD: &str = "DELETE FROM outbox_event WHERE event_id = ?1 AND status = 3 AND (?2 IS NULL OR done_at <= ?2)";

const SKIP: &str = "UPDATE outbox_event SET blocks = 0 WHERE event_id = ?1 AND blocks = 1";

#[async_trait]
impl DeadStore for SqliteStore {
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError> {
        self.read_one("count dead events", filtered(self.statement(COUNT), filter), |row| row.number(0)).await
    }

    async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        let statement = self.statement(REPLAY).bind(id.to_string()).bind(self.now_micros());
        Ok(noted(self, statement, audit, "replay", &json!({ "event_id": id })).await? == 1)
    }

    async fn dead_rows(&self, filter: &DeadFilter, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        let statement = filtered(self.statement(DEAD_ROWS), filter).bind(signed(after)).bind(i64::from(limit));
        self.read_all("choose dead events", statement, row_id).await
    }

    async fn replay_rows(&self, rows: &[u64], filter: &DeadFilter, audit: &Audit) -> Result<u64, StoreError> {
        let statement = self.statement(REPLAY_ROWS).bind(numbers(rows)).bind(self.now_micros());
        let statement = statement.bind(filter.dead_before.map(Timestamp::as_micros));
        noted(self, statement, audit, "replay", &json!(filter)).await
    }

    async fn waiting_rows(&self, max_attempts: Option<u32>, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        let statement = self.statement(WAITING_ROWS).bind(self.now_micros()).bind(max_attempts);
        self.read_all("choose waiting events", statement.bind(signed(after)).bind(i64::from(limit)), row_id).await
    }

    async fn retry_rows_now(&self, rows: &[u64], max_attempts: Option<u32>, audit: &Audit) -> Result<u64, StoreError> {
        let statement = self.statement(RETRY_ROWS_NOW).bind(numbers(rows)).bind(self.now_micros());
        noted(self, statement, audit, "retry_now", &json!({ "max_attempts": max_attempts })).await
    }

    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError> {
        let statement = self.statement(COUNT_WAITING).bind(self.now_micros()).bind(max_attempts);
        self.read_one("count waiting events", statement, |row| row.number(0)).await
    }

    async fn discard(&self, id: EventId, dead_before: Option<Timestamp>, audit: &Audit) -> Result<bool, StoreError> {
        let statement = self.statement(DISCARD).bind(id.to_string()).bind(dead_before.map(Timestamp::as_micros));
        Ok(noted(self, statement, audit, "discard", &json!({ "event_id": id })).await? == 1)
    }

    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        let statement = self.statement(SKIP).bind(id.to_string());
        Ok(noted(self, statement, audit, "skip", &json!({ "event_id": id })).await? == 1)
    }
}

/// Runs a statement and notes how many rows it changed. Returns how many.
pub(super) async fn noted(
    store: &SqliteStore,
    statement: Statement<'_>,
    audit: &Audit,
    action: &'static str,
    selector: &Value,
) -> Result<u64, StoreError> {
    let mut transaction = store.begin().await?;
    let result = statement.execute(&mut *transaction).await.map_err(|error| failed("do what was asked by hand", error))?;
    note(store, &mut transaction, audit, action, selector, result.rows_affected()).await?;
    store.finish(transaction).await?;
    Ok(result.rows_affected())
}

fn filtered<'q>(statement: Statement<'q>, filter: &'q DeadFilter) -> Statement<'q> {
    statement
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.aggregate_id)
        .bind(&filter.tenant_id)
        .bind(&filter.error)
        .bind(filter.max_attempts)
        .bind(filter.dead_after.map(Timestamp::as_micros))
        .bind(filter.dead_before.map(Timestamp::as_micros))
}
