//! Envelopes into rows.

use std::fmt::Write as _;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Executor, Row};

use super::error::failed;
use super::{SqliteStore, transaction};
use crate::event::{AggregateType, Envelope, EventId};
use crate::store::row::sequence;
use crate::store::{NewRow, Ownership, StoreError, WriteStore};
use crate::time::micros;

/// One statement for any number of rows: ?1 is a JSON array with one array per row, ?2 all payloads end to end (JSON cannot
/// carry bytes), ?3 now, ?4 the owner, ?5 the end of the lease. `WHERE true` tells SQLite's parser that ON CONFLICT is no join;
/// `jsonb_each` spares it from writing each inner array out as text and reading it again. `substr` of no bytes at all is NULL:
/// every payload is empty then. What is not put off is due at once, even when its writer's clock is ahead.
const INSERT: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, created_at, available_at, expires_at, due_at, claims, claim_seq, locked_by, locked_at,
                          lease_end)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
       coalesce(substr(?2, (value ->> 7) + 1, value ->> 8), x''),
       value ->> 9, ?3, iif(value ->> 10 = value ->> 9, min(value ->> 10, ?3), value ->> 10), value ->> 11,
       iif(value ->> 12, ?3, iif(value ->> 10 = value ->> 9, min(value ->> 10, ?3), value ->> 10)), value ->> 12, value ->> 12,
       iif(value ->> 12, ?4, NULL), iif(value ->> 12, ?3, NULL), iif(value ->> 12, ?5, NULL)
FROM jsonb_each(?1) WHERE true
ON CONFLICT (event_id) DO NOTHING
RETURNING seq, event_id";

const DELETE_INSERTED: &str = "DELETE FROM outbox_event WHERE event_id IN (SELECT value FROM json_each(?1))";

/// Around a batch of several statements. In text of our own: a savepoint of the driver's takes the whole transaction back when
/// the future that makes it is dropped.
const SAVEPOINT: &str = "SAVEPOINT outbox_write";
const RELEASE: &str = "RELEASE SAVEPOINT outbox_write";
const TAKE_ALL_BACK: &str = "ROLLBACK TO SAVEPOINT outbox_write";

/// Most rows in one statement, and most payload bytes: bounded, so that a large batch does not double itself in memory.
const MAX_ROWS: usize = 1_000;
const MAX_BYTES: usize = 16 << 20;

const ACTION: &str = "insert events";

#[async_trait]
impl WriteStore for SqliteStore {
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        let mut transaction = transaction::begin(self).await?;
        let sequences = insert(self, &mut transaction, rows, ownership).await?;
        transaction::commit(transaction).await?;
        Ok(sequences)
    }
}

pub(super) async fn insert(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
) -> Result<Vec<Option<u64>>, StoreError> {
    let mut sequences = Vec::with_capacity(rows.len());
    if chunk_len(rows) >= rows.len() {
        insert_chunks(store, connection, rows, ownership, &mut sequences).await?;
        return Ok(sequences);
    }
    // Several statements: what the first ones wrote must not stay when a later one fails.
    run(connection, SAVEPOINT).await?;
    let result = insert_chunks(store, connection, rows, ownership, &mut sequences).await;
    let ended = run(connection, if result.is_ok() { RELEASE } else { TAKE_ALL_BACK }).await;
    // Where this fails after an error, that error has ended the whole transaction already.
    result.and(ended).map(|()| sequences)
}

async fn insert_chunks(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
    sequences: &mut Vec<Option<u64>>,
) -> Result<(), StoreError> {
    let mut rest = rows;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_len(rest));
        insert_chunk(store, connection, chunk, ownership, sequences).await?;
        rest = after;
    }
    Ok(())
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), StoreError> {
    connection.execute(sqlx::raw_sql(sql)).await.map_err(|error| failed(ACTION, error))?;
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

async fn insert_chunk(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
    sequences: &mut Vec<Option<u64>>,
) -> Result<(), StoreError> {
    let now = store.now_micros();
    let (fields, payloads) = encode(rows);
    let inserted = sqlx::query(store.table.sql(INSERT))
        .bind(fields)
        .bind(payloads)
        .bind(now)
        .bind(ownership.owner.as_str())
        .bind(now.saturating_add(micros(ownership.lease)))
        .fetch_all(connection)
        .await
        .map_err(|error| failed(ACTION, error))?;
    // The rows come back in the order in which they went in; what is missing was there already.
    let mut inserted = inserted.iter().peekable();
    for row in rows {
        let came_in =
            inserted.next_if(|returned| returned.try_get::<&str, _>(1).is_ok_and(|id| id == row.envelope.id().as_str()));
        sequences.push(came_in.map(sequence).transpose()?);
    }
    Ok(())
}

fn encode(rows: &[NewRow<'_>]) -> (String, Vec<u8>) {
    let mut fields = String::with_capacity(rows.len() * 224 + 2);
    let mut payloads = Vec::with_capacity(rows.iter().map(|row| row.envelope.payload_bytes().len()).sum());
    fields.push('[');
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            fields.push(',');
        }
        encode_row(&mut fields, row, payloads.len());
        payloads.extend_from_slice(row.envelope.payload_bytes());
    }
    fields.push(']');
    (fields, payloads)
}

fn encode_row(json: &mut String, row: &NewRow<'_>, offset: usize) {
    let envelope: &Envelope = row.envelope;
    let aggregate_type: &AggregateType = envelope.aggregate_type();
    json.push('[');
    text(json, Some(envelope.id().as_str()));
    text(json, Some(envelope.event_type().as_str()));
    text(json, Some(aggregate_type.as_str()));
    text(json, envelope.aggregate_id());
    text(json, envelope.tenant_id());
    let headers =
        (!envelope.headers().is_empty()).then(|| serde_json::to_string(envelope.headers()).expect("a map of strings is JSON"));
    text(json, headers.as_deref());
    text(json, Some(envelope.content_type()));
    let length = envelope.payload_bytes().len();
    let (occurred, available) = (envelope.occurred_at().as_micros(), envelope.available_at().as_micros());
    let expires = envelope.expires_at().map_or_else(|| "null".to_owned(), |time| time.as_micros().to_string());
    write!(json, "{offset},{length},{occurred},{available},{expires},{}]", u8::from(row.claimed))
        .expect("writing to a string cannot fail");
}

fn text(json: &mut String, value: Option<&str>) {
    match value {
        None => json.push_str("null,"),
        Some(value) => {
            json.push_str(&serde_json::to_string(value).expect("a string is JSON"));
            json.push(',');
        }
    }
}

pub(super) async fn delete_inserted(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    ids: &[EventId],
) -> Result<(), StoreError> {
    let list = serde_json::to_string(ids).expect("a list of texts is JSON");
    sqlx::query(store.table.sql(DELETE_INSERTED))
        .bind(list)
        .execute(connection)
        .await
        .map_err(|error| failed("delete inserted events", error))?;
    Ok(())
}
