//! Envelopes into rows.

use async_trait::async_trait;
use outbox_event::EventId;
use serde_json::json;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlTransaction};
use sqlx::{Connection, Executor};

use super::error::failed;
use super::insert_one::{ACTION, INSERT_ONE, insert_one};
use super::patience::patiently;
use super::{MySqlStore, Run, insert_many};
use crate::number::numbers;
use crate::row::with_ids;
use crate::run::{commit_or_roll_back, in_own_task};
use crate::write::chunk_len;
use crate::{NewRow, Ownership, StoreError, TransactionalStore, WriteStore};

/// Bound: a JSON list of seq.
const DELETE_INSERTED: &str = "
DELETE outbox_event FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id";

/// The LIMIT overrides the caller's `sql_select_limit`. Bound: a JSON list of seq.
const FIND: &str = "
SELECT outbox_event.seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = given.seq
LIMIT 18446744073709551615";

/// Around a batch of several statements. In text of our own: a savepoint of the driver's takes the whole transaction back when
/// the future that makes it is dropped.
const SAVEPOINT: &str = "SAVEPOINT outbox_write";
const RELEASE: &str = "RELEASE SAVEPOINT outbox_write";
const TAKE_ALL_BACK: &str = "ROLLBACK TO SAVEPOINT outbox_write";

/// What may be run in a transaction of the caller.
const STATEMENTS: [&str; 3] = [INSERT_ONE, FIND, DELETE_INSERTED];

/// Most payload bytes in one statement: well below what a server takes as one packet by default.
const MAX_BYTES: usize = 4 << 20;

const BEGIN: &str = "begin a transaction";
/// Instead of the driver's `BEGIN`, which opens a compound statement if `sql_mode` is `ORACLE`.
const START: &str = "START TRANSACTION";

#[async_trait]
impl WriteStore for MySqlStore {
    /// In a transaction of its own, again when it loses a deadlock.
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        patiently(self, || try_write(self, rows, ownership)).await
    }
}

async fn try_write(store: &MySqlStore, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
    if let [row] = rows {
        // A single statement is its own transaction.
        let mut connection = store.connection(ACTION).await?;
        return Ok(vec![insert_one(store, &mut connection, row, ownership).await?]);
    }
    let mut transaction = store.transaction().await?;
    let sequences = store.insert(&mut transaction, rows, ownership).await;
    commit_or_roll_back(store, transaction, sequences).await
}

impl TransactionalStore for MySqlStore {
    type Connection = MySqlConnection;
    type Transaction = MySqlTransaction<'static>;

    /// What is run in it later is prepared now, once for each connection: a future of the caller that is dropped while the server
    /// prepares a statement leaves the connection waiting for an answer for ever.
    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        let this = self.clone();
        let begun = async move {
            let mut transaction = if this.is_lent {
                this.callers.begin_with(START).await?
            } else {
                this.connector
                    .ask_pool(this.callers.clone(), |pool: MySqlPool| async move { pool.begin_with(START).await })
                    .await?
            };
            for sql in STATEMENTS.into_iter().chain(insert_many::STATEMENTS) {
                match transaction.prepare(this.table.sql(sql)).await {
                    // What this user may not do, or the table is not there for, he is told when he asks for it.
                    Err(error) if error.as_database_error().is_none() => return Err(error),
                    _ => {}
                }
            }
            Ok(transaction)
        };
        in_own_task(BEGIN, begun, |action, error| self.failed(action, error)).await
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        in_own_task("commit", transaction.commit(), failed).await
    }

    async fn rollback(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction.rollback().await.map_err(|error| failed("roll back", error))
    }

    fn is_in_transaction(connection: &mut Self::Connection) -> bool {
        Connection::is_in_transaction(connection)
    }

    async fn insert(
        &self,
        connection: &mut Self::Connection,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let mut sequences = Vec::with_capacity(rows.len());
        if chunk_len(rows, MAX_BYTES) >= rows.len() {
            insert_chunks(self, connection, rows, ownership, &mut sequences).await?;
            return Ok(sequences);
        }
        // Several statements: what the first ones wrote must not stay when a later one fails.
        run(self, connection, SAVEPOINT).await?;
        let result = insert_chunks(self, connection, rows, ownership, &mut sequences).await;
        let ended = run(self, connection, if result.is_ok() { RELEASE } else { TAKE_ALL_BACK }).await;
        // Where this fails after an error, that error has ended the whole transaction already.
        result.and(ended).map(|()| sequences)
    }

    async fn find(&self, connection: &mut Self::Connection, sequences: &[u64]) -> Result<Vec<(u64, EventId)>, StoreError> {
        let rows = self.statement(FIND).bind(numbers(sequences)).fetch_all(connection).await;
        rows.and_then(|rows| with_ids(&rows)).map_err(|error| self.failed("look for written events", error))
    }

    async fn delete_inserted(&self, connection: &mut Self::Connection, ids: &[EventId]) -> Result<(), StoreError> {
        let result = self.statement(DELETE_INSERTED).bind(json!(ids).to_string()).execute(connection).await;
        result.map(drop).map_err(|error| self.failed("delete inserted events", error))
    }
}

async fn run(store: &MySqlStore, connection: &mut MySqlConnection, sql: &'static str) -> Result<(), StoreError> {
    connection.execute(sqlx::raw_sql(sql)).await.map(drop).map_err(|error| store.failed(ACTION, error))
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
        let (chunk, after) = rest.split_at(chunk_len(rest, MAX_BYTES));
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
