//! MySQL (8.0.16 or later) and MariaDB (10.6 or later): one store, one schema, no statement that only one of them understands.
//!
//! A pool of connections does the work, one more renews leases, and the application's transactions have others. The server's
//! clock decides what is due. Every session is set to READ COMMITTED, UTC and strict mode, those in which a caller writes as
//! well.

mod address;
mod audit;
mod claim;
mod ddl;
mod dead;
mod doctor;
mod effects;
mod error;
mod front;
mod grants;
mod health;
mod index;
mod insert_many;
mod insert_one;
mod inspect;
mod keys;
mod lease;
mod lock;
mod node;
mod open;
mod partition;
mod patience;
mod place;
mod plan;
mod primary;
mod purge;
mod read;
mod route;
mod row;
mod run;
mod schema;
mod session;
mod settings;
mod settle;
mod state;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use sqlx::MySql;
use sqlx::mysql::MySqlPool;

use super::connector::Connector;
use super::keeper::Keeper;
use super::row::{Columns, filled};
use super::run::{KEEPERS_LONGEST, Run};
use super::trust::Trust;
use super::{Index, NotifyStore, Store, StoreError, TableName, TransactionalStore};

use address::MySqlServers;
pub use open::MySqlOptions;
use settings::Session;
#[doc(hidden)] // for our own tests
pub use settings::session_settings;

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
    keeper: Arc<Keeper<MySql>>,
    /// Opens connections, and aims the pools.
    connector: Arc<Connector<MySqlServers>>,
    /// The settings of the sessions of `pool`.
    session: Session,
    table: TableName,
    /// Which database, for messages.
    database: Arc<str>,
    trust: Arc<Trust>,
    /// How long a call waits for a connection; `None` for as long as the pools let it.
    patience: Option<Duration>,
    /// How long a call waits for an answer; `None` for ever.
    longest: Option<Duration>,
    /// Whether this is the store on the connection that is kept for leases.
    keeps: bool,
}

impl MySqlStore {
    /// The text of every step of the schema, and of an index, for a database that is not open: as
    /// [`SchemaStore::migration_sql`](crate::SchemaStore::migration_sql).
    #[must_use]
    pub fn schema_sql(table: &TableName, index: Option<Index>) -> String {
        schema::text(table, index)
    }

    /// The same store on the connection that is kept for leases.
    fn keeping(&self) -> Self {
        let longest = self.longest.map(|longest| longest.min(KEEPERS_LONGEST));
        Self { pool: self.keeper.pool(), longest, keeps: true, ..self.clone() }
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
        self.read_one("ask for the time", sqlx::query(NOW), |row| filled(0, row.time(0))).await
    }

    async fn close(&self) {
        self.keeper.close().await;
        if !self.is_lent {
            self.callers.close().await;
        }
        self.pool.close().await;
    }

    fn connecting_within(&self, within: Duration) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self { patience: Some(within), ..self.clone() }))
    }
}

/// Nothing: this database has no wake-ups.
impl NotifyStore for MySqlStore {}
