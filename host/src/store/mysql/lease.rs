//! Leases: what is in our hands stays ours. On a connection of its own.

use std::collections::HashSet;
use std::time::Duration;

use super::MySqlStore;
use super::lock::free;
use super::row::sequence;
use super::transaction::{self, Patience};
use crate::event::Fence;
use crate::store::settlement::delay_micros;
use crate::store::{Renewed, StoreError};

/// The rows are locked already: waiting for one that somebody else has locked, the leases of all others would end. In order of
/// binding: rows of [seq, fence], the lease in microseconds.
pub(super) const RENEW: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = held.seq
SET lease_end = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE claim_seq = held.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

const STILL_HELD: &str = "
SELECT outbox_event.seq
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = held.seq
WHERE claim_seq = held.fence AND locked_by IS NOT NULL AND status IN (0, 2)";

pub(super) async fn renew(store: &MySqlStore, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
    if held.is_empty() {
        return Ok(Renewed::default());
    }
    let mut patience = Patience::new();
    loop {
        match try_renew(store, held, lease).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_renew(store: &MySqlStore, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
    let failed = |error| store.failed("renew leases", error);
    let sequences: Vec<u64> = held.iter().map(|fence| fence.sequence).collect();
    let mut transaction = transaction::begin_on(store, &store.keeper).await?;
    let free: HashSet<u64> = free(store, &mut transaction, &sequences).await?.into_iter().collect();
    let fences = fences(held.iter().filter(|fence| free.contains(&fence.sequence)));
    let result = sqlx::query(store.table.sql(RENEW)).bind(fences).bind(delay_micros(lease)).execute(&mut *transaction).await;
    let renewed = usize::try_from(result.map_err(failed)?.rows_affected());
    if renewed == Ok(held.len()) {
        transaction::commit(transaction).await?;
        return Ok(Renewed { held: sequences, locked: Vec::new() });
    }
    let rows = sqlx::query(store.table.sql(STILL_HELD)).bind(self::fences(held)).fetch_all(&mut *transaction).await;
    transaction::commit(transaction).await?;
    let ours = rows.map_err(failed)?.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
    let (held, locked) = ours.into_iter().partition(|sequence| free.contains(sequence));
    Ok(Renewed { held, locked })
}

/// `[[seq,fence],…]`, in the order in which everybody locks rows.
pub(super) fn fences<'f>(fences: impl IntoIterator<Item = &'f Fence>) -> String {
    let mut sorted: Vec<[u64; 2]> = fences.into_iter().map(|fence| [fence.sequence, fence.claim]).collect();
    sorted.sort_unstable();
    serde_json::to_string(&sorted).expect("a list of numbers is JSON")
}
