//! SQLite: the embedded default.
//!
//! One connection writes, a few read: SQLite has one writer at a time anyway, and a queue inside the process is fair where
//! `SQLITE_BUSY` is not. An application that has a pool of its own lends it, so that both stand in one queue. SQLite has no
//! clock of its own: the store's [`Clock`] is the database's clock.

mod audit;
mod claim;
mod ddl;
mod dead;
mod doctor;
mod effects;
mod error;
mod front;
mod index;
mod inspect;
mod keys;
mod lease;
mod let_pass;
mod node;
mod open;
mod opened_file;
mod partition;
mod plan;
mod purge;
mod read;
mod route;
mod row;
mod run;
mod schema;
mod session;
mod session_file;
mod settle;
mod state;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use outbox_event::time::{Clock, Timestamp};
use sqlx::Sqlite;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqlitePool, SqliteTransaction};

use super::run::Run;
use super::{Index, NotifyStore, Store, StoreError, TableName, TransactionalStore};

pub use open::SqliteOptions;
use opened_file::OpenedFile;

/// The outbox in a SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    /// Exactly one connection, or the application's own pool.
    writer: SqlitePool,
    readers: SqlitePool,
    own_pools: Arc<OwnPools>,
    table: TableName,
    clock: Arc<dyn Clock>,
    /// The file, for messages.
    file: Arc<str>,
    opened_file: Arc<OpenedFile>,
}

/// The pools that the store opened itself, and their file. The application closes a pool of its own.
struct OwnPools {
    pools: Vec<SqlitePool>,
    file: Arc<OpenedFile>,
}

impl Drop for OwnPools {
    fn drop(&mut self) {
        if !self.file.may_be_closed() {
            // A pool that is dropped closes its connections. These stay open for as long as this process lives, whose end writes
            // nothing.
            self.pools.drain(..).for_each(std::mem::forget);
        }
    }
}

impl SqliteStore {
    /// The text of every step of the schema, and of an index, for a database that is not open: as
    /// [`SchemaStore::migration_sql`](crate::SchemaStore::migration_sql).
    #[must_use]
    pub fn schema_sql(table: &TableName, index: Option<Index>) -> String {
        schema::text(table, index)
    }

    /// A connection that writes, in no transaction.
    ///
    /// # Errors
    /// Without a connection what `failed` makes of that; `Moved` when nobody would see what is written.
    async fn writing(&self, failed: impl FnOnce(sqlx::Error) -> StoreError) -> Result<PoolConnection<Sqlite>, StoreError> {
        let connection = write::acquire(&self.writer).await.map_err(failed)?;
        // Only now: while others had the connection, time went by.
        self.opened_file.check()?;
        Ok(connection)
    }

    /// A connection that reads.
    ///
    /// # Errors
    /// Those of the driver; `Moved` when nobody else sees the rows.
    async fn reading(&self, action: &'static str) -> Result<PoolConnection<Sqlite>, StoreError> {
        // No connection to another file is opened.
        self.opened_file.check()?;
        let connection = self.readers.acquire().await.map_err(|error| Run::failed(self, action, error))?;
        // Again: while others had the connections, time went by.
        self.opened_file.check()?;
        Ok(connection)
    }

    /// Commits what others are to see.
    async fn finish(&self, transaction: SqliteTransaction<'static>) -> Result<(), StoreError> {
        self.check_before_commit()?;
        Self::commit(transaction).await
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
        if self.opened_file.may_be_closed() {
            self.opened_file.note_closing();
            for pool in &self.own_pools.pools {
                pool.close().await;
            }
        }
    }
}

/// Nothing: processes that share a file have no way to call each other, and find what is due by polling.
impl NotifyStore for SqliteStore {}
