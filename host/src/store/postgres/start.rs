//! How often an event was started alone without an outcome: a suspicion that it stops its host.

use super::PostgresStore;
use crate::event::Fence;
use crate::store::StoreError;
use crate::store::number::signed;

/// $1 and $2 the fence.
const COUNT: &str = "
UPDATE outbox_event SET starts = starts + 1
WHERE seq = $1::bigint AND claim_seq = $2::bigint AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Names no fence: whoever holds the event now, this host has outlived it. $1 the `seq`.
const UNCOUNT: &str = "
UPDATE outbox_event SET starts = starts - 1 WHERE seq = $1::bigint AND starts > 0 AND status IN (0, 2)";

pub(super) async fn count(store: &PostgresStore, fence: Fence) -> Result<bool, StoreError> {
    let statement = store.statement(COUNT).bind(signed(fence.sequence)).bind(signed(fence.claim));
    Ok(store.execute("count a start", statement).await? == 1)
}

pub(super) async fn uncount(store: &PostgresStore, sequence: u64) -> Result<(), StoreError> {
    store.execute("take back a start", store.statement(UNCOUNT).bind(signed(sequence))).await?;
    Ok(())
}
