//! Acceptance tests: a rollback, the hot path, overflow to the poller, and repeated failure.

use outbox::dispatcher::DispatcherConfig;
use outbox::{Failure, Status};
use support::{Database, Recorder};

use crate::common::{
    HOUR, ROUTE, at_rest, commit, commit_one, done, drowsy, nothing_else_is_delivered, one_worker, order, orders, outbox,
    reaches, row, rows,
};

pub(crate) async fn rollback_leaves_no_row<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let outbox = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut rolled_back = outbox.begin().await.expect("begins");
    rolled_back.write(order(1)).await.expect("writes");
    rolled_back.rollback().await.expect("rolls back");
    let mut dropped = outbox.begin().await.expect("begins");
    dropped.write(order(2)).await.expect("writes");
    drop(dropped);

    nothing_else_is_delivered(db, &outbox).await;
    assert_eq!(rows(db).await, 1, "only the sentinel's row");
    assert_eq!(recorder.count(), 0, "nothing is delivered after a rollback");
    at_rest(&outbox).await;
    outbox.shutdown().await;
}

pub(crate) async fn commit_reaches_the_listener_by_the_hot_path_and_ends_done<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let outbox = outbox(db).poller(drowsy()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let id = commit_one(&outbox).await;

    let event = recorder.started().await;
    assert_eq!((event.id(), event.attempt()), (id, 1));
    let record = reaches(db, id, Status::Done).await;
    assert_eq!((record.attempts, record.locked_by, record.due_at), (0, None, None));
    let counts = outbox.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.cold_enqueued), (1, 0), "the poller had no part in it");
    outbox.shutdown().await;
    assert_eq!(recorder.count(), 1);
}

pub(crate) async fn overflow_is_picked_up_by_the_poller<D: Database>(db: &D) {
    let recorder = Recorder::held();
    let outbox = outbox(db)
        .dispatcher(DispatcherConfig { hot_queue: 1, ..one_worker() })
        .poller(drowsy())
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");
    commit_one(&outbox).await;
    recorder.started().await;

    let ids = commit(&outbox, orders(10)).await;

    assert_eq!(ids.len(), 10, "a full queue never fails a write");
    assert_eq!(outbox.metrics().counts().hot_dropped, 9);
    recorder.finish(100);
    done(db, 11).await;
    let counts = outbox.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.cold_enqueued), (2, 9));
    assert_eq!(recorder.count(), 11, "each exactly once");
    outbox.shutdown().await;
}

pub(crate) async fn repeated_failure_walks_retry_to_dead_with_the_right_attempts<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| Err(Failure::retryable(format!("failure {}", event.attempt()))));
    let outbox = outbox(db)
        .dispatcher(DispatcherConfig { max_attempts: 3, ..DispatcherConfig::default() })
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");

    let id = commit_one(&outbox).await;

    for attempt in 1..=2 {
        assert_eq!(recorder.started().await.attempt(), attempt);
        support::eventually("the failure is counted", async || row(db, id).await.attempts == attempt).await;
        let record = row(db, id).await;
        assert_eq!((record.status, record.done_at), (Status::Retry, None));
        assert_eq!(record.last_error, Some(format!("failure {attempt}")));
        db.let_pass(HOUR).await;
    }
    let record = reaches(db, id, Status::Dead).await;
    assert_eq!((record.attempts, record.last_error.as_deref(), record.due_at), (3, Some("failure 3"), None));
    assert!(record.done_at.is_some());
    db.let_pass(HOUR * 24).await;
    nothing_else_is_delivered(db, &outbox).await;
    assert_eq!(recorder.count(), 3, "a dead event is not delivered again");
    let counts = outbox.metrics().counts();
    assert_eq!((counts.dispatch_failure, counts.dispatch_dead), (2, 1));
    outbox.shutdown().await;
}
