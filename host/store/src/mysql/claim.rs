//! Claiming single events.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{Fence, OwnerId};
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::patience::patiently;
use super::read::large_rows;
use super::row::event_columns;
use super::{MySqlStore, Run};
use crate::event_row::{Apart, EventColumns, now};
use crate::number::{fence_rows, numbers};
use crate::row::sequence;
use crate::run::commit_if_some;
use crate::settle::delay_micros;
use crate::{ClaimStore, Claimed, StoreError};

/// Locks the rows that have not changed since they were looked at and are still due. Skips rows that another transaction has locked, so
/// a claim never waits. Settlers wait for no more than this short transaction. Large payloads and headers are read apart. In order of binding: rows of [seq, fence], the owner.
pub(super) const LOCK: &str = concat!(
    "\nSELECT ",
    event_columns!(with_payload),
    ", claim_seq + 1 AS claim_seq, LEAST(claims + 1, 2147483647) AS claims,
       (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id) AS epoch, key_hash
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$[0]', fence BIGINT PATH '$[1]')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = given.seq
WHERE claim_seq & 4294967295 = given.fence & 4294967295
  AND (given.fence >> 32 = 0
       OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                  WHERE held.partition_id = outbox_event.partition_id AND held.epoch = given.fence >> 32 AND held.owner = ?))
  AND due_at <= UTC_TIMESTAMP(6) AND (lease_end IS NULL OR lease_end <= UTC_TIMESTAMP(6))
FOR UPDATE SKIP LOCKED"
);

/// The rows are locked already. In order of binding: a JSON list of seq, the lease in microseconds, the owner.
pub(super) const TAKE: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET lease_end = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, locked_by = ?, locked_at = UTC_TIMESTAMP(6),
    claim_seq = claim_seq + 1, claims = LEAST(claims + 1, 2147483647)";

const ACTION: &str = "claim events";

#[async_trait]
impl ClaimStore for MySqlStore {
    async fn claim(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError> {
        let fences = fence_rows(fences);
        patiently(self, || try_claim(self, owner, lease, &fences)).await
    }
}

async fn try_claim(store: &MySqlStore, owner: &OwnerId, lease: Duration, fences: &str) -> Result<Vec<Claimed>, StoreError> {
    let mut transaction = store.transaction().await?;
    let taken = lock_and_take(store, &mut transaction, owner, lease, fences).await;
    let Some((rows, mut large)) = commit_if_some(store, transaction, taken).await? else {
        return Ok(Vec::new());
    };
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (columns, now) = (EventColumns::of(first)?, now(first)?);
    let claimed = |row| columns.claimed(row, now, large.remove(&columns.sequence(row)?), None);
    let mut events = rows.iter().map(claimed).collect::<Result<Vec<_>, _>>()?;
    events.sort_unstable_by_key(|claimed| claimed.fence.sequence);
    Ok(events)
}

/// Returns `None` if no row could be locked.
async fn lock_and_take(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    lease: Duration,
    fences: &str,
) -> Result<Option<(Vec<MySqlRow>, HashMap<u64, Apart>)>, StoreError> {
    let query = store.statement(LOCK).bind(fences).bind(owner.as_str());
    let (mut rows, mut seen) = (Vec::new(), HashSet::new());
    for row in query.fetch_all(&mut *connection).await.map_err(|error| store.failed(ACTION, error))? {
        // A fence that is given twice returns its row twice.
        if seen.insert(sequence(&row)?) {
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let large = take(store, connection, &rows, owner, lease).await?;
    Ok(Some((rows, large)))
}

/// Claims locked rows. Returns the large payloads and headers that [`LOCK`] left out.
async fn take(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    rows: &[MySqlRow],
    owner: &OwnerId,
    lease: Duration,
) -> Result<HashMap<u64, Apart>, StoreError> {
    let mut taken = rows.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
    // Everybody locks and writes in this order.
    taken.sort_unstable();
    let large = large_rows(store, connection, rows).await?;
    store
        .statement(TAKE)
        .bind(numbers(&taken))
        .bind(delay_micros(lease))
        .bind(owner.as_str())
        .execute(connection)
        .await
        .map_err(|error| store.failed(ACTION, error))?;
    Ok(large)
}
