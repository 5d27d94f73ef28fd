//! One queue of all events: claiming its front.

use std::collections::{HashMap, HashSet};

use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::claim::CLAIM_CHOSEN;
use super::{MySqlStore, Run};
use crate::store::number::numbers;
use crate::store::row::sequence;
use crate::store::settle::delay_micros;
use crate::store::{ClaimRequest, StoreError};

/// The unfinished events whose time has come, in the order of their `seq`, without a lock; none unless the owner holds
/// partition 0. Each with whether later ones wait for it, and whether it may be claimed. The index of what is done has the
/// unfinished in this order too: they have no `done_at`, and every index of this engine ends with the primary key. In order of
/// binding: the microseconds to leave alone, most rows, the same two again, the owner, most rows.
pub(super) const FRONT: &str = "
SELECT seq, is_waited_for, is_free
FROM ((SELECT seq, CAST(available_at <= UTC_TIMESTAMP(6) AS SIGNED) AS is_waited_for,
              CAST(COALESCE(due_at <= UTC_TIMESTAMP(6) AND (lease_end IS NULL OR lease_end <= UTC_TIMESTAMP(6))
                            AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, 0) AS SIGNED) AS is_free
       FROM outbox_event FORCE INDEX (outbox_done)
       WHERE status = 0 AND done_at IS NULL AND (available_at <= UTC_TIMESTAMP(6) OR due_at <= UTC_TIMESTAMP(6))
       ORDER BY seq LIMIT ?)
      UNION ALL
      (SELECT seq, CAST(available_at <= UTC_TIMESTAMP(6) AS SIGNED),
              CAST(COALESCE(due_at <= UTC_TIMESTAMP(6) AND (lease_end IS NULL OR lease_end <= UTC_TIMESTAMP(6))
                            AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, 0) AS SIGNED)
       FROM outbox_event FORCE INDEX (outbox_done)
       WHERE status = 2 AND done_at IS NULL AND (available_at <= UTC_TIMESTAMP(6) OR due_at <= UTC_TIMESTAMP(6))
       ORDER BY seq LIMIT ?)) AS front
WHERE EXISTS (SELECT 1 FROM outbox_event_partition
              WHERE partition_id = 0 AND owner = ? AND outbox_event_partition.lease_end > UTC_TIMESTAMP(6))
ORDER BY seq LIMIT ?";

const ACTION: &str = "claim events";

/// Locks the front of the queue, up to the first that can neither be claimed nor is in hand already; with the last event before
/// each that is waited for.
pub(super) async fn lock(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    request: &ClaimRequest,
    held: &[u64],
) -> Result<(Vec<MySqlRow>, HashMap<u64, u64>), StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let most = i64::from(request.limit).saturating_add(i64::try_from(held.len()).unwrap_or(i64::MAX));
    let skip_recent = delay_micros(request.skip_recent);
    let query = store.statement(FRONT).bind(skip_recent).bind(most).bind(skip_recent).bind(most);
    let query = query.bind(request.owner.as_str()).bind(most);
    let front = query.fetch_all(&mut *connection).await.map_err(failed)?;
    let limit = usize::try_from(request.limit).unwrap_or(usize::MAX);
    let (chosen, behind) = choose(&front, held, limit).map_err(failed)?;
    if chosen.is_empty() {
        return Ok((Vec::new(), behind));
    }
    let query = store.statement(CLAIM_CHOSEN).bind(numbers(&chosen));
    let mut rows = query.fetch_all(connection).await.map_err(failed)?;
    rows.sort_by_cached_key(|row| sequence(row).unwrap_or(0));
    // Where somebody else has locked or taken one meanwhile, what comes behind it may not pass.
    let clear =
        rows.iter().zip(&chosen).take_while(|(row, chosen)| sequence(*row).is_ok_and(|locked| locked == **chosen)).count();
    rows.truncate(clear);
    Ok((rows, behind))
}

/// The events that may be claimed, in order, and for each the last before it that is waited for.
fn choose(front: &[MySqlRow], held: &[u64], limit: usize) -> Result<(Vec<u64>, HashMap<u64, u64>), sqlx::Error> {
    let held: HashSet<u64> = held.iter().copied().collect();
    let (mut chosen, mut behind) = (Vec::new(), HashMap::new());
    let mut earlier: Option<u64> = None;
    for row in front {
        let sequence = u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0);
        if !held.contains(&sequence) {
            if row.try_get::<i64, _>(2)? == 0 || chosen.len() == limit {
                break;
            }
            chosen.push(sequence);
            behind.extend(earlier.map(|earlier| (sequence, earlier)));
        }
        if row.try_get::<i64, _>(1)? != 0 {
            earlier = Some(sequence);
        }
    }
    Ok((chosen, behind))
}
