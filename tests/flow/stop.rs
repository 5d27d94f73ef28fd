//! A stop whose outcomes cannot be written at once.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::{Outbox, SqliteStore, Store};
use sqlx::pool::PoolConnection;
use support::{Recorder, Sqlite, eventually, in_time};

use crate::common::{ROUTE, commit, done, drowsy, orders, outbox};

/// More than find room on the way to the database: workers wait with the outcomes of calls that ended well.
const EVENTS: u32 = 5_000;

/// A host whose outcomes cannot be written, since somebody has locked the database, until workers wait with them.
async fn stalled(db: &Sqlite, drain_timeout: Duration) -> (Outbox<SqliteStore>, Recorder, PoolConnection<sqlx::Sqlite>) {
    let recorder = Recorder::held();
    let config = DispatcherConfig { hot_queue: 10_000, drain_timeout, ..DispatcherConfig::default() };
    let outbox = Outbox::single_node(db.impatient_store().await)
        .poller(drowsy())
        .dispatcher(config)
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");
    commit(&outbox, orders(EVENTS)).await;
    recorder.started().await;
    let mut other = db.other_program().acquire().await.expect("a connection");
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut *other).await.expect("locks");
    recorder.finish(10_000);
    let mut before = 0;
    eventually("every worker waits for the database", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::mem::replace(&mut before, recorder.count()) == recorder.count()
    })
    .await;
    assert!((2_048..EVENTS as usize).contains(&recorder.count()), "{} calls", recorder.count());
    (outbox, recorder, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_stores_the_outcomes_that_workers_wait_with() {
    let db = Sqlite::fresh().await;
    let (first, recorder, mut other) = stalled(&db, Duration::from_secs(5)).await;
    let metrics = first.metrics().clone();

    let stopping = tokio::spawn(first.shutdown());
    eventually("the drain is over", async || metrics.counts().dispatch_released > 0).await;
    sqlx::query("COMMIT").execute(&mut *other).await.expect("unlocks");
    drop(other);
    in_time("the shutdown ends", stopping).await.expect("does not panic");

    let stats = db.sqlite().stats().await.expect("counts");
    assert_eq!(stats.done, recorder.count() as u64, "every call that ended well is stored");
    assert_eq!(stats.in_flight, 0, "the rest is given back");
    let next = Recorder::done();
    let second = outbox(&db).listener(ROUTE, next.listener()).start().await.expect("starts");
    done(&db, EVENTS.into()).await;
    assert_eq!(recorder.count() + next.count(), EVENTS as usize, "nothing is delivered twice");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_though_the_database_does_not_answer() {
    let db = Sqlite::fresh().await;
    let (outbox, _, other) = stalled(&db, Duration::from_millis(500)).await;

    in_time("the shutdown ends", outbox.shutdown()).await;

    drop(other);
}
