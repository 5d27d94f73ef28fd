//! MySQL (8.0.16 or later) and MariaDB (10.6 or later): one store, one schema, no statement that only one of them understands.
//!
//! A pool of connections does the work, one more renews leases, and the application's transactions have others. The server's clock
//! decides what is due. Every session is set to READ COMMITTED, UTC and strict mode, those in which a caller writes as well.

mod audit;
mod check_table;
mod claim;
mod contract;
mod dead;
mod diagnose;
mod fault;
mod find;
mod front;
mod give_back;
mod grants;
mod insert;
mod insert_many;
mod inspect;
mod lease;
mod line;
mod lock;
mod migrate;
mod node;
mod open;
mod place;
mod plan;
mod purge;
mod route;
mod row;
mod settle;
mod start;
mod transaction;

use std::sync::Arc;

use sqlx::mysql::MySqlPool;

pub use open::MySqlOptions;

use super::trust::Trust;
use super::{StoreError, TableName};

/// The outbox in a MySQL or MariaDB database.
#[derive(Clone)]
pub struct MySqlStore {
    pool: MySqlPool,
    /// For transactions of the application, which may stand still for as long as it likes.
    callers: MySqlPool,
    /// One connection, for what keeps our claims ours.
    keeper: MySqlPool,
    table: TableName,
    /// Which database, for messages.
    database: Arc<str>,
    trust: Arc<Trust>,
}

impl MySqlStore {
    /// The text of every step of the schema, for a database that is not open: as [`Store::migration_sql`](super::Store::migration_sql).
    #[must_use]
    pub fn schema_sql(table: &TableName) -> String {
        migrate::text(table)
    }

    /// Sorts a driver's error, and draws what it says of the other connections.
    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        let error = fault::failed(action, source);
        if fault::concerns_all(&error) {
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
