//! Claiming single events.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{Fence, OwnerId};

use super::row::event_columns;
use super::{PostgresStore, Run};
use crate::event_row::{claimed, now};
use crate::number::signed;
use crate::settle::delay_micros;
use crate::{ClaimStore, Claimed, StoreError};

/// Choosing and locking are one statement: split, two owners could choose the same row. Skips rows that another transaction has locked
/// and rows that another claim has changed.
///
/// A claim is as durable as an outcome. Committed without waiting for the disk (a fifth more of claims and outcomes), a crash
/// of the server forgets it and gives its number out again: two deliveries with one fence, of which either's outcome counts.
///
/// `coalesce` keeps the planner from reading all due rows if it estimates that they are few, and the array of one number from reading the
/// primary key, as in the statements that store outcomes. $1 the owner, $2 the lease in microseconds, $3 each `seq`, $4 each fence.
pub(super) const CLAIM: &str = concat!(
    "\nUPDATE ONLY outbox_event
SET lease_end = now() + $2::bigint * interval '1 microsecond', locked_by = $1::text, locked_at = now(),
    claim_seq = claim_seq + 1, claims = least(claims::bigint + 1, 2147483647)
WHERE ctid = ANY (ARRAY (
  SELECT ctid FROM unnest($3::bigint[], $4::bigint[]) AS given (sequence, fence), ONLY outbox_event
  WHERE seq = ANY (ARRAY[given.sequence]) AND coalesce(due_at, 'infinity') <= now() AND (lease_end IS NULL OR lease_end <= now())
    AND given.fence & 4294967295 = claim_seq & 4294967295
    AND (given.fence >> 32 = 0
         OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                    WHERE held.partition_id = outbox_event.partition_id AND held.epoch = given.fence >> 32 AND held.owner = $1::text))
  FOR UPDATE SKIP LOCKED))
RETURNING ",
    event_columns!(),
    ",
       CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN headers END AS headers,
       CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN payload END AS payload,
       octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes,
       (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id) AS epoch, now() AS now"
);

#[async_trait]
impl ClaimStore for PostgresStore {
    async fn claim(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError> {
        let (sequences, claims): (Vec<i64>, Vec<i64>) =
            fences.iter().map(|fence| (signed(fence.sequence), signed(fence.claim))).unzip();
        let statement = self.statement(CLAIM).bind(owner.as_str()).bind(delay_micros(lease)).bind(sequences).bind(claims);
        // The next claim would pass by the rows of one that failed as long as they are locked.
        let rows = self.all_or_rolled_back("claim events", statement).await?;
        let mut claimed = claimed(&rows, now)?;
        // RETURNING promises no order.
        claimed.sort_unstable_by_key(|claimed| claimed.fence.sequence);
        Ok(claimed)
    }
}
