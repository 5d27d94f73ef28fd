//! Claims that end, are lost, or are kept.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::poller::PollerConfig;
use outbox::store::ClaimRequest;
use outbox::{Registration, Status, Store};
use support::{Harness, Recorder, Sqlite, eventually};

use crate::common::{HOUR, ROUTE, at_rest, commit_one, drowsy, one_worker, order, outbox, reaches, row};

/// Whether another host gets an event.
async fn takes_one(db: &Sqlite, owner: &OwnerId, lease: Duration) -> bool {
    let skip_recent = Duration::ZERO;
    let request = ClaimRequest { owner: owner.clone(), lease, limit: 1, max_bytes: 1_000, skip_recent, line: None };
    db.sqlite().claim(&request).await.expect("claims").len() == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_keeps_stopping_its_host_dies() {
    let db = Sqlite::fresh().await;
    let envelope = order(1);
    let row = outbox::store::NewRow { envelope: &envelope, claimed: false };
    let dying = |label| OwnerId::generate(label);
    let ownership = outbox::store::Ownership { owner: dying("writer"), lease: HOUR };
    db.sqlite().write(&[row], &ownership).await.expect("writes");
    // Five hosts took it and were never heard of again.
    for _ in 0..5 {
        assert!(takes_one(&db, &dying("host"), Duration::from_secs(30)).await);
        db.let_pass(Duration::from_secs(31)).await;
    }

    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let record = reaches(&db, envelope.id(), Status::Dead).await;
    assert!(record.last_error.as_deref().is_some_and(|error| error.contains("stopped 5 times")), "{:?}", record.last_error);
    assert_eq!((recorder.count(), record.attempts), (0, 0), "the sixth host does not try");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_of_a_lost_claim_is_fenced_off_and_counted() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = outbox(&db).poller(drowsy()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;

    // By the database's clock the lease is over, and another node takes the row while our listener is at work.
    db.let_pass(Duration::from_secs(31)).await;
    let other = OwnerId::generate("other");
    assert!(takes_one(&db, &other, HOUR).await);
    recorder.finish(1);

    eventually("the outcome is fenced off", async || outbox.metrics().counts().fenced_outcomes == 1).await;
    let record = row(&db, id).await;
    assert_eq!((record.status, record.locked_by.as_deref()), (Status::New, Some(other.as_str())));
    at_rest(&outbox).await;
    outbox.shutdown().await;
    assert_eq!(row(&db, id).await.locked_by.as_deref(), Some(other.as_str()), "a stop does not touch it either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_claim_was_taken_is_cut_off() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let lease = Duration::from_secs(1);
    let config = DispatcherConfig { lease, deadline: Duration::from_millis(900), ..one_worker() };
    let slow = Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).deadline(HOUR);
    let outbox = outbox(&db).poller(drowsy()).dispatcher(config).registration(slow).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;

    db.let_pass(lease * 2).await;
    let other = OwnerId::generate("other");
    // Our own renewal may come first; then its new lease must end before another node can take the row.
    eventually("another node takes the row", async || {
        let taken = takes_one(&db, &other, HOUR).await;
        db.let_pass(lease * 2).await;
        taken
    })
    .await;

    eventually("the worker notices", async || outbox.metrics().counts().leases_lost == 1).await;
    at_rest(&outbox).await;
    assert_eq!(row(&db, id).await.locked_by.as_deref(), Some(other.as_str()));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_call_keeps_its_claim_by_renewal() {
    let (db, store) = Sqlite::on_system_clock().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { lease: Duration::from_secs(1), deadline: Duration::from_millis(900), ..one_worker() };
    let slow = Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).deadline(HOUR);
    let outbox = outbox::Outbox::single_node(store.clone())
        .poller(PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() })
        .dispatcher(config)
        .registration(slow)
        .start()
        .await
        .expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;
    let first_end = row(&db, id).await.lease_end.expect("claimed");

    // Twice renewed: the claim holds longer than one lease.
    eventually("the claim is renewed beyond its first lease", async || {
        row(&db, id).await.lease_end.expect("claimed") > first_end.plus(Duration::from_millis(1_200))
    })
    .await;
    recorder.finish(10);

    let record = reaches(&db, id, Status::Done).await;
    assert_eq!((recorder.count(), record.claim_seq), (1, 1), "nobody else ever had it");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_are_stored_when_a_locked_database_is_free_again_and_no_listener_is_called_twice() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let store = db.impatient_store().await;
    let outbox = outbox::Outbox::single_node(store).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;
    let mut other = db.other_program().acquire().await.expect("a connection");
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut *other).await.expect("locks");

    recorder.finish(10);
    eventually("the failure is noticed", async || outbox.metrics().counts().db_errors > 0).await;
    sqlx::query("COMMIT").execute(&mut *other).await.expect("unlocks");
    drop(other);

    assert_eq!(reaches(&db, id, Status::Done).await.attempts, 0);
    assert_eq!(recorder.count(), 1);
    outbox.shutdown().await;
}
