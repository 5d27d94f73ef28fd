//! Stores with as few connections as there can be, while the application keeps one for itself.

use std::time::Duration;

use outbox::event::OwnerId;
use outbox::store::mysql::MySqlOptions;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{NewRow, Ownership};
use outbox::{MySqlStore, Outbox, PostgresStore, Status, WriteError};
use support::{Database, MySql, Postgres, Recorder};

use crate::common::{HOUR, ROUTE, at_rest, commit_one, done, eager, orders, reaches};

const EVENTS: u64 = 300;

/// How long a call waits for a connection: all rooms of the host take turns on one.
const WAIT: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_one_connection_delivers_beside_a_transaction_that_holds_the_applications_only_one_on_postgres() {
    let db = Postgres::fresh().await;
    let mut options = PostgresOptions::from_url(db.url()).expect("good").connections(1);
    (options.transactions, options.acquire_timeout) = (1, WAIT);
    let store = PostgresStore::connect_with(options).await.expect("connects");
    delivers_beside_a_transaction(&db, store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_one_connection_delivers_beside_a_transaction_that_holds_the_applications_only_one_on_mysql() {
    let db = MySql::fresh().await;
    let mut options = MySqlOptions::from_url(&db.url()).expect("good").connections(1);
    options.acquire_timeout = WAIT;
    let store = MySqlStore::connect_with(options).await.expect("connects");
    delivers_beside_a_transaction(&db, store).await;
}

async fn delivers_beside_a_transaction<D: Database>(db: &D, store: D::Store) {
    let recorder = Recorder::done();
    let host = Outbox::multi_node(store).poller(eager()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
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
    assert_eq!((recorder.count(), counts.fenced_outcomes, counts.leases_lost), (301, 0, 0));
    host.shutdown().await;
}
