//! Hooks of the writer: what they see, and what they may do to events and writes.

use std::sync::{Arc, Mutex, PoisonError};

use outbox::writer::{HookError, WriterHook};
use outbox::{Envelope, Status, WriteError};
use support::{Recorder, Sqlite};

use crate::common::{ROUTE, commit, commit_one, done, order, orders, outbox, reaches, rows};

/// Writes down what it is called for; fails or panics in the later calls when told to.
#[derive(Clone, Default)]
pub(crate) struct RecordingHook {
    lines: Arc<Mutex<Vec<String>>>,
    name: &'static str,
    later: Later,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Later {
    #[default]
    Succeeds,
    Fails,
    Panics,
}

impl RecordingHook {
    pub(crate) fn named(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    fn note(&self, what: &str, events: usize) -> Result<(), HookError> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {what} {events}", self.name));
        match self.later {
            Later::Succeeds => Ok(()),
            Later::Fails => Err("a bad day".into()),
            Later::Panics => panic!("a very bad day"),
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl WriterHook for RecordingHook {
    fn before_write(&self, events: Vec<Envelope>) -> Result<Vec<Envelope>, HookError> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} before {}", self.name, events.len()));
        Ok(events)
    }
    fn after_write(&self, events: &[&Envelope]) -> Result<(), HookError> {
        self.note("written", events.len())
    }
    fn after_commit(&self, events: &[&Envelope]) -> Result<(), HookError> {
        self.note("committed", events.len())
    }
    fn after_rollback(&self, events: &[&Envelope]) -> Result<(), HookError> {
        self.note("rolled back", events.len())
    }
}

/// Changes the events before they are written.
struct Before<F>(F);

impl<F> WriterHook for Before<F>
where
    F: Fn(Vec<Envelope>) -> Result<Vec<Envelope>, HookError> + Send + Sync + 'static,
{
    fn before_write(&self, events: Vec<Envelope>) -> Result<Vec<Envelope>, HookError> {
        self.0(events)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_are_called_in_order_around_commit_rollback_and_drop() {
    let db = Sqlite::fresh().await;
    let first = RecordingHook::named("a");
    let second = RecordingHook { name: "b", ..first.clone() };
    let outbox = outbox(&db)
        .hook(first.clone())
        .hook(second)
        .listener(ROUTE, Recorder::done().listener())
        .start()
        .await
        .expect("starts");

    commit(&outbox, orders(2)).await;
    let mut rolled_back = outbox.begin().await.expect("begins");
    rolled_back.write(order(1)).await.expect("writes");
    rolled_back.rollback().await.expect("rolls back");
    let mut dropped = outbox.begin().await.expect("begins");
    dropped.write(order(1)).await.expect("writes");
    drop(dropped);

    let expected = [
        "a before 2",
        "b before 2",
        "a written 2",
        "b written 2",
        "a committed 2",
        "b committed 2",
        "a before 1",
        "b before 1",
        "a written 1",
        "b written 1",
        "a rolled back 1",
        "b rolled back 1",
        "a before 1",
        "b before 1",
        "a written 1",
        "b written 1",
        "a rolled back 1",
        "b rolled back 1",
    ];
    assert_eq!(first.lines(), expected);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_and_panics_of_later_hooks_change_nothing() {
    for later in [Later::Fails, Later::Panics] {
        let db = Sqlite::fresh().await;
        let bad = RecordingHook { name: "bad", later, ..RecordingHook::default() };
        let good = RecordingHook::named("good");
        let outbox = outbox(&db)
            .hook(bad)
            .hook(good.clone())
            .listener(ROUTE, Recorder::done().listener())
            .start()
            .await
            .expect("starts");

        let id = commit_one(&outbox).await;
        let mut rolled_back = outbox.begin().await.expect("begins");
        rolled_back.write(order(1)).await.expect("writes");
        rolled_back.rollback().await.expect("rolls back");

        reaches(&db, id, Status::Done).await;
        assert_eq!(good.lines().len(), 6, "the other hook is called all the same");
        outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_may_change_events_add_some_and_leave_some_out() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db)
        .hook(Before(|events: Vec<Envelope>| {
            let mut kept: Vec<Envelope> = events.into_iter().filter(|event| event.aggregate_id() != Some("1")).collect();
            kept.push(order(77));
            Ok(kept)
        }))
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");

    let ids = commit(&outbox, orders(3)).await;

    assert_eq!(ids.len(), 3, "two kept and one added");
    done(&db, 3).await;
    let mut aggregates: Vec<String> =
        recorder.calls().iter().filter_map(|event| event.aggregate_id().map(str::to_owned)).collect();
    aggregates.sort();
    assert_eq!(aggregates, ["0", "2", "77"]);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_may_transform_an_event_and_keep_what_it_does_not_touch() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let later = Envelope::new("OrderPlaced").aggregate("Order", "1").tenant("acme").header("a", "1");
    let later = later.deliver_after(crate::common::HOUR).json_text("{\"n\":  1.0}").expect("good");
    let outbox = outbox(&db)
        .hook(Before(|events: Vec<Envelope>| {
            let region = |event: &Envelope| event.with(|event| event.header("region", "eu").tenant("other"));
            Ok(events.iter().map(region).collect::<Result<_, _>>()?)
        }))
        .hook(Before(|events: Vec<Envelope>| {
            let rewritten =
                |event: &Envelope| if event.is_delayed() { Ok(event.clone()) } else { event.to_builder().json("new") };
            Ok(events.iter().map(rewritten).collect::<Result<_, _>>()?)
        }))
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");

    let plain = order(2);
    commit(&outbox, vec![later.clone(), plain.clone()]).await;

    let event = recorder.started().await;
    assert_eq!((event.id(), event.payload::<String>().expect("text").as_str()), (plain.id(), "new"));
    assert_eq!((event.occurred_at(), event.aggregate_id()), (plain.occurred_at(), Some("2")));
    let stored = crate::common::row(&db, later.id()).await;
    assert_eq!(
        (stored.tenant_id.as_deref(), stored.headers.get("a"), stored.headers.get("region")),
        (Some("other"), Some("1"), Some("eu"))
    );
    assert_eq!((stored.payload.as_ref(), stored.available_at), (Some(later.payload_bytes()), later.available_at()));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_leaves_nothing_suppresses_the_write() {
    let db = Sqlite::fresh().await;
    let hook = RecordingHook::named("later");
    let outbox = outbox(&db).hook(Before(|_| Ok(Vec::new()))).hook(hook.clone()).start().await.expect("starts");

    let mut transaction = outbox.begin().await.expect("begins");
    let id = transaction.write(order(1)).await.expect("a suppressed write is no error");
    transaction.commit().await.expect("commits");

    assert_eq!((id, rows(&db).await), (None, 0));
    assert!(hook.lines().is_empty(), "there is nothing to tell the others of");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_refuses_fails_the_write_and_the_transaction_stays_usable() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db)
        .hook(Before(|events: Vec<Envelope>| if events.len() > 1 { Err("one at a time".into()) } else { Ok(events) }))
        .listener(ROUTE, Recorder::done().listener())
        .start()
        .await
        .expect("starts");

    let mut transaction = outbox.begin().await.expect("begins");
    let error = transaction.write_all(orders(2)).await.expect_err("refused");
    let id = transaction.write(order(1)).await.expect("usable").expect("not suppressed");
    transaction.commit().await.expect("commits");

    assert!(matches!(error, WriteError::Hook(_)), "{error:?}");
    assert!(outbox::chain(&error).contains("one at a time"));
    reaches(&db, id, Status::Done).await;
    assert_eq!(rows(&db).await, 1);
    outbox.shutdown().await;
}
