//! Leases: what is in our hands stays ours. On a connection of its own.

use std::time::Duration;

use super::MySqlStore;
use super::row::sequence;
use super::transaction::Patience;
use crate::event::Fence;
use crate::store::StoreError;
use crate::store::settlement::delay_micros;

/// In order of binding: rows of [seq, fence], the lease in microseconds.
pub(super) const RENEW: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event ON outbox_event.seq = held.seq
SET lease_end = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE claim_seq = held.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

const STILL_HELD: &str = "
SELECT outbox_event.seq
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event ON outbox_event.seq = held.seq
WHERE claim_seq = held.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

pub(super) async fn renew(store: &MySqlStore, held: &[Fence], lease: Duration) -> Result<Vec<u64>, StoreError> {
    if held.is_empty() {
        return Ok(Vec::new());
    }
    let mut patience = Patience::new();
    loop {
        match try_renew(store, held, lease).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_renew(store: &MySqlStore, held: &[Fence], lease: Duration) -> Result<Vec<u64>, StoreError> {
    let failed = |error| store.failed("renew leases", error);
    let fences = fences(held);
    let result = sqlx::query(store.table.sql(RENEW))
        .bind(&fences)
        .bind(delay_micros(lease))
        .execute(&store.keeper)
        .await
        .map_err(failed)?;
    if usize::try_from(result.rows_affected()) == Ok(held.len()) {
        return Ok(held.iter().map(|fence| fence.sequence).collect());
    }
    let rows = sqlx::query(store.table.sql(STILL_HELD)).bind(fences).fetch_all(&store.keeper).await.map_err(failed)?;
    rows.iter().map(sequence).collect()
}

/// `[[seq,fence],…]`, in the order in which everybody locks rows.
fn fences(fences: &[Fence]) -> String {
    let mut sorted: Vec<[u64; 2]> = fences.iter().map(|fence| [fence.sequence, fence.claim]).collect();
    sorted.sort_unstable();
    serde_json::to_string(&sorted).expect("a list of numbers is JSON")
}
