//! Leases: what is in our hands stays ours; claims that are given back, and starts that are counted.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::micros;
use outbox_event::{EventId, Fence, OwnerId};

use super::claim::fences;
use super::error::failed;
use super::{Run, SqliteStore};
use crate::number::signed;
use crate::row::sequence;
use crate::{LeaseStore, Renewed, StoreError};

/// By the id, not by `seq`: the number of a row that was rolled back is given out again. The claim began
/// with the row, which no claim of a poller did, and the row is due since then.
/// ?1 ids as a JSON list, ?2 the owner.
const GIVE_BACK: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1, claims = max(claims, 1) - 1, locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE event_id IN (SELECT value FROM json_each(?1)) AND claim_seq = 1 AND locked_by = ?2 AND locked_at = created_at
  AND status IN (0, 2)";

/// ?1 and ?2 the fence.
const COUNT: &str = "
UPDATE outbox_event SET starts = min(starts + 1, 2147483647)
WHERE seq = ?1 AND claim_seq & 4294967295 = ?2 & 4294967295 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Names no fence: whoever holds the event now, this host has outlived it. ?1 the `seq`.
const UNCOUNT: &str = "
UPDATE outbox_event SET starts = starts - 1 WHERE seq = ?1 AND starts > 0 AND status IN (0, 2)";

/// ?1 an object of seq → fence, ?2 the new end of the lease.
pub(super) const RENEW: &str = "
UPDATE outbox_event SET lease_end = ?2
FROM json_each(?1) AS held
WHERE outbox_event.seq = CAST(held.key AS INTEGER) AND claim_seq & 4294967295 = held.value & 4294967295 AND locked_by IS NOT NULL
  AND status IN (0, 2)
RETURNING outbox_event.seq";

#[async_trait]
impl LeaseStore for SqliteStore {
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
        let lease = micros(lease);
        let failed = |error| failed("renew leases", error);
        let mut writer = self.writing(failed).await?;
        let rows = sqlx::query(self.table.sql(RENEW))
            .bind(fences(held.iter()))
            .bind(self.now_micros().saturating_add(lease))
            .fetch_all(&mut *writer)
            .await
            .map_err(failed)?;
        Ok(Renewed { held: rows.iter().map(sequence).collect::<Result<_, _>>()?, locked: Vec::new() })
    }

    /// While we may write, no other transaction has written and is open still: a row that is not there was rolled back.
    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        let list = serde_json::to_string(ids).expect("a list of texts is JSON");
        self.execute("give claims back", self.statement(GIVE_BACK).bind(list).bind(owner.as_str())).await?;
        Ok(ids.to_vec())
    }

    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError> {
        let statement = self.statement(COUNT).bind(signed(fence.sequence)).bind(signed(fence.claim));
        Ok(self.execute("count a start", statement).await? == 1)
    }

    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError> {
        self.execute("take back a start", self.statement(UNCOUNT).bind(signed(sequence))).await?;
        Ok(())
    }
}
