//! Many envelopes into rows by one statement.

use std::collections::{HashMap, HashSet};

use outbox_event::{Envelope, EventId};
use serde_json::{Value, json};
use sqlx::mysql::MySqlConnection;

use super::error::is_duplicate;
use super::insert_one::{ACTION, insert_one};
use super::row::bound;
use super::{MySqlStore, Run};
use crate::row::with_ids;
use crate::settle::delay_micros;
use crate::{NewRow, Ownership, StoreError};

/// Any number of rows in one statement: JSON with one array for each row, and all payloads end to end, which JSON cannot carry.
/// What is not put off is due at once, even when its writer's clock is ahead.
/// In order of binding: the payloads, the owner, the lease in microseconds, the rows.
const INSERT_MANY: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, available_at, expires_at, created_at, due_at, claims, claim_seq, locked_by, locked_at,
                          lease_end)
SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, SUBSTR(?, start, bytes),
       TIMESTAMP'1970-01-01 00:00:00' + INTERVAL occurred MICROSECOND,
       CASE WHEN available = occurred
            THEN LEAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL available MICROSECOND, UTC_TIMESTAMP(6))
            ELSE TIMESTAMP'1970-01-01 00:00:00' + INTERVAL available MICROSECOND END,
       TIMESTAMP'1970-01-01 00:00:00' + INTERVAL expires MICROSECOND, UTC_TIMESTAMP(6),
       CASE WHEN claimed = 1 THEN UTC_TIMESTAMP(6)
            WHEN available = occurred
            THEN LEAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL available MICROSECOND, UTC_TIMESTAMP(6))
            ELSE TIMESTAMP'1970-01-01 00:00:00' + INTERVAL available MICROSECOND END,
       claimed, claimed, CASE WHEN claimed = 1 THEN ? END, CASE WHEN claimed = 1 THEN UTC_TIMESTAMP(6) END,
       CASE WHEN claimed = 1 THEN UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND END
FROM JSON_TABLE(?, '$[*]' COLUMNS (
  event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$[0]', event_type VARCHAR(128) CHARACTER SET utf8mb4 PATH '$[1]',
  aggregate_type VARCHAR(64) CHARACTER SET utf8mb4 PATH '$[2]', aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[3]',
  tenant_id VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[4]', headers MEDIUMTEXT CHARACTER SET utf8mb4 PATH '$[5]',
  content_type VARCHAR(255) CHARACTER SET utf8mb4 PATH '$[6]', start BIGINT PATH '$[7]', bytes BIGINT PATH '$[8]',
  occurred BIGINT PATH '$[9]', available BIGINT PATH '$[10]', expires BIGINT PATH '$[11]', claimed INT PATH '$[12]')) AS given";

/// The numbers of the rows that this transaction inserted. The LIMIT overrides the caller's `sql_select_limit`. Bound: a JSON list of ids.
const NUMBERS: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id
LIMIT 18446744073709551615";

/// Those that are there already, whoever inserted them: as they are now, not as this transaction saw them first. By their ids
/// and no other way: this database reads a small table from end to end, and would wait for every row of an open transaction.
const THERE: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id
LIMIT 18446744073709551615
LOCK IN SHARE MODE";

/// What is prepared here, in the caller's transaction.
pub(super) const STATEMENTS: [&str; 3] = [INSERT_MANY, NUMBERS, THERE];

/// All at once, which nearly always works; else without those that are there already; else, when somebody inserts the same ids
/// at the same time, one by one.
pub(super) async fn insert(
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
    let result = store
        .statement(INSERT_MANY)
        .bind(payloads)
        .bind(ownership.owner.as_str())
        .bind(delay_micros(ownership.lease))
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
    let ids: Vec<EventId> = rows.iter().map(|row| row.envelope.id()).collect();
    let rows = store.statement(statement).bind(json!(ids).to_string()).fetch_all(connection).await;
    let found = rows.and_then(|rows| with_ids(&rows)).map_err(|error| store.failed(ACTION, error))?;
    Ok(found.into_iter().map(|(sequence, id)| (id, sequence)).collect())
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
            row.headers(),
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
