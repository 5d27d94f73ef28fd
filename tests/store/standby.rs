//! A host acts on no answer of a standby.

use std::time::Duration;

use outbox::store::{
    AuditFilter, DeadFilter, Filter, Index, NewRow, Node, NodeStore, PurgeRequest, PurgeStore, PurgeTarget, ReadOrder,
    ReadRequest, SchemaStore, Severity, WaitsFor, WriteStore,
};
use outbox::time::Timestamp;
use outbox::{Envelope, EventId, MySqlStore, PostgresStore, Status, Store, StoreError};
use servers::{Database, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, Row};
use support::{eventually, in_time};

use crate::common::{beat, by_hand, expectations, owner, ownership, replay_batch, retry_now};

fn request(order: Option<ReadOrder>) -> ReadRequest {
    ReadRequest {
        owner: owner("host"),
        partitions: (0..256).collect(),
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 10,
        max_bytes: 1 << 20,
        skip_recent: Duration::ZERO,
        order,
    }
}

/// The error of each read, or `None`. No read finds a row, so an empty answer would be a good one.
async fn reads(store: &dyn Store) -> Vec<(&'static str, Option<StoreError>)> {
    let by_aggregate = Some(ReadOrder::ByAggregate { waits_for: WaitsFor::Unresolved, queued: Vec::new() });
    let id: EventId = Envelope::new("Any").json(&1).expect("good").id();
    let partitions: Vec<u16> = (0..256).collect();
    let audit = |filter: AuditFilter| async move { store.list_audit(&filter, 10).await.err() };
    vec![
        ("version of the schema", store.check_schema().await.err()),
        ("steps of the schema", store.migrations().await.err()),
        ("faults of the partition table", store.partition_faults().await.err()),
        ("audit", audit(AuditFilter::default()).await),
        ("later page of the audit", audit(AuditFilter { before: Some(9), ..AuditFilter::default() }).await),
        ("audit of an event", audit(AuditFilter { event_id: Some(id), ..AuditFilter::default() }).await),
        ("audit that touches an event", audit(AuditFilter { touching: Some(id), ..AuditFilter::default() }).await),
        ("count of finished events", store.count_purgeable(Status::Done, Timestamp::from_micros(0)).await.err()),
        ("oldest finished event", store.oldest_purgeable(Status::Done, Timestamp::from_micros(0)).await.err()),
        ("count of dead events", store.count_dead(&DeadFilter::default()).await.err()),
        ("count of waiting events", store.count_waiting(None).await.err()),
        ("read", store.read(&request(None)).await.err()),
        ("read in order", store.read(&request(by_aggregate)).await.err()),
        ("read the front", store.read(&request(Some(ReadOrder::OneForAll))).await.err()),
        ("next to read", store.next_to_read(&owner("host"), &[], &[]).await.err()),
        ("next due", store.next_due().await.err()),
        ("heads", store.heads(&[1], WaitsFor::Unresolved).await.err()),
        ("blockers", store.blockers(&partitions, 0, 10).await.err()),
        ("blocked keys", store.blocked_keys(10).await.err()),
        ("routes", store.routes().await.err()),
        ("count of routes", store.count_routes().await.err()),
        ("parked route", store.parked_route(None).await.err()),
        ("state", store.state("plugin", "key").await.err()),
        ("usage of state", store.state_usage("plugin").await.err()),
        ("list of state", store.list_state("plugin", "", None, 10).await.err()),
        ("statistics", store.stats().await.err()),
        ("sample", store.sample(10).await.err()),
        ("wait reasons", store.wait_reasons(10).await.err()),
        ("list", store.list(&Filter::default(), 10).await.err()),
        ("event", store.get(id).await.err()),
        ("hosts", store.nodes().await.err()),
        ("other hosts", store.peers(&Node::new(owner("host"), "host 1", "multi_node", "1")).await.err()),
        ("free sessions", store.free_sessions(&owner("host")).await.err()),
        ("session", store.hold_session(&owner("host")).await.err()),
    ]
}

async fn refuses_every_read(store: &dyn Store, server: &str) {
    for (read, error) in reads(store).await {
        let error = error.unwrap_or_else(|| panic!("{read} is refused"));
        assert!(matches!(&error, StoreError::StaleRead { .. }) && error.is_transient(), "{read}: {error:?}");
        assert!(error.to_string().contains(server), "{read}: {error}");
    }
    let findings = store.diagnose(&expectations()).await.expect("it is looked at");
    let found = findings.iter().find(|finding| finding.check == "reads").expect("reads are looked at");
    assert!(found.severity == Severity::Fault && found.found.contains(server), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_of_postgresql_answers_no_read() {
    let primary = Server::start(Database::PostgreSql, Durability::Volatile).expect("`cargo xtask test` installs it");
    let direct = PostgresStore::connect(&primary.url()).await.expect("connects");
    direct.migrate_up().await.expect("migrates");
    direct.add_index(Index::OrderedByAggregate).await.expect("adds it");
    let standby = primary.standby(Duration::ZERO).expect("it starts");
    let mut reader = PgConnection::connect(&standby.url()).await.expect("connects");
    let index = "SELECT count(*) FROM pg_class WHERE relname = 'outbox_event_key'";
    eventually("the standby shows the tables and the index", async || {
        let row = reader.fetch_one(index).await.expect("it answers");
        row.try_get::<i64, _>(0).expect("a number") == 1
    })
    .await;
    let store = PostgresStore::connect(&standby.url()).await.expect("connects");

    refuses_every_read(&store, &format!("127.0.0.1:{}", standby.port())).await;

    for (read, error) in reads(&direct).await {
        assert!(error.is_none(), "{read} of the primary: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_mariadb_answers_no_read_and_its_connections_are_not_used_again() {
    let server = Server::start(Database::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs it");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    // An account with all rights may write even to a read-only server.
    for statement in [
        "CREATE USER host@'127.0.0.1' IDENTIFIED BY 'secret'",
        "GRANT ALL PRIVILEGES ON outbox_test.* TO host@'127.0.0.1'",
        "GRANT PROCESS ON *.* TO host@'127.0.0.1'",
    ] {
        admin.execute(statement).await.expect("may do everything");
    }
    let port = server.port();
    let store = MySqlStore::connect(&format!("mysql://host:secret@127.0.0.1:{port}/outbox_test")).await.expect("connects");
    store.migrate_up().await.expect("migrates");
    store.add_index(Index::OrderedByAggregate).await.expect("adds it");
    let before = sessions(&mut admin).await;

    admin.execute("SET GLOBAL read_only = 1").await.expect("sets");

    let host = owner("host");
    let node = Node::new(host.clone(), "host 1", "multi_node", "1");
    let error = store.heartbeat(&node, Duration::from_secs(30)).await.expect_err("takes no writes");
    assert!(matches!(error, StoreError::Standby { .. }), "{error:?}");
    refuses_every_read(&store, &format!("127.0.0.1:{port}")).await;
    for (choice, error) in choices(&store).await {
        assert!(matches!(error, Some(StoreError::StaleRead { .. })), "{choice}: {error:?}");
    }
    admin.execute("SET GLOBAL read_only = 0").await.expect("sets");
    in_time("it is the primary again", beat(&store, &host)).await;
    for (read, error) in reads(&store).await {
        assert!(error.is_none(), "{read} of the primary: {error:?}");
    }
    assert!(!before.is_empty());
    eventually("connections of before are closed", async || sessions(&mut admin).await.iter().all(|id| !before.contains(id)))
        .await;
    let envelope = Envelope::new("Any").json(&1).expect("good");
    let row = NewRow { envelope: &envelope, claimed: false };
    store.write(&[row], &ownership()).await.expect("writes");

    let trigger = "CREATE TRIGGER counts BEFORE INSERT ON outbox_event FOR EACH ROW
                   BEGIN DECLARE number BIGINT UNSIGNED DEFAULT 0; SET number = number - 1; END";
    admin.execute(trigger).await.expect("creates");
    let envelope = Envelope::new("Any").json(&1).expect("good");
    let error = store.write(&[NewRow { envelope: &envelope, claimed: false }], &ownership()).await.expect_err("out of range");
    assert!(matches!(error, StoreError::Failed { .. }), "the error of a trigger: {error:?}");
}

/// The error of each change that begins with a read of its own, or `None`. A read-only server would find nothing, and a host would believe
/// it.
async fn choices(store: &MySqlStore) -> Vec<(&'static str, Option<StoreError>)> {
    let finished = PurgeTarget::Finished { status: Status::Done, finished_before: Timestamp::from_micros(0) };
    let finished = PurgeRequest::first(finished, 10);
    let undelivered = PurgeRequest::first(PurgeTarget::Undelivered { older_than: Duration::ZERO }, 10);
    vec![
        ("next to purge", store.next_to_purge(&finished).await.err()),
        ("purge", store.purge(&finished).await.err()),
        ("next undelivered to purge", store.next_to_purge(&undelivered).await.err()),
        ("purge of undelivered events", store.purge(&undelivered).await.err()),
        ("replay", replay_batch(store, &DeadFilter::default(), 10, &by_hand()).await.err()),
        ("retry now", retry_now(store, None, 0, 10, &by_hand()).await.err()),
    ]
}

/// The numbers of the host's connections.
async fn sessions(admin: &mut MySqlConnection) -> Vec<i64> {
    let sql = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist WHERE user = 'host'";
    let rows = admin.fetch_all(AssertSqlSafe(sql.to_owned())).await.expect("reads");
    rows.iter().map(|row| row.try_get(0).expect("a number")).collect()
}
