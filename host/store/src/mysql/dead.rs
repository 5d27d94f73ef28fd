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
use crate::row::Named;
use crate::run::commit_or_roll_back;
use crate::{Audit, DeadFilter, DeadStore, RetriedNow, StoreError};

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

/// Read without a lock: [`REPLAY_CHOSEN`] looks again. Bound as [`COUNT`], then most rows.
pub(super) const CHOOSE_DEAD: &str = concat!(
    "
SELECT seq FROM outbox_event FORCE INDEX (outbox_dead)
WHERE dead_route BETWEEN COALESCE(CRC32(CONCAT(?, '/', ?)), 0) AND COALESCE(CRC32(CONCAT(?, '/', ?)), 4294967295)
  AND (? IS NULL OR event_type = ?) AND (? IS NULL OR aggregate_type = ?) AND (? IS NULL OR aggregate_id = ?)
  AND (? IS NULL OR tenant_id = ?) AND (? IS NULL OR INSTR(last_error, ?) > 0) AND (? IS NULL OR attempts <= ?)
  AND (? IS NULL OR done_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND ",
    on_primary!(),
    "
ORDER BY seq LIMIT ?"
);

/// claim_seq goes on, so an outcome of the earlier life stays fenced off. Bound: a JSON list of seq, latest time of death twice.
const REPLAY_CHOSEN: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, replays = replays + 1, done_at = NULL, due_at = UTC_TIMESTAMP(6),
    expires_at = NULL, blocks = 0
WHERE status = 3 AND (? IS NULL OR done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)";

const REPLAY: &str = "
UPDATE outbox_event
SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, replays = replays + 1, done_at = NULL, due_at = UTC_TIMESTAMP(6),
    expires_at = NULL, blocks = 0
WHERE event_id = ? AND status = 3";

/// What failed. Along the index of what is done, which has the unfinished of each status in the order of their `seq`, so that a
/// batch reads on from where the one before ended. Read without a lock: [`RETRY_NOW`] looks again. Bound: the seq that they
/// come after, most failures twice, most rows.
pub(super) const CHOOSE_FAILED: &str = concat!(
    "
SELECT seq FROM outbox_event FORCE INDEX (outbox_done)
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
SELECT seq FROM outbox_event FORCE INDEX (outbox_done)
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
const RETRY_NOW: &str = "
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

    async fn replay_batch(&self, filter: &DeadFilter, limit: u32, audit: &Audit) -> Result<u64, StoreError> {
        Ok(change_chosen(self, Choice::Dead(filter), limit, audit, "replay", &json!(filter)).await?.count)
    }

    async fn retry_now(
        &self,
        max_attempts: Option<u32>,
        after: u64,
        limit: u32,
        audit: &Audit,
    ) -> Result<RetriedNow, StoreError> {
        let choice = Choice::Waiting { most: max_attempts.map(i64::from), after };
        change_chosen(self, choice, limit, audit, "retry_now", &json!({ "max_attempts": max_attempts })).await
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

/// Which rows are to be changed.
#[derive(Clone, Copy)]
enum Choice<'a> {
    Dead(&'a DeadFilter),
    /// What waits for another attempt after this `seq`, and failed no more often than this.
    Waiting {
        most: Option<i64>,
        after: u64,
    },
}

impl Choice<'_> {
    /// Changes those of the chosen rows that are still as they were.
    fn change(self, store: &MySqlStore, chosen: String) -> Statement<'static> {
        match self {
            Self::Dead(filter) => {
                let before = filter.dead_before.map(bound);
                store.statement(REPLAY_CHOSEN).bind(chosen).bind(before).bind(before)
            }
            Self::Waiting { .. } => store.statement(RETRY_NOW).bind(chosen),
        }
    }

    /// The `seq` of the next rows, in order, after the last one that was chosen before.
    async fn next(self, store: &MySqlStore, last: Option<u64>, limit: u64) -> Result<Vec<u64>, StoreError> {
        match self {
            Self::Dead(filter) => read(store, filtered(store.statement(CHOOSE_DEAD), filter).bind(limit)).await,
            Self::Waiting { most, after } => {
                let after = last.unwrap_or(after);
                let failed = store.statement(CHOOSE_FAILED).bind(after).bind(most).bind(most).bind(limit);
                let mut chosen = read(store, failed).await?;
                // No further than the failed events: else each batch would read all events that were never put off, to the end.
                let up_to = chosen.last().copied().filter(|_| chosen.len() as u64 >= limit).unwrap_or(i64::MAX.unsigned_abs());
                let put_off = store.statement(CHOOSE_PUT_OFF).bind(after).bind(up_to).bind(most).bind(most).bind(limit);
                chosen.extend(read(store, put_off).await?);
                chosen.sort_unstable();
                chosen.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
                Ok(chosen)
            }
        }
    }
}

async fn read(store: &MySqlStore, choice: Statement<'_>) -> Result<Vec<u64>, StoreError> {
    store.read_all(ACTION, choice, |row| row.number(0)).await
}

/// Chooses rows, changes those that are still as they were, and notes how many. This database cannot update the rows of a query
/// on the same table in one statement without reading them into a table first. What somebody else changed in between is made up
/// for by others: callers take fewer than `limit` for the end. Each further choice means that somebody else got on, so this
/// comes to its end.
async fn change_chosen(
    store: &MySqlStore,
    choice: Choice<'_>,
    limit: u32,
    audit: &Audit,
    action: &'static str,
    selector: &Value,
) -> Result<RetriedNow, StoreError> {
    let mut changed = RetriedNow::default();
    loop {
        let left = u64::from(limit) - changed.count;
        let sequences = choice.next(store, changed.last, left).await?;
        if sequences.is_empty() {
            return Ok(changed);
        }
        let chosen = numbers(&sequences);
        let now = noted(store, || choice.change(store, chosen.clone()), audit, action, selector).await?;
        let is_whole = now == sequences.len() as u64;
        changed = RetriedNow { count: changed.count + now, last: sequences.into_iter().max() };
        if is_whole || changed.count >= u64::from(limit) {
            return Ok(changed);
        }
    }
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
