//! Claiming, and when to look again.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::patience::patiently;
use super::place::Ours;
use super::row::{claimed, is_read_apart};
use super::{MySqlStore, Run, front, keys, place};
use crate::event::OwnerId;
use crate::store::number::numbers;
use crate::store::row::{Apart, Columns, sequence, size_bytes};
use crate::store::run::commit_if_some;
use crate::store::settle::delay_micros;
use crate::store::{ClaimOrder, ClaimRequest, ClaimStore, Claimed, StoreError};

/// What is due, without a lock. In order of binding: the microseconds to leave alone, most rows.
pub(super) const CHOOSE: &str = "
SELECT seq FROM outbox_event FORCE INDEX (outbox_due)
WHERE due_at <= UTC_TIMESTAMP(6) AND (outbox_event.lease_end IS NULL OR outbox_event.lease_end <= UTC_TIMESTAMP(6))
  AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
ORDER BY due_at, seq LIMIT ?";

/// What is due, locked in the order of the index, for when other hosts have chosen the same. It passes by what they have
/// locked, so hosts claim beside each other; alone, choosing first and locking by `seq` is faster (measured: 6 ms against 15 ms
/// for 500, since every entry that a settled event left in the index is locked too). In order of binding: as [`CHOOSE`].
pub(super) const CLAIM: &str = "
SELECT outbox_event.seq, claim_seq + 1, attempts, deferrals, claims + 1, starts, event_id, event_type, aggregate_type, aggregate_id,
       tenant_id, CASE WHEN OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0) <= 16384 THEN headers END,
       content_type, CASE WHEN OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0) <= 16384 THEN payload END,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', occurred_at), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', available_at),
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at),
       (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id),
       OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0),
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), key_hash
FROM outbox_event FORCE INDEX (outbox_due)
WHERE due_at <= UTC_TIMESTAMP(6) AND (outbox_event.lease_end IS NULL OR outbox_event.lease_end <= UTC_TIMESTAMP(6))
  AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
ORDER BY due_at, seq LIMIT ?
FOR UPDATE SKIP LOCKED";

/// What is due in partitions that the owner holds, without a lock: hosts that share the table must not pass by each other's
/// rows. In order of binding: the microseconds to leave alone, the owner, the partitions as 256 letters of which 1 means asked
/// for, most rows.
pub(super) const CHOOSE_IN_ORDER: &str = "
SELECT outbox_event.seq
FROM outbox_event FORCE INDEX (outbox_due)
STRAIGHT_JOIN outbox_event_partition AS held ON held.partition_id = outbox_event.partition_id
WHERE due_at <= UTC_TIMESTAMP(6) AND (outbox_event.lease_end IS NULL OR outbox_event.lease_end <= UTC_TIMESTAMP(6))
  AND created_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND
  AND held.owner = ? AND held.lease_end > UTC_TIMESTAMP(6) AND SUBSTR(?, outbox_event.partition_id + 1, 1) = '1'
ORDER BY due_at, outbox_event.seq LIMIT ?";

/// Locks what was chosen and is still due; a row that somebody else has locked is passed by, so claims never wait, and settlers
/// wait for no more than this short transaction. Large ones are left out here, payload and headers: the byte limit may
/// leave the event to the next claim, and they would have been moved for nothing. Bound: a JSON list of seq.
pub(super) const CLAIM_CHOSEN: &str = "
SELECT outbox_event.seq, claim_seq + 1, attempts, deferrals, claims + 1, starts, event_id, event_type, aggregate_type, aggregate_id,
       tenant_id, CASE WHEN OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0) <= 16384 THEN headers END,
       content_type, CASE WHEN OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0) <= 16384 THEN payload END,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', occurred_at), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', available_at),
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at),
       (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = outbox_event.partition_id),
       OCTET_LENGTH(payload) + COALESCE(OCTET_LENGTH(headers), 0),
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), key_hash
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
WHERE due_at <= UTC_TIMESTAMP(6) AND (lease_end IS NULL OR lease_end <= UTC_TIMESTAMP(6))
FOR UPDATE SKIP LOCKED";

/// Bound: a JSON list of seq.
const LARGE: &str = "
SELECT outbox_event.seq, headers, payload FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq";

/// The rows are locked already. In order of binding: a JSON list of seq, the lease in microseconds, the owner.
pub(super) const TAKE: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET lease_end = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, locked_by = ?, locked_at = UTC_TIMESTAMP(6),
    claim_seq = claim_seq + 1, claims = claims + 1";

/// The next that becomes due, or whose lease ends. Of what is due and held, the first are enough: it is a hint.
pub(super) const NEXT_DUE: &str = "
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MIN(next)) FROM (
  SELECT MIN(due_at) AS next FROM outbox_event FORCE INDEX (outbox_due) WHERE due_at > UTC_TIMESTAMP(6)
  UNION ALL
  SELECT MIN(COALESCE(lease_end, due_at))
  FROM (SELECT lease_end, due_at FROM outbox_event FORCE INDEX (outbox_due)
        WHERE due_at <= UTC_TIMESTAMP(6) ORDER BY due_at, seq LIMIT 500) AS due) AS times";

const ACTION: &str = "claim events";

#[async_trait]
impl ClaimStore for MySqlStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        patiently(self, || try_claim(self, request)).await
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let rest = self.read_one("look for the next due event", self.statement(NEXT_DUE), |row| row.integer(0)).await?;
        Ok(rest.map(|rest| Duration::from_micros(u64::try_from(rest).unwrap_or(0))))
    }
}

/// What a claim took: the rows, what was left out of them, and what they stand behind.
struct Taken {
    rows: Vec<MySqlRow>,
    large: HashMap<u64, Apart>,
    behind: HashMap<u64, u64>,
}

async fn try_claim(store: &MySqlStore, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
    let mut transaction = store.transaction().await?;
    let taken = lock_and_take(store, &mut transaction, request).await;
    let Some(Taken { rows, mut large, mut behind }) = commit_if_some(store, transaction, taken).await? else {
        return Ok(Vec::new());
    };
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let sequence = sequence(row)?;
        events.push(claimed(row, large.remove(&sequence), behind.remove(&sequence))?);
    }
    events.sort_unstable_by_key(|claimed| claimed.fence.sequence);
    Ok(events)
}

/// `None` when there is nothing to claim.
async fn lock_and_take(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    request: &ClaimRequest,
) -> Result<Option<Taken>, StoreError> {
    let (mut rows, mut behind) = match &request.order {
        Some(ClaimOrder::OneForAll { held }) => front::lock(store, connection, request, held).await?,
        _ => (lock(store, connection, request).await?, HashMap::new()),
    };
    rows.truncate(fitting(&rows, request.max_bytes)?);
    if rows.is_empty() {
        return Ok(None);
    }
    let large = take(store, connection, &rows, &request.owner, request.lease).await?;
    if let Some(ClaimOrder::ByAggregate { waits_for, .. }) = &request.order {
        behind = place::behind(store, connection, &Ours::Claimed(&request.owner), &rows, *waits_for).await?;
    }
    Ok(Some(Taken { rows, large, behind }))
}

/// Claims rows that are locked already. Returns what was left out of them.
pub(super) async fn take(
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

async fn lock(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    request: &ClaimRequest,
) -> Result<Vec<MySqlRow>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let skip_recent = delay_micros(request.skip_recent);
    let limit = i64::from(request.limit);
    let choose = match &request.order {
        Some(ClaimOrder::ByAggregate { partitions, .. }) => {
            store.statement(CHOOSE_IN_ORDER).bind(skip_recent).bind(request.owner.as_str()).bind(keys::letters(partitions))
        }
        _ => store.statement(CHOOSE).bind(skip_recent),
    };
    let chosen = choose.bind(limit).fetch_all(&mut *connection).await.map_err(failed)?;
    if chosen.is_empty() {
        return Ok(chosen);
    }
    let chosen = chosen.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
    let query = store.statement(CLAIM_CHOSEN).bind(numbers(&chosen));
    let locked = query.fetch_all(&mut *connection).await.map_err(failed)?;
    if request.order.is_some() || locked.len() * 2 >= chosen.len() {
        return Ok(locked);
    }
    // Others have chosen the same.
    store.statement(CLAIM).bind(skip_recent).bind(limit).fetch_all(connection).await.map_err(failed)
}

/// How many of these events may be taken together: as many as it needs to reach the limit, at least one.
pub(super) fn fitting(rows: &[MySqlRow], max_bytes: usize) -> Result<usize, StoreError> {
    let mut before = 0_usize;
    for (index, row) in rows.iter().enumerate() {
        if index > 0 && before >= max_bytes {
            return Ok(index);
        }
        before = before.saturating_add(usize::try_from(size_bytes(row)?).unwrap_or(usize::MAX));
    }
    Ok(rows.len())
}

/// What was left out of rows because it is large.
pub(super) async fn large_rows(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    rows: &[MySqlRow],
) -> Result<HashMap<u64, Apart>, StoreError> {
    let mut large = Vec::new();
    for row in rows {
        if is_read_apart(row)? {
            large.push(sequence(row)?);
        }
    }
    if large.is_empty() {
        return Ok(HashMap::new());
    }
    let failed = |error| store.failed(ACTION, error);
    let rows = store.statement(LARGE).bind(numbers(&large)).fetch_all(connection).await.map_err(failed)?;
    let apart = |row: &MySqlRow| Ok::<_, sqlx::Error>(Apart { headers: row.try_get(1)?, payload: row.try_get(2)? });
    // Row by row, so that no payload is there twice for long.
    rows.into_iter().map(|row| Ok((sequence(&row)?, apart(&row).map_err(failed)?))).collect()
}
