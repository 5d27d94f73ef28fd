//! Envelopes into rows, in transactions on the one connection that writes.

use std::fmt::Write as _;

use async_trait::async_trait;
use outbox_event::time::micros;
use outbox_event::{AggregateType, Envelope, EventId};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteTransaction};
use sqlx::{Connection as _, Executor, SqlSafeStr as _, Sqlite};

use super::error::failed;
use super::{Run, SqliteStore};
use crate::number::numbers;
use crate::row::with_ids;
use crate::run::in_own_task;
use crate::write::{chunk_len, number};
use crate::{NewRow, Ownership, StoreError, TransactionalStore, WriteStore};

/// Takes the write lock at once: a deferred BEGIN that reads first and writes later fails with SQLITE_BUSY, which no timeout
/// helps against.
const BEGIN: &str = "BEGIN IMMEDIATE";

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

/// ?1 numbers of rows as a JSON list.
const FIND: &str = "SELECT seq, event_id FROM outbox_event WHERE seq IN (SELECT value FROM json_each(?1))";

/// Around a batch of several statements. In text of our own: a savepoint of the driver's takes the whole transaction back when
/// the future that makes it is dropped.
const SAVEPOINT: &str = "SAVEPOINT outbox_write";
const RELEASE: &str = "RELEASE SAVEPOINT outbox_write";
const TAKE_ALL_BACK: &str = "ROLLBACK TO SAVEPOINT outbox_write";

/// Most payload bytes in one statement.
const MAX_BYTES: usize = 16 << 20;

const ACTION: &str = "insert events";

#[async_trait]
impl WriteStore for SqliteStore {
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        let mut transaction = self.begin().await?;
        let sequences = self.insert(&mut transaction, rows, ownership).await?;
        self.finish(transaction).await?;
        Ok(sequences)
    }
}

impl TransactionalStore for SqliteStore {
    type Connection = SqliteConnection;
    type Transaction = SqliteTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        let writer = self.writer.clone();
        let begun = async move { SqliteTransaction::begin(acquire(&writer).await?, Some(BEGIN.into_sql_str())).await };
        let transaction = in_own_task("begin a transaction", begun, failed).await?;
        self.opened_file.check()?;
        Ok(transaction)
    }

    fn check_before_commit(&self) -> Result<(), StoreError> {
        self.opened_file.check()
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        in_own_task("commit", transaction.commit(), failed).await
    }

    async fn rollback(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction.rollback().await.map_err(|error| failed("roll back", error))
    }

    fn is_in_transaction(connection: &mut Self::Connection) -> bool {
        sqlx::Connection::is_in_transaction(connection)
    }

    async fn insert(
        &self,
        connection: &mut Self::Connection,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        self.opened_file.check()?;
        let mut sequences = Vec::with_capacity(rows.len());
        if chunk_len(rows, MAX_BYTES) >= rows.len() {
            insert_chunks(self, connection, rows, ownership, &mut sequences).await?;
            return Ok(sequences);
        }
        // Several statements: what the first ones wrote must not stay when a later one fails.
        run(connection, SAVEPOINT).await?;
        let result = insert_chunks(self, connection, rows, ownership, &mut sequences).await;
        let ended = run(connection, if result.is_ok() { RELEASE } else { TAKE_ALL_BACK }).await;
        // Where this fails after an error, that error has ended the whole transaction already.
        result.and(ended).map(|()| sequences)
    }

    async fn find(&self, connection: &mut Self::Connection, sequences: &[u64]) -> Result<Vec<(u64, EventId)>, StoreError> {
        let rows = self.statement(FIND).bind(numbers(sequences)).fetch_all(connection).await;
        rows.and_then(|rows| with_ids(&rows)).map_err(|error| failed("look for written events", error))
    }

    async fn delete_inserted(&self, connection: &mut Self::Connection, ids: &[EventId]) -> Result<(), StoreError> {
        let list = serde_json::to_string(ids).expect("a list of texts is JSON");
        let result = self.statement(DELETE_INSERTED).bind(list).execute(connection).await;
        result.map(drop).map_err(|error| failed("delete inserted events", error))
    }
}

/// A connection that is in no transaction. SQLite itself rolls back if a COMMIT fails, or a statement on a full disk. The driver's
/// ROLLBACK then fails, so the driver counts that transaction for ever and does not begin another on its connection.
pub(super) async fn acquire(pool: &SqlitePool) -> Result<PoolConnection<Sqlite>, sqlx::Error> {
    // They are closed after another connection is open. The last connection to be closed removes the -wal, or a database in memory.
    let mut unusable = Vec::new();
    loop {
        let connection = pool.acquire().await?;
        if !connection.is_in_transaction() {
            return Ok(connection);
        }
        unusable.push(connection.detach());
    }
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) -> Result<(), StoreError> {
    connection.execute(sqlx::raw_sql(sql)).await.map(drop).map_err(|error| failed(ACTION, error))
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
        let (chunk, after) = rest.split_at(chunk_len(rest, MAX_BYTES));
        let now = store.now_micros();
        let (fields, payloads) = encode(chunk);
        let statement = store.statement(INSERT).bind(fields).bind(payloads).bind(now).bind(ownership.owner.as_str());
        let statement = statement.bind(now.saturating_add(micros(ownership.lease)));
        let inserted = statement.fetch_all(&mut *connection).await.map_err(|error| failed(ACTION, error))?;
        number(chunk, &inserted, sequences)?;
        rest = after;
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
    text(json, row.headers().as_deref());
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
