//! Claiming single events.

use std::borrow::Borrow;
use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::{Timestamp, micros};
use outbox_event::{Fence, OwnerId};

use super::error::failed;
use super::row::event_columns;
use super::{Run, SqliteStore};
use crate::event_row::claimed;
use crate::number::fence_rows;
use crate::{ClaimStore, Claimed, StoreError};

/// Choosing and locking are one statement: split, two owners could choose the same row.
/// ?1 now, ?2 the end of the lease, ?3 the owner, ?4 the fences as rows of [seq, fence].
pub(super) const CLAIM: &str = concat!(
    "\nUPDATE outbox_event
SET lease_end = ?2, locked_by = ?3, locked_at = ?1, claim_seq = claim_seq + 1, claims = min(claims + 1, 2147483647)
WHERE seq IN (SELECT seq FROM jsonb_each(?4) AS given CROSS JOIN outbox_event ON seq = given.value ->> 0
              WHERE claim_seq & 4294967295 = (given.value ->> 1) & 4294967295
                AND ((given.value ->> 1) >> 32 = 0
                     OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                WHERE held.partition_id = outbox_event.partition_id AND held.epoch = (given.value ->> 1) >> 32
                                  AND held.owner = ?3))
                AND due_at <= ?1 AND (lease_end IS NULL OR lease_end <= ?1))
RETURNING seq, ",
    event_columns!(),
    ",
       CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN headers END AS headers,
       CASE WHEN octet_length(payload) + coalesce(octet_length(headers), 0) <= 8388608 THEN payload END AS payload,
       octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes,
       (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id) AS epoch"
);

#[async_trait]
impl ClaimStore for SqliteStore {
    async fn claim(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError> {
        let failed = |error| failed("claim events", error);
        let mut writer = self.writing(failed).await?;
        // Only now: while others had the writer, time went by.
        let now = self.now_micros();
        let rows = self
            .statement(CLAIM)
            .bind(now)
            .bind(now.saturating_add(micros(lease)))
            .bind(owner.as_str())
            .bind(fence_rows(fences))
            .fetch_all(&mut *writer)
            .await
            .map_err(failed)?;
        drop(writer);
        let mut claimed = claimed(&rows, |_| Ok(Timestamp::from_micros(now)))?;
        // RETURNING promises no order.
        claimed.sort_unstable_by_key(|claimed| claimed.fence.sequence);
        Ok(claimed)
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
