//! An outbox as a service holds it: a handle that many hold, that one stops, and that nobody has to stop.

use std::pin::pin;
use std::task::Poll;

use outbox::{Status, WriteError};
use support::{Harness, Recorder, Sqlite, eventually, in_time};

use crate::common::{ROUTE, commit_one, done, order, orders, outbox, reaches, rows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_clone_writes_to_the_same_outbox_and_so_does_its_writer() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let (clone, writer) = (outbox.clone(), outbox.writer().clone());

    let by_clone = tokio::spawn(async move { commit_one(&clone).await }).await.expect("does not panic");
    let by_writer = tokio::spawn(async move {
        let mut transaction = writer.begin().await.expect("begins");
        let id = transaction.write(order(2)).await.expect("writes").expect("not suppressed");
        transaction.commit().await.expect("commits");
        id
    });
    let by_writer = by_writer.await.expect("does not panic");

    for id in [by_clone, by_writer] {
        reaches(&db, id, Status::Done).await;
    }
    // The clones that wrote are gone, and this one still delivers.
    let id = commit_one(&outbox).await;
    reaches(&db, id, Status::Done).await;
    assert_eq!(outbox.metrics().counts().hot_enqueued, 3);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_shutdown_waits_for_the_first_and_a_third_has_nothing_to_wait_for() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;

    let first = tokio::spawn(outbox.shutdown());
    eventually("the stop has begun", async || matches!(outbox.writer().emit(Vec::new()).await, Err(WriteError::Stopped))).await;
    let mut second = pin!(outbox.clone().shutdown());
    std::future::poll_fn(|context| {
        assert!(second.as_mut().poll(context).is_pending(), "the listener is at work still");
        Poll::Ready(())
    })
    .await;
    recorder.finish(1);
    in_time("the second shutdown ends", second).await;

    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE status = 1 AND locked_by IS NULL").await, 1);
    reaches(&db, id, Status::Done).await;
    in_time("the first shutdown has ended", first).await.expect("does not panic");
    in_time("there is nothing to stop any more", outbox.shutdown()).await;
    assert!(matches!(outbox.writer().emit(orders(1)).await, Err(WriteError::Stopped)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_whose_future_is_dropped_goes_on() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;

    {
        let mut dropped = pin!(outbox.shutdown());
        std::future::poll_fn(|context| {
            assert!(dropped.as_mut().poll(context).is_pending(), "the listener is at work still");
            Poll::Ready(())
        })
        .await;
    }
    eventually("the stop has begun", async || matches!(outbox.writer().emit(Vec::new()).await, Err(WriteError::Stopped))).await;
    recorder.finish(1);
    in_time("the shutdown ends", outbox.shutdown()).await;

    assert_eq!(reaches(&db, id, Status::Done).await.event_id, id, "the event was not cut off");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event_node").await, 0, "the node has left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_nobody_shuts_down_ends_with_its_last_clone() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let (clone, writer) = (outbox.clone(), outbox.writer().clone());

    drop(outbox);
    commit_one(&clone).await;
    done(&db, 1).await;
    let before = rows(&db).await;
    drop(clone);

    let refused = writer.emit(orders(1)).await.expect_err("nobody is left to deliver it");
    assert!(matches!(refused, WriteError::Stopped), "{refused:?}");
    assert_eq!(rows(&db).await, before);
    eventually("the host takes its leave", async || db.number("SELECT count(*) FROM outbox_event_node").await == 0).await;
    assert_eq!(recorder.count(), 1);
}
