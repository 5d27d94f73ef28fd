//! Events that the application claims by itself, and puts into the queues.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::store::Claimed;
use outbox::{Mode, Outbox, SqliteStore};
use support::{Harness, Recorder, Sqlite};
use tokio::time::Instant;

use crate::common::{HOUR, ROUTE, at_rest, commit, done, drowsy, one_worker, order, orders, outbox, start_rested};

/// Claims as a poller of the application's own would; returns when the claims end.
async fn claim(db: &Sqlite, outbox: &Outbox<SqliteStore>) -> (Vec<Claimed>, Instant) {
    let (owner, lease) = (outbox.owner().clone(), Duration::from_secs(30));
    let lease_end = Instant::now() + lease;
    (support::claim_due(&db.sqlite(), &owner, lease, 10).await.expect("claims"), lease_end)
}

/// Writes events that are due as soon as an hour has passed, of which the host's own poller hears nothing.
async fn due_unnoticed(db: &Sqlite, outbox: &Outbox<SqliteStore>, count: u32) {
    let later = |event: outbox::Envelope| event.with(|event| event.deliver_after(HOUR)).expect("good");
    commit(outbox, orders(count).into_iter().map(later).collect()).await;
    db.let_pass(HOUR + Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimed_events_are_delivered_from_either_queue_as_far_as_there_is_room() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { hot_queue: 1, cold_queue: 1, ..one_worker() };
    let builder = outbox(&db).poller(drowsy()).dispatcher(config).listener(ROUTE, recorder.listener());
    let outbox = start_rested(&db, builder).await;
    due_unnoticed(&db, &outbox, 4).await;
    let (claimed, lease_end) = claim(&db, &outbox).await;
    commit(&outbox, vec![order(0)]).await;
    recorder.started().await;
    assert_eq!(outbox.queue_room(), (1, 1));

    let mut claimed = claimed.into_iter();
    let mut next = || claimed.next().expect("four were claimed");
    assert!(outbox.enqueue_hot(next(), lease_end).is_none());
    assert!(outbox.enqueue_cold(next(), lease_end).is_none());
    assert_eq!(outbox.queue_room(), (0, 0));
    let refused = [outbox.enqueue_hot(next(), lease_end), outbox.enqueue_cold(next(), lease_end)];
    recorder.finish(1);
    for refused in refused {
        let refused = refused.expect("the queue is full");
        recorder.started().await;
        // Two hot ones are taken for each cold one.
        assert!(outbox.enqueue_hot(refused, lease_end).is_none(), "there is room again");
        recorder.finish(1);
    }
    recorder.finish(3);

    // With the one of the start.
    done(&db, 6).await;
    at_rest(&outbox).await;
    assert_eq!(recorder.count(), 5);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_our_hands_already_or_would_break_the_order_is_handed_back() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = start_rested(&db, outbox(&db).poller(drowsy()).listener(ROUTE, recorder.listener())).await;
    due_unnoticed(&db, &outbox, 1).await;
    let (first, first_end) = claim(&db, &outbox).await;
    assert!(first.into_iter().all(|claimed| outbox.enqueue_cold(claimed, first_end).is_none()));
    recorder.started().await;
    db.let_pass(Duration::from_secs(31)).await;
    let (again, again_end) = claim(&db, &outbox).await;
    assert_eq!(again.len(), 1);
    assert!(again.into_iter().all(|claimed| outbox.enqueue_cold(claimed, again_end).is_some()));
    recorder.finish(1);
    at_rest(&outbox).await;
    outbox.shutdown().await;

    let db = Sqlite::fresh().await;
    let builder = crate::common::outbox(&db).mode(Mode::Ordered).poller(drowsy());
    let ordered = start_rested(&db, builder).await;
    due_unnoticed(&db, &ordered, 1).await;
    let (claimed, lease_end) = claim(&db, &ordered).await;
    assert_eq!(claimed.len(), 1);
    assert!(claimed.into_iter().all(|claimed| ordered.enqueue_cold(claimed, lease_end).is_some()));
    ordered.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_nobody_is_known_to_answer_is_handed_back() {
    let db = Sqlite::fresh().await;
    let outbox = start_rested(&db, outbox(&db).poller(drowsy())).await;
    due_unnoticed(&db, &outbox, 1).await;
    let (claimed, lease_end) = claim(&db, &outbox).await;
    assert_eq!(claimed.len(), 1);
    let claimed = claimed.into_iter().filter_map(|claimed| outbox.enqueue_hot(claimed, lease_end));
    let claimed: Vec<_> = claimed.filter_map(|claimed| outbox.enqueue_cold(claimed, lease_end)).collect();
    assert_eq!(claimed.len(), 1, "another host may have a listener for it: nobody has asked the table");
    outbox.shutdown().await;
}
