//! MySQL (8.0.16 or later) and MariaDB (10.6 or later): one store, one schema, no statement that only one of them understands.
//!
//! A pool of connections does the work, one more renews leases, and the application's transactions have others. The server's
//! clock decides what is due. Every session is set to READ COMMITTED, UTC and strict mode, those in which a caller writes as
//! well.

mod audit;
mod check_table;
mod claim;
mod dead;
mod doctor;
mod effects;
mod error;
mod find;
mod front;
mod grants;
mod insert;
mod insert_many;
mod inspect;
mod keys;
mod lease;
mod lock;
mod node;
mod open;
mod partition;
mod place;
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
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlPool, MySqlTransaction};

use super::trust::Trust;
use super::{NewRow, Ownership, Store, StoreError, TableName};
use crate::event::EventId;
use crate::store::{NotifyStore, TransactionalStore};
use crate::time::Timestamp;

pub use open::MySqlOptions;

const NOW: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// The outbox in a MySQL or MariaDB database.
#[derive(Clone)]
pub struct MySqlStore {
    pool: MySqlPool,
    /// For transactions of the application, which may stand still for as long as it likes.
    callers: MySqlPool,
    /// Whether `callers` is the application's own, which closes it.
    is_lent: bool,
    /// One connection, for what keeps our claims ours.
    keeper: MySqlPool,
    table: TableName,
    /// Which database, for messages.
    database: Arc<str>,
    trust: Arc<Trust>,
}

impl MySqlStore {
    /// The text of every step of the schema, for a database that is not open: as
    /// [`SchemaStore::migration_sql`](crate::store::SchemaStore::migration_sql).
    #[must_use]
    pub fn schema_sql(table: &TableName) -> String {
        schema::text(table)
    }

    /// Sorts a driver's error, and draws what it says of the other connections.
    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        let error = error::failed(action, source);
        if error::concerns_all(&error) {
            self.trust.lose();
        }
        error
    }
}

impl std::fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySqlStore").field("database", &self.database).field("table", &self.table).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MySqlStore {
    fn kind(&self) -> &'static str {
        "mysql"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = sqlx::query(NOW).fetch_one(&self.pool).await;
        let now = row.and_then(|row| row.try_get(0)).map_err(|error| self.failed("ask for the time", error))?;
        Ok(Timestamp::from_micros(now))
    }

    async fn close(&self) {
        self.keeper.close().await;
        if !self.is_lent {
            self.callers.close().await;
        }
        self.pool.close().await;
    }
}

/// Nothing: this database has no notices.
impl NotifyStore for MySqlStore {}

impl TransactionalStore for MySqlStore {
    type Connection = MySqlConnection;
    type Transaction = MySqlTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        transaction::begin_for_caller(self).await
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
