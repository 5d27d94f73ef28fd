//! Reading due events without a claim, and when to look again.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{OwnerId, Route};
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::place;
use super::primary::on_primary;
use super::row::{bound, event_columns, is_read_apart};
use super::{MySqlStore, Run, front, keys};
use crate::event_row::{Apart, EventColumns, PositionColumns, now};
use crate::number::numbers;
use crate::read_statement::{Payloads, ReadStatement};
use crate::route::pairs;
use crate::row::{Columns, sequence};
use crate::run::answered;
use crate::settle::delay_micros;
use crate::{ReadEvent, ReadOrder, ReadRequest, ReadStore, StoreError};

/// The epoch is read with the row: should the partition be lost and won again, an outcome of what was read before is fenced off. A
/// large payload or headers are left out here: the byte limit may leave the event to the next read, and they would have been moved
/// for nothing. The rows are chosen without a look at any payload: to tell its length, this engine reads it whole, and a statement that
/// names it reads the payload of every row that it passes. In no order.
/// In order of binding: the position of the last event before, as microseconds since 1970 twice (NULL for none) and its seq; the
/// microseconds to leave alone, the owner, the partitions as 256 letters of which 1 means asked for, the events in hand as a JSON
/// list, busy routes as rows of [aggregate_type, event_type], most rows. Names are compared with something behind them, since this
/// collation takes no notice of spaces at the end. Each column of joined tables is qualified: a user may add columns to either.
macro_rules! read {
    () => {
        ReadStatement { with_payloads: read!(with_payload), without_payloads: read!(without_payload) }
    };
    ($payload:ident) => {
        concat!(
            "\nSELECT ",
            event_columns!($payload),
            ", claim_seq, claims, due.epoch, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) AS due_at,
       outbox_event.lease_end IS NOT NULL AS was_claimed, outbox_event.partition_id, key_hash
FROM (
  SELECT outbox_event.seq, held.epoch FROM outbox_event FORCE INDEX (outbox_due)
  STRAIGHT_JOIN outbox_event_partition AS held ON held.partition_id = outbox_event.partition_id
  WHERE ", on_primary!(), " AND outbox_event.due_at <= UTC_TIMESTAMP(6)
    AND outbox_event.due_at >= COALESCE('1970-01-01' + INTERVAL ? MICROSECOND, CAST('0000-01-01' AS DATETIME(6)))
    AND (outbox_event.due_at > COALESCE('1970-01-01' + INTERVAL ? MICROSECOND, CAST('0000-01-01' AS DATETIME(6))) OR outbox_event.seq > ?)
    AND (outbox_event.lease_end IS NULL OR outbox_event.lease_end <= UTC_TIMESTAMP(6))
    AND ABS(TIMESTAMPDIFF(MICROSECOND, outbox_event.created_at, UTC_TIMESTAMP(6))) >= ?
    AND held.owner = (SELECT node.owner FROM outbox_event_node AS node WHERE node.owner = ? AND alive_until > UTC_TIMESTAMP(6))
    AND SUBSTR(?, outbox_event.partition_id + 1, 1) = '1'
    AND outbox_event.seq NOT IN (SELECT in_hand.seq FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS in_hand)
    AND (CONCAT(outbox_event.aggregate_type, '/'), CONCAT(outbox_event.event_type, '/')) NOT IN (
      SELECT CONCAT(busy.aggregate_type, '/'), CONCAT(busy.event_type, '/')
      FROM JSON_TABLE(?, '$[*]' COLUMNS (aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                                         event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]')) AS busy)
  ORDER BY outbox_event.due_at, outbox_event.seq LIMIT ?) AS due
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = due.seq"
        )
    };
}

pub(super) const READ: ReadStatement = read!();

/// The next that becomes due, or whose lease ends. Of what is due and held, the first are enough: it is a hint.
pub(super) const NEXT_DUE: &str = concat!(
    "
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MIN(next)) FROM (
  SELECT MIN(due_at) AS next FROM outbox_event FORCE INDEX (outbox_due) WHERE due_at > UTC_TIMESTAMP(6)
  UNION ALL
  SELECT MIN(COALESCE(lease_end, due_at))
  FROM (SELECT lease_end, due_at FROM outbox_event FORCE INDEX (outbox_due)
        WHERE due_at <= UTC_TIMESTAMP(6) ORDER BY due_at, seq LIMIT 500) AS due) AS times
WHERE ",
    on_primary!()
);

/// As [`NEXT_DUE`]. Bound: the owner, the owner, the events in flight as a JSON list, busy routes as above.
pub(super) const NEXT_TO_READ: &str = concat!("
SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), MIN(next)) FROM (
  SELECT due_at AS next FROM (
    SELECT outbox_event.due_at FROM outbox_event FORCE INDEX (outbox_due)
    STRAIGHT_JOIN outbox_event_partition AS held ON held.partition_id = outbox_event.partition_id
    WHERE outbox_event.due_at > UTC_TIMESTAMP(6) AND held.owner = ?
    ORDER BY outbox_event.due_at, outbox_event.seq LIMIT 1) AS later
  UNION ALL
  SELECT MIN(COALESCE(lease_end, due_at))
  FROM (SELECT outbox_event.lease_end, outbox_event.due_at FROM outbox_event FORCE INDEX (outbox_due)
        STRAIGHT_JOIN outbox_event_partition AS held ON held.partition_id = outbox_event.partition_id
        WHERE outbox_event.due_at <= UTC_TIMESTAMP(6) AND held.owner = ?
          AND outbox_event.seq NOT IN (SELECT in_hand.seq FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS in_hand)
          AND (CONCAT(outbox_event.aggregate_type, '/'), CONCAT(outbox_event.event_type, '/')) NOT IN (
            SELECT CONCAT(busy.aggregate_type, '/'), CONCAT(busy.event_type, '/')
            FROM JSON_TABLE(?, '$[*]' COLUMNS (aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[0]',
                                               event_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]')) AS busy)
        ORDER BY outbox_event.due_at, outbox_event.seq LIMIT 500) AS due) AS times
WHERE ", on_primary!());

/// Bound: a JSON list of seq.
const LARGE: &str = concat!(
    "
SELECT outbox_event.seq, headers, payload FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
WHERE ",
    on_primary!()
);

const ACTION: &str = "read events";

#[async_trait]
impl ReadStore for MySqlStore {
    async fn read(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        let read = try_read(self, Payloads::Included, request);
        answered(self.longest, read, |silence| self.failed(ACTION, silence)).await
    }

    async fn read_without_payloads(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        let read = try_read(self, Payloads::LeftOut, request);
        answered(self.longest, read, |silence| self.failed(ACTION, silence)).await
    }

    async fn next_to_read(&self, owner: &OwnerId, held: &[u64], busy: &[Route]) -> Result<Option<Duration>, StoreError> {
        let statement = self.statement(NEXT_TO_READ).bind(owner.as_str()).bind(owner.as_str());
        let statement = statement.bind(numbers(held)).bind(pairs(busy));
        let rest = self.read_one("look for the next due event", statement, |row| row.integer(0)).await?;
        Ok(rest.map(|rest| Duration::from_micros(u64::try_from(rest).unwrap_or(0))))
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let rest = self.read_one("look for the next due event", self.statement(NEXT_DUE), |row| row.integer(0)).await?;
        Ok(rest.map(|rest| Duration::from_micros(u64::try_from(rest).unwrap_or(0))))
    }
}

async fn try_read(store: &MySqlStore, payloads: Payloads, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
    let mut connection = store.connection(ACTION).await?;
    let (mut rows, mut behind) = match request.order {
        Some(ReadOrder::OneForAll) => front::read(store, &mut connection, payloads, request).await?,
        _ => (due(store, &mut connection, payloads, request).await?, HashMap::new()),
    };
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (columns, positions, now) = (EventColumns::of(first)?, PositionColumns::of(first)?, now(first)?);
    rows.truncate(fitting(&columns, &rows, request.max_bytes)?);
    if let Some(ReadOrder::ByAggregate { waits_for, queued }) = &request.order {
        let read = rows.iter().map(|row| columns.sequence(row)).collect::<Result<Vec<_>, _>>()?;
        let ours = place::Ours { queued, all: numbers(&[queued.as_slice(), &read].concat()) };
        behind = place::behind(store, &mut connection, &ours, &rows, *waits_for).await?;
    }
    let mut large = large_rows(store, &mut connection, &rows).await?;
    let mut events = Vec::with_capacity(rows.len());
    for row in &rows {
        let sequence = columns.sequence(row)?;
        let apart = large.remove(&sequence);
        // A row that was deleted between the two statements is no event any more.
        if apart.is_some() || !is_read_apart(&columns, row)? {
            events.push(positions.read(row, columns.claimed(row, now, apart, behind.remove(&sequence))?)?);
        }
    }
    Ok(events)
}

/// Due rows of the owner's partitions, by the time since when they are due.
async fn due(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    payloads: Payloads,
    request: &ReadRequest,
) -> Result<Vec<MySqlRow>, StoreError> {
    let (after, before) = request.after.map_or((None, 0), |after| (Some(bound(after.due_at)), after.sequence));
    let statement = store
        .statement(READ.sql(payloads))
        .bind(after)
        .bind(after)
        .bind(before)
        .bind(delay_micros(request.skip_recent))
        .bind(request.owner.as_str())
        .bind(keys::letters(&request.partitions))
        .bind(numbers(&request.held))
        .bind(pairs(if request.order.is_none() { &request.busy } else { &[] }))
        .bind(i64::from(request.limit));
    let mut rows = statement.fetch_all(connection).await.map_err(|error| store.failed(ACTION, error))?;
    rows.sort_by_cached_key(|row| position(row).unwrap_or_default());
    Ok(rows)
}

/// Since when a row is due, in microseconds, and its seq.
fn position(row: &MySqlRow) -> Result<(i64, u64), StoreError> {
    let due_at: i64 = row.try_get("due_at").map_err(|source| StoreError::Failed { action: ACTION, source })?;
    Ok((due_at, sequence(row)?))
}

/// How many of these events may be taken together: as many as it needs to reach the limit, at least one.
fn fitting(columns: &EventColumns, rows: &[MySqlRow], max_bytes: usize) -> Result<usize, StoreError> {
    let mut before = 0_usize;
    for (index, row) in rows.iter().enumerate() {
        if index > 0 && before >= max_bytes {
            return Ok(index);
        }
        before = before.saturating_add(usize::try_from(columns.size_bytes(row)?).unwrap_or(usize::MAX));
    }
    Ok(rows.len())
}

/// The payloads and headers that were left out of rows because they are large.
pub(super) async fn large_rows(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    rows: &[MySqlRow],
) -> Result<HashMap<u64, Apart>, StoreError> {
    let Some(first) = rows.first() else { return Ok(HashMap::new()) };
    let columns = EventColumns::of(first)?;
    let mut large = Vec::new();
    for row in rows {
        if is_read_apart(&columns, row)? {
            large.push(columns.sequence(row)?);
        }
    }
    if large.is_empty() {
        return Ok(HashMap::new());
    }
    let failed = |error| store.failed(ACTION, error);
    let rows = store.statement(LARGE).bind(numbers(&large)).fetch_all(connection).await.map_err(failed)?;
    let apart =
        |row: &MySqlRow| Ok::<_, sqlx::Error>(Apart { headers: row.try_get("headers")?, payload: row.try_get("payload")? });
    // Row by row, so that no payload is there twice for long.
    rows.into_iter().map(|row| Ok((sequence(&row)?, apart(&row).map_err(failed)?))).collect()
}
