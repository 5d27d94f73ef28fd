//! SQLite: the embedded default.
//!
//! One connection writes, a few read: SQLite has one writer at a time anyway, and a queue inside the process is fair where
//! `SQLITE_BUSY` is not. An application that has a pool of its own lends it, so that both stand in one queue. SQLite has no clock of its own: the store's [`Clock`] is the database's clock.

mod audit;
mod claim;
mod dead;
mod doctor;
mod effects;
mod error;
mod find;
mod front;
mod insert;
mod inspect;
mod keys;
mod lease;
mod let_pass;
mod node;
mod open;
mod partition;
mod plan;
mod purge;
mod route;
mod row;
mod schema;
mod settle;
mod state;
mod transaction;

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteTransaction};

use super::{NewRow, Ownership, Store, StoreError, TableName};
use crate::event::EventId;
use crate::store::{NotifyStore, TransactionalStore};
use crate::time::{Clock, Timestamp};

pub use open::SqliteOptions;

/// The outbox in a SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    /// Exactly one connection, or the application's own pool.
    writer: SqlitePool,
    readers: SqlitePool,
    /// Those of the two that the store opened; the application closes its own.
    opened: Vec<SqlitePool>,
    table: TableName,
    clock: Arc<dyn Clock>,
    /// The file, for messages.
    file: Arc<str>,
}

impl SqliteStore {
    /// The text of every step of the schema, for a database that is not open: as [`SchemaStore::migration_sql`](crate::store::SchemaStore::migration_sql).
    #[must_use]
    pub fn schema_sql(table: &TableName) -> String {
        schema::text(table)
    }

    /// Now, by the clock that decides what is due; microseconds.
    fn now_micros(&self) -> i64 {
        self.clock.now().as_micros()
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("file", &self.file).field("table", &self.table).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    async fn close(&self) {
        for pool in &self.opened {
            pool.close().await;
        }
    }
}

/// Nothing: processes that share a file have no way to call each other, and find what is due by polling.
impl NotifyStore for SqliteStore {}

impl TransactionalStore for SqliteStore {
    type Connection = SqliteConnection;
    type Transaction = SqliteTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        transaction::begin(self).await
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction::commit(transaction).await
    }

    async fn rollback(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction::rollback(transaction).await
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
        insert::insert(self, connection, rows, ownership).await
    }

    async fn find(&self, connection: &mut Self::Connection, sequences: &[u64]) -> Result<Vec<(u64, EventId)>, StoreError> {
        find::find(self, connection, sequences).await
    }

    async fn delete_inserted(&self, connection: &mut Self::Connection, ids: &[EventId]) -> Result<(), StoreError> {
        insert::delete_inserted(self, connection, ids).await
    }
}
