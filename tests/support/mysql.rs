//! A database for one test, on a MySQL or MariaDB server that is there already.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use outbox::store::mysql::MySqlOptions;
use outbox::store::{SchemaStore, TableName};
use outbox::time::Timestamp;
use outbox::{MySqlStore, Store};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};

use crate::indexes::add_indexes_of_modes;
use crate::{Database, Harness};

/// A database of its own on the server that `OUTBOX_TEST_MYSQL_URL` names; dropped with this value.
pub struct MySql {
    store: MySqlStore,
    other_program: MySqlPool,
    server: String,
    name: String,
}

impl MySql {
    /// A migrated, empty database.
    ///
    /// # Panics
    /// When there is no server, or the account may not create databases.
    pub async fn fresh() -> Self {
        let server = server();
        let name = unused_name();
        let mut admin = connect(&server).await;
        // The name is our own.
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.expect("the account may create databases");
        let options: MySqlConnectOptions = at(&server, &name).parse().expect("an address of the driver");
        let other_program = MySqlPoolOptions::new().max_connections(2).connect_lazy_with(options.database(&name));
        let store = open(&server, &name, TableName::default()).await;
        store.migrate_up().await.expect("an empty database can be migrated");
        add_indexes_of_modes(&store).await;
        Self { store, other_program, server, name }
    }

    /// The store under test.
    #[must_use]
    pub fn mysql(&self) -> MySqlStore {
        self.store.clone()
    }

    /// The address of the database.
    #[must_use]
    pub fn url(&self) -> String {
        at(&self.server, &self.name)
    }

    /// The name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The connections of another program.
    #[must_use]
    pub fn other_program(&self) -> &MySqlPool {
        &self.other_program
    }

    /// Whether a transaction of this database waits for a row that another one has locked.
    pub async fn waits_for_a_row(&self) -> bool {
        // The server fills innodb_trx anew only when nobody has read it for 0.1 s, so the looks of this process must be apart.
        static LOOKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _one_at_a_time = LOOKING.lock().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx AS open
                       JOIN information_schema.processlist AS session ON session.id = open.trx_mysql_thread_id
                       WHERE open.trx_state = 'LOCK WAIT' AND session.db = DATABASE()";
        self.number(waiting).await > 0
    }

    /// A pool as a service would have it, with this many connections.
    #[must_use]
    pub fn services_pool(&self, connections: u32) -> MySqlPool {
        let connect = MySqlConnectOptions::clone(&self.other_program.connect_options());
        MySqlPoolOptions::new().max_connections(connections).connect_lazy_with(connect)
    }
}

/// How many rows and index entries the server has read, for all its sessions.
///
/// # Panics
/// When the server does not say so.
pub async fn rows_read(admin: &mut MySqlConnection) -> u64 {
    let rows = admin.fetch_all("SHOW GLOBAL STATUS LIKE 'Handler_read%'").await.expect("reads");
    let value = |row: &sqlx::mysql::MySqlRow| row.try_get_unchecked::<String, _>(1).expect("a text");
    rows.iter().map(|row| value(row).parse::<u64>().expect("a number")).sum()
}

/// A name that no other test has, in this process or in another.
fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("outbox_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

#[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
fn server() -> String {
    std::env::var("OUTBOX_TEST_MYSQL_URL").unwrap_or_else(|_| {
        panic!(
            "OUTBOX_TEST_MYSQL_URL is not set; `cargo xtask test` starts a server and sets it, or give the address of an account \
             that may create databases, like mysql://root@127.0.0.1:3306"
        )
    })
}

/// The address of a database on the server.
fn at(server: &str, database: &str) -> String {
    let (address, parameters) = server.split_once('?').map_or((server, String::new()), |(a, p)| (a, format!("?{p}")));
    let (scheme, rest) = address.split_once("://").expect("an address has a scheme");
    let host = rest.split('/').next().expect("something comes first");
    format!("{scheme}://{host}/{database}{parameters}")
}

async fn connect(server: &str) -> MySqlConnection {
    let address = server.replacen("mariadb://", "mysql://", 1);
    MySqlConnection::connect(&address).await.expect("the server of OUTBOX_TEST_MYSQL_URL answers")
}

async fn open(server: &str, database: &str, table: TableName) -> MySqlStore {
    let options = MySqlOptions::from_url(&at(server, database)).expect("an address of ours").table(table);
    MySqlStore::connect_with(options).await.expect("the database was just made")
}

impl Drop for MySql {
    /// In a thread of its own: a test's runtime may not block, and may be ending.
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let address = server.replacen("mariadb://", "mysql://", 1);
                // Best effort: a test may have stopped the server, or may have failed in a transaction that is still open.
                if let Ok(mut admin) = MySqlConnection::connect(&address).await {
                    let _ = admin.execute("SET lock_wait_timeout = 5").await;
                    let _ = admin.execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}"))).await;
                }
            });
        });
        let _ = dropping.join();
    }
}

#[async_trait]
impl Database for MySql {
    type Store = MySqlStore;

    fn typed(&self) -> MySqlStore {
        self.store.clone()
    }

    async fn another(&self) -> MySqlStore {
        open(&self.server, &self.name, TableName::default()).await
    }

    async fn run_on(&self, connection: &mut sqlx::MySqlConnection, sql: &str) {
        // The text is a test's own.
        let ran = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[async_trait]
impl Harness for MySql {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the server tells the time")
    }

    /// The server's clock cannot be moved: every time in the tables is moved back instead.
    async fn let_pass(&self, span: Duration) {
        let micros = span.as_micros();
        let back = |column: &str| format!("{column} = {column} - INTERVAL {micros} MICROSECOND");
        let event = [
            "occurred_at",
            "created_at",
            "available_at",
            "due_at",
            "expires_at",
            "done_at",
            "locked_at",
            "lease_end",
            "wait_since",
        ]
        .map(back);
        self.execute(&format!("UPDATE outbox_event SET {}", event.join(", "))).await;
        self.execute(&format!("UPDATE outbox_event_node SET {}, {}", back("started_at"), back("alive_until"))).await;
        self.execute(&format!("UPDATE outbox_event_state SET {}", back("updated_at"))).await;
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
        Arc::new(open(&self.server, &self.name, table).await)
    }
}
