//! Futures that are dropped at any of their awaits, as a timeout or a `select!` does.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use outbox::store::Filter;
use outbox::writer::{HookError, WriterHook};
use outbox::{Envelope, EventId, Outbox, Status};
use support::{Database, Recorder, eventually};

use crate::bulk::long_lease;
use crate::common::{ROUTE, at_rest, drowsy, orders, outbox};

/// More awaits than any of these futures has.
const MANY: usize = 500;

/// Polls a future this many times, each time when it asks for it, then drops it. Returns its output if it ended before.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = times;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Counts the transactions that it is told of.
#[derive(Clone, Default)]
struct Ends {
    committed: Arc<AtomicUsize>,
    rolled_back: Arc<AtomicUsize>,
}

impl Ends {
    fn counts(&self) -> (usize, usize) {
        (self.committed.load(Ordering::SeqCst), self.rolled_back.load(Ordering::SeqCst))
    }
}

impl WriterHook for Ends {
    fn after_commit(&self, _: &[&Envelope]) -> Result<(), HookError> {
        self.committed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn after_rollback(&self, _: &[&Envelope]) -> Result<(), HookError> {
        self.rolled_back.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A host whose claims hold for longer than the test takes, and whose poller only looks when it is told to.
struct Host<'d, D: Database> {
    db: &'d D,
    outbox: Outbox<D::Store>,
    recorder: Recorder,
    ends: Ends,
}

impl<'d, D: Database> Host<'d, D> {
    async fn start(db: &'d D) -> Self {
        let (recorder, ends) = (Recorder::done(), Ends::default());
        let builder = outbox(db).poller(drowsy()).dispatcher(long_lease()).hook(ends.clone());
        let outbox = builder.listener(ROUTE, recorder.listener()).start().await.expect("starts");
        Self { db, outbox, recorder, ends }
    }

    /// Nothing is lost, nothing that was rolled back is delivered, and no connection of the pool is left in a transaction.
    async fn prove_whole(self, never: &[EventId]) {
        // Every connection of the pool at once: what one of them holds open would show.
        let connections = if self.db.store().kind() == "sqlite" { 1 } else { 10 };
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(self.outbox.begin().await.expect("a connection is free"));
        }
        for mut transaction in open {
            transaction.write_all(orders(2)).await.expect("writes");
            transaction.commit().await.expect("commits");
        }
        eventually("every event in the table is DONE", async || {
            let stats = self.db.store().stats().await.expect("counts");
            (stats.new, stats.retry, stats.dead) == (0, 0, 0)
        })
        .await;
        at_rest(&self.outbox).await;
        let rows = self.db.store().list(&Filter::default(), 100_000).await.expect("lists");
        assert!(rows.iter().all(|row| row.status == Status::Done));
        let stored: BTreeSet<EventId> = rows.iter().map(|row| row.event_id).collect();
        let mut delivered = self.recorder.ids();
        delivered.sort();
        assert_eq!(
            delivered,
            stored.iter().copied().collect::<Vec<_>>(),
            "what is stored is delivered, once, and nothing else"
        );
        assert!(never.iter().all(|id| !stored.contains(id)), "what was rolled back is gone");
        let counts = self.outbox.metrics().counts();
        assert_eq!((counts.fenced_outcomes, counts.db_errors), (0, 0));
        self.outbox.shutdown().await;
    }
}

pub(crate) async fn a_begin_dropped_at_any_await_leaves_no_transaction_open(db: &impl Database) {
    let host = Host::start(db).await;
    for times in 0..MANY {
        if polled(host.outbox.begin(), times).await.is_some() {
            assert!(times > 1, "some were dropped");
            return host.prove_whole(&[]).await;
        }
    }
    panic!("it never ended");
}

pub(crate) async fn a_commit_dropped_at_any_await_is_a_commit_or_a_rollback_and_hooks_are_told(db: &impl Database) {
    let host = Host::start(db).await;
    let mut dropped = 0;
    for times in 0..MANY {
        let mut transaction = host.outbox.begin().await.expect("begins");
        transaction.write_all(orders(3)).await.expect("writes");
        if let Some(result) = polled(transaction.commit(), times).await {
            result.expect("commits");
            break;
        }
        dropped += 1;
    }
    // At its first poll it may have ended already, where the task that commits was faster than this one.
    assert!(dropped > 0, "some were dropped");

    eventually("hooks are told how each of them ended", async || {
        let (committed, rolled_back) = host.ends.counts();
        committed + rolled_back == dropped + 1
    })
    .await;
    assert_eq!(host.ends.counts().1, 1, "only the one that was never begun to be committed was rolled back");
    host.prove_whole(&[]).await;
}

pub(crate) async fn events_of_a_write_dropped_at_any_await_are_delivered_if_they_are_committed(db: &impl Database) {
    let host = Host::start(db).await;
    for times in 0..MANY {
        let mut transaction = host.outbox.begin().await.expect("begins");
        let ended = polled(transaction.write_all(orders(3)), times).await;
        transaction.commit().await.expect("commits");
        if let Some(result) = ended {
            result.expect("writes");
            return host.prove_whole(&[]).await;
        }
    }
    panic!("it never ended");
}

pub(crate) async fn events_of_a_write_dropped_at_any_await_are_gone_if_they_are_rolled_back(db: &impl Database) {
    let host = Host::start(db).await;
    let mut never = Vec::new();
    for times in 0..MANY {
        let events = orders(3);
        never.extend(events.iter().map(Envelope::id));
        let mut transaction = host.outbox.begin().await.expect("begins");
        let ended = polled(transaction.write_all(events), times).await.is_some();
        if times % 2 == 0 {
            drop(transaction);
        } else {
            transaction.rollback().await.expect("rolls back");
        }
        if ended {
            return host.prove_whole(&never).await;
        }
    }
    panic!("it never ended");
}

pub(crate) async fn a_write_of_an_excluded_event_dropped_at_any_await_leaves_no_row(db: &impl Database) {
    let host = Host::start(db).await;
    for times in 0..MANY {
        let mut transaction = host.outbox.begin().await.expect("begins");
        // From here on there may be savepoints, for which a row stands for what is in no table.
        transaction.inner_mut();
        let excluded = Envelope::new("OrderPlaced").aggregate("Order", "42").excluded().json(&1).expect("good");
        let ended = polled(transaction.write(excluded), times).await;
        transaction.commit().await.expect("commits");
        assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 0, "dropped after {times} polls");
        if let Some(result) = ended {
            result.expect("writes");
            at_rest(&host.outbox).await;
            host.outbox.shutdown().await;
            return;
        }
    }
    panic!("it never ended");
}

pub(crate) async fn events_of_an_emit_dropped_at_any_await_are_stored_and_delivered_or_neither(db: &impl Database) {
    let host = Host::start(db).await;
    for times in 0..MANY {
        if let Some(result) = polled(host.outbox.writer().emit(orders(3)), times).await {
            result.expect("emits");
            return host.prove_whole(&[]).await;
        }
    }
    panic!("it never ended");
}
