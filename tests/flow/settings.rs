//! Settings of a server that would break what the host's statements rely on: its sessions set them anew.

mod random;

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::store::{Expectations, Filter, SchemaStore, Severity, SharedStore, StoreError, mysql, postgres};
use outbox::{MySqlStore, Outbox, PostgresStore, StartError, Status, Store, TransactionalStore};
use servers::{Database as Kind, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use support::{Harness, Postgres, Recorder, eventually};

use crate::common::{ROUTE, eager, order, orders};

const EVENTS: u32 = 300;

/// A host on such a server delivers everything once, what was due before its start included, and another session sees that.
async fn delivers_each_event_once<S: TransactionalStore + SharedStore + Clone>(setting: &str, store: S, witness: &dyn Store) {
    let recorder = Recorder::done();
    let before = witness.stats().await.expect("counts");
    let builder = Outbox::multi_node(store).poller(eager()).listener(ROUTE, recorder.listener());
    let host = builder.start().await.unwrap_or_else(|error| panic!("{setting}: {error:?}"));

    let mut transaction = host.begin().await.unwrap_or_else(|error| panic!("{setting}: {error}"));
    let mut ids = transaction.write_all(orders(EVENTS)).await.unwrap_or_else(|error| panic!("{setting}: {error}"));
    ids.extend(transaction.write(order(EVENTS)).await.unwrap_or_else(|error| panic!("{setting}: {error}")));
    transaction.commit().await.unwrap_or_else(|error| panic!("{setting}: {error}"));

    eventually(&format!("{setting}: everything is DONE for others"), async || {
        witness.stats().await.is_ok_and(|stats| stats.done >= before.done + before.new + ids.len() as u64)
    })
    .await;
    let filter = Filter { status: Some(Status::Done), ..Filter::default() };
    let done: BTreeSet<_> = witness.list(&filter, u32::MAX).await.expect("lists").into_iter().map(|row| row.event_id).collect();
    assert!(ids.iter().all(|id| done.contains(id)), "{setting}: each is DONE for others");
    host.shutdown().await;
    let calls = recorder.ids();
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "{setting}: nothing was delivered twice");
}

/// The sessions of this store have each setting that they set.
async fn keeps_its_settings(setting: &str, store: &impl Store) {
    let (lease, deadline) = (Duration::from_secs(30), Duration::from_secs(25));
    let expectations = Expectations { lease, deadline, max_payload: 1 << 20, connections: 5, index: None };
    let findings = store.diagnose(&expectations).await.unwrap_or_else(|error| panic!("{setting}: {error}"));
    let session = findings.into_iter().find(|finding| finding.check == "session").expect("was looked at");
    assert_eq!(session.severity, Severity::Good, "{setting}: {session:?}");
}

/// Each setting that a session of the host sets, with a value that its statements or the host would not bear, and no other.
fn covers<'s>(settings: &[&'s str], worst: impl IntoIterator<Item = &'s str>) {
    let (settings, worst) = (settings.iter().copied().collect::<BTreeSet<_>>(), worst.into_iter().collect::<BTreeSet<_>>());
    assert_eq!(worst, settings, "the tests try a worst value of each setting of a session");
}

const WORST_OF_MARIADB: [(&str, &str); 18] = [
    ("autocommit", "0"),
    ("completion_type", "'CHAIN'"),
    ("sql_safe_updates", "1"),
    ("sql_select_limit", "1"),
    ("max_join_size", "1000"),
    ("sql_big_selects", "0"),
    ("sql_mode", "'ORACLE'"),
    ("sql_mode", "''"),
    ("unique_checks", "0"),
    ("sort_buffer_size", "1024"),
    ("innodb_lock_wait_timeout", "1"),
    ("lock_wait_timeout", "1"),
    // The application's own statements get it too.
    ("max_statement_time", "5"),
    ("idle_transaction_timeout", "0"),
    ("tx_isolation", "'SERIALIZABLE'"),
    ("tx_read_only", "1"),
    ("time_zone", "'+05:30'"),
    ("wait_timeout", "2"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_settings_of_mariadb_do_not_affect_delivery() {
    covers(&mysql::session_settings(true), WORST_OF_MARIADB.map(|(setting, _)| setting));
    let server = Server::start(Kind::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs the servers");
    let witness = MySqlStore::connect(&server.url()).await.expect("connects");
    witness.migrate_up().await.expect("migrates");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    for (setting, worst) in WORST_OF_MARIADB {
        let before: String = format!("SET @before = @@GLOBAL.{setting}");
        admin.execute(AssertSqlSafe(before)).await.expect("reads");
        admin.execute(AssertSqlSafe(format!("SET GLOBAL {setting} = {worst}"))).await.expect("sets");
        let store = MySqlStore::connect(&server.url()).await.unwrap_or_else(|error| panic!("{setting}: {error}"));
        keeps_its_settings(setting, &store).await;
        delivers_each_event_once(&format!("{setting} = {worst}"), store, &witness).await;
        admin.execute(AssertSqlSafe(format!("SET GLOBAL {setting} = @before"))).await.expect("sets");
    }
}

/// A session may set what a limit of its user sets at its begin. Nothing overrides `read_only`: the start says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_a_mariadb_user_does_not_affect_delivery_and_a_read_only_server_stops_the_start() {
    let server = Server::start(Kind::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs the servers");
    let witness = MySqlStore::connect(&server.url()).await.expect("connects");
    witness.migrate_up().await.expect("migrates");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    for statement in [
        "CREATE USER host@'127.0.0.1' IDENTIFIED BY 'secret' WITH MAX_STATEMENT_TIME 5",
        "GRANT ALL PRIVILEGES ON outbox_test.* TO host@'127.0.0.1'",
    ] {
        admin.execute(statement).await.expect("may do everything");
    }
    let store = MySqlStore::connect(&format!("mysql://host:secret@127.0.0.1:{}/outbox_test", server.port())).await;
    let store = store.expect("connects");
    keeps_its_settings("MAX_STATEMENT_TIME", &store).await;
    delivers_each_event_once("MAX_STATEMENT_TIME", store.clone(), &witness).await;

    admin.execute("SET GLOBAL read_only = 1").await.expect("sets");
    let store = MySqlStore::connect(&format!("mysql://host:secret@127.0.0.1:{}/outbox_test", server.port())).await;
    let host = Outbox::multi_node(store.expect("connects")).listener(ROUTE, Recorder::done().listener());

    let error = host.start().await.expect_err("refused");
    assert!(matches!(error, StartError::Store(StoreError::StaleRead { .. })), "{error:?}");
    assert!(error.to_string().contains("a standby or read-only server answered"), "{error}");
}

/// Servers that were upgraded may have such a default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_row_format_of_mariadb_does_not_affect_the_schema() {
    let server = Server::start(Kind::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs the servers");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    for (format, is_strict) in [("COMPACT", 1), ("REDUNDANT", 1), ("COMPACT", 0)] {
        let setting = format!("innodb_default_row_format = {format}, innodb_strict_mode = {is_strict}");
        for statement in [
            format!("SET GLOBAL innodb_default_row_format = '{format}'"),
            format!("SET GLOBAL innodb_strict_mode = {is_strict}"),
        ] {
            admin.execute(AssertSqlSafe(statement)).await.expect("sets");
        }
        let store = MySqlStore::connect(&server.url()).await.expect("connects");

        store.migrate_up().await.unwrap_or_else(|error| panic!("{setting}: {error}"));

        let others = "SELECT COUNT(*) FROM information_schema.tables
                      WHERE table_schema = DATABASE() AND engine IS NOT NULL AND row_format <> 'Dynamic'";
        let row = admin.fetch_one(others).await.expect("answers");
        assert_eq!(row.try_get::<i64, _>(0).expect("a number"), 0, "{setting}: each table is Dynamic");
        store.migrate_down().await.expect("drops the tables");
        admin.execute("DROP TABLE IF EXISTS outbox_event_migration").await.expect("drops");
    }
}

/// Forty events of [`ROUTE`].
const PENDING_ORDERS: &str = "
INSERT INTO outbox_event (event_type, aggregate_type, payload)
WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 40)
SELECT 'OrderPlaced', 'Order', '1' FROM numbers";

/// Statements that the server runs in each new session, unless its user may do everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_connect_of_mariadb_does_not_affect_delivery() {
    let server = Server::start(Kind::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs the servers");
    let witness = MySqlStore::connect(&server.url()).await.expect("connects");
    witness.migrate_up().await.expect("migrates");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    for statement in
        ["CREATE USER host@'127.0.0.1' IDENTIFIED BY 'secret'", "GRANT ALL PRIVILEGES ON outbox_test.* TO host@'127.0.0.1'"]
    {
        admin.execute(statement).await.expect("may do everything");
    }
    let url = format!("mysql://host:secret@127.0.0.1:{}/outbox_test", server.port());
    for init in [
        "SET autocommit = 0, completion_type = 1, sql_safe_updates = 1, sql_select_limit = 1",
        "START TRANSACTION",
        "SET completion_type = 2; START TRANSACTION",
        "LOCK TABLES outbox_test.outbox_event_audit READ",
    ] {
        admin.execute(AssertSqlSafe(format!("SET GLOBAL init_connect = 'SET @was_run = 1; {init}'"))).await.expect("sets");
        let mut plain = MySqlConnection::connect(&url).await.expect("connects");
        let row = plain.fetch_one("SELECT CAST(@was_run AS SIGNED)").await.expect("answers");
        assert_eq!(row.try_get::<i64, _>(0).expect("a number"), 1, "{init}: the server has run the statements");
        plain.close().await.expect("ends");
        admin.execute(PENDING_ORDERS).await.expect("inserts");

        delivers_each_event_once(init, MySqlStore::connect(&url).await.expect("connects"), &witness).await;
    }
}

/// Hosts can override none of them. A trigger has the error of `binlog_format = STATEMENT`, which needs a binary log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_of_mariadb_that_stops_a_start_is_named_with_what_to_do() {
    let server = Server::start(Kind::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs the servers");
    let witness = MySqlStore::connect(&server.url()).await.expect("connects");
    witness.migrate_up().await.expect("migrates");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    let as_if = "CREATE TRIGGER as_if BEFORE INSERT ON outbox_event_route FOR EACH ROW
                 SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1665, MESSAGE_TEXT = 'BINLOG_FORMAT = STATEMENT'";
    for (apply, undo, fix) in [
        (as_if, "DROP TRIGGER as_if", "SET GLOBAL binlog_format = ROW"),
        ("SET GLOBAL max_prepared_stmt_count = 0", "SET GLOBAL max_prepared_stmt_count = DEFAULT", "max_prepared_stmt_count"),
    ] {
        admin.execute(apply).await.expect("may do everything");
        let store = MySqlStore::connect(&server.url()).await.expect("connects");

        let error = Outbox::multi_node(store).listener(ROUTE, Recorder::done().listener()).start().await.expect_err("refused");

        assert!(matches!(error, StartError::Store(StoreError::Setting { .. })), "{error:?}");
        assert!(error.to_string().contains(fix), "{error}");
        admin.execute(undo).await.expect("may do everything");
    }

    for statement in [
        "CREATE USER host@'127.0.0.1' IDENTIFIED BY 'secret'",
        "GRANT ALL PRIVILEGES ON outbox_test.* TO host@'127.0.0.1'",
        "SET GLOBAL init_connect = 'SELECT * FROM no_such_table'",
    ] {
        admin.execute(statement).await.expect("may do everything");
    }
    let url = format!("mysql://host:secret@127.0.0.1:{}/outbox_test", server.port());
    let error = MySqlStore::connect(&url).await.expect_err("refused");
    assert!(error.to_string().contains("correct its init_connect"), "{error:?}");
}

const WORST_OF_POSTGRESQL: [(&str, &str); 19] = [
    ("client_connection_check_interval", "0"),
    // Longer than the host's own limits, since the application's statements and transactions get these too.
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("transaction_timeout", "'60s'"),
    ("idle_session_timeout", "'1s'"),
    ("default_transaction_isolation", "'serializable'"),
    ("default_transaction_deferrable", "on"),
    ("plan_cache_mode", "'force_generic_plan'"),
    ("log_parameter_max_length_on_error", "-1"),
    ("jit", "on"),
    ("enable_indexscan", "off"),
    ("enable_indexonlyscan", "off"),
    ("enable_nestloop", "off"),
    ("enable_sort", "off"),
    ("enable_seqscan", "on"),
    ("enable_bitmapscan", "on"),
    ("enable_hashjoin", "on"),
    ("enable_mergejoin", "on"),
];

/// A user who may do everything, with settings of its own; and the address of the database for this user.
async fn superuser(db: &Postgres, name: &str) -> (String, String) {
    let user = db.schema().replace("outbox_test", &format!("outbox_{name}"));
    db.execute(&format!("CREATE ROLE {user} SUPERUSER LOGIN PASSWORD 'for-a-test'")).await;
    let (scheme, rest) = db.url().split_once("://").expect("an address");
    let place = rest.split_once('@').map_or(rest, |(_, place)| place);
    let url = format!("{scheme}://{user}:for-a-test@{place}");
    (user, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listed_settings_of_postgresql_do_not_affect_delivery() {
    covers(&postgres::session_settings(), WORST_OF_POSTGRESQL.map(|(setting, _)| setting));
    let db = Postgres::fresh().await;
    let (user, url) = superuser(&db, "settings").await;
    let witness = db.store();
    for (setting, worst) in WORST_OF_POSTGRESQL {
        // Later versions have more.
        if db.number(&format!("SELECT count(*) FROM pg_settings WHERE name = '{setting}'")).await == 1 {
            db.execute(&format!("ALTER ROLE {user} SET {setting} = {worst}")).await;
        }
    }
    let store = PostgresStore::connect(&url).await.expect("connects");
    keeps_its_settings("the worst of each", &store).await;
    delivers_each_event_once("the worst of each", store, &*witness).await;
    db.execute(&format!("ALTER ROLE {user} RESET ALL")).await;

    // Statements do not depend on these.
    for (setting, worst) in
        [("timezone", "'Asia/Kolkata'"), ("datestyle", "'SQL, DMY'"), ("standard_conforming_strings", "off")]
    {
        db.execute(&format!("ALTER ROLE {user} SET {setting} = {worst}")).await;
        let store = PostgresStore::connect(&url).await.unwrap_or_else(|error| panic!("{setting}: {error}"));
        delivers_each_event_once(&format!("{setting} = {worst}"), store, &*witness).await;
        db.execute(&format!("ALTER ROLE {user} RESET {setting}")).await;
    }
    db.execute(&format!("DROP ROLE {user}")).await;
}

/// The host may open more connections than that: those that keep its lease come first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_user_who_may_have_few_connections_delivers() {
    let db = Postgres::fresh().await;
    let (user, url) = db.user("few").await;
    db.execute(&format!("ALTER ROLE {user} CONNECTION LIMIT 10")).await;
    let store = PostgresStore::connect(&url).await.expect("connects");

    delivers_each_event_once("CONNECTION LIMIT 10", store, &*db.store()).await;

    db.drop_user(&user).await;
}

/// The host does not override it: an administrator who sets it means that this user must not write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgresql_user_whose_transactions_are_read_only_stops_the_start() {
    let db = Postgres::fresh().await;
    let (user, url) = db.user("reader").await;
    db.execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = on")).await;
    let store = PostgresStore::connect(&url).await.expect("connects");
    let host = Outbox::multi_node(store).listener(ROUTE, Recorder::done().listener());

    let error = host.start().await.expect_err("refused");

    assert!(matches!(error, StartError::Store(StoreError::Standby { .. })), "{error:?}");
    assert!(error.to_string().contains("the server takes no writes now") && error.to_string().contains("read-only"), "{error}");
    db.drop_user(&user).await;
}

/// A session that says nothing for longer than the server allows is not cut, and the host does not warn of it all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_session_timeout_ends_no_session_of_a_host() {
    let db = Postgres::fresh().await;
    let (user, url) = superuser(&db, "idle").await;
    db.execute(&format!("ALTER ROLE {user} SET idle_session_timeout = '500ms'")).await;
    let store = PostgresStore::connect(&url).await.expect("connects");
    let host = Outbox::multi_node(store).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let sessions = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}'");
    let oldest = format!(
        "SELECT (extract(epoch FROM min(backend_start)) * 1000000)::bigint FROM pg_stat_activity WHERE usename = '{user}'"
    );
    eventually("the host has its sessions", async || db.number(&sessions).await >= 3).await;
    let first = db.number(&oldest).await;

    tokio::time::sleep(Duration::from_secs(2)).await;

    assert_eq!(db.number(&oldest).await, first, "its oldest session was not cut");
    assert_eq!(host.metrics().counts().db_errors, 0);
    host.shutdown().await;
    db.execute(&format!("DROP ROLE {user}")).await;
}
