//! Claiming, renewing, and when to look again.

use std::borrow::Borrow;
use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;

use super::error::failed;
use super::row::claimed;
use super::{Run, SqliteStore, front, keys};
use crate::event::Fence;
use crate::store::number::numbers;
use crate::store::row::Columns;
use crate::store::{ClaimOrder, ClaimRequest, ClaimStore, Claimed, StoreError, WaitsFor};
use crate::time::micros;

/// Choosing and locking are one statement: split, two owners could choose the same row. The window adds up the payloads, so
/// that a batch of large events is a small batch; `length` of a blob reads its header only.
/// ?1 now, ?2 the end of the lease, ?3 the owner, ?4 most rows, ?5 most bytes, ?6 the newest insertion time.
pub(super) const CLAIM: &str = "
UPDATE outbox_event
SET lease_end = ?2, locked_by = ?3, locked_at = ?1, claim_seq = claim_seq + 1, claims = claims + 1
WHERE seq IN (
  SELECT seq FROM (
    SELECT seq, sum(bytes) OVER (ORDER BY due_at, seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
    FROM (SELECT seq, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes FROM outbox_event
          WHERE due_at <= ?1 AND (lease_end IS NULL OR lease_end <= ?1) AND created_at <= ?6
          ORDER BY due_at, seq LIMIT ?4))
  WHERE bytes_before < ?5)
RETURNING seq, claim_seq, attempts, deferrals, claims, starts, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN headers END,
          content_type,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN payload END,
          occurred_at, available_at, expires_at,
          (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id),
          octet_length(payload) + coalesce(octet_length(headers), 0)";

/// As above, of partitions that the owner holds by the database's clock, each with the last of the earlier events that it waits
/// for. What these are judged by is not changed by the claim itself. ?7 partitions as a JSON list, ?8 who is waited for.
pub(super) const CLAIM_IN_ORDER: &str = "
UPDATE outbox_event
SET lease_end = ?2, locked_by = ?3, locked_at = ?1, claim_seq = claim_seq + 1, claims = claims + 1
WHERE seq IN (
  SELECT seq FROM (
    SELECT seq, sum(bytes) OVER (ORDER BY due_at, seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
    FROM (SELECT seq, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes FROM outbox_event
          WHERE due_at <= ?1 AND (lease_end IS NULL OR lease_end <= ?1) AND created_at <= ?6 AND partition_id IN (
            SELECT partition_id FROM outbox_event_partition
            WHERE owner = ?3 AND lease_end > ?1 AND partition_id IN (SELECT value FROM json_each(?7)))
          ORDER BY due_at, seq LIMIT ?4))
  WHERE bytes_before < ?5)
RETURNING seq, claim_seq, attempts, deferrals, claims, starts, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN headers END,
          content_type,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN payload END,
          occurred_at, available_at, expires_at,
          (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id),
          octet_length(payload) + coalesce(octet_length(headers), 0),
          (SELECT earlier.seq FROM outbox_event AS earlier
           WHERE earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
             AND earlier.aggregate_id IS NOT NULL AND (earlier.status IN (0, 2) OR earlier.blocks = 1)
             AND (?8 = 0 OR earlier.status = 0) AND earlier.available_at <= ?1 AND earlier.seq < outbox_event.seq
           ORDER BY earlier.seq DESC LIMIT 1)";

/// The next that becomes due, or whose lease ends. Of what is due and held, the first are enough: it is a hint. ?1 now.
pub(super) const NEXT_DUE: &str = "
SELECT min(next) FROM (
  SELECT min(due_at) AS next FROM outbox_event WHERE due_at > ?1
  UNION ALL
  SELECT min(coalesce(lease_end, due_at))
  FROM (SELECT lease_end, due_at FROM outbox_event WHERE due_at <= ?1 ORDER BY due_at, seq LIMIT 500))";

#[async_trait]
impl ClaimStore for SqliteStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let failed = |error| failed("claim events", error);
        let mut writer = self.writing(failed).await?;
        // Only now: while others had the writer, time went by.
        let now = self.now_micros();
        let statement = match &request.order {
            None => CLAIM,
            Some(ClaimOrder::ByAggregate { .. }) => CLAIM_IN_ORDER,
            Some(ClaimOrder::OneForAll { .. }) => front::CLAIM_FRONT,
        };
        let mut query = sqlx::query(self.table.sql(statement))
            .bind(now)
            .bind(now.saturating_add(micros(request.lease)))
            .bind(request.owner.as_str())
            .bind(i64::from(request.limit))
            .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
            .bind(now.saturating_sub(micros(request.skip_recent)));
        let in_order = match &request.order {
            None => false,
            Some(ClaimOrder::ByAggregate { partitions, waits_for }) => {
                query = query.bind(numbers(partitions)).bind(keys::rule(*waits_for));
                *waits_for != WaitsFor::Nothing
            }
            Some(ClaimOrder::OneForAll { held }) => {
                query = query.bind(numbers(held));
                true
            }
        };
        let rows = query.fetch_all(&mut *writer).await.map_err(failed)?;
        drop(writer);
        let mut claimed = rows.iter().map(|row| claimed(row, now, in_order)).collect::<Result<Vec<_>, _>>()?;
        // RETURNING promises no order.
        claimed.sort_unstable_by_key(|claimed| claimed.fence.sequence);
        Ok(claimed)
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let now = self.clock.now();
        let statement = self.statement(NEXT_DUE).bind(now.as_micros());
        let due = self.read_one("look for the next due event", statement, |row| row.time(0)).await?;
        Ok(due.map(|due| due.since(now)))
    }
}

/// `{"seq":fence,…}`: SQLite reads it in one pass, key and value without another look at the text.
pub(super) fn fences<F: Borrow<Fence>>(fences: impl Iterator<Item = F>) -> String {
    let mut json = String::from("{");
    for fence in fences {
        let Fence { sequence, claim } = fence.borrow();
        let comma = if json.len() > 1 { "," } else { "" };
        write!(json, "{comma}\"{sequence}\":{claim}").expect("writing to a string cannot fail");
    }
    json.push('}');
    json
}
