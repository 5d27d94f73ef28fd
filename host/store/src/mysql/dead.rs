//! Events that failed: count, bring back, hurry, let pass, delete. What is done is noted in the same transaction.

use async_trait::async_trait;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use serde_json::{Value, json};
use sqlx::mysql::MySqlConnection;

use super::audit::note;
use super::patience::patiently;
use super::primary::on_primary;
use super::row::bound;
use super::run::Statement;
use super::{MySqlStore, Run};
use crate::number::numbers;
use crate::row::{Named, row_id};
use crate::run::commit_or_roll_back;
use crate::{Audit, DeadFilter, DeadStore, RowId, StoreError};

/// NULL means any. Bound: aggregate type and event type twice, for the bounds of the route's hash; then event type, aggregate
/// type, aggregate id, tenant, text of the error, most failures, earliest and latest time of death, each twice.
const COUNT: &str = concat!(
    "
SELECT COUNT(*) FROM outbox_event FORCE INDEX (outbox_dead)
WHERE dead_route BETWEEN COALESCE(CRC32(CONCAT(?, '/', ?)), 0) AND COALESCE(CRC32(CONCAT(?, '/', ?)), 4294967295)
  AND (? IS NULL OR event_type = ?) AND (? IS NULL OR aggregate_type = ?) AND (? IS NULL OR aggregate_id = ?)
  AND (? IS NULL OR tenant_id = ?) AND (? IS NULL OR INSTR(last_error, ?) > 0) AND (? IS NULL OR attempts <= ?)
  AND (? IS NULL OR done_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND ",
    on_primary!()
);

/// Read without a lock: [`REPLAY_ROWS`] looks again. Bound as [`COUNT`], then the seq that they come after, and most rows.
pub(super) const DEAD_ROWS: &str = concat!(
    "
SELECT seq, event_id FROM outbox_event FORCE INDEX (outbox_dead)
WHERE dead_route BETWEEN COALESCE(CRC32(CONCAT(?, '/', ?)), 0) AND COALESCE(CRC32(CONCAT(?, '/', ?)), 4294967295)
  AND (? IS NULL OR event_type = ?) AND (? IS NULL OR aggregate_type = ?) AND (? IS NULL OR aggregate_id = ?)
  AND (? IS NULL OR tenant_id = ?) AND (? IS NULL OR INSTR(last_error, ?) > 0) AND (? IS NULL OR attempts <= ?)
  AND (? IS NULL OR done_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND seq > ? AND ",
    on_primary!(),
    "
ORDER BY seq LIMIT ?"
);

/// Raises claim_seq: outcomes of the earlier life stay fenced off, and a host sees that the row did not come back by itself. Bound: a
/// JSON list of seq, latest time of death twice.
const REPLAY_ROWS: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, replays = LEAST(replays + 1, 2147483647),
    claim_seq = claim_seq + 1, done_at = NULL,
    due_at = UTC_TIMESTAMP(6), expires_at = NULL, blocks = 0
WHERE status = 3 AND (? IS NULL OR done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)";

const REPLAY: &str = "
UPDATE outbox_event
SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, replays = LEAST(replays + 1, 2147483647),
    claim_seq = claim_seq + 1, done_at = NULL,
    due_at = UTC_TIMESTAMP(6), expires_at = NULL, blocks = 0
WHERE event_id = ? AND status = 3";

/// What failed. Along the index of what is done, which has the unfinished of each status in the order of their `seq`, so that a
/// batch reads on from where the one before ended. Read without a lock: [`RETRY_ROWS_NOW`] looks again. Bound: the seq that they
/// come after, most failures twice, most rows.
pub(super) const CHOOSE_FAILED: &str = concat!(
    "
SELECT seq, event_id FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = 2 AND done_at IS NULL AND seq > ? AND due_at > UTC_TIMESTAMP(6) AND locked_by IS NULL AND (? IS NULL OR attempts <= ?)
  AND ",
    on_primary!(),
    "
ORDER BY seq LIMIT ?"
);

/// What its listener put off, not its writer; chosen as by [`CHOOSE_FAILED`]. Bound: the seq that they come after, the last
/// that they may have, most failures twice, most rows.
pub(super) const CHOOSE_PUT_OFF: &str = concat!(
    "
SELECT seq, event_id FROM outbox_event FORCE INDEX (outbox_done)
WHERE status = 0 AND done_at IS NULL AND seq > ? AND seq <= ? AND deferrals > 0 AND due_at > UTC_TIMESTAMP(6) AND locked_by IS NULL
  AND (? IS NULL OR attempts <= ?) AND ",
    on_primary!(),
    "
ORDER BY seq LIMIT ?"
);

/// As [`CHOOSE_FAILED`] and [`CHOOSE_PUT_OFF`] choose. Bound: most failures twice.
const COUNT_WAITING: &str = concat!(
    "
SELECT COUNT(*) FROM outbox_event FORCE INDEX (outbox_due)
WHERE due_at > UTC_TIMESTAMP(6) AND (status = 2 OR status = 0 AND deferrals > 0) AND locked_by IS NULL
  AND (? IS NULL OR attempts <= ?) AND ",
    on_primary!()
);

/// Bound: a JSON list of seq.
const RETRY_ROWS_NOW: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET due_at = UTC_TIMESTAMP(6)
WHERE due_at > UTC_TIMESTAMP(6) AND (status = 2 OR status = 0 AND deferrals > 0) AND locked_by IS NULL";

/// Bound: the id, latest time of death twice.
const DISCARD: &str = "
DELETE FROM outbox_event
WHERE event_id = ? AND status = 3 AND (? IS NULL OR done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)";

const SKIP: &str = "UPDATE outbox_event SET blocks = 0 WHERE event_id = ? AND blocks = 1";

const ACTION: &str = "do what was asked by hand";

#[async_trait]
impl DeadStore for MySqlStore {
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError> {
        self.read_one("count dead events", filtered(self.statement(COUNT), filter), |row| row.number(0)).await
    }

    async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        by_id(self, REPLAY, id, audit, "replay").await
    }

    async fn dead_rows(&self, filter: &DeadFilter, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        let statement = filtered(self.statement(DEAD_ROWS), filter).bind(after).bind(limit);
        self.read_all("choose dead events", statement, row_id).await
    }

    async fn replay_rows(&self, rows: &[u64], filter: &DeadFilter, audit: &Audit) -> Result<u64, StoreError> {
        let before = filter.dead_before.map(bound);
        let run = || self.statement(REPLAY_ROWS).bind(numbers(rows)).bind(before).bind(before);
        noted(self, run, audit, "replay", &json!(filter)).await
    }

    async fn waiting_rows(&self, max_attempts: Option<u32>, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        let (action, most, limit) = ("choose waiting events", max_attempts.map(i64::from), u64::from(limit));
        let failed = self.statement(CHOOSE_FAILED).bind(after).bind(most).bind(most).bind(limit);
        let mut chosen = self.read_all(action, failed, row_id).await?;
        // No further than the failed events: else each batch would read all events that were never put off, to the end.
        let last = chosen.last().filter(|_| chosen.len() as u64 >= limit);
        let up_to = last.map_or(u64::MAX, |row| row.seq);
        let put_off = self.statement(CHOOSE_PUT_OFF).bind(after).bind(up_to).bind(most).bind(most).bind(limit);
        chosen.extend(self.read_all(action, put_off, row_id).await?);
        chosen.sort_unstable_by_key(|row| row.seq);
        chosen.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(chosen)
    }

    async fn retry_rows_now(&self, rows: &[u64], max_attempts: Option<u32>, audit: &Audit) -> Result<u64, StoreError> {
        let run = || self.statement(RETRY_ROWS_NOW).bind(numbers(rows));
        noted(self, run, audit, "retry_now", &json!({ "max_attempts": max_attempts })).await
    }

    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError> {
        let most = max_attempts.map(i64::from);
        let statement = self.statement(COUNT_WAITING).bind(most).bind(most);
        self.read_one("count waiting events", statement, |row| row.number(0)).await
    }

    async fn discard(&self, id: EventId, dead_before: Option<Timestamp>, audit: &Audit) -> Result<bool, StoreError> {
        let before = dead_before.map(bound);
        let run = || self.statement(DISCARD).bind(id.to_string()).bind(before).bind(before);
        Ok(noted(self, run, audit, "discard", &json!({ "event_id": id })).await? == 1)
    }

    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        by_id(self, SKIP, id, audit, "skip").await
    }
}

/// Runs a statement on one event, and notes it when it changed something. Returns whether it did.
async fn by_id(
    store: &MySqlStore,
    statement: &'static str,
    id: EventId,
    audit: &Audit,
    action: &'static str,
) -> Result<bool, StoreError> {
    let run = || store.statement(statement).bind(id.to_string());
    Ok(noted(store, run, audit, action, &json!({ "event_id": id })).await? == 1)
}

/// Runs a statement and notes how many rows it changed. Returns how many.
pub(super) async fn noted<'q>(
    store: &MySqlStore,
    statement: impl Fn() -> Statement<'q> + Send,
    audit: &Audit,
    action: &'static str,
    selector: &Value,
) -> Result<u64, StoreError> {
    patiently(store, || try_noted(store, statement(), audit, action, selector)).await
}

async fn try_noted(
    store: &MySqlStore,
    statement: Statement<'_>,
    audit: &Audit,
    action: &'static str,
    selector: &Value,
) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let changed = change_and_note(store, &mut transaction, statement, audit, action, selector).await;
    commit_or_roll_back(store, transaction, changed).await
}

async fn change_and_note(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    statement: Statement<'_>,
    audit: &Audit,
    action: &'static str,
    selector: &Value,
) -> Result<u64, StoreError> {
    let result = statement.execute(&mut *connection).await.map_err(|error| store.failed(ACTION, error))?;
    note(store, connection, audit, action, selector, result.rows_affected()).await?;
    Ok(result.rows_affected())
}

fn filtered<'q>(statement: Statement<'q>, filter: &'q DeadFilter) -> Statement<'q> {
    let DeadFilter { event_type, aggregate_type, aggregate_id, tenant_id, error, .. } = filter;
    let mut statement = statement.bind(aggregate_type).bind(event_type).bind(aggregate_type).bind(event_type);
    for text in [event_type, aggregate_type, aggregate_id, tenant_id, error] {
        statement = statement.bind(text).bind(text);
    }
    for number in [filter.max_attempts.map(i64::from), filter.dead_after.map(bound), filter.dead_before.map(bound)] {
        statement = statement.bind(number).bind(number);
    }
    statement
}
