//! Stops that are held up: their outcomes cannot be written at once, or a listener asks for them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::{DispatchResult, Event, Outbox, SqliteStore, Status, Store};
use sqlx::pool::PoolConnection;
use support::{Recorder, Sqlite, eventually, in_time};

use crate::common::{HOUR, ROUTE, commit, commit_one, done, drowsy, orders, outbox, row};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_may_stop_its_own_outbox_and_its_event_is_done() {
    let db = Sqlite::fresh().await;
    let own = Arc::new(OnceLock::<Outbox<SqliteStore>>::new());
    let listener = {
        let own = own.clone();
        move |_: Arc<Event>| {
            let own = own.clone();
            async move {
                own.get().expect("set before anything is written").shutdown().await;
                Ok(DispatchResult::Done)
            }
        }
    };
    // Whoever waited for himself would wait for an hour.
    let config = DispatcherConfig { drain_timeout: HOUR, ..DispatcherConfig::default() };
    let outbox = outbox(&db).dispatcher(config).listener(ROUTE, listener).start().await.expect("starts");
    own.set(outbox.clone()).expect("nobody has set it");

    let id = commit_one(&outbox).await;

    let monitor = outbox.monitor();
    eventually("the listener has begun a stop", async || !monitor.readiness().is_ready()).await;
    in_time("the stop ends", outbox.shutdown()).await;
    assert_eq!(row(&db, id).await.status, Status::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_waits_for_its_own_stop_through_a_task_is_cut_off_and_its_event_is_delivered_again() {
    let db = Sqlite::fresh().await;
    let own = Arc::new(OnceLock::<Outbox<SqliteStore>>::new());
    let listener = {
        let own = own.clone();
        move |_: Arc<Event>| {
            let own = own.get().expect("set before anything is written").clone();
            async move {
                tokio::spawn(own.shutdown()).await.expect("does not panic");
                Ok(DispatchResult::Done)
            }
        }
    };
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(200), ..DispatcherConfig::default() };
    let first = outbox(&db).dispatcher(config).listener(ROUTE, listener).start().await.expect("starts");
    own.set(first.clone()).expect("nobody has set it");

    let id = commit_one(&first).await;
    eventually("it is in hand", async || first.metrics().counts().dispatch_released > 0).await;
    in_time("the stop ends", first.shutdown()).await;

    let released = row(&db, id).await;
    assert_eq!((released.status, released.attempts, released.locked_by), (Status::New, 0, None));
    let recorder = Recorder::done();
    let second = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    done(&db, 1).await;
    assert_eq!(recorder.ids(), [id]);
    second.shutdown().await;
}
