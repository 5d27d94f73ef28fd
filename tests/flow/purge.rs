//! Old finished rows away.

use std::sync::Arc;
use std::time::Duration;

use outbox::metrics::Metrics;
use outbox::purge::{PURGE_COMPLETED, Purge, PurgeConfig, PurgeError, PurgeLimits};
use outbox::{Failure, Status};
use support::{Harness, Recorder, Sqlite, eventually};

use crate::common::{ROUTE, commit, done, orders, outbox, reaches, rows};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A database with so many DONE events, finished an hour ago.
async fn finished(count: u32) -> Sqlite {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    commit(&outbox, orders(count)).await;
    done(&db, u64::from(count)).await;
    outbox.shutdown().await;
    db.let_pass(Duration::from_secs(3_600)).await;
    db
}

fn purge(db: &Sqlite, config: PurgeConfig) -> Purge {
    Purge::new(db.store(), config, Arc::new(Metrics::default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_takes_what_is_older_than_its_retention_in_batches() {
    let db = finished(25).await;
    let config = PurgeConfig { retention: DAY, batch_size: 10, ..PurgeConfig::default() };
    let purge = purge(&db, config);

    assert_eq!(purge.run_once(PurgeLimits::default()).await.expect("runs").count, 0, "nothing is old enough");
    db.let_pass(DAY).await;
    let purged = purge.run_once(PurgeLimits::default()).await.expect("runs");

    assert_eq!((purged.count, rows(&db).await), (25, 0));
    assert!(purged.first.is_some() && purged.first <= purged.last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_on_request_stops_at_its_limits() {
    let db = finished(25).await;
    let config = PurgeConfig { retention: Duration::ZERO, batch_size: 10, ..PurgeConfig::default() };
    let purge = purge(&db, config);

    let none = purge.run_once(PurgeLimits { time: Some(Duration::ZERO), rows: None }).await.expect("runs");
    let some = purge.run_once(PurgeLimits { time: None, rows: Some(12) }).await.expect("runs");

    assert_eq!((none.count, some.count, rows(&db).await), (0, 12, 13));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_purge_does_not_begin() {
    let db = finished(1).await;
    let purge = purge(&db, PurgeConfig { retention: Duration::ZERO, ..PurgeConfig::default() });

    purge.close();

    assert!(matches!(purge.run_once(PurgeLimits::default()).await, Err(PurgeError::Closed)));
    assert_eq!(rows(&db).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_are_kept_unless_they_have_a_retention() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|_| Err(Failure::unrecoverable("no")));
    let running = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit(&running, orders(1)).await[0];
    reaches(&db, id, Status::Dead).await;
    running.shutdown().await;
    db.let_pass(DAY * 365).await;

    let kept = purge(&db, PurgeConfig::default()).run_once(PurgeLimits::default()).await.expect("runs");
    let config = PurgeConfig { dead_retention: Some(DAY * 30), ..PurgeConfig::default() };
    let purged = purge(&db, config).run_once(PurgeLimits::default()).await.expect("runs");

    assert_eq!((kept.count, purged.count), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_purges_by_itself_and_tells_of_it() {
    let db = finished(3).await;
    db.let_pass(DAY * 8).await;
    let recorder = Recorder::done();
    let config = PurgeConfig { emit_event: true, interval: Duration::from_millis(50), ..PurgeConfig::default() };
    let outbox = outbox(&db).purge(config).listener(PURGE_COMPLETED, recorder.listener()).start().await.expect("starts");

    let event = recorder.started().await;

    let told: serde_json::Value = event.payload().expect("JSON");
    assert_eq!(told["count"], 3);
    assert!(told["first"].is_string() && told["last"].is_string(), "{told}");
    assert_eq!(outbox.metrics().counts().purged, 3);
    eventually("only that event is left", async || rows(&db).await == 1).await;
    outbox.shutdown().await;
    assert_eq!(recorder.count(), 1, "a purge that deletes nothing tells nothing");
}
