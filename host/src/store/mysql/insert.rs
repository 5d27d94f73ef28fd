//! Envelopes into rows.

use async_trait::async_trait;
use serde_json::json;
use sqlx::mysql::MySqlConnection;
use sqlx::{Connection, Executor};

use super::error::is_duplicate;
use super::row::bound;
use super::transaction::{self, Patience};
use super::{MySqlStore, insert_many};
use crate::event::{Envelope, EventId};
use crate::store::settle::delay_micros;
use crate::store::{NewRow, Ownership, StoreError, WriteStore};

/// One row, and its number comes back with the answer. A duplicate key fails this statement alone: this database takes back
/// what the statement did and leaves the transaction open. What is not put off is due at once, even when its writer's clock is
/// ahead. Bound: the columns in order, times in microseconds; an empty lease
/// means that it is not claimed.
const INSERT_ONE: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, available_at, expires_at, created_at, due_at, claims, claim_seq, locked_by, locked_at,
                          lease_end)
VALUES (?, ?, ?, ?, ?, ?, ?, ?,
        TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND,
        CASE WHEN ? = 1 THEN TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
             ELSE LEAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6)) END,
        TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6),
        CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) ELSE available_at END,
        ?, ?, ?, CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) END, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)";

/// Bound: a JSON list of seq.
const DELETE_INSERTED: &str = "
DELETE outbox_event FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id";

/// Around a batch of several statements. In text of our own: a savepoint of the driver's takes the whole transaction back when
/// the future that makes it is dropped.
const SAVEPOINT: &str = "SAVEPOINT outbox_write";
const RELEASE: &str = "RELEASE SAVEPOINT outbox_write";
const TAKE_ALL_BACK: &str = "ROLLBACK TO SAVEPOINT outbox_write";

/// What is prepared here, in the caller's transaction.
pub(super) const STATEMENTS: [&str; 2] = [INSERT_ONE, DELETE_INSERTED];

/// Most rows in one statement, and most payload bytes: well below what a server takes as one packet by default.
const MAX_ROWS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;

pub(super) const ACTION: &str = "insert events";

#[async_trait]
impl WriteStore for MySqlStore {
    /// In a transaction of its own, again when it loses a deadlock.
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        let mut patience = Patience::new();
        loop {
            match try_write(self, rows, ownership).await {
                Err(error) if patience.allows(&error).await => {}
                result => return result,
            }
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
    if chunk_len(rows) >= rows.len() {
        insert_chunks(store, connection, rows, ownership, &mut sequences).await?;
        return Ok(sequences);
    }
    // Several statements: what the first ones wrote must not stay when a later one fails.
    run(store, connection, SAVEPOINT).await?;
    let result = insert_chunks(store, connection, rows, ownership, &mut sequences).await;
    let ended = run(store, connection, if result.is_ok() { RELEASE } else { TAKE_ALL_BACK }).await;
    // Where this fails after an error, that error has ended the whole transaction already.
    result.and(ended).map(|()| sequences)
}

async fn insert_chunks(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
    sequences: &mut Vec<Option<u64>>,
) -> Result<(), StoreError> {
    let mut rest = rows;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_len(rest));
        let inserted = match chunk {
            [row] => insert_one(store, connection, row, ownership).await.map(|sequence| vec![sequence]),
            rows => insert_many::insert(store, connection, rows, ownership).await,
        };
        if let Err(StoreError::Outdated { .. }) = inserted {
            // It may be the caller's own connection, which nobody replaces. That this can fail as well changes nothing.
            let _ = connection.clear_cached_statements().await;
        }
        sequences.extend(inserted?);
        rest = after;
    }
    Ok(())
}

async fn run(store: &MySqlStore, connection: &mut MySqlConnection, sql: &'static str) -> Result<(), StoreError> {
    connection.execute(sqlx::raw_sql(sql)).await.map_err(|error| store.failed(ACTION, error))?;
    Ok(())
}

fn chunk_len(rows: &[NewRow<'_>]) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(MAX_ROWS).take_while(|row| {
        bytes += row.bytes();
        bytes <= MAX_BYTES
    });
    fitting.count().max(1)
}

pub(super) async fn insert_one(
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
        .bind(i64::from(envelope.is_delayed()))
        .bind(bound(envelope.available_at()))
        .bind(bound(envelope.available_at()))
        .bind(envelope.expires_at().map(bound))
        .bind(claimed)
        .bind(claimed)
        .bind(claimed)
        .bind(row.claimed.then(|| ownership.owner.as_str()))
        .bind(claimed)
        .bind(row.claimed.then(|| delay_micros(ownership.lease)))
        .execute(connection)
        .await;
    match result {
        Ok(result) => Ok(Some(result.last_insert_id())),
        Err(error) if is_duplicate(&error) => Ok(None),
        Err(error) => Err(store.failed(ACTION, error)),
    }
}

pub(super) fn headers(envelope: &Envelope) -> Option<String> {
    (!envelope.headers().is_empty()).then(|| serde_json::to_string(envelope.headers()).expect("a map of strings is JSON"))
}

pub(super) async fn delete_inserted(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    ids: &[EventId],
) -> Result<(), StoreError> {
    sqlx::query(store.table.sql(DELETE_INSERTED))
        .bind(json!(ids).to_string())
        .execute(connection)
        .await
        .map_err(|error| store.failed("delete inserted events", error))?;
    Ok(())
}
