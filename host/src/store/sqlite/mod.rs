//! SQLite: the embedded default.
//!
//! One connection writes, a few read: SQLite has one writer at a time anyway, and a queue inside the process is fair where
//! `SQLITE_BUSY` is not. SQLite has no clock of its own: the store's [`Clock`] is the database's clock.

mod claim;
mod dead;
mod insert;
mod inspect;
mod migrate;
mod open;
mod purge;
mod route;
mod row;
mod settle;
mod transaction;

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteTransaction};

pub use open::SqliteOptions;

use super::{
    ClaimRequest, Claimed, DeadFilter, Filter, Migration, NewRow, Ownership, PurgeBatch, PurgeRequest, Record, Settled, Stats,
    Store, StoreError, TableName, TransactionalStore,
};
use crate::event::{EventId, Fence, Route};
use crate::time::{Clock, Timestamp, micros};

/// The outbox in a SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    /// Exactly one connection.
    writer: SqlitePool,
    readers: SqlitePool,
    table: TableName,
    clock: Arc<dyn Clock>,
    /// The file, for messages.
    file: Arc<str>,
}

impl SqliteStore {
    /// The text of every step of the schema, for a database that is not open: as [`Store::migration_sql`].
    #[must_use]
    pub fn schema_sql(table: &TableName) -> String {
        migrate::text(table)
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

    async fn check_schema(&self) -> Result<(), StoreError> {
        migrate::check(self).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        migrate::list(self).await
    }

    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        migrate::up(self).await
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        migrate::down(self).await
    }

    fn migration_sql(&self) -> String {
        migrate::text(&self.table)
    }

    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        let mut transaction = transaction::begin(self).await?;
        let sequences = insert::insert(self, &mut transaction, rows, ownership).await?;
        transaction::commit(transaction).await?;
        Ok(sequences)
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        claim::claim(self, request).await
    }

    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        settle::settle(self, settled).await
    }

    async fn renew(&self, held: &[Fence], lease: std::time::Duration) -> Result<Vec<u64>, StoreError> {
        claim::renew(self, held, micros(lease)).await
    }

    async fn next_due(&self) -> Result<Option<std::time::Duration>, StoreError> {
        claim::next_due(self).await
    }

    async fn unpark(&self, routes: &[Route], limit: u32) -> Result<u64, StoreError> {
        route::unpark(self, routes, limit).await
    }

    async fn known_routes(&self) -> Result<Vec<Route>, StoreError> {
        route::known(self).await
    }

    async fn remember_routes(&self, routes: &[Route]) -> Result<(), StoreError> {
        route::remember(self, routes).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        inspect::stats(self).await
    }

    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError> {
        inspect::list(self, filter, limit).await
    }

    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError> {
        inspect::get(self, id).await
    }

    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError> {
        dead::count(self, filter).await
    }

    async fn replay(&self, id: EventId) -> Result<bool, StoreError> {
        dead::replay(self, id).await
    }

    async fn replay_batch(&self, filter: &DeadFilter, limit: u32) -> Result<u64, StoreError> {
        dead::replay_batch(self, filter, limit).await
    }

    async fn discard(&self, id: EventId) -> Result<bool, StoreError> {
        dead::discard(self, id).await
    }

    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError> {
        purge::purge(self, request).await
    }

    async fn count_purgeable(&self, request: PurgeRequest) -> Result<u64, StoreError> {
        purge::count(self, request).await
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

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

    async fn take_back(&self, connection: &mut Self::Connection, sequences: &[u64]) -> Result<(), StoreError> {
        insert::take_back(self, connection, sequences).await
    }
}
