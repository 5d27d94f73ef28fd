//! Envelopes into rows.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};
use sqlx::Row;
use sqlx::mysql::MySqlConnection;

use super::MySqlStore;
use super::fault::is_duplicate;
use super::line::numbers;
use super::row::{bound, sequence};
use super::transaction::{self, Patience};
use crate::event::{Envelope, EventId};
use crate::store::settlement::delay_micros;
use crate::store::{NewRow, Ownership, StoreError};

/// One row, and its number comes back with the answer. A duplicate key fails this statement alone: this database takes back what
/// the statement did and leaves the transaction open. Bound: the columns in order, times in microseconds; the lease and the time
/// of which one becomes `due_at`.
const INSERT_ONE: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, available_at, expires_at, created_at, due_at, claims, claim_seq, locked_by, locked_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?,
        TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND,
        TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6),
        CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
             ELSE TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND END,
        ?, ?, ?, CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) END)";

/// Any number of rows in one statement: JSON with one array for each row, and all payloads end to end, which JSON cannot carry.
/// In order of binding: the payloads, the lease in microseconds, the owner, the rows.
const INSERT_MANY: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, available_at, expires_at, created_at, due_at, claims, claim_seq, locked_by, locked_at)
SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, SUBSTR(?, start, bytes),
       TIMESTAMP'1970-01-01 00:00:00' + INTERVAL occurred MICROSECOND,
       TIMESTAMP'1970-01-01 00:00:00' + INTERVAL available MICROSECOND,
       TIMESTAMP'1970-01-01 00:00:00' + INTERVAL expires MICROSECOND, UTC_TIMESTAMP(6),
       CASE WHEN claimed = 1 THEN UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
            ELSE TIMESTAMP'1970-01-01 00:00:00' + INTERVAL available MICROSECOND END,
       claimed, claimed, CASE WHEN claimed = 1 THEN ? END, CASE WHEN claimed = 1 THEN UTC_TIMESTAMP(6) END
FROM JSON_TABLE(?, '$[*]' COLUMNS (
  event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$[0]', event_type VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]',
  aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[2]', aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[3]',
  tenant_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', headers MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$[5]',
  content_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]', start BIGINT PATH '$[7]', bytes BIGINT PATH '$[8]',
  occurred BIGINT PATH '$[9]', available BIGINT PATH '$[10]', expires BIGINT PATH '$[11]', claimed INT PATH '$[12]')) AS given";

/// The numbers of the rows that this transaction inserted. Bound: a JSON list of ids.
const NUMBERS: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS given
STRAIGHT_JOIN outbox_event ON outbox_event.event_id = given.event_id";

/// Those that are there already, whoever inserted them: as they are now, not as this transaction saw them first.
const THERE: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS given
STRAIGHT_JOIN outbox_event ON outbox_event.event_id = given.event_id
LOCK IN SHARE MODE";

/// Bound: a JSON list of seq.
const TAKE_BACK: &str = "
DELETE outbox_event FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS given
STRAIGHT_JOIN outbox_event ON outbox_event.seq = given.seq";

/// Most rows in one statement, and most payload bytes: well below what a server takes as one packet by default.
const MAX_ROWS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;

const ACTION: &str = "insert events";

/// In a transaction of its own, again when it loses a deadlock.
pub(super) async fn write(
    store: &MySqlStore,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
) -> Result<Vec<Option<u64>>, StoreError> {
    let mut patience = Patience::new();
    loop {
        match try_write(store, rows, ownership).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_write(store: &MySqlStore, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
    if let [row] = rows {
        // A single statement is its own transaction.
        let mut connection = store.pool.acquire().await.map_err(|error| store.failed(ACTION, error))?;
        return Ok(vec![insert_one(store, &mut connection, row, ownership).await?]);
    }
    let mut transaction = transaction::begin(store).await?;
    let sequences = insert(store, &mut transaction, rows, ownership).await?;
    transaction::commit(transaction).await?;
    Ok(sequences)
}

pub(super) async fn insert(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
) -> Result<Vec<Option<u64>>, StoreError> {
    let mut sequences = Vec::with_capacity(rows.len());
    let mut rest = rows;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_len(rest));
        match chunk {
            [row] => sequences.push(insert_one(store, connection, row, ownership).await?),
            rows => sequences.extend(insert_many(store, connection, rows, ownership).await?),
        }
        rest = after;
    }
    Ok(sequences)
}

fn chunk_len(rows: &[NewRow<'_>]) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(MAX_ROWS).take_while(|row| {
        bytes += row.envelope.payload_bytes().len();
        bytes <= MAX_BYTES
    });
    fitting.count().max(1)
}

async fn insert_one(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    row: &NewRow<'_>,
    ownership: &Ownership,
) -> Result<Option<u64>, StoreError> {
    let envelope: &Envelope = row.envelope;
    let claimed = i64::from(row.claimed);
    let result = sqlx::query(store.table.sql(INSERT_ONE))
        .bind(envelope.id().to_string())
        .bind(envelope.event_type().as_str())
        .bind(envelope.aggregate_type().as_str())
        .bind(envelope.aggregate_id())
        .bind(envelope.tenant_id())
        .bind(headers(envelope))
        .bind(envelope.content_type())
        .bind(&envelope.payload_bytes()[..])
        .bind(bound(envelope.occurred_at()))
        .bind(bound(envelope.available_at()))
        .bind(envelope.expires_at().map(bound))
        .bind(claimed)
        .bind(delay_micros(ownership.lease))
        .bind(bound(envelope.available_at()))
        .bind(claimed)
        .bind(claimed)
        .bind(row.claimed.then(|| ownership.owner.as_str()))
        .bind(claimed)
        .execute(connection)
        .await;
    match result {
        Ok(result) => Ok(Some(result.last_insert_id())),
        Err(error) if is_duplicate(&error) => Ok(None),
        Err(error) => Err(store.failed(ACTION, error)),
    }
}

/// All at once, which nearly always works; else without those that are there already; else, when somebody inserts the same ids
/// at the same time, one by one.
async fn insert_many(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
) -> Result<Vec<Option<u64>>, StoreError> {
    let mut seen = HashSet::with_capacity(rows.len());
    let mut new: Vec<&NewRow<'_>> = rows.iter().filter(|row| seen.insert(row.envelope.id())).collect();
    if !insert_all(store, connection, &new, ownership).await? {
        let there = look_up(store, connection, THERE, &new).await?;
        new.retain(|row| !there.contains_key(&row.envelope.id()));
        if !insert_all(store, connection, &new, ownership).await? {
            let mut sequences = Vec::with_capacity(rows.len());
            for row in rows {
                sequences.push(insert_one(store, connection, row, ownership).await?);
            }
            return Ok(sequences);
        }
    }
    // The numbers are looked up, not counted up from the first: how they follow each other is the server's business.
    let mut found = look_up(store, connection, NUMBERS, &new).await?;
    Ok(rows.iter().map(|row| found.remove(&row.envelope.id())).collect())
}

/// False when one of the ids is there already; nothing was inserted then.
async fn insert_all(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    rows: &[&NewRow<'_>],
    ownership: &Ownership,
) -> Result<bool, StoreError> {
    if rows.is_empty() {
        return Ok(true);
    }
    let (fields, payloads) = encode(rows);
    let result = sqlx::query(store.table.sql(INSERT_MANY))
        .bind(payloads)
        .bind(delay_micros(ownership.lease))
        .bind(ownership.owner.as_str())
        .bind(fields)
        .execute(connection)
        .await;
    match result {
        Ok(_) => Ok(true),
        Err(error) if is_duplicate(&error) => Ok(false),
        Err(error) => Err(store.failed(ACTION, error)),
    }
}

async fn look_up(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    statement: &'static str,
    rows: &[&NewRow<'_>],
) -> Result<HashMap<EventId, u64>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let ids: Vec<EventId> = rows.iter().map(|row| row.envelope.id()).collect();
    let rows =
        sqlx::query(store.table.sql(statement)).bind(json!(ids).to_string()).fetch_all(connection).await.map_err(failed)?;
    let mut found = HashMap::with_capacity(rows.len());
    for row in &rows {
        let id: &str = row.try_get(1).map_err(failed)?;
        if let Ok(id) = id.parse() {
            found.insert(id, sequence(row)?);
        }
    }
    Ok(found)
}

fn encode(rows: &[&NewRow<'_>]) -> (String, Vec<u8>) {
    let mut payloads = Vec::with_capacity(rows.iter().map(|row| row.envelope.payload_bytes().len()).sum());
    let mut fields = Vec::with_capacity(rows.len());
    for row in rows {
        let envelope: &Envelope = row.envelope;
        fields.push(json!([
            envelope.id(),
            envelope.event_type(),
            envelope.aggregate_type(),
            envelope.aggregate_id(),
            envelope.tenant_id(),
            headers(envelope),
            envelope.content_type(),
            payloads.len() + 1,
            envelope.payload_bytes().len(),
            bound(envelope.occurred_at()),
            bound(envelope.available_at()),
            envelope.expires_at().map(bound),
            u8::from(row.claimed),
        ]));
        payloads.extend_from_slice(envelope.payload_bytes());
    }
    (Value::Array(fields).to_string(), payloads)
}

fn headers(envelope: &Envelope) -> Option<String> {
    (!envelope.headers().is_empty()).then(|| serde_json::to_string(envelope.headers()).expect("a map of strings is JSON"))
}

pub(super) async fn take_back(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    sequences: &[u64],
) -> Result<(), StoreError> {
    sqlx::query(store.table.sql(TAKE_BACK))
        .bind(numbers(sequences))
        .execute(connection)
        .await
        .map_err(|error| store.failed("take back inserted events", error))?;
    Ok(())
}
