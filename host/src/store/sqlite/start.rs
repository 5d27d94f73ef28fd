//! How often an event was started alone without an outcome: a suspicion that it stops its host.

use super::SqliteStore;
use super::error::failed;
use crate::event::Fence;
use crate::store::StoreError;

/// ?1 and ?2 the fence.
const COUNT: &str = "
UPDATE outbox_event SET starts = starts + 1
WHERE seq = ?1 AND claim_seq = ?2 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Names no fence: whoever holds the event now, this host has outlived it. ?1 the `seq`.
const UNCOUNT: &str = "
UPDATE outbox_event SET starts = starts - 1 WHERE seq = ?1 AND starts > 0 AND status IN (0, 2)";

pub(super) async fn count(store: &SqliteStore, fence: Fence) -> Result<bool, StoreError> {
    let (sequence, claim) = (i64::try_from(fence.sequence), i64::try_from(fence.claim));
    let counted = sqlx::query(store.table.sql(COUNT))
        .bind(sequence.unwrap_or(i64::MAX))
        .bind(claim.unwrap_or(i64::MAX))
        .execute(&store.writer)
        .await
        .map_err(|error| failed("count a start", error))?;
    Ok(counted.rows_affected() == 1)
}

pub(super) async fn uncount(store: &SqliteStore, sequence: u64) -> Result<(), StoreError> {
    sqlx::query(store.table.sql(UNCOUNT))
        .bind(i64::try_from(sequence).unwrap_or(i64::MAX))
        .execute(&store.writer)
        .await
        .map_err(|error| failed("take back a start", error))?;
    Ok(())
}
