//! Claiming, and when to look again.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;

use super::keys::waited_for;
use super::partition::column;
use super::row::claimed;
use super::{PostgresStore, Run, front};
use crate::store::number::signed;
use crate::store::row::Columns;
use crate::store::settle::delay_micros;
use crate::store::{ClaimOrder, ClaimRequest, ClaimStore, Claimed, StoreError, WaitsFor};

/// Choosing and locking are one statement: split, two owners could choose the same row. A row that another claim changed
/// meanwhile is locked in its new version, which the statement does not see, so it is left alone. The array of row addresses
/// keeps the planner from joining the whole table. The window adds up the payloads, so that a batch of large events is a small
/// batch; `octet_length` of bytes reads no more than their header.
///
/// A claim is as durable as an outcome. Committed without waiting for the disk (a fifth more of claims and outcomes), a crash
/// of the server forgets it and gives its number out again: two deliveries with one fence, of which either's outcome counts. $1
/// the owner, $2 the lease, $3 most rows, $4 most bytes, $5 the youngest age; spans in microseconds.
pub(super) const CLAIM: &str = "
UPDATE outbox_event
SET lease_end = now() + $2::bigint * interval '1 microsecond', locked_by = $1::text, locked_at = now(),
    claim_seq = claim_seq + 1, claims = claims + 1
WHERE ctid = ANY (ARRAY (
  SELECT place FROM (
    SELECT place, sum(bytes) OVER (ORDER BY due_at, seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
    FROM (SELECT ctid AS place, due_at, seq, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes FROM outbox_event
          WHERE due_at <= now() AND (lease_end IS NULL OR lease_end <= now())
            AND created_at <= now() - $5::bigint * interval '1 microsecond'
          ORDER BY due_at, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS due) AS chosen
  WHERE bytes_before < $4::bigint))
RETURNING seq, claim_seq, attempts, deferrals, claims, starts, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN headers END,
          content_type,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN payload END,
          occurred_at, available_at, expires_at,
          (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id),
          octet_length(payload) + coalesce(octet_length(headers), 0), now()";

/// As above, of partitions that the owner holds by the database's clock, each with the last of the earlier events that it waits
/// for. What these are judged by is not changed by the claim itself: a statement does not see what it writes. $6 partitions, $7
/// the states of events that are waited for.
pub(super) const CLAIM_IN_ORDER: &str = "
UPDATE outbox_event
SET lease_end = now() + $2::bigint * interval '1 microsecond', locked_by = $1::text, locked_at = now(),
    claim_seq = claim_seq + 1, claims = claims + 1
WHERE ctid = ANY (ARRAY (
  SELECT place FROM (
    SELECT place, sum(bytes) OVER (ORDER BY due_at, seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
    FROM (SELECT ctid AS place, due_at, seq, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes FROM outbox_event
          WHERE due_at <= now() AND (lease_end IS NULL OR lease_end <= now())
            AND created_at <= now() - $5::bigint * interval '1 microsecond'
            AND partition_id = ANY (ARRAY (SELECT partition_id FROM outbox_event_partition
                                   WHERE owner = $1::text AND lease_end > now() AND partition_id = ANY ($6::smallint[])))
          ORDER BY due_at, seq LIMIT $3::bigint FOR UPDATE SKIP LOCKED) AS due) AS chosen
  WHERE bytes_before < $4::bigint))
RETURNING seq, claim_seq, attempts, deferrals, claims, starts, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN headers END,
          content_type,
          CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN payload END,
          occurred_at, available_at, expires_at,
          (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id),
          octet_length(payload) + coalesce(octet_length(headers), 0), now(),
          (SELECT earlier.seq FROM outbox_event AS earlier
           WHERE earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
             AND (earlier.status IN (0, 2) OR earlier.blocks = 1) AND earlier.status = ANY ($7::smallint[])
             AND earlier.available_at <= now() AND earlier.seq < outbox_event.seq
           ORDER BY earlier.aggregate_type DESC, earlier.aggregate_id DESC, earlier.seq DESC LIMIT 1)";

/// The next that becomes due, or whose lease ends. Of what is due and held, the first are enough: it is a hint.
pub(super) const NEXT_DUE: &str = "
SELECT least((SELECT due_at FROM outbox_event WHERE due_at > now() ORDER BY due_at, seq LIMIT 1),
             (SELECT min(coalesce(lease_end, due_at))
              FROM (SELECT lease_end, due_at FROM outbox_event WHERE due_at <= now() ORDER BY due_at, seq LIMIT 500) AS due)),
       now()";

#[async_trait]
impl ClaimStore for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        let statement = match &request.order {
            None => CLAIM,
            Some(ClaimOrder::ByAggregate { .. }) => CLAIM_IN_ORDER,
            Some(ClaimOrder::OneForAll { .. }) => front::CLAIM_FRONT,
        };
        let mut statement = self
            .statement(statement)
            .bind(request.owner.as_str())
            .bind(delay_micros(request.lease))
            .bind(i64::from(request.limit))
            .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
            .bind(delay_micros(request.skip_recent));
        let in_order = match &request.order {
            None => false,
            Some(ClaimOrder::ByAggregate { partitions: held, waits_for }) => {
                statement = statement.bind(column(held)).bind(waited_for(*waits_for));
                *waits_for != WaitsFor::Nothing
            }
            Some(ClaimOrder::OneForAll { held }) => {
                statement = statement.bind(held.iter().copied().map(signed).collect::<Vec<_>>());
                true
            }
        };
        let rows = self.all("claim events", statement).await?;
        let mut claimed = rows.iter().map(|row| claimed(row, in_order)).collect::<Result<Vec<_>, _>>()?;
        // RETURNING promises no order.
        claimed.sort_unstable_by_key(|claimed| claimed.fence.sequence);
        Ok(claimed)
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        self.read_one("look for the next due event", self.statement(NEXT_DUE), rest).await
    }
}

/// The time from now, the second column, to the first.
pub(super) fn rest(row: &PgRow) -> Result<Option<Duration>, sqlx::Error> {
    Ok(row.time(0)?.zip(row.time(1)?).map(|(due, now)| due.since(now)))
}
