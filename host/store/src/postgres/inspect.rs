//! What people ask: counts, lists, one row.

use async_trait::async_trait;
use outbox_event::{EventId, Status};
use sqlx::postgres::PgRow;

use super::dead::most;
use super::primary::on_primary;
use super::run::Statement;
use super::time::Moment;
use super::{PostgresStore, Run};
use crate::number::signed;
use crate::row::{Named, record};
use crate::{Filter, InspectStore, Record, SetAside, Stats, StoreError, WaitReason, row};

/// Each number from the index that holds just those rows. `since` and `cause`: since when each due event waits, and why.
const STATS: &str = concat!("
SELECT count(*) FILTER (WHERE status = 0) AS new,
       count(*) FILTER (WHERE status = 2) AS retry,
       count(*) FILTER (WHERE lease_end > now()) AS in_flight,
       (SELECT count(*) FROM outbox_event WHERE status = 1 AND done_at IS NOT NULL) AS done,
       (SELECT count(*) FROM outbox_event WHERE status = 3) AS dead,
       (SELECT count(*) FROM outbox_event WHERE parked IS NOT NULL) AS parked,
       (SELECT count(*) FROM outbox_event WHERE behind IS NOT NULL) AS blocked,
       min(since) FILTER (WHERE cause = 'waits_for_host') AS waits_for_host,
       min(since) FILTER (WHERE cause = 'given_back') AS given_back,
       min(since) FILTER (WHERE cause = 'no_listener') AS no_listener,
       now() AS now
FROM (SELECT status, lease_end,
             CASE WHEN available_at <= now() AND (due_at <= now() OR wait_since IS NOT NULL)
                  THEN greatest(available_at, CASE WHEN created_at <= now() THEN created_at END,
                                CASE WHEN status = 2 OR deferrals > 0 OR replays > 0 THEN coalesce(wait_since, due_at) END) END AS since,
             CASE WHEN wait_since IS NULL THEN 'waits_for_host' WHEN wait_reason LIKE 'no listener answers%' THEN 'no_listener'
                  ELSE 'given_back' END AS cause
      FROM outbox_event WHERE due_at IS NOT NULL) AS pending
WHERE ", on_primary!());

/// As above, each from the first rows of its index. $1 the most rows of each kind.
const SAMPLE: &str = concat!("
SELECT count(*) FILTER (WHERE status = 0) AS new,
       count(*) FILTER (WHERE status = 2) AS retry,
       count(*) FILTER (WHERE lease_end > now()) AS in_flight,
       (SELECT count(*) FROM (SELECT FROM outbox_event WHERE status = 1 AND done_at IS NOT NULL
                              ORDER BY done_at LIMIT $1::bigint) AS finished) AS done,
       (SELECT count(*) FROM (SELECT FROM outbox_event WHERE status = 3 LIMIT $1::bigint) AS given_up) AS dead,
       (SELECT count(*) FROM (SELECT FROM outbox_event WHERE parked IS NOT NULL LIMIT $1::bigint) AS aside) AS parked,
       (SELECT count(*) FROM (SELECT FROM outbox_event WHERE behind IS NOT NULL
                              ORDER BY behind LIMIT $1::bigint) AS waiting) AS blocked,
       min(since) FILTER (WHERE cause = 'waits_for_host') AS waits_for_host,
       min(since) FILTER (WHERE cause = 'given_back') AS given_back,
       min(since) FILTER (WHERE cause = 'no_listener') AS no_listener,
       now() AS now
FROM (SELECT status, lease_end,
             CASE WHEN available_at <= now() AND (due_at <= now() OR wait_since IS NOT NULL)
                  THEN greatest(available_at, CASE WHEN created_at <= now() THEN created_at END,
                                CASE WHEN status = 2 OR deferrals > 0 OR replays > 0 THEN coalesce(wait_since, due_at) END) END AS since,
             CASE WHEN wait_since IS NULL THEN 'waits_for_host' WHEN wait_reason LIKE 'no listener answers%' THEN 'no_listener'
                  ELSE 'given_back' END AS cause
      FROM outbox_event WHERE due_at IS NOT NULL
      ORDER BY due_at, seq LIMIT $1::bigint) AS pending
WHERE ", on_primary!());

/// Of the events that are due first, by the index of what is due.
/// $1 the most events, $2 the most reasons.
const WAIT_REASONS: &str = concat!(
    "
SELECT aggregate_type, event_type, wait_reason, count(*) AS events, min(wait_since) AS since
FROM (SELECT aggregate_type, event_type, wait_reason, wait_since FROM outbox_event WHERE due_at IS NOT NULL
      ORDER BY due_at, seq LIMIT $1::bigint) AS first
WHERE wait_reason IS NOT NULL AND ",
    on_primary!(),
    "
GROUP BY aggregate_type, event_type, wait_reason ORDER BY count(*) DESC, min(wait_since) LIMIT $2::bigint"
);

/// A JSON object of strings, and nothing that its reader could stumble over: a row whose headers are something else must not
/// spoil the list of those that are well.
const HEADERS: &str = concat!(
    r#"^\s*\{\s*("([^"\\[:cntrl:]]|\\["\\/bfnrt]|\\u(?!0000|[dD][89a-fA-F])[0-9a-fA-F]{4})*"\s*:\s*"#,
    r#""([^"\\[:cntrl:]]|\\["\\/bfnrt]|\\u(?!0000|[dD][89a-fA-F])[0-9a-fA-F]{4})*"\s*(,\s*(?=")|(?=\})))*\}\s*$"#,
);

/// Nothing bound means any. $1 status, $2 event type, $3 aggregate type, $4 aggregate id, $5 tenant, $6 header key, $7 header
/// value, $8 text of the last error, $9 after, $10 before, $11 limit, $12 what headers look like, $13 most failures,
/// $14 earliest and $15 latest time of the end, $16 why it cannot be claimed, $17 earliest and $18 latest time of the insert.
macro_rules! list {
    ($order:literal) => {
        concat!(
            "
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       CASE WHEN octet_length(headers) <= 1048576 THEN headers END AS headers, content_type, NULL::bytea AS payload,
       octet_length(payload) AS payload_bytes, status, attempts, deferrals, claims, starts, claim_seq, replays, occurred_at,
       created_at, available_at, due_at, expires_at, done_at, parked, behind, blocks, locked_by, locked_at, lease_end,
       last_error, wait_reason, wait_since, last_cost
FROM outbox_event
WHERE ($1::smallint IS NULL OR status = $1::smallint) AND ($2::text IS NULL OR event_type = $2::text)
  AND ($3::text IS NULL OR aggregate_type = $3::text) AND ($4::text IS NULL OR aggregate_id = $4::text)
  AND ($5::text IS NULL OR tenant_id = $5::text)
  AND ($6::text IS NULL OR CASE WHEN octet_length(headers) <= 1048576 AND headers ~ $12::text THEN headers::json ->> $6::text = $7::text ELSE false END)
  AND ($8::text IS NULL OR strpos(last_error, $8::text) > 0) AND ($13::integer IS NULL OR attempts <= $13::integer)
  AND ($14::timestamptz IS NULL OR done_at >= $14::timestamptz) AND ($15::timestamptz IS NULL OR done_at <= $15::timestamptz)
  AND ($17::timestamptz IS NULL OR created_at >= $17::timestamptz)
  AND ($18::timestamptz IS NULL OR created_at <= $18::timestamptz)
  AND ($16::text IS NULL OR $16::text = 'parked' AND parked IS NOT NULL OR $16::text = 'blocked' AND behind IS NOT NULL
       OR $16::text = 'delayed' AND due_at IS NOT NULL AND greatest(due_at, available_at) > now()
          AND (lease_end IS NULL OR lease_end <= now())
       OR $16::text = 'in_flight' AND due_at IS NOT NULL AND lease_end > now())
  AND seq > $9::bigint AND seq < $10::bigint
  AND ", on_primary!(), "
ORDER BY seq ",
            $order,
            " LIMIT $11::bigint"
        )
    };
}

const LIST: &str = list!("");
pub(super) const LIST_NEWEST_FIRST: &str = list!("DESC");

/// $1 the id.
macro_rules! get {
    ($headers:literal, $payload:literal) => {
        concat!(
            "
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, tenant_id, ",
            $headers,
            " AS headers, content_type, ",
            $payload,
            " AS payload,
       octet_length(payload) AS payload_bytes, status, attempts, deferrals, claims, starts, claim_seq, replays, occurred_at,
       created_at, available_at, due_at, expires_at, done_at, parked, behind, blocks, locked_by, locked_at, lease_end,
       last_error, wait_reason, wait_since, last_cost
FROM outbox_event WHERE event_id = $1::text AND ",
            on_primary!()
        )
    };
}

/// A payload that no host reads is not read for people either; neither are headers beyond what a writer may write.
const GET: &str = get!(
    "CASE WHEN octet_length(headers) <= 1048576 THEN headers END",
    "CASE WHEN octet_length(payload) <= 8388608 THEN payload END"
);

/// For a row whose payload or headers the server cannot return.
const GET_WITHOUT_CONTENT: &str = get!("NULL::text", "NULL::bytea");

#[async_trait]
impl InspectStore for PostgresStore {
    async fn stats(&self) -> Result<Stats, StoreError> {
        self.read_one("count events", self.statement(STATS), read_stats).await
    }

    async fn sample(&self, most: u32) -> Result<Stats, StoreError> {
        self.read_one("count events", self.statement(SAMPLE).bind(i64::from(most)), read_stats).await
    }

    async fn wait_reasons(&self, most: u32) -> Result<Vec<WaitReason>, StoreError> {
        let statement = self.statement(WAIT_REASONS).bind(i64::from(most)).bind(i64::from(crate::inspect::MOST_WAIT_REASONS));
        let rows = self.all("look for the reasons of waiting events", statement).await?;
        rows.iter().map(|row| row::wait_reason(row).map_err(|source| self.failed("read why events wait", source))).collect()
    }

    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError> {
        let statement = self.statement(if filter.newest_first { LIST_NEWEST_FIRST } else { LIST });
        self.all("list events", bound(statement, filter, limit)).await?.iter().map(record).collect()
    }

    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        let action = "read an event";
        let found = match self.optional(action, self.statement(GET).bind(id.to_string())).await {
            Err(error) if error.may_concern_rows() => {
                self.optional(action, self.statement(GET_WITHOUT_CONTENT).bind(id.to_string())).await
            }
            found => found,
        };
        found?.as_ref().map(record).transpose()
    }
}

/// A statement that lists events, with what it asks for.
pub(super) fn bound<'q>(statement: Statement<'q>, filter: &Filter, limit: u32) -> Statement<'q> {
    let (key, value) = filter.header.clone().unzip();
    statement
        .bind(filter.status.map(state))
        .bind(filter.event_type.clone())
        .bind(filter.aggregate_type.clone())
        .bind(filter.aggregate_id.clone())
        .bind(filter.tenant_id.clone())
        .bind(key)
        .bind(value)
        .bind(filter.error.clone())
        .bind(filter.after.map_or(i64::MIN, signed))
        .bind(filter.before.map_or(i64::MAX, signed))
        .bind(i64::from(limit))
        .bind(HEADERS)
        .bind(filter.max_attempts.map(most))
        .bind(filter.finished_after.map(Moment))
        .bind(filter.finished_before.map(Moment))
        .bind(filter.set_aside.map(SetAside::as_str))
        .bind(filter.created_after.map(Moment))
        .bind(filter.created_before.map(Moment))
}

/// A status as the column holds it.
pub(super) fn state(status: Status) -> i16 {
    i16::try_from(status.code()).expect("a status is one of four small numbers")
}

fn read_stats(row: &PgRow) -> Result<Stats, sqlx::Error> {
    let now = row.moment("now")?;
    row::stats(row, |column| Ok(row.optional_moment(column)?.map(|since| now.since(since))))
}
