//! PostgreSQL, from version 13 on.
//!
//! The server's clock decides what is due. Hosts share the work by locking rows and stepping over those that others have
//! locked; they tell each other of new events by NOTIFY. The host's statements run on a pool of their own, and leases are
//! renewed on one more connection: neither transactions of the application nor anything that people ask keeps a lease from
//! being renewed. Behind a pooler in transaction mode much of this is done in another way: see `pooler.rs`.

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
mod id;
mod index;
mod inspect;
mod keys;
mod lease;
mod node;
mod notify;
mod open;
mod partition;
mod plan;
mod pooler;
mod primary;
mod purge;
mod read;
mod route;
mod row;
mod run;
mod schema;
mod sequences;
mod session;
mod settings;
mod settle;
mod state;
mod time;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use sqlx::Postgres;
use sqlx::postgres::PgPool;

use super::connector::Connector;
use super::keeper::Keeper;
use super::row::{Columns, filled};
use super::run::{KEEPERS_LONGEST, Run};
use super::trust::Trust;
use super::{Index, Store, StoreError, TableName, TransactionalStore};

use address::PostgresServers;
pub use open::PostgresOptions;
use pooler::Pooler;
use settings::Settings;
#[doc(hidden)] // for our own tests
pub use settings::session_settings;

/// A transaction that the store began.
pub type PostgresTransaction = sqlx::Transaction<'static, Postgres>;

/// The outbox in a PostgreSQL database.
#[derive(Clone)]
pub struct PostgresStore {
    /// For what the host does by itself.
    host: PgPool,
    /// One connection, for what keeps our claims, our partitions and this host ours.
    keeper: Arc<Keeper<Postgres>>,
    /// For transactions that the application begins.
    callers: PgPool,
    /// Whether `callers` is the application's own, which closes it.
    is_lent: bool,
    /// Opens connections, and aims the pools.
    connector: Arc<Connector<PostgresServers>>,
    table: TableName,
    /// The database, for messages.
    database: Arc<str>,
    trust: Arc<Trust>,
    pooler: Arc<Pooler>,
    settings: Arc<Settings>,
    /// How long a call waits for a connection; `None` for as long as the pools let it.
    patience: Option<Duration>,
    /// How long a call waits for an answer; `None` for ever.
    longest: Option<Duration>,
    /// Whether this is the store on the connection that is kept for leases.
    keeps: bool,
}

impl PostgresStore {
    /// The text of every step of the schema, and of an index, for a database that is not open: as
    /// [`SchemaStore::migration_sql`](crate::SchemaStore::migration_sql).
    #[must_use]
    pub fn schema_sql(table: &TableName, index: Option<Index>) -> String {
        schema::text(table, index)
    }

    /// The same store on the connection that is kept for leases.
    fn keeping(&self) -> Self {
        let longest = self.longest.map(|longest| longest.min(KEEPERS_LONGEST));
        Self { host: self.keeper.pool(), longest, keeps: true, ..self.clone() }
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
        self.read_one("read the server's clock", sqlx::query("SELECT clock_timestamp()"), |row| filled(0, row.time(0))).await
    }

    async fn close(&self) {
        self.keeper.close().await;
        if !self.is_lent {
            self.callers.close().await;
        }
        self.host.close().await;
    }

    fn connecting_within(&self, within: Duration) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self { patience: Some(within), ..self.clone() }))
    }
}
