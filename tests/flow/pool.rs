//! Stores with as few connections as there can be, while the application keeps one for itself.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::mysql::MySqlOptions;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{NewRow, Ownership};
use outbox::{Mode, MySqlStore, Outbox, PostgresStore, Registration, Status, WriteError};
use support::{Database, MySql, Postgres, Recorder, eventually};

use crate::common::{HOUR, ROUTE, at_rest, commit_one, done, eager, orders, reaches, row};

const EVENTS: u64 = 300;

const MODES: [Mode; 4] = [Mode::SingleNode, Mode::MultiNode, Mode::Ordered, Mode::OrderedByAggregate];

/// How long a call waits for a connection: all parts of the host take turns on one.
const WAIT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_one_connection_delivers_beside_a_transaction_that_holds_the_applications_only_one_on_postgres() {
    for mode in MODES {
        let db = Postgres::fresh().await;
        let mut options = PostgresOptions::from_url(db.url()).expect("good").connections(1);
        (options.transactions, options.acquire_timeout) = (1, WAIT);
        let store = PostgresStore::connect_with(options).await.expect("connects");
        delivers_beside_a_transaction(&db, store, mode).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_one_connection_delivers_beside_a_transaction_that_holds_the_applications_only_one_on_mysql() {
    for mode in MODES {
        let db = MySql::fresh().await;
        let mut options = MySqlOptions::from_url(&db.url()).expect("good").connections(1);
        options.acquire_timeout = WAIT;
        let store = MySqlStore::connect_with(options).await.expect("connects");
        delivers_beside_a_transaction(&db, store, mode).await;
    }
}

async fn delivers_beside_a_transaction<D: Database>(db: &D, store: D::Store, mode: Mode) {
    let recorder = Recorder::done();
    let host =
        Outbox::builder(store).mode(mode).poller(eager()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let held = host.begin().await.expect("begins");

    let error = match host.begin().await {
        Err(WriteError::Store(error)) => error,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("the one connection is taken"),
    };
    assert!(error.is_transient(), "the same call succeeds once the first transaction has ended: {error:?}");
    let envelopes = orders(u32::try_from(EVENTS).expect("small"));
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    db.store().write(&rows, &nobody).await.expect("writes");
    done(db, EVENTS).await;

    held.rollback().await.expect("rolls back");
    let id = commit_one(&host).await;
    reaches(db, id, Status::Done).await;
    at_rest(&host).await;
    let counts = host.metrics().counts();
    assert_eq!((recorder.count(), counts.fenced_outcomes, counts.leases_lost), (301, 0, 0), "{mode:?}");
    host.shutdown().await;
}

/// Connections of the host that is used up.
const FEW: u32 = 2;
const LEASE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_all_of_whose_connections_are_taken_keeps_its_leases_on_postgres() {
    for mode in [Mode::MultiNode, Mode::OrderedByAggregate] {
        let db = Postgres::fresh().await;
        let mut options = PostgresOptions::from_pool(db.services_pool(2)).connections(FEW);
        (options.acquire_timeout, options.lock_timeout) = (HOUR, Duration::ZERO);
        let store = PostgresStore::connect_with(options).await.expect("connects");
        let mut lock = db.services_pool(1).begin().await.expect("begins");
        // What people ask for waits for this table, and each question holds a connection of the host.
        db.run_on(&mut lock, "LOCK TABLE outbox_event_audit IN ACCESS EXCLUSIVE MODE").await;
        let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox_event_audit'::regclass";
        keeps_its_leases(&db, store, mode, waiting, async { lock.rollback().await.expect("rolls back") }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_all_of_whose_connections_are_taken_keeps_its_leases_on_mysql() {
    for mode in [Mode::MultiNode, Mode::OrderedByAggregate] {
        let db = MySql::fresh().await;
        let mut options = MySqlOptions::from_pool(db.services_pool(2)).connections(FEW);
        (options.acquire_timeout, options.lock_timeout) = (HOUR, HOUR);
        let store = MySqlStore::connect_with(options).await.expect("connects");
        let mut lock = db.services_pool(1).acquire().await.expect("a connection");
        db.run_on(&mut lock, "LOCK TABLES outbox_event_audit WRITE").await;
        let waiting = "SELECT COUNT(*) FROM information_schema.processlist
                       WHERE db = DATABASE() AND state = 'Waiting for table metadata lock'";
        keeps_its_leases(&db, store, mode, waiting, async { db.run_on(&mut lock, "UNLOCK TABLES").await }).await;
    }
}

/// A host holds an event while its pool has no free connection for longer than its leases, and another host could take over.
async fn keeps_its_leases<D: Database>(db: &D, store: D::Store, mode: Mode, waiting: &str, release: impl Future<Output = ()>) {
    let (held, other) = (Recorder::held(), Recorder::done());
    let start = async |store, recorder: &Recorder| {
        let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 2, ..DispatcherConfig::default() };
        let slow = Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).deadline(HOUR);
        let builder = Outbox::builder(store).mode(mode).dispatcher(config).poller(eager());
        builder.registration(slow).start().await.expect("starts")
    };
    let used_up = start(store, &held).await;
    let id = commit_one(&used_up).await;
    held.started().await;
    let takes_over = start(db.another().await, &other).await;

    // More than there are connections, so that what comes later waits in line.
    let ask = || {
        let store = used_up.store().clone();
        tokio::spawn(async move { store.audit(1).await })
    };
    let questions: Vec<_> = (0..FEW * 2).map(|_| ask()).collect();
    eventually("all connections are taken", async || db.number(waiting).await >= i64::from(FEW)).await;
    let taken_at = db.now().await;
    eventually("three leases are over", async || db.now().await.since(taken_at) > LEASE * 3).await;

    let nodes = db.store().nodes().await.expect("lists");
    assert!(nodes.len() == 2 && nodes.iter().all(|node| node.alive), "{mode:?}: {nodes:?}");
    // Inserted under a claim, or read.
    let claims = u64::from(mode == Mode::MultiNode);
    assert_eq!((row(db, id).await.claim_seq, held.count(), other.count()), (claims, 1, 0), "{mode:?}");
    release.await;
    for question in questions {
        question.await.expect("no panic").expect("answered");
    }
    held.finish(1);
    reaches(db, id, Status::Done).await;
    at_rest(&used_up).await;
    let counts = used_up.metrics().counts();
    assert_eq!((counts.leases_lost, counts.fenced_outcomes, held.count(), other.count()), (0, 0, 1, 0), "{mode:?}");
    used_up.shutdown().await;
    takes_over.shutdown().await;
}
