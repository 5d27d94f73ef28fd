//! Events that failed: count, bring back, hurry, let pass, delete. What is done is noted in the same statement.

use async_trait::async_trait;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use serde_json::json;

use super::audit::{doing, done};
use super::primary::on_primary;
use super::run::Statement;
use super::time::Moment;
use super::{PostgresStore, Run};
use crate::number::signed;
use crate::row::{Named, row_id};
use crate::{Audit, DeadFilter, DeadStore, RowId, StoreError};

/// Nothing bound means any. $1 event type, $2 aggregate type, $3 aggregate id, $4 tenant, $5 text of the error, $6 most
/// failures, $7 earliest and $8 latest time of death.
const COUNT: &str = concat!(
    "
SELECT count(*) AS count FROM outbox_event
WHERE status = 3 AND ($1::text IS NULL OR event_type = $1::text) AND ($2::text IS NULL OR aggregate_type = $2::text)
  AND ($3::text IS NULL OR aggregate_id = $3::text) AND ($4::text IS NULL OR tenant_id = $4::text)
  AND ($5::text IS NULL OR strpos(last_error, $5::text) > 0) AND ($6::integer IS NULL OR attempts <= $6::integer)
  AND ($7::timestamptz IS NULL OR done_at >= $7::timestamptz) AND ($8::timestamptz IS NULL OR done_at <= $8::timestamptz)
  AND ",
    on_primary!()
);

/// Raises claim_seq: outcomes of the earlier life stay fenced off, and a host sees that the row did not come back by itself. $1 to $3
/// actor, reason and selector, $4 the id.
const REPLAY: &str = "
WITH changed AS (
  UPDATE outbox_event
  SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, claim_seq = claim_seq + 1,
      replays = least(replays::bigint + 1, 2147483647),
      done_at = NULL, due_at = now(), expires_at = NULL, blocks = 0
  WHERE event_id = $4::text AND status = 3 RETURNING 1),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'replay', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

/// Sorted by a number that no index holds, since the way along the primary key would pass every finished row. $1 to $8 the filter as
/// above, $9 the seq that they come after, $10 most rows.
pub(super) const DEAD_ROWS: &str = concat!(
    "
SELECT seq, event_id FROM outbox_event
WHERE status = 3 AND ($1::text IS NULL OR event_type = $1::text) AND ($2::text IS NULL OR aggregate_type = $2::text)
  AND ($3::text IS NULL OR aggregate_id = $3::text) AND ($4::text IS NULL OR tenant_id = $4::text)
  AND ($5::text IS NULL OR strpos(last_error, $5::text) > 0) AND ($6::integer IS NULL OR attempts <= $6::integer)
  AND ($7::timestamptz IS NULL OR done_at >= $7::timestamptz) AND ($8::timestamptz IS NULL OR done_at <= $8::timestamptz)
  AND seq + 0 > $9::bigint AND ",
    on_primary!(),
    "
ORDER BY seq + 0 LIMIT $10::bigint"
);

/// Locks the rows in the order of their seq, so that two replays at once do not lock each other out. $1 to $3 actor, reason and
/// selector, $4 the seq of each row, $5 latest time of death.
const REPLAY_ROWS: &str = "
WITH changed AS (
  UPDATE ONLY outbox_event
  SET status = 0, attempts = 0, deferrals = 0, claims = 0, starts = 0, claim_seq = claim_seq + 1,
      replays = least(replays::bigint + 1, 2147483647),
      done_at = NULL, due_at = now(), expires_at = NULL, blocks = 0
  WHERE seq = ANY (ARRAY (
    SELECT seq FROM ONLY outbox_event
    WHERE seq = ANY ($4::bigint[]) AND status = 3 AND ($5::timestamptz IS NULL OR done_at <= $5::timestamptz)
    ORDER BY seq + 0 FOR UPDATE)) RETURNING 1),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'replay', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

/// Failed and deferred events; not those that their writer delayed. Walks `outbox_event_retry`, so each batch continues where the last
/// one ended. It compares with a time that no index holds: the index of what is due would read and sort everything that waits, for each
/// batch. $1 most failures, $2 the seq that they come after, $3 most rows.
pub(super) const WAITING_ROWS: &str = concat!(
    "
SELECT seq, event_id FROM outbox_event
WHERE due_at IS NOT NULL AND (status = 2 OR status = 0 AND deferrals > 0) AND seq > $2::bigint
  AND coalesce(due_at, '-infinity') > now() AND locked_by IS NULL
  AND ($1::integer IS NULL OR attempts <= $1::integer) AND ",
    on_primary!(),
    "
ORDER BY seq LIMIT $3::bigint"
);

/// Locks the rows as [`REPLAY_ROWS`] does. $1 to $3 actor, reason and selector, $4 the seq of each row.
const RETRY_ROWS_NOW: &str = "
WITH changed AS (
  UPDATE ONLY outbox_event SET due_at = now()
  WHERE seq = ANY (ARRAY (
    SELECT seq FROM ONLY outbox_event
    WHERE seq = ANY ($4::bigint[]) AND (status = 2 OR status = 0 AND deferrals > 0) AND due_at > now() AND locked_by IS NULL
    ORDER BY seq + 0 FOR UPDATE)) RETURNING 1),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'retry_now', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

/// As [`WAITING_ROWS`] chooses. $1 most failures.
const COUNT_WAITING: &str = concat!(
    "
SELECT count(*) AS count FROM outbox_event
WHERE due_at > now() AND (status = 2 OR status = 0 AND deferrals > 0) AND locked_by IS NULL
  AND ($1::integer IS NULL OR attempts <= $1::integer) AND ",
    on_primary!()
);

/// $1 to $3 actor, reason and selector, $4 the id, $5 latest time of death.
const DISCARD: &str = "
WITH changed AS (
  DELETE FROM outbox_event
  WHERE event_id = $4::text AND status = 3 AND ($5::timestamptz IS NULL OR done_at <= $5::timestamptz) RETURNING 1),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'discard', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

/// $1 to $3 actor, reason and selector, $4 the id.
const SKIP: &str = "
WITH changed AS (UPDATE outbox_event SET blocks = 0 WHERE event_id = $4::text AND blocks = 1 RETURNING 1),
noted AS (
  INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
  SELECT now(), $1::text, $2::text, $3::text, 'skip', count(*) FROM changed HAVING count(*) > 0)
SELECT count(*) AS count FROM changed";

#[async_trait]
impl DeadStore for PostgresStore {
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError> {
        self.read_one("count dead events", filtered(self.statement(COUNT), filter), |row| row.count("count")).await
    }

    async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        let statement = doing(self, REPLAY, audit, &json!({ "event_id": id })).bind(id.to_string());
        self.read_one("replay a dead event", statement, done).await
    }

    async fn dead_rows(&self, filter: &DeadFilter, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        let statement = filtered(self.statement(DEAD_ROWS), filter).bind(signed(after)).bind(i64::from(limit));
        self.read_all("choose dead events", statement, row_id).await
    }

    async fn replay_rows(&self, rows: &[u64], filter: &DeadFilter, audit: &Audit) -> Result<u64, StoreError> {
        let statement = doing(self, REPLAY_ROWS, audit, &json!(filter)).bind(sequences(rows));
        let statement = statement.bind(filter.dead_before.map(Moment));
        self.read_one("replay dead events", statement, |row| row.count("count")).await
    }

    async fn waiting_rows(&self, max_attempts: Option<u32>, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        let statement = self.statement(WAITING_ROWS).bind(max_attempts.map(most)).bind(signed(after)).bind(i64::from(limit));
        self.read_all("choose waiting events", statement, row_id).await
    }

    async fn retry_rows_now(&self, rows: &[u64], max_attempts: Option<u32>, audit: &Audit) -> Result<u64, StoreError> {
        let selector = json!({ "max_attempts": max_attempts });
        let statement = doing(self, RETRY_ROWS_NOW, audit, &selector).bind(sequences(rows));
        self.read_one("retry failed events now", statement, |row| row.count("count")).await
    }

    async fn count_waiting(&self, max_attempts: Option<u32>) -> Result<u64, StoreError> {
        let statement = self.statement(COUNT_WAITING).bind(max_attempts.map(most));
        self.read_one("count waiting events", statement, |row| row.count("count")).await
    }

    async fn discard(&self, id: EventId, dead_before: Option<Timestamp>, audit: &Audit) -> Result<bool, StoreError> {
        let statement = doing(self, DISCARD, audit, &json!({ "event_id": id })).bind(id.to_string());
        self.read_one("discard a dead event", statement.bind(dead_before.map(Moment)), done).await
    }

    async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        let statement = doing(self, SKIP, audit, &json!({ "event_id": id })).bind(id.to_string());
        self.read_one("skip a dead event", statement, done).await
    }
}

/// The `seq` of each row, as it is bound.
fn sequences(rows: &[u64]) -> Vec<i64> {
    rows.iter().copied().map(signed).collect()
}

fn filtered<'q>(statement: Statement<'q>, filter: &'q DeadFilter) -> Statement<'q> {
    statement
        .bind(&filter.event_type)
        .bind(&filter.aggregate_type)
        .bind(&filter.aggregate_id)
        .bind(&filter.tenant_id)
        .bind(&filter.error)
        .bind(filter.max_attempts.map(most))
        .bind(filter.dead_after.map(Moment))
        .bind(filter.dead_before.map(Moment))
}

/// A bound as the column counts; above what it can hold means any.
pub(super) fn most(attempts: u32) -> i32 {
    i32::try_from(attempts).unwrap_or(i32::MAX)
}
