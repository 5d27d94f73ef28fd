//! Old finished rows away.

use std::sync::Arc;
use std::time::Duration;

use outbox::event::OwnerId;
use outbox::metrics::Metrics;
use outbox::purge::{PURGE_COMPLETED, Purge, PurgeConfig, PurgeError, PurgeLimits};
use outbox::store::Node;
use outbox::{Failure, Outbox, StartError, Status};
use support::{Harness, Recorder, Sqlite, eventually};

use crate::common::{ROUTE, commit, commit_one, done, orders, outbox, reaches, row, rows};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A database with this many DONE events, finished an hour ago.
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_by_hand_tells_of_what_it_deleted_and_how_far_it_is() {
    let db = finished(25).await;
    let purge = purge(&db, PurgeConfig { emit_event: true, batch_size: 10, ..PurgeConfig::default() });
    let mut progress = Vec::new();

    let now = db.store().now().await.expect("tells the time");
    let done = purge.run(Status::Done, now, PurgeLimits::default(), |so_far| progress.push(so_far.count)).await;

    assert_eq!((done.expect("runs").count, progress), (25, vec![10, 20, 25]));
    assert_eq!(db.number(&format!("SELECT count(*) FROM outbox_event WHERE event_type = '{PURGE_COMPLETED}'")).await, 1);
    assert_eq!(rows(&db).await, 1, "and nothing else is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_get_no_time_of_their_own() {
    let db = finished(20).await;
    db.execute("UPDATE outbox_event SET status = 3 WHERE seq > 10").await;
    let config = PurgeConfig {
        dead_retention: Some(Duration::ZERO),
        retention: Duration::ZERO,
        batch_size: 1,
        ..PurgeConfig::default()
    };

    let limits = PurgeLimits { time: Some(Duration::from_micros(100)), rows: None };
    purge(&db, config).run_once(limits).await.expect("runs");

    let left = db.store().stats().await.expect("counts");
    assert!(left.done > 0, "no file takes ten transactions in a tenth of a millisecond");
    assert_eq!(left.dead, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_only_writes_purges_what_nobody_took_when_that_is_asked_for() {
    let db = Sqlite::fresh().await;
    let config =
        PurgeConfig { undelivered_retention: Some(DAY), interval: Duration::from_millis(20), ..PurgeConfig::default() };
    let writer = Outbox::writer_only(db.sqlite()).purge(config).start().await.expect("starts");
    let old = commit_one(&writer).await;

    db.let_pass(DAY * 2).await;
    let young = commit_one(&writer).await;

    eventually("what is old is deleted", async || db.store().get(old).await.expect("looks").is_none()).await;
    assert_eq!(row(&db, young).await.status, Status::New);
    writer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_undelivered_is_purged_while_a_host_is_there_to_deliver_it() {
    let db = Sqlite::fresh().await;
    let owner = OwnerId::generate("host");
    let host = Node::new(owner.clone(), "host 1", "single_node", "0");
    db.store().heartbeat(&host, DAY).await.expect("says that it is there");
    let writer = Outbox::writer_only(db.sqlite()).start().await.expect("starts");
    let id = commit_one(&writer).await;

    let config = PurgeConfig { undelivered_retention: Some(Duration::ZERO), ..PurgeConfig::default() };
    let purged = purge(&db, config.clone()).run_once(PurgeLimits::default()).await.expect("runs");
    assert_eq!(purged.count, 0);
    assert_eq!(row(&db, id).await.status, Status::New);

    db.store().leave(&owner).await.expect("leaves");
    let purged = purge(&db, config).run_once(PurgeLimits::default()).await.expect("runs");
    assert_eq!(purged.count, 1);
    writer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_delivers_refuses_to_purge_what_is_undelivered() {
    let db = Sqlite::fresh().await;
    let config = PurgeConfig { undelivered_retention: Some(DAY), ..PurgeConfig::default() };

    let Err(StartError::Config(faults)) = outbox(&db).purge(config).start().await else { panic!("it starts") };

    assert!(faults[0].contains("purge.undelivered_retention") && faults[0].contains("single_node"), "{faults:?}");
}
