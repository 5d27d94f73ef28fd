//! One queue of all events: reading its front.

use std::collections::{HashMap, HashSet};

use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::primary::on_primary;
use super::row::event_columns;
use super::{MySqlStore, Run};
use crate::number::numbers;
use crate::read_statement::{Payloads, ReadStatement};
use crate::row::{Named, filled, sequence};
use crate::settle::delay_micros;
use crate::{ReadRequest, StoreError};

/// The unfinished events whose time has come, in the order of their `seq`, without a lock; none unless the owner is alive and holds
/// all partitions. Each with whether later ones wait for it, and whether it may be claimed. The index of what is done has the
/// unfinished in this order too: they have no `done_at`, and every index of this engine ends with the primary key. In order of
/// binding: the microseconds to leave alone, most rows, the same two again, the owner, most rows.
pub(super) const FRONT: &str = concat!(
    "
SELECT seq, is_waited_for, is_free
FROM ((SELECT seq, CAST(available_at <= UTC_TIMESTAMP(6) AS SIGNED) AS is_waited_for,
              CAST(COALESCE(due_at <= UTC_TIMESTAMP(6) AND (lease_end IS NULL OR lease_end <= UTC_TIMESTAMP(6))
                            AND ABS(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6))) >= ?, 0) AS SIGNED) AS is_free
       FROM outbox_event FORCE INDEX (outbox_done)
       WHERE status = 0 AND done_at IS NULL AND (available_at <= UTC_TIMESTAMP(6) OR due_at <= UTC_TIMESTAMP(6))
         AND (claim_seq > 0 OR due_at IS NULL OR due_at <= UTC_TIMESTAMP(6))
       ORDER BY seq LIMIT ?)
      UNION ALL
      (SELECT seq, CAST(available_at <= UTC_TIMESTAMP(6) AS SIGNED),
              CAST(COALESCE(due_at <= UTC_TIMESTAMP(6) AND (lease_end IS NULL OR lease_end <= UTC_TIMESTAMP(6))
                            AND ABS(TIMESTAMPDIFF(MICROSECOND, created_at, UTC_TIMESTAMP(6))) >= ?, 0) AS SIGNED)
       FROM outbox_event FORCE INDEX (outbox_done)
       WHERE status = 2 AND done_at IS NULL AND (available_at <= UTC_TIMESTAMP(6) OR due_at <= UTC_TIMESTAMP(6))
         AND (claim_seq > 0 OR due_at IS NULL OR due_at <= UTC_TIMESTAMP(6))
       ORDER BY seq LIMIT ?)) AS front
WHERE ",
    on_primary!(),
    " AND (SELECT COUNT(*) FROM outbox_event_partition AS held
       WHERE held.owner = (SELECT node.owner FROM outbox_event_node AS node
                           WHERE node.owner = ? AND alive_until > UTC_TIMESTAMP(6))) = 256
ORDER BY seq LIMIT ?"
);

/// The chosen that may still be read, of partitions that the owner holds: the epoch is read with the row, as by
/// [`READ`](super::read::READ). In order of binding: a JSON list of seq, the owner.
macro_rules! read_chosen {
    () => {
        ReadStatement { with_payloads: read_chosen!(with_payload), without_payloads: read_chosen!(without_payload) }
    };
    ($payload:ident) => {
        concat!(
            "\nSELECT ",
            event_columns!($payload),
            ", outbox_event.claim_seq, outbox_event.claims, held.epoch,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', outbox_event.due_at) AS due_at,
       outbox_event.lease_end IS NOT NULL AS was_claimed, outbox_event.partition_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
STRAIGHT_JOIN outbox_event_partition AS held ON held.partition_id = outbox_event.partition_id
WHERE outbox_event.due_at <= UTC_TIMESTAMP(6)
  AND (outbox_event.lease_end IS NULL OR outbox_event.lease_end <= UTC_TIMESTAMP(6))
  AND ",
            on_primary!(),
            " AND held.owner = (SELECT node.owner FROM outbox_event_node AS node WHERE node.owner = ? AND alive_until > UTC_TIMESTAMP(6))"
        )
    };
}

pub(super) const READ_CHOSEN: ReadStatement = read_chosen!();

/// The front of the queue, and for each event the last before it that is waited for.
type Front = (Vec<MySqlRow>, HashMap<u64, u64>);

/// Reads the front of the queue for a host that holds all partitions, up to the first event that can neither be delivered nor is in
/// hand already.
pub(super) async fn read(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    payloads: Payloads,
    request: &ReadRequest,
) -> Result<Front, StoreError> {
    let ReadRequest { owner, held, limit, .. } = request;
    let failed = |error| store.failed("read events", error);
    let most = i64::from(*limit).saturating_add(i64::try_from(held.len()).unwrap_or(i64::MAX));
    let skip_recent = delay_micros(request.skip_recent);
    let query = store.statement(FRONT).bind(skip_recent).bind(most).bind(skip_recent).bind(most);
    let query = query.bind(owner.as_str()).bind(most);
    let front = query.fetch_all(&mut *connection).await.map_err(failed)?;
    let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
    let (chosen, behind) = choose(&front, held, limit).map_err(failed)?;
    if chosen.is_empty() {
        return Ok((Vec::new(), behind));
    }
    let query = store.statement(READ_CHOSEN.sql(payloads)).bind(numbers(&chosen)).bind(owner.as_str());
    let mut rows = query.fetch_all(connection).await.map_err(failed)?;
    rows.sort_by_cached_key(|row| sequence(row).unwrap_or(0));
    // If another host has taken one meanwhile, the events behind it may not pass.
    let clear =
        rows.iter().zip(&chosen).take_while(|(row, chosen)| sequence(*row).is_ok_and(|taken| taken == **chosen)).count();
    rows.truncate(clear);
    Ok((rows, behind))
}

/// The events that may be taken, in order, and for each the last before it that is waited for.
fn choose(front: &[MySqlRow], held: &[u64], limit: usize) -> Result<(Vec<u64>, HashMap<u64, u64>), sqlx::Error> {
    let held: HashSet<u64> = held.iter().copied().collect();
    let (mut chosen, mut behind) = (Vec::new(), HashMap::new());
    let mut earlier: Option<u64> = None;
    for row in front {
        let sequence = filled("seq", row.optional_sequence("seq"))?;
        if !held.contains(&sequence) {
            if row.count::<u32>("is_free")? == 0 || chosen.len() == limit {
                break;
            }
            chosen.push(sequence);
            behind.extend(earlier.map(|earlier| (sequence, earlier)));
        }
        if row.count::<u32>("is_waited_for")? != 0 {
            earlier = Some(sequence);
        }
    }
    Ok((chosen, behind))
}
