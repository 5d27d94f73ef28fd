//! What people ask: counts, lists, one row.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{EventId, Status};
use sqlx::mysql::MySqlRow;

use super::primary::on_primary;
use super::row::bound;
use super::{MySqlStore, Run};
use crate::row::{Named, record};
use crate::{Filter, InspectStore, Record, SetAside, Stats, StoreError, WaitReason, row};

/// Each number from the index that holds just those rows. `since` and `cause`: since when each due event waits, and why.
const STATS: &str = concat!("
SELECT CAST(COALESCE(SUM(status = 0), 0) AS SIGNED) AS new,
       CAST(COALESCE(SUM(status = 2), 0) AS SIGNED) AS retry,
       CAST(COALESCE(SUM(lease_end > UTC_TIMESTAMP(6)), 0) AS SIGNED) AS in_flight,
       (SELECT COUNT(*) FROM outbox_event FORCE INDEX (outbox_done) WHERE status = 1) AS done,
       (SELECT COUNT(*) FROM outbox_event FORCE INDEX (outbox_dead) WHERE dead_route IS NOT NULL) AS dead,
       (SELECT COUNT(*) FROM outbox_event FORCE INDEX (outbox_parked) WHERE parked_route IS NOT NULL) AS parked,
       (SELECT COUNT(*) FROM outbox_event FORCE INDEX (outbox_behind) WHERE behind IS NOT NULL) AS blocked,
       TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN cause = 'waits_for_host' THEN since END), UTC_TIMESTAMP(6)) AS waits_for_host,
       TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN cause = 'given_back' THEN since END), UTC_TIMESTAMP(6)) AS given_back,
       TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN cause = 'no_listener' THEN since END), UTC_TIMESTAMP(6)) AS no_listener
FROM (SELECT status, lease_end,
             CASE WHEN available_at <= UTC_TIMESTAMP(6) AND (due_at <= UTC_TIMESTAMP(6) OR wait_since IS NOT NULL) THEN GREATEST(available_at,
               IF(created_at <= UTC_TIMESTAMP(6), created_at, available_at),
               IF(status = 2 OR deferrals > 0 OR replays > 0, COALESCE(wait_since, due_at), available_at)) END AS since,
             CASE WHEN wait_since IS NULL THEN 'waits_for_host' WHEN wait_reason LIKE 'no listener answers%' THEN 'no_listener'
                  ELSE 'given_back' END AS cause
      FROM outbox_event FORCE INDEX (outbox_due) WHERE due_at IS NOT NULL) AS pending
WHERE ", on_primary!());

/// As above, each from the first rows of its index. Bound five times: the most rows of each kind.
const SAMPLE: &str = concat!("
SELECT CAST(COALESCE(SUM(status = 0), 0) AS SIGNED) AS new,
       CAST(COALESCE(SUM(status = 2), 0) AS SIGNED) AS retry,
       CAST(COALESCE(SUM(lease_end > UTC_TIMESTAMP(6)), 0) AS SIGNED) AS in_flight,
       (SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event FORCE INDEX (outbox_done) WHERE status = 1 LIMIT ?) AS finished) AS done,
       (SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event FORCE INDEX (outbox_dead) WHERE dead_route IS NOT NULL
                              LIMIT ?) AS given_up) AS dead,
       (SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event FORCE INDEX (outbox_parked) WHERE parked_route IS NOT NULL
                              LIMIT ?) AS aside) AS parked,
       (SELECT COUNT(*) FROM (SELECT 1 FROM outbox_event FORCE INDEX (outbox_behind) WHERE behind IS NOT NULL
                              LIMIT ?) AS waiting) AS blocked,
       TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN cause = 'waits_for_host' THEN since END), UTC_TIMESTAMP(6)) AS waits_for_host,
       TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN cause = 'given_back' THEN since END), UTC_TIMESTAMP(6)) AS given_back,
       TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN cause = 'no_listener' THEN since END), UTC_TIMESTAMP(6)) AS no_listener
FROM (SELECT status, lease_end,
             CASE WHEN available_at <= UTC_TIMESTAMP(6) AND (due_at <= UTC_TIMESTAMP(6) OR wait_since IS NOT NULL) THEN GREATEST(available_at,
               IF(created_at <= UTC_TIMESTAMP(6), created_at, available_at),
               IF(status = 2 OR deferrals > 0 OR replays > 0, COALESCE(wait_since, due_at), available_at)) END AS since,
             CASE WHEN wait_since IS NULL THEN 'waits_for_host' WHEN wait_reason LIKE 'no listener answers%' THEN 'no_listener'
                  ELSE 'given_back' END AS cause
      FROM outbox_event FORCE INDEX (outbox_due) WHERE due_at IS NOT NULL
      ORDER BY due_at, seq LIMIT ?) AS pending
WHERE ", on_primary!());

/// Of the events that are due first, by the index of what is due.
/// In order of binding: the most events, the most reasons.
const WAIT_REASONS: &str = concat!("
SELECT aggregate_type, event_type, wait_reason, count(*) AS events, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN(wait_since)) AS since
FROM (SELECT aggregate_type, event_type, wait_reason, wait_since FROM outbox_event FORCE INDEX (outbox_due) WHERE due_at IS NOT NULL
      ORDER BY due_at, seq LIMIT ?) AS first
WHERE wait_reason IS NOT NULL AND ", on_primary!(), "
GROUP BY aggregate_type, event_type, wait_reason ORDER BY count(*) DESC, MIN(wait_since) LIMIT ?");

/// NULL means any. Bound, each twice unless said otherwise: status, event type, aggregate type, aggregate id, tenant; header
/// key twice, header value once; text of the last error; most failures, earliest and latest time of the end and of the insert;
/// why it cannot be claimed five times; after, before and limit once.
macro_rules! list {
    ($order:literal) => {
        concat!(
            "
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       CASE WHEN OCTET_LENGTH(headers) <= 1048576 THEN headers END AS headers, content_type, NULL AS payload,
       OCTET_LENGTH(payload) AS payload_bytes, status, attempts, deferrals, claims, starts, claim_seq, replays,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', occurred_at) AS occurred_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at) AS created_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', available_at) AS available_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) AS due_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) AS expires_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', done_at) AS done_at, parked, behind, blocks, locked_by,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at) AS locked_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lease_end) AS lease_end, last_error, wait_reason,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', wait_since) AS wait_since, last_cost
FROM outbox_event
WHERE (? IS NULL OR status = ?) AND (? IS NULL OR event_type = ?) AND (? IS NULL OR aggregate_type = ?)
  AND (? IS NULL OR aggregate_id = ?) AND (? IS NULL OR tenant_id = ?)
  AND (? IS NULL OR CASE WHEN JSON_VALID(headers) THEN JSON_CONTAINS(headers, JSON_OBJECT(COALESCE(?, ''), ?)) ELSE 0 END)
  AND (? IS NULL OR INSTR(last_error, ?) > 0) AND (? IS NULL OR attempts <= ?)
  AND (? IS NULL OR done_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR done_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR created_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR created_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR ? = 'parked' AND parked IS NOT NULL OR ? = 'blocked' AND behind IS NOT NULL
       OR ? = 'delayed' AND due_at IS NOT NULL AND GREATEST(due_at, available_at) > UTC_TIMESTAMP(6)
          AND (lease_end IS NULL OR lease_end <= UTC_TIMESTAMP(6))
       OR ? = 'in_flight' AND due_at IS NOT NULL AND lease_end > UTC_TIMESTAMP(6))
  AND seq > ? AND seq < ?
  AND ",
            on_primary!(),
            "
ORDER BY seq ",
            $order,
            " LIMIT ?"
        )
    };
}

const LIST: &str = list!("");
pub(super) const LIST_NEWEST_FIRST: &str = list!("DESC");

/// Bound: the id. A payload that no host reads is not read for people either; neither are headers beyond what a writer may write.
const GET: &str = concat!(
    "
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       CASE WHEN OCTET_LENGTH(headers) <= 1048576 THEN headers END AS headers, content_type,
       CASE WHEN OCTET_LENGTH(payload) <= 8388608 THEN payload END AS payload,
       OCTET_LENGTH(payload) AS payload_bytes, status, attempts, deferrals, claims, starts, claim_seq, replays,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', occurred_at) AS occurred_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at) AS created_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', available_at) AS available_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) AS due_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at) AS expires_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', done_at) AS done_at, parked, behind, blocks, locked_by,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at) AS locked_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lease_end) AS lease_end, last_error, wait_reason,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', wait_since) AS wait_since, last_cost
FROM outbox_event WHERE event_id = ? AND ",
    on_primary!()
);

#[async_trait]
impl InspectStore for MySqlStore {
    async fn stats(&self) -> Result<Stats, StoreError> {
        self.read_one("count events", self.statement(STATS), read_stats).await
    }

    async fn sample(&self, most: u32) -> Result<Stats, StoreError> {
        let mut query = self.statement(SAMPLE);
        for _limit in 0..5 {
            query = query.bind(most);
        }
        self.read_one("count events", query, read_stats).await
    }

    async fn wait_reasons(&self, most: u32) -> Result<Vec<WaitReason>, StoreError> {
        let statement = self.statement(WAIT_REASONS).bind(i64::from(most)).bind(i64::from(crate::inspect::MOST_WAIT_REASONS));
        let rows = self.all("look for the reasons of waiting events", statement).await?;
        rows.iter().map(|row| row::wait_reason(row).map_err(|source| self.failed("read why events wait", source))).collect()
    }

    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError> {
        let (key, value) = filter.header.as_ref().map(|(key, value)| (key.as_str(), value.as_str())).unzip();
        let status = filter.status.map(Status::code);
        let mut query = self.statement(if filter.newest_first { LIST_NEWEST_FIRST } else { LIST });
        query = query.bind(status).bind(status);
        for text in [&filter.event_type, &filter.aggregate_type, &filter.aggregate_id, &filter.tenant_id] {
            query = query.bind(text).bind(text);
        }
        query = query.bind(key).bind(key).bind(value).bind(&filter.error).bind(&filter.error);
        let times = [filter.finished_after, filter.finished_before, filter.created_after, filter.created_before];
        for number in std::iter::once(filter.max_attempts.map(i64::from)).chain(times.map(|time| time.map(bound))) {
            query = query.bind(number).bind(number);
        }
        for _ in 0..5 {
            query = query.bind(filter.set_aside.map(SetAside::as_str));
        }
        let query = match filter.after {
            Some(after) => query.bind(after),
            None => query.bind(-1_i64),
        };
        let query = query.bind(filter.before.unwrap_or(u64::MAX));
        self.all("list events", query.bind(i64::from(limit))).await?.iter().map(record).collect()
    }

    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        self.optional("read an event", self.statement(GET).bind(id.to_string())).await?.as_ref().map(record).transpose()
    }
}

fn read_stats(row: &MySqlRow) -> Result<Stats, sqlx::Error> {
    let waited = |micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    row::stats(row, |column| Ok(row.optional_number(column)?.map(waited)))
}
