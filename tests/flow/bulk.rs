//! Transactions with more events than the hot queue holds, and transactions that are open beside each other.

use std::cell::Cell;

use outbox::dispatcher::DispatcherConfig;
use outbox::{Outbox, TransactionalStore};
use support::{Database, Harness, Postgres, Recorder, eventually};

use crate::common::{HOUR, ROUTE, commit, done, drowsy, orders, outbox};

/// Claims that end long after the test: an event that waited for the end of one would never be DONE in time.
pub(crate) fn long_lease() -> DispatcherConfig {
    DispatcherConfig { lease: HOUR, ..DispatcherConfig::default() }
}

/// Waits until this many events were delivered, as long as their number grows.
async fn delivered<S: outbox::store::SharedStore>(outbox: &Outbox<S>, count: u64) {
    let delivered = Cell::new(0);
    while delivered.get() < count {
        let before = delivered.get();
        eventually(&format!("more than {before} of {count} events are delivered"), async || {
            delivered.set(outbox.metrics().counts().dispatch_success);
            delivered.get() > before
        })
        .await;
    }
}

pub(crate) async fn a_transaction_with_five_thousand_events_leaves_none_to_wait_for_a_lease(db: &impl Database) {
    let recorder = Recorder::done();
    let outbox = outbox(db).dispatcher(long_lease()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut transaction = outbox.begin().await.expect("begins");
    for _ in 0..50 {
        transaction.write_all(orders(100)).await.expect("writes");
    }
    transaction.commit().await.expect("commits");

    delivered(&outbox, 5_000).await;
    done(db, 5_000).await;
    let counts = outbox.metrics().counts();
    assert_eq!((recorder.count(), counts.fenced_outcomes), (5_000, 0), "each is delivered once");
    assert!(counts.hot_enqueued >= 1_000, "as many as the hot queue holds go straight from the commit");
    outbox.shutdown().await;
}

pub(crate) async fn room_in_the_hot_queue_is_given_back_by_every_end_of_a_transaction(db: &impl Database) {
    let recorder = Recorder::done();
    let config = DispatcherConfig { hot_queue: 10, ..long_lease() };
    let outbox = outbox(db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut rolled_back = outbox.begin().await.expect("begins");
    rolled_back.write_all(orders(10)).await.expect("writes");
    rolled_back.rollback().await.expect("rolls back");
    let mut dropped = outbox.begin().await.expect("begins");
    dropped.write_all(orders(10)).await.expect("writes");
    drop(dropped);
    for round in 1..=3 {
        commit(&outbox, orders(10)).await;
        done(db, round * 10).await;
    }

    assert_eq!(outbox.metrics().counts().hot_enqueued, 30, "all of them found room");
    outbox.shutdown().await;
}

/// What the poller claims, it claims later.
const CLAIMED_AT_INSERT: &str = "SELECT count(*) FROM outbox_event WHERE locked_at = created_at";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_are_open_at_once_share_the_room_in_the_hot_queue() {
    let db = Postgres::fresh().await;
    let recorder = Recorder::done();
    let config = DispatcherConfig { hot_queue: 10, ..long_lease() };
    let outbox =
        outbox(&db).poller(drowsy()).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut open = Vec::new();
    for _ in 0..4 {
        let mut transaction = db.postgres().begin().await.expect("begins");
        let receipt = outbox.writer().write_all(&mut transaction, orders(6)).await.expect("writes");
        open.push((transaction, receipt));
    }
    let mut claimed = Vec::new();
    for (transaction, receipt) in open {
        transaction.commit().await.expect("commits");
        claimed.push(db.number(CLAIMED_AT_INSERT).await);
        drop(receipt);
    }

    assert_eq!(claimed[0], 6, "the first found room for all of its events");
    assert!(claimed.iter().all(|claimed| *claimed <= 10), "no more were claimed than there is room for: {claimed:?}");
    done(&db, 24).await;
    assert_eq!((recorder.count(), outbox.metrics().counts().fenced_outcomes), (24, 0));
    outbox.shutdown().await;
}
