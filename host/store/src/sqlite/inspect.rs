//! What people ask: counts, lists, one row. On the connections that only read.

use async_trait::async_trait;
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use sqlx::sqlite::SqliteRow;

use super::{Run, SqliteStore};
use crate::number::signed;
use crate::row::{Named, record};
use crate::{Filter, InspectStore, Record, SetAside, Stats, StoreError, WaitReason, row};

/// Each number from the index that holds just those rows. `since` and `cause`: since when each due event waits, and why. ?1 now.
const STATS: &str = "
SELECT coalesce(sum(status = 0), 0) AS new,
       coalesce(sum(status = 2), 0) AS retry,
       coalesce(sum(lease_end > ?1), 0) AS in_flight,
       (SELECT count(*) FROM outbox_event WHERE status = 1 AND done_at IS NOT NULL) AS done,
       (SELECT count(*) FROM outbox_event WHERE status = 3) AS dead,
       (SELECT count(*) FROM outbox_event WHERE parked IS NOT NULL) AS parked,
       (SELECT count(*) FROM outbox_event WHERE behind IS NOT NULL) AS blocked,
       min(CASE WHEN cause = 'waits_for_host' THEN since END) AS waits_for_host,
       min(CASE WHEN cause = 'given_back' THEN since END) AS given_back,
       min(CASE WHEN cause = 'no_listener' THEN since END) AS no_listener
FROM (SELECT status, lease_end,
             CASE WHEN available_at <= ?1 AND (due_at <= ?1 OR wait_since IS NOT NULL) THEN max(available_at, iif(created_at <= ?1, created_at, 0),
               CASE WHEN status = 2 OR deferrals > 0 OR replays > 0 THEN coalesce(wait_since, due_at) ELSE 0 END) END AS since,
             CASE WHEN wait_since IS NULL THEN 'waits_for_host' WHEN wait_reason LIKE 'no listener answers%' THEN 'no_listener'
                  ELSE 'given_back' END AS cause
      FROM outbox_event WHERE due_at IS NOT NULL)";

/// As above, each from the first rows of its index. ?1 now, ?2 the most rows of each kind.
const SAMPLE: &str = "
SELECT coalesce(sum(status = 0), 0) AS new,
       coalesce(sum(status = 2), 0) AS retry,
       coalesce(sum(lease_end > ?1), 0) AS in_flight,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_event WHERE status = 1 AND done_at IS NOT NULL LIMIT ?2)) AS done,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_event WHERE status = 3 LIMIT ?2)) AS dead,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_event WHERE parked IS NOT NULL LIMIT ?2)) AS parked,
       (SELECT count(*) FROM (SELECT 1 FROM outbox_event WHERE behind IS NOT NULL LIMIT ?2)) AS blocked,
       min(CASE WHEN cause = 'waits_for_host' THEN since END) AS waits_for_host,
       min(CASE WHEN cause = 'given_back' THEN since END) AS given_back,
       min(CASE WHEN cause = 'no_listener' THEN since END) AS no_listener
FROM (SELECT status, lease_end,
             CASE WHEN available_at <= ?1 AND (due_at <= ?1 OR wait_since IS NOT NULL) THEN max(available_at, iif(created_at <= ?1, created_at, 0),
               CASE WHEN status = 2 OR deferrals > 0 OR replays > 0 THEN coalesce(wait_since, due_at) ELSE 0 END) END AS since,
             CASE WHEN wait_since IS NULL THEN 'waits_for_host' WHEN wait_reason LIKE 'no listener answers%' THEN 'no_listener'
                  ELSE 'given_back' END AS cause
      FROM outbox_event WHERE due_at IS NOT NULL ORDER BY due_at, seq LIMIT ?2)";

/// Of the events that are due first, by the index of what is due.
/// ?1 the most events, ?2 the most reasons.
const WAIT_REASONS: &str = "
SELECT aggregate_type, event_type, wait_reason, count(*) AS events, min(wait_since) AS since
FROM (SELECT aggregate_type, event_type, wait_reason, wait_since FROM outbox_event WHERE due_at IS NOT NULL
      ORDER BY due_at, seq LIMIT ?1) AS first
WHERE wait_reason IS NOT NULL
GROUP BY aggregate_type, event_type, wait_reason ORDER BY count(*) DESC, min(wait_since) LIMIT ?2";

/// Nothing bound means any. ?1 status, ?2 event type, ?3 aggregate type, ?4 aggregate id, ?5 tenant, ?6 header key, ?7 header
/// value, ?8 text of the last error, ?9 after, ?10 before, ?11 limit, ?12 most failures, ?13 earliest and ?14 latest time of
/// the end, ?15 why it cannot be claimed, ?16 now, ?17 earliest and ?18 latest time of the insert.
macro_rules! list {
    ($aggregate:literal, $order:literal) => {
        concat!(
            "
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       CASE WHEN octet_length(headers) <= 1048576 THEN headers END AS headers, content_type, NULL AS payload,
       octet_length(payload) AS payload_bytes, status, attempts, deferrals, claims, starts, claim_seq, replays, occurred_at,
       created_at, available_at, due_at, expires_at, done_at, parked, behind, blocks, locked_by, locked_at, lease_end,
       last_error, wait_reason, wait_since, last_cost
FROM outbox_event
WHERE (?1 IS NULL OR status = ?1) AND (?2 IS NULL OR event_type = ?2) AND (?3 IS NULL OR aggregate_type = ?3)
  AND ",
            $aggregate,
            " AND (?5 IS NULL OR tenant_id = ?5)
  AND (?6 IS NULL OR EXISTS (SELECT 1 FROM json_each(iif(octet_length(headers) <= 1048576 AND json_valid(headers), headers, NULL)) AS header
                             WHERE header.key = ?6 AND header.value = ?7))
  AND (?8 IS NULL OR instr(last_error, ?8) > 0) AND (?12 IS NULL OR attempts <= ?12)
  AND (?13 IS NULL OR done_at >= ?13) AND (?14 IS NULL OR done_at <= ?14)
  AND (?17 IS NULL OR created_at >= ?17) AND (?18 IS NULL OR created_at <= ?18)
  AND (?15 IS NULL OR ?15 = 'parked' AND parked IS NOT NULL OR ?15 = 'blocked' AND behind IS NOT NULL
       OR ?15 = 'delayed' AND max(due_at, available_at) > ?16 AND (lease_end IS NULL OR lease_end <= ?16)
       OR ?15 = 'in_flight' AND due_at IS NOT NULL AND lease_end > ?16)
  AND seq > ?9 AND seq < ?10
ORDER BY seq ",
            $order,
            " LIMIT ?11"
        )
    };
}

const LIST: &str = list!("(?4 IS NULL OR aggregate_id = ?4)", "");
const LIST_NEWEST_FIRST: &str = list!("(?4 IS NULL OR aggregate_id = ?4)", "DESC");
/// A plain equality: SQLite plans without the bound values, so only this form uses the index.
const OF_AGGREGATE: &str = list!("aggregate_id = ?4", "");
pub(super) const OF_AGGREGATE_NEWEST_FIRST: &str = list!("aggregate_id = ?4", "DESC");

/// ?1 the id. A payload that no host reads is not read for people either; neither are headers beyond what a writer may write.
const GET: &str = "
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       CASE WHEN octet_length(headers) <= 1048576 THEN headers END AS headers, content_type,
       CASE WHEN octet_length(payload) <= 8388608 THEN payload END AS payload,
       octet_length(payload) AS payload_bytes, status, attempts, deferrals, claims, starts, claim_seq, replays, occurred_at,
       created_at, available_at, due_at, expires_at, done_at, parked, behind, blocks, locked_by, locked_at, lease_end,
       last_error, wait_reason, wait_since, last_cost
FROM outbox_event WHERE event_id = ?1";

#[async_trait]
impl InspectStore for SqliteStore {
    async fn stats(&self) -> Result<Stats, StoreError> {
        let now = self.clock.now();
        let statement = self.statement(STATS).bind(now.as_micros());
        self.read_one("count events", statement, |row| read_stats(row, now)).await
    }

    async fn sample(&self, most: u32) -> Result<Stats, StoreError> {
        let now = self.clock.now();
        let statement = self.statement(SAMPLE).bind(now.as_micros()).bind(most);
        self.read_one("count events", statement, |row| read_stats(row, now)).await
    }

    async fn wait_reasons(&self, most: u32) -> Result<Vec<WaitReason>, StoreError> {
        let statement = self.statement(WAIT_REASONS).bind(i64::from(most)).bind(i64::from(crate::inspect::MOST_WAIT_REASONS));
        let rows = self.all("look for the reasons of waiting events", statement).await?;
        rows.iter().map(|row| row::wait_reason(row).map_err(|source| self.failed("read why events wait", source))).collect()
    }

    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError> {
        let (key, value) = filter.header.clone().unzip();
        let statement = self
            .statement(match (&filter.aggregate_id, filter.newest_first) {
                (None, false) => LIST,
                (None, true) => LIST_NEWEST_FIRST,
                (Some(_), false) => OF_AGGREGATE,
                (Some(_), true) => OF_AGGREGATE_NEWEST_FIRST,
            })
            .bind(filter.status.map(outbox_event::Status::code))
            .bind(&filter.event_type)
            .bind(&filter.aggregate_type)
            .bind(&filter.aggregate_id)
            .bind(&filter.tenant_id)
            .bind(key)
            .bind(value)
            .bind(&filter.error)
            .bind(filter.after.map_or(-1, signed))
            .bind(filter.before.map_or(i64::MAX, signed))
            .bind(i64::from(limit))
            .bind(filter.max_attempts)
            .bind(filter.finished_after.map(Timestamp::as_micros))
            .bind(filter.finished_before.map(Timestamp::as_micros))
            .bind(filter.set_aside.map(SetAside::as_str))
            .bind(self.now_micros())
            .bind(filter.created_after.map(Timestamp::as_micros))
            .bind(filter.created_before.map(Timestamp::as_micros));
        self.all("list events", statement).await?.iter().map(record).collect()
    }

    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        self.optional("read an event", self.statement(GET).bind(id.as_str())).await?.as_ref().map(record).transpose()
    }
}

fn read_stats(row: &SqliteRow, now: Timestamp) -> Result<Stats, sqlx::Error> {
    row::stats(row, |column| Ok(row.optional_moment(column)?.map(|since| now.since(since))))
}
