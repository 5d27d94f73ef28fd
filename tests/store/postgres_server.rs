//! What a server can do to the host. Only PostgreSQL has roles, plans that change with the table, and standbys.

use std::process::Command;

use outbox::store::postgres::PostgresOptions;
use outbox::store::{
    DeadStore, DoctorStore, Expectations, Filter, Finding, Index, InspectStore, NewRow, NotifyStore, PlanStore, SchemaStore,
    SettleStore, Settled, Settlement, Severity, StateStore, TableName, WakeUp, WriteStore,
};
use outbox::{PostgresStore, Store, StoreError, TransactionalStore};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use support::{DOCUMENTED_PAYLOAD, Database, Harness, Postgres, documented_insert, eventually};

use crate::common::{by_hand, claim, claim_due, expectations, ids, ownership, plain, plains, write, write_one};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_insert_of_another_program_is_delivered() {
    let db = Postgres::fresh().await;
    let documented = documented_insert("PostgreSQL");
    let quoted = documented.replace(DOCUMENTED_PAYLOAD, "{\"text\":\"a\\nb \\\\ ü\"}");

    for insert in [documented, &quoted] {
        let psql = Command::new("psql").args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", insert, db.url()]).status();
        assert!(psql.expect("psql is there").success());
    }

    let claimed = claim(&db, 10).await;
    let payloads = claimed.iter().map(|one| one.event.as_ref().expect("readable").payload_bytes().clone());
    assert_eq!(payloads.collect::<Vec<_>>(), [DOCUMENTED_PAYLOAD, "{\"text\":\"a\\nb \\\\ ü\"}"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_in_a_named_schema_needs_no_search_path() {
    let db = Postgres::empty().await;
    let table = |schema: &str| TableName::new("shop_Events").expect("good").in_schema(schema).expect("good");
    let (server, _) = db.url().split_once("options=").expect("the harness sets the schema by options");
    let options = |schema: &str| PostgresOptions::from_url(server).expect("good").table(table(schema));
    let store = PostgresStore::connect_with(options(db.schema())).await.expect("connects");

    store.migrate_up().await.expect("migrates");

    store.check_schema().await.expect("is there");
    let envelope = plain(&db).await;
    store.write(&[NewRow { envelope: &envelope, claimed: false }], &ownership()).await.expect("writes");
    assert_eq!(ids(&claim_due(&store, 10).await.expect("claims")), [envelope.id()]);
    assert_eq!(db.number("SELECT count(*) FROM shop_events").await, 1);
    assert!(store.plans().await.expect("explains").iter().all(|plan| plan.index.starts_with("shop_events_")));
    while store.migrate_down().await.expect("takes it back").is_some() {}
    db.execute(&store.migration_sql(None)).await;
    store.check_schema().await.expect("what was printed is a schema");
    let nowhere = PostgresStore::connect_with(options("no_such_schema")).await.expect("connects");
    let error = nowhere.migrate_up().await.expect_err("a DBA makes schemas");
    assert!(matches!(&error, StoreError::NoNamespace { schema } if schema == "no_such_schema"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_meets_no_plan_of_an_emptier_table_nor_of_one_whose_dead_rows_a_snapshot_keeps() {
    let db = Postgres::fresh().await;
    db.execute("ALTER TABLE outbox_event SET (autovacuum_enabled = off)").await;
    // Prepared and planned many times while the table is empty.
    for _ in 0..10 {
        write_one(&db).await;
        let settled: Vec<Settled> = claim(&db, 10).await.iter().map(|one| Settled::new(one.fence, Settlement::Done)).collect();
        db.store().settle(&settled).await.expect("settles");
    }
    db.execute(
        "INSERT INTO outbox_event (event_type, payload, status, due_at, done_at)
         SELECT 'X', 'x', 1, NULL, now() FROM generate_series(1, 1000000);
         INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload)
         SELECT 'X', 'Order', n % 5000, 'x' FROM generate_series(1, 100000) AS n",
    )
    .await;

    db.store().add_index(Index::Aggregate).await.expect("adds it");
    let fresh = db.store().plans().await.expect("explains");
    db.execute("ANALYZE outbox_event").await;
    let analysed = db.store().plans().await.expect("explains");

    // The snapshot of another session keeps the versions that finished events had while they were due.
    let mut reader = PgConnection::connect(db.url()).await.expect("connects");
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.expect("begins");
    reader.execute("SELECT seq FROM outbox_event LIMIT 1").await.expect("reads");
    let finish = "UPDATE outbox_event SET status = 1, due_at = NULL, done_at = now()
                  WHERE seq IN (SELECT seq FROM outbox_event WHERE due_at IS NOT NULL ORDER BY seq LIMIT 50000)";
    assert_eq!(db.execute(finish).await, 50_000);
    let behind_a_snapshot = db.store().plans().await.expect("explains");
    db.execute("VACUUM (ANALYZE) outbox_event").await;
    let vacuumed = db.store().plans().await.expect("explains");

    for plan in [&fresh, &analysed, &behind_a_snapshot, &vacuumed].into_iter().flatten() {
        assert!(plan.good, "{}: {}", plan.statement, plan.text);
    }
    assert_eq!(claim(&db, 500).await.len(), 500);
    let due = reader.fetch_one("SELECT count(*) FROM outbox_event WHERE due_at IS NOT NULL").await.expect("reads");
    assert_eq!(due.try_get::<i64, _>(0).expect("a number"), 100_000, "the snapshot has kept them");
    reader.execute("COMMIT").await.expect("ends");
}

/// A vacuum that meets only rows of an open transaction, or only deleted ones, notes that the table is large and has no row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_walks_a_table_that_a_vacuum_found_empty() {
    const ROWS: u64 = 20_000;
    let db = Postgres::fresh().await;
    for index in [Index::Ordered, Index::OrderedByAggregate, Index::Aggregate] {
        db.store().add_index(index).await.expect("adds it");
    }
    db.execute("ALTER TABLE outbox_event SET (autovacuum_enabled = off)").await;
    let mut writing = db.typed().begin().await.expect("begins");
    let insert = "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload)
                  SELECT 'X', 'Order', n % 5000, 'x' FROM generate_series(1, $1) AS n";
    sqlx::query(insert).bind(ROWS.cast_signed()).execute(&mut *writing).await.expect("writes");
    db.execute("VACUUM outbox_event").await;
    writing.commit().await.expect("commits");

    let plans = db.store().plans().await.expect("explains");

    let bad: Vec<_> = plans.iter().filter(|plan| !plan.good).map(|plan| format!("{}: {}", plan.statement, plan.text)).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
    let read = db.store().stats().await.expect("counts").new;
    assert_eq!(read, ROWS, "all of it was committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rows_of_one_key_or_route_are_not_walked_through_for_those_of_another() {
    let db = Postgres::fresh().await;
    db.execute("ALTER TABLE outbox_event SET (autovacuum_enabled = off)").await;
    db.execute(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload, due_at, behind)
         SELECT 'X', 'Order', 'blocked', 'x', NULL, 1 FROM generate_series(1, 300000);
         INSERT INTO outbox_event (event_type, aggregate_type, payload, due_at, parked)
         SELECT 'Parked', 'Order', 'x', NULL, 'no listener' FROM generate_series(1, 300000)",
    )
    .await;
    db.execute("ANALYZE outbox_event").await;
    db.execute(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload)
         SELECT 'X', 'Order', n % 100, 'x' FROM generate_series(1, 1000) AS n",
    )
    .await;

    let plans = db.store().plans().await.expect("explains");

    let bad: Vec<_> = plans.iter().filter(|plan| !plan.good).map(|plan| format!("{}: {}", plan.statement, plan.text)).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
    let text_of = |statement: &str| plans.iter().find(|plan| plan.statement == statement).map(|plan| &plan.text);
    for few in ["claim", "read the front"] {
        let text = text_of(few).expect("it is explained");
        assert!(!text.contains("using outbox_event_due"), "all that is due is not read for a few: {text}");
    }
    let in_order = text_of("what a read in order waits for").expect("it is explained");
    assert_eq!(in_order.matches("using outbox_event_key").count(), 2, "{in_order}");
    let blockers = text_of("blockers").expect("it is explained");
    assert!(blockers.contains("Recursive Union"), "steps from one to the next: {blockers}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ended_all_connections_is_used_again_without_help() {
    let db = Postgres::fresh().await;
    write(&db, &plains(&db, 5).await).await;
    let name = format!("{}_heals", db.schema());
    let store = PostgresStore::connect(&format!("{}&application_name={name}", db.url())).await.expect("connects");
    let mut wake_ups = store.listen().await.expect("listens").expect("PostgreSQL tells");
    let mut transaction = store.begin().await.expect("begins");
    transaction.execute("SELECT count(*) FROM outbox_event").await.expect("reads");

    // What a server that stops does to every session.
    db.execute(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'")).await;

    let error = PostgresStore::commit(transaction).await.expect_err("its connection is gone");
    assert!(error.is_transient(), "{error:?}");
    let error = support::in_time("the listener knows", wake_ups.next()).await.expect_err("its connection is gone");
    assert!(error.is_transient(), "{error:?}");
    eventually("the host claims again", async || match claim_due(&store, 10).await {
        Ok(claimed) => claimed.len() == 5,
        Err(error) => {
            assert!(error.is_transient(), "{error:?}");
            false
        }
    })
    .await;
    let transaction = store.begin().await.expect("begins again");
    PostgresStore::rollback(transaction).await.expect("rolls back");
    store.listen().await.expect("listens again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_takes_no_writes_is_not_used_for_ever() {
    let db = Postgres::fresh().await;
    let id = write_one(&db).await;
    let user = db.schema().replace("outbox_test", "outbox_reader");
    db.execute(&format!(
        "CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}'; ALTER ROLE {user} SET default_transaction_read_only = on"
    ))
    .await;
    let options = PostgresOptions::from_url(&as_user(db.url(), &user)).expect("good").connections(1);
    let store = PostgresStore::connect_with(options).await.expect("connects");
    // Like a session on a server that became a standby: new ones may write, this one never will.
    assert!(store.get(id).await.expect("it reads").is_some());
    db.execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = off")).await;

    let error = claim_due(&store, 1).await.expect_err("takes no writes");
    let claimed = claim_due(&store, 1).await;

    store.close().await;
    db.execute(&format!("DROP ROLE {user}")).await;
    assert!(matches!(error, StoreError::Standby { .. }) && error.is_transient(), "{error:?}");
    assert_eq!(ids(&claimed.expect("by another session")), [id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_takes_no_writes_is_not_used_for_further_transactions() {
    let db = Postgres::fresh().await;
    let user = db.schema().replace("outbox_test", "outbox_reader_2");
    db.execute(&format!(
        "CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}'; ALTER ROLE {user} SET default_transaction_read_only = on"
    ))
    .await;
    let options = PostgresOptions::from_url(&as_user(db.url(), &user)).expect("good").connections(1);
    let store = PostgresStore::connect_with(options).await.expect("connects");
    assert_eq!(store.state("plugin", "key").await.expect("it reads"), None);
    db.execute(&format!("ALTER ROLE {user} SET default_transaction_read_only = off")).await;

    let error = store.delete_state("plugin", "key", &by_hand()).await.expect_err("takes no writes");
    let deleted = store.delete_state("plugin", "key", &by_hand()).await;

    store.close().await;
    db.execute(&format!("DROP ROLE {user}")).await;
    assert!(matches!(error, StoreError::Standby { .. }), "{error:?}");
    assert!(!deleted.expect("by another session"), "there is no such state");
}

/// Of the roles that these tests make.
const PASSWORD: &str = "for-a-test";

/// The same server, for another user.
fn as_user(url: &str, user: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("an address");
    let place = rest.split_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{user}:{PASSWORD}@{place}")
}

/// What a statement comes to for one role: `Ok`, or the SQLSTATE.
async fn by_role(db: &Postgres, role: &str, sql: &str) -> Result<(), String> {
    let mut connection = PgConnection::connect(db.url()).await.expect("connects");
    connection.execute(AssertSqlSafe(format!("SET ROLE {role}"))).await.expect("a superuser may be anybody");
    let result = connection.execute(AssertSqlSafe(sql.to_owned())).await;
    connection.close().await.expect("closes");
    result.map(drop).map_err(|error| error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned())
}

const FORBIDDEN: &str = "42501";
/// The columns that a program which only writes may name.
const OF_THE_EVENT: [&str; 12] = [
    "event_id",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "headers",
    "content_type",
    "payload",
    "occurred_at",
    "available_at",
    "due_at",
    "expires_at",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_may_do_its_part_and_no_more() {
    let db = Postgres::fresh().await;
    db.execute(&db.store().grants_sql()).await;
    db.execute("GRANT INSERT ON outbox_event TO outbox_writer").await; // as they were printed before
    db.execute(&db.store().grants_sql()).await;
    let store_as = async |role: &str| {
        let url = db.url().replace("options=", &format!("options=-crole%3D{role}%20"));
        PostgresStore::connect(&url).await.expect("connects")
    };

    let writer = store_as("outbox_writer").await;
    let envelope = plain(&db).await;
    let rows = [NewRow { envelope: &envelope, claimed: false }];
    let mut transaction = writer.begin().await.expect("begins");
    let written = writer.insert(transaction.as_mut(), &rows, &ownership()).await.expect("writes");
    PostgresStore::commit(transaction).await.expect("commits");
    assert!(written[0].is_some());
    assert_eq!(writer.write(&rows, &ownership()).await.expect("looks"), [None], "a duplicate is told too");
    by_role(&db, "outbox_writer", "INSERT INTO outbox_event (event_type, payload) VALUES ('X', 'x')").await.expect("may");
    writer.check_schema().await.expect("reads the version: the library looks at it before it writes");
    let columns: Vec<String> = sqlx::query_scalar(
        "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'outbox_event' AND table_schema = $1",
    )
    .bind(db.schema())
    .fetch_all(db.other_program())
    .await
    .expect("lists");
    let is_of_the_host = |column: &&String| !OF_THE_EVENT.contains(&column.as_str());
    let insert = |column| format!("INSERT INTO outbox_event (event_type, payload, {column}) VALUES ('X', 'x', DEFAULT)");
    let of_the_host: Vec<String> = columns.iter().filter(is_of_the_host).map(insert).collect();
    assert_eq!(of_the_host.len(), columns.len() - OF_THE_EVENT.len());
    let others = ["SELECT payload FROM outbox_event", "UPDATE outbox_event SET status = 1", "DELETE FROM outbox_event"];
    for sql in others.into_iter().chain(of_the_host.iter().map(String::as_str)) {
        assert_eq!(by_role(&db, "outbox_writer", sql).await, Err(FORBIDDEN.to_owned()), "{sql}");
    }
    let claimed = [NewRow { envelope: &plain(&db).await, claimed: true }];
    assert!(matches!(writer.write(&claimed, &ownership()).await, Err(StoreError::Forbidden { .. })), "that is a host's part");

    let dispatcher = store_as("outbox_dispatcher").await;
    let claimed = claim_due(&dispatcher, 10).await.expect("claims");
    let settled: Vec<Settled> = claimed
        .iter()
        .map(|one| Settled::new(one.fence, Settlement::Dead { error: "no".to_owned(), counted: true, blocks: false }))
        .collect();
    assert_eq!(dispatcher.settle(&settled).await.expect("settles"), 0);
    assert!(dispatcher.replay(ids(&claimed)[0], &by_hand()).await.expect("replays"));
    dispatcher.check_schema().await.expect("reads the version");
    assert!(by_role(&db, "outbox_dispatcher", "DROP TABLE outbox_event").await.is_err());

    let viewer = store_as("outbox_viewer").await;
    assert_eq!(viewer.list(&Filter::default(), 10).await.expect("lists").len(), 2);
    assert!(matches!(claim_due(&viewer, 1).await, Err(StoreError::Forbidden { .. })));
    by_role(&db, "outbox_viewer", "SELECT * FROM outbox_event_readable").await.expect("may look");
    for store in [&viewer, &writer] {
        let findings = store.diagnose(&expectations()).await.expect("looks");
        let lacking: Vec<&Finding> = findings.iter().filter(|finding| finding.check == "grants").collect();
        assert!(lacking.len() == 1 && lacking[0].severity == Severity::Fault, "{findings:#?}");
        assert!(lacking[0].found.contains("UPDATE on outbox_event"), "{lacking:?}");
        let fix = lacking[0].fix.as_deref().unwrap_or_default();
        assert!(
            fix.contains("outbox_dispatcher") && fix.contains("for a service that only writes: grant it outbox_writer"),
            "{fix}"
        );
    }
    for sql in ["INSERT INTO outbox_event (event_type, payload) VALUES ('X', 'x')", "DELETE FROM outbox_event_route"] {
        assert_eq!(by_role(&db, "outbox_viewer", sql).await, Err(FORBIDDEN.to_owned()), "{sql}");
    }
    by_role(&db, "outbox_migrator", "ALTER TABLE outbox_event ADD COLUMN later integer").await.expect("owns it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_up_reaches_those_who_listen_to_this_table() {
    let db = Postgres::fresh().await;
    let name = format!("{}_listens", db.schema());
    let store = PostgresStore::connect(&format!("{}&application_name={name}", db.url())).await.expect("connects");
    let mut wake_ups = store.listen().await.expect("listens").expect("PostgreSQL tells");

    db.store().notify().await.expect("tells");

    assert_eq!(support::in_time("the wake-up is heard", wake_ups.next()).await.expect("heard"), WakeUp::Events);
    db.store().send_test_wake_up().await.expect("tells");
    assert_eq!(support::in_time("the test is heard", wake_ups.next()).await.expect("heard"), WakeUp::Test);
    let other = db.other_table("other").await;
    other.migrate_up().await.expect("migrates");
    let mut theirs = other.listen().await.expect("listens").expect("PostgreSQL tells");
    other.notify().await.expect("tells");
    support::in_time("the other table's wake-up is heard", theirs.next()).await.expect("heard");
    // What was heard before the end of the connection would be told before it.
    db.execute(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'")).await;
    let heard = support::in_time("the connection has ended", wake_ups.next()).await;
    assert!(heard.is_err(), "another table's wake-ups are not ours");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_without_its_password() {
    let error = PostgresStore::connect("postgres://joe:s3cret@127.0.0.1:1/shop").await.expect_err("nobody listens there");

    let text = format!("{error} {error:?}");
    assert!(text.contains("postgres://joe@127.0.0.1:1/shop") && text.contains("no server answers"), "{text}");
    assert!(!text.contains("s3cret") && error.is_transient(), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_somebody_else_made_is_found() {
    let db = Postgres::empty().await;
    db.execute("CREATE TABLE outbox_event (id integer)").await;

    let findings = db.store().diagnose(&expectations()).await.expect("looks");

    let columns = findings.iter().find(|finding| finding.check == "columns").expect("was looked at");
    assert!(columns.found.contains("claim_seq") && columns.fix.is_some(), "{columns:?}");
    let row = sqlx::query("SELECT count(*) FROM outbox_event").fetch_one(db.other_program()).await.expect("reads");
    assert_eq!(row.get::<i64, _>(0), 0, "looking changes nothing");
}

#[tokio::test]
async fn a_migration_of_a_table_that_is_in_use_gives_up_and_holds_nobody_up() {
    let db = Postgres::fresh().await;
    let mut backup = db.services_pool(1).begin().await.expect("begins");
    db.run_on(&mut backup, "SELECT count(*) FROM outbox_event_partition").await;

    let error = db.store().migrate_reset().await.expect_err("another transaction reads a table");

    assert!(matches!(&error, StoreError::InUse { table, .. } if table.ends_with("outbox_event")), "{error:?}");
    assert!(error.to_string().contains("end its transaction"), "{error}");
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox_event_partition'::regclass";
    assert_eq!(db.number(waiting).await, 0, "nobody stands in a queue behind it");
    backup.rollback().await.expect("rolls back");
    db.store().check_schema().await.expect("nothing was half-done");
    assert_eq!(db.store().migrate_reset().await.expect("resets").len(), 1);
}

/// As after logical replication, which copies rows and no sequences.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_finds_a_sequence_that_is_behind_its_table_and_its_statement_mends_it() {
    let db = Postgres::fresh().await;
    let sequences = async || -> Vec<Finding> {
        let findings = db.store().diagnose(&expectations()).await.expect("looks");
        findings.into_iter().filter(|finding| finding.check == "sequences").collect()
    };
    write_one(&db).await;
    let found = sequences().await;
    assert!(found.iter().all(|finding| finding.severity == Severity::Good) && found.len() == 1, "{found:?}");
    db.execute("INSERT INTO outbox_event (seq, event_type, payload) OVERRIDING SYSTEM VALUE SELECT 1 + number, 'Copied', '' FROM generate_series(1, 3) AS number").await;
    db.execute(
        "INSERT INTO outbox_event_audit (id, at, actor, action, selector, count) OVERRIDING SYSTEM VALUE
         VALUES (7, now(), 'anna', 'purge', '{}', 1)",
    )
    .await;
    let plain_insert = "INSERT INTO outbox_event (event_type, payload) VALUES ('Next', '')";
    db.try_execute(plain_insert).await.expect_err("the number is taken");

    let behind = sequences().await;

    assert!(behind.iter().all(|finding| finding.severity == Severity::Fault) && behind.len() == 2, "{behind:?}");
    assert!(behind[0].found.contains("seq goes up to 4, but its sequence gives 3 next"), "{behind:?}");
    let lagging = db.store().lagging_sequences().await.expect("looks");
    let numbers: Vec<(&str, i64, i64)> = lagging.iter().map(|one| (&*one.column, one.largest, one.next)).collect();
    assert_eq!(numbers[0], ("seq", 4, 3), "{lagging:?}");
    for finding in &behind {
        db.execute(finding.fix.as_deref().expect("says what to do")).await;
    }
    db.execute(plain_insert).await;
    let mended = sequences().await;
    assert!(mended.iter().all(|finding| finding.severity == Severity::Good), "{mended:?}");
    assert_eq!(db.store().lagging_sequences().await.expect("looks"), []);

    // As after a switchover that leaves a gap on purpose.
    db.execute("ALTER SEQUENCE outbox_event_seq_seq RESTART WITH 1000000").await;
    assert_eq!(db.store().lagging_sequences().await.expect("looks"), []);
    // As on a subscriber of logical replication, whose sequence has given no number.
    db.execute("ALTER SEQUENCE outbox_event_seq_seq RESTART WITH 1").await;
    let lagging = db.store().lagging_sequences().await.expect("looks");
    assert_eq!(lagging.iter().map(|one| one.next).collect::<Vec<_>>(), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_finds_a_sequence_that_breaks_the_order_or_comes_to_its_end() {
    let db = Postgres::fresh().await;
    let sequences = async |index| -> Vec<Finding> {
        let findings = db.store().diagnose(&Expectations { index, ..expectations() }).await.expect("looks");
        findings.into_iter().filter(|finding| finding.check == "sequences").collect()
    };
    let is_good = |findings: &[Finding]| findings.iter().all(|finding| finding.severity == Severity::Good);
    write_one(&db).await;
    for (change, found) in [
        ("CACHE 50", "gives each session 50 numbers at once"),
        ("INCREMENT BY -1 MINVALUE -1000", "counts down"),
        ("MAXVALUE 1000", "is near its end"),
    ] {
        db.execute(&format!("ALTER SEQUENCE outbox_event_seq_seq {change}")).await;
        let findings = sequences(Some(Index::OrderedByAggregate)).await;
        let [finding] = &*findings else { panic!("{findings:?}") };
        assert!(finding.severity == Severity::Fault && finding.found.contains(found), "{finding:?}");
        assert_eq!(is_good(&sequences(None).await), change == "CACHE 50", "numbers out of order do no harm without an order");
        for fix in finding.fix.as_deref().expect("says what to do").split(", then: ") {
            db.execute(fix).await;
        }
        assert!(is_good(&sequences(Some(Index::OrderedByAggregate)).await), "{change}");
    }
}

/// PostgreSQL ends no COMMIT after `statement_timeout`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_hangs_ends_after_its_host() {
    let db = Postgres::fresh().await;
    let function =
        "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3600); RETURN NULL; END $$";
    db.execute(function).await;
    db.execute(
        "CREATE CONSTRAINT TRIGGER hangs AFTER INSERT ON outbox_event DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION hang()",
    )
    .await;
    let (url, envelope, ownership) = (db.url().to_owned(), plain(&db).await, ownership());
    let hanging =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'COMMIT' AND state = 'active'";
    let host = tokio::runtime::Runtime::new().expect("starts");
    host.spawn(async move {
        let store = PostgresStore::connect(&url).await.expect("connects");
        let rows = [NewRow { envelope: &envelope, claimed: false }];
        store.write(&rows, &ownership).await.expect("is never answered");
    });
    eventually("the commit hangs", async || db.number(hanging).await == 1).await;

    host.shutdown_background();

    eventually("the server has ended it", async || db.number(hanging).await == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_though_this_user_may_write_no_temporary_file() {
    let db = Postgres::fresh().await;
    let url = format!("{}%20-ctemp_file_limit%3D0%20-cwork_mem%3D64kB", db.url());

    let store = PostgresStore::connect(&url).await.expect("connects");

    store.check_schema().await.expect("a session begins");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_reports_a_default_isolation_level_as_a_matter_of_the_application() {
    let db = Postgres::fresh().await;
    let url = format!("{}%20-cdefault_transaction_isolation%3Dserializable", db.url());
    let store = PostgresStore::connect(&url).await.expect("connects");

    let findings = store.diagnose(&expectations()).await.expect("looks");

    let isolation = findings.iter().find(|finding| finding.check == "isolation").expect("it is looked at");
    assert_eq!(isolation.severity, Severity::Warning);
    assert!(isolation.found.starts_with("serializable is the default: hosts set a level of their own"), "{isolation:?}");
}
