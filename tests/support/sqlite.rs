//! A SQLite file for one test.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox::store::sqlite::SqliteOptions;
use outbox::store::{SchemaStore, TableName};
use outbox::time::{Clock, ManualClock, SystemClock, Timestamp};
use outbox::{SqliteStore, Store};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row};
use tempfile::TempDir;

use crate::indexes::add_indexes_of_modes;
use crate::{Database, Harness};

/// A SQLite file in a directory of its own; both are gone with this value.
pub struct Sqlite {
    store: SqliteStore,
    clock: Arc<ManualClock>,
    other_program: SqlitePool,
    file: PathBuf,
    _directory: TempDir,
}

impl Sqlite {
    /// A migrated, empty database whose clock stands still until the test moves it. It is a minute ahead of the system's
    /// clock, which the defaults of a plain INSERT go by, so that such rows are in the past at once.
    pub async fn fresh() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let file = directory.path().join("outbox.db");
        let clock = Arc::new(ManualClock::new(SystemClock.now().plus(Duration::from_secs(60))));
        let store = open(&file, TableName::default(), clock.clone()).await;
        store.migrate_up().await.expect("an empty file can be migrated");
        add_indexes_of_modes(&store).await;
        let connect = SqliteConnectOptions::new().filename(&file).busy_timeout(Duration::from_secs(5));
        let other_program =
            SqlitePoolOptions::new().max_connections(1).connect_with(connect).await.expect("the file was just made");
        Self { store, clock, other_program, file, _directory: directory }
    }

    /// A migrated, empty database on the system's clock.
    pub async fn on_system_clock() -> (Self, SqliteStore) {
        let database = Self::fresh().await;
        let store = database.second_store(Arc::new(SystemClock)).await;
        (database, store)
    }

    /// The store under test.
    #[must_use]
    pub fn sqlite(&self) -> SqliteStore {
        self.store.clone()
    }

    /// Another store on the same file, as another process would open it.
    pub async fn second_store(&self, clock: Arc<dyn Clock>) -> SqliteStore {
        open(&self.file, TableName::default(), clock).await
    }

    /// Another store on the same file that gives up at once when somebody else holds the lock.
    pub async fn impatient_store(&self) -> SqliteStore {
        let mut options = SqliteOptions::new(&self.file).clock(self.clock.clone());
        options.busy_timeout = Duration::from_millis(20);
        SqliteStore::open_with(options).await.expect("the file is there")
    }

    /// The clock of the store under test.
    #[must_use]
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The connection of another program.
    #[must_use]
    pub fn other_program(&self) -> &SqlitePool {
        &self.other_program
    }

    /// A pool as a service would have it, with this many connections; a statement on it waits for no lock of another program.
    #[must_use]
    pub fn services_pool(&self, connections: u32) -> SqlitePool {
        let connect = SqliteConnectOptions::new().filename(&self.file).busy_timeout(Duration::from_millis(20));
        SqlitePoolOptions::new().max_connections(connections).connect_lazy_with(connect)
    }
}

async fn open(file: &Path, table: TableName, clock: Arc<dyn Clock>) -> SqliteStore {
    let options = SqliteOptions::new(file).create(true).table(table).clock(clock);
    SqliteStore::open_with(options).await.expect("a file in a temporary directory can be opened")
}

#[async_trait]
impl Harness for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn let_pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    async fn try_execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        // The text is a test's own.
        let result = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.other_program).await;
        Ok(result?.rows_affected())
    }

    async fn number(&self, sql: &str) -> i64 {
        let row = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&self.other_program).await;
        row.and_then(|row| row.try_get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn other_table(&self, name: &str) -> Arc<dyn Store> {
        let table = TableName::new(name).expect("the test gives a good name");
        Arc::new(open(&self.file, table, self.clock.clone()).await)
    }
}

#[async_trait]
impl Database for Sqlite {
    type Store = SqliteStore;

    fn typed(&self) -> SqliteStore {
        self.store.clone()
    }

    async fn another(&self) -> SqliteStore {
        self.second_store(Arc::new(SystemClock)).await
    }

    async fn run_on(&self, connection: &mut sqlx::SqliteConnection, sql: &str) {
        // The text is a test's own.
        let ran = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}
