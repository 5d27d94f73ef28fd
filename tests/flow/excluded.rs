//! Events that are excluded from the store: how long they are kept, and when they are refused.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::EnvelopeBuilder;
use outbox::listener::Fixed;
use outbox::store::RouteStore;
use outbox::{DispatchResult, Envelope, Failure, Mode, Outbox, Status, WriteError};
use support::{Recorder, Sqlite, eventually};

use crate::common::{HOUR, ROUTE, at_rest, commit, commit_one, drowsy, one_worker, order, outbox, reaches, row, rows};

fn excluded() -> EnvelopeBuilder {
    Envelope::new("OrderPlaced").aggregate("Order", "x").excluded()
}

fn one() -> Envelope {
    excluded().json(&1).expect("good")
}

/// Writes excluded events beside a stored one; the write is refused, and the transaction goes on.
async fn is_refused(outbox: &Outbox<outbox::SqliteStore>, events: Vec<Envelope>) -> String {
    let mut transaction = outbox.begin().await.expect("begins");
    let error = transaction.write_all([vec![order(1)], events].concat()).await.expect_err("refused");
    transaction.write(order(2)).await.expect("as usable as before");
    transaction.commit().await.expect("commits");
    assert!(matches!(error, WriteError::NotKept { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_event_with_a_delay_is_refused() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let delayed = excluded().deliver_after(HOUR).json(&1).expect("good");

    let message = is_refused(&outbox, vec![one(), delayed.clone()]).await;

    assert!(message.contains(delayed.id().as_str()) && message.contains("delivered later"), "{message}");
    assert_eq!(rows(&db).await, 1, "the refused write left nothing");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_event_is_refused_where_all_delivery_is_from_the_store() {
    for mode in [Mode::Ordered, Mode::OrderedByAggregate, Mode::WriterOnly] {
        let db = Sqlite::fresh().await;
        let outbox = outbox(&db).mode(mode).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");

        let message = is_refused(&outbox, vec![one()]).await;

        assert!(message.contains("from the store alone"), "{message}");
        outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_event_is_refused_while_the_hot_queue_is_full_and_accepted_again_after() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { hot_queue: 2, ..one_worker() };
    let outbox =
        outbox(&db).poller(drowsy()).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    commit(&outbox, vec![one()]).await;
    recorder.started().await;
    let waiting = commit(&outbox, vec![one(), one()]).await;

    let message = is_refused(&outbox, vec![one()]).await;
    assert!(message.contains("no room"), "{message}");
    recorder.finish(3);
    for _ in &waiting {
        recorder.started().await;
    }
    recorder.finish(1);
    let id = commit(&outbox, vec![one()]).await[0];
    eventually("it is delivered", async || recorder.ids().contains(&id)).await;
    recorder.finish(10);
    at_rest(&outbox).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_event_that_fails_is_tried_again_until_it_is_done_or_given_up() {
    let db = Sqlite::fresh().await;
    let calls = AtomicUsize::new(0);
    let recorder = Recorder::answering(move |event| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Err(Failure::retryable("not yet")),
        1 => Ok(DispatchResult::RetryAfter(Duration::from_millis(1))),
        2 if event.attempt() == 2 => Ok(DispatchResult::Done),
        _ => Err(Failure::retryable("never")),
    });
    let outbox = Outbox::single_node(db.sqlite())
        .retry(Fixed(Duration::from_millis(1)))
        .dispatcher(DispatcherConfig { max_attempts: 3, ..one_worker() })
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");

    let good = commit(&outbox, vec![one()]).await[0];
    eventually("it is done", async || outbox.metrics().counts().dispatch_success == 1).await;
    let bad = commit(&outbox, vec![one()]).await[0];
    eventually("it is given up", async || outbox.metrics().counts().dispatch_dead == 1).await;

    let calls: Vec<_> = recorder.calls().iter().map(|event| (event.id(), event.attempt())).collect();
    assert_eq!(calls, [(good, 1), (good, 2), (good, 2), (bad, 1), (bad, 2), (bad, 3)], "a deferral is no attempt");
    at_rest(&outbox).await;
    assert_eq!(rows(&db).await, 0);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_event_waits_in_the_queue_for_longer_than_any_lease() {
    let (db, store) = Sqlite::on_system_clock().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { lease: Duration::from_secs(1), deadline: Duration::from_millis(900), ..one_worker() };
    let slow = outbox::Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).deadline(HOUR);
    let outbox =
        Outbox::single_node(store).poller(drowsy()).dispatcher(config).registration(slow).start().await.expect("starts");
    let first = commit_one(&outbox).await;
    recorder.started().await;
    let first_end = row(&db, first).await.lease_end.expect("claimed");
    let waiting = commit(&outbox, vec![one()]).await[0];

    eventually("a lease that began after the commit is over", async || {
        row(&db, first).await.lease_end.expect("claimed") > first_end.plus(Duration::from_millis(1_200))
    })
    .await;
    recorder.finish(2);

    reaches(&db, first, Status::Done).await;
    assert_eq!(recorder.started().await.id(), waiting);
    at_rest(&outbox).await;
    assert_eq!(outbox.metrics().counts().leases_lost, 0);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_event_of_a_paused_route_waits_for_its_end() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let route = ROUTE.try_into().expect("good names");
    let audit = outbox::store::Audit { actor: "tester".to_owned(), reason: None };
    assert!(db.sqlite().pause(&route, &audit).await.expect("pauses"));
    eventually("the pause is noticed", async || outbox.listeners().paused(&route).is_some()).await;

    let id = commit(&outbox, vec![one()]).await[0];
    eventually("it is set aside", async || outbox.metrics().counts().dispatch_parked > 0).await;
    assert!(db.sqlite().resume(&route, &audit).await.expect("resumes"));

    assert_eq!(recorder.started().await.id(), id);
    at_rest(&outbox).await;
    outbox.shutdown().await;
}
