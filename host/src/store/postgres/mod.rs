//! PostgreSQL, from version 13 on.
//!
//! The server's clock decides what is due. Nodes share the work by locking rows and stepping over those that others have
//! locked; they tell each other of new events by NOTIFY. The host's statements run on a pool of their own, and leases are renewed on
//! one more connection: neither transactions of the application nor anything that people ask keeps a lease from being renewed.

mod audit;
mod claim;
mod dead;
mod doctor;
mod effects;
mod error;
mod find;
mod front;
mod grants;
mod health;
mod insert;
mod inspect;
mod keys;
mod lease;
mod node;
mod notify;
mod open;
mod partition;
mod plan;
mod purge;
mod route;
mod row;
mod run;
mod schema;
mod settle;
mod state;
mod time;
mod transaction;

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{Postgres, Row};

use super::trust::Trust;
use super::{NewRow, Ownership, Store, StoreError, TableName};
use crate::event::EventId;
use crate::store::TransactionalStore;
use crate::time::Timestamp;

pub use open::PostgresOptions;

/// A transaction that the store began.
pub type PostgresTransaction = sqlx::Transaction<'static, Postgres>;

/// The outbox in a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresStore {
    /// For what the host does by itself.
    host: PgPool,
    /// One connection, for what keeps our claims, our partitions and this node ours.
    keeper: PgPool,
    /// For transactions that the application begins.
    callers: PgPool,
    /// Whether `callers` is the application's own, which closes it.
    is_lent: bool,
    /// For connections outside the pools.
    connect: PgConnectOptions,
    table: TableName,
    /// The database, for messages.
    database: Arc<str>,
    trust: Arc<Trust>,
}

impl PostgresStore {
    /// The text of every step of the schema, for a database that is not open: as [`SchemaStore::migration_sql`](crate::store::SchemaStore::migration_sql).
    #[must_use]
    pub fn schema_sql(table: &TableName) -> String {
        schema::text(table)
    }

    /// The same store on the connection that is kept for leases.
    fn keeping(&self) -> Self {
        Self { host: self.keeper.clone(), ..self.clone() }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("database", &self.database).field("table", &self.table).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let action = "read the server's clock";
        let row = self.one(action, sqlx::query("SELECT clock_timestamp()")).await?;
        row.try_get::<time::Moment, _>(0).map(|now| now.0).map_err(|error| self.failed(action, error))
    }

    async fn close(&self) {
        self.keeper.close().await;
        if !self.is_lent {
            self.callers.close().await;
        }
        self.host.close().await;
    }
}

impl TransactionalStore for PostgresStore {
    type Connection = PgConnection;
    type Transaction = PostgresTransaction;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        transaction::begin(&self.callers).await
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
