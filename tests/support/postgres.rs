//! A schema of a PostgreSQL database for one test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{SchemaStore, TableName};
use outbox::time::Timestamp;
use outbox::{PostgresStore, Store};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row};

use crate::indexes::add_indexes_of_modes;
use crate::{Database, Harness};

/// A schema of its own in the database of `OUTBOX_TEST_POSTGRES_URL`; gone with this value.
pub struct Postgres {
    store: PostgresStore,
    other_program: PgPool,
    schema: String,
    url: String,
}

/// Every time of every row, moved back: that is what passing time looks like to the table.
const LET_PASS: &str = "
UPDATE outbox_event SET occurred_at = occurred_at - span, created_at = created_at - span, available_at = available_at - span,
  due_at = due_at - span, expires_at = expires_at - span, done_at = done_at - span, locked_at = locked_at - span,
  lease_end = lease_end - span, wait_since = wait_since - span
FROM (SELECT $1::bigint * interval '1 microsecond' AS span) AS passed
";
const LET_PASS_FOR_NODES: &str = "
UPDATE outbox_event_node SET started_at = started_at - span, alive_until = alive_until - span
FROM (SELECT $1::bigint * interval '1 microsecond' AS span) AS passed";
const LET_PASS_FOR_STATE: &str = "
UPDATE outbox_event_state SET updated_at = updated_at - span
FROM (SELECT $1::bigint * interval '1 microsecond' AS span) AS passed";

impl Postgres {
    /// A migrated, empty schema.
    pub async fn fresh() -> Self {
        let database = Self::empty().await;
        database.store.migrate_up().await.expect("an empty schema can be migrated");
        add_indexes_of_modes(&database.store).await;
        database
    }

    /// A schema with nothing in it.
    pub async fn empty() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let schema = format!("outbox_test_{}_{number}", std::process::id());
        let server = server();
        let admin = one_connection(&server).await;
        let made = run(&admin, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")).await;
        made.expect("the user of the tests may make a schema");
        admin.close().await;
        let separator = if server.contains('?') { '&' } else { '?' };
        let url = format!("{server}{separator}options=-csearch_path%3D{schema}");
        let store = PostgresStore::connect(&url).await.expect("the server of the tests answers");
        let other_program = one_connection(&url).await;
        Self { store, other_program, schema, url }
    }

    /// The store under test.
    #[must_use]
    pub fn postgres(&self) -> PostgresStore {
        self.store.clone()
    }

    /// The address of the server, with the schema of this test as the place to look in.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The schema of this test.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The connection of another program.
    #[must_use]
    pub fn other_program(&self) -> &PgPool {
        &self.other_program
    }

    /// Makes a user that may do to the tables what a host does, and no more: rights and policies do not apply to the superuser of the
    /// tests. Returns its name and its address. The name contains `part`; [`drop_user`](Self::drop_user) removes it.
    pub async fn user(&self, part: &str) -> (String, String) {
        let (schema, user) = (&self.schema, self.schema.replace("outbox_test", &format!("outbox_{part}")));
        self.execute(&format!(
            "CREATE ROLE {user} LOGIN PASSWORD 'for-a-test'; GRANT USAGE ON SCHEMA {schema} TO {user};
             GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}; GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {user}"
        ))
        .await;
        let (scheme, rest) = self.url.split_once("://").expect("an address");
        let place = rest.split_once('@').map_or(rest, |(_, place)| place);
        let url = format!("{scheme}://{user}:for-a-test@{place}");
        (user, url)
    }

    /// Removes a [user](Self::user), whose connections are closed.
    pub async fn drop_user(&self, user: &str) {
        self.execute(&format!("DROP OWNED BY {user}; DROP ROLE {user}")).await;
    }

    /// A pool as a service would have it, with this many connections.
    #[must_use]
    pub fn services_pool(&self, connections: u32) -> PgPool {
        PgPoolOptions::new().max_connections(connections).connect_lazy(&self.url).expect("the address is good")
    }
}

/// The address of a server on which tests may make schemas and roles.
#[expect(clippy::disallowed_methods, reason = "tests are configured by cargo xtask test, through the environment")]
fn server() -> String {
    std::env::var("OUTBOX_TEST_POSTGRES_URL").unwrap_or_else(|_| {
        panic!(
            "OUTBOX_TEST_POSTGRES_URL must name a PostgreSQL server for tests, by a superuser; `cargo xtask test` starts one"
        )
    })
}

async fn one_connection(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect(url).await.expect("the server of the tests answers")
}

async fn run(pool: &PgPool, sql: &str) -> Result<u64, sqlx::Error> {
    // The text is a test's own.
    let result = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await;
    Ok(result?.rows_affected())
}

impl Drop for Postgres {
    /// From a thread of its own, since a test's runtime may be at its end.
    fn drop(&mut self) {
        let (schema, server) = (self.schema.clone(), server());
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
            runtime.block_on(async {
                let admin = one_connection(&server).await;
                // A test may have failed in a transaction that is still open.
                run(
                    &admin,
                    &format!(
                        "SET lock_timeout = '5s'; SET client_min_messages = warning; DROP SCHEMA IF EXISTS {schema} CASCADE"
                    ),
                )
                .await
                .expect("the schema of a test can be dropped");
                admin.close().await;
            });
        });
        // What is left of a test that failed already does not matter.
        let _ = dropping.join();
    }
}

#[async_trait]
impl Database for Postgres {
    type Store = PostgresStore;

    fn typed(&self) -> PostgresStore {
        self.store.clone()
    }

    async fn another(&self) -> PostgresStore {
        PostgresStore::connect(&self.url).await.expect("the server of the tests answers")
    }

    async fn run_on(&self, connection: &mut sqlx::PgConnection, sql: &str) {
        // The text is a test's own.
        let ran = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[async_trait]
impl Harness for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    async fn now(&self) -> Timestamp {
        self.store.now().await.expect("the server tells the time")
    }

    async fn let_pass(&self, span: Duration) {
        let micros = i64::try_from(span.as_micros()).expect("a test waits for less than an age");
        for sql in [LET_PASS, LET_PASS_FOR_NODES, LET_PASS_FOR_STATE] {
            sqlx::query(sql).bind(micros).execute(&self.other_program).await.expect("time passes");
        }
    }

    async fn try_execute(&self, sql: &str) -> Result<u64, sqlx::Error> {
        run(&self.other_program, sql).await
    }

    async fn number(&self, sql: &str) -> i64 {
        let row = sqlx::query(AssertSqlSafe(format!("SELECT ({sql})::bigint"))).fetch_one(&self.other_program).await;
        row.and_then(|row| row.try_get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    async fn other_table(&self, name: &str) -> Arc<dyn Store> {
        let table = TableName::new(name).expect("the test gives a good name");
        let options = PostgresOptions::from_url(&self.url).expect("the address is good").table(table);
        Arc::new(PostgresStore::connect_with(options).await.expect("the server of the tests answers"))
    }
}
