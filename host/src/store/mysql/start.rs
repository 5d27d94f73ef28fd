//! How often an event was started alone without an outcome: a suspicion that it stops its host.

use super::MySqlStore;
use crate::event::Fence;
use crate::store::StoreError;

/// Names the primary key: along another index this database would wait for rows that others are inserting. Bound: the fence.
const COUNT: &str = "
UPDATE outbox_event FORCE INDEX (PRIMARY) SET starts = starts + 1
WHERE seq = ? AND claim_seq = ? AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Names no fence: whoever holds the event now, this host has outlived it. Bound: the `seq`.
const UNCOUNT: &str = "
UPDATE outbox_event FORCE INDEX (PRIMARY) SET starts = starts - 1 WHERE seq = ? AND starts > 0 AND status IN (0, 2)";

pub(super) async fn count(store: &MySqlStore, fence: Fence) -> Result<bool, StoreError> {
    let counted = sqlx::query(store.table.sql(COUNT)).bind(fence.sequence).bind(fence.claim).execute(&store.pool).await;
    Ok(counted.map_err(|error| store.failed("count a start", error))?.rows_affected() == 1)
}

pub(super) async fn uncount(store: &MySqlStore, sequence: u64) -> Result<(), StoreError> {
    let uncounted = sqlx::query(store.table.sql(UNCOUNT)).bind(sequence).execute(&store.pool).await;
    uncounted.map_err(|error| store.failed("take back a start", error))?;
    Ok(())
}
