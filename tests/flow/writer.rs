//! Envelopes into rows, inside the caller's transaction.

use std::sync::{Arc, Mutex, PoisonError};

use outbox::store::InspectStore;
use outbox::writer::{HookError, WriterHook};
use outbox::{Envelope, EventId, Status, WriteError};
use support::{Harness, Recorder, Sqlite};

use crate::common::{
    ROUTE, at_rest, commit, commit_one, done, drowsy, nothing_else_is_delivered, order, orders, outbox, reaches, rows,
};

/// Writes down what it is called for; fails or panics in the later calls when told to.
#[derive(Clone, Default)]
struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
    name: &'static str,
    mood: Mood,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Mood {
    #[default]
    Calm,
    Failing,
    Panicking,
}

impl Diary {
    fn note(&self, what: &str, events: usize) -> Result<(), HookError> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{} {what} {events}", self.name));
        match self.mood {
            Mood::Calm => Ok(()),
            Mood::Failing => Err("a bad day".into()),
            Mood::Panicking => panic!("a very bad day"),
        }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl WriterHook for Diary {
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
    let first = Diary { name: "a", ..Diary::default() };
    let second = Diary { name: "b", ..first.clone() };
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
    for mood in [Mood::Failing, Mood::Panicking] {
        let db = Sqlite::fresh().await;
        let bad = Diary { name: "bad", mood, ..Diary::default() };
        let good = Diary { name: "good", ..Diary::default() };
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
async fn a_hook_that_leaves_nothing_suppresses_the_write() {
    let db = Sqlite::fresh().await;
    let diary = Diary { name: "later", ..Diary::default() };
    let outbox = outbox(&db).hook(Before(|_| Ok(Vec::new()))).hook(diary.clone()).start().await.expect("starts");

    let mut transaction = outbox.begin().await.expect("begins");
    let id = transaction.write(order(1)).await.expect("a suppressed write is no error");
    transaction.commit().await.expect("commits");

    assert_eq!((id, rows(&db).await), (None, 0));
    assert!(diary.lines().is_empty(), "there is nothing to tell the others of");
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_data_and_events_commit_or_vanish_together() {
    let db = Sqlite::fresh().await;
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)").await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");

    for (id, commits) in [(1, true), (2, false)] {
        let mut transaction = outbox.begin().await.expect("begins");
        let connection: &mut sqlx::SqliteConnection = transaction.as_mut();
        sqlx::query("INSERT INTO orders VALUES (?1)").bind(id).execute(connection).await.expect("inserts");
        transaction.write(order(1)).await.expect("writes");
        if commits {
            transaction.commit().await.expect("commits");
        } else {
            transaction.rollback().await.expect("rolls back");
        }
    }

    assert_eq!((db.number("SELECT count(*) FROM orders").await, rows(&db).await), (1, 1));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_told_of_the_commit_delivers_hot() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).poller(drowsy()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");

    let receipt = outbox.writer().write_all(&mut own, orders(2)).await.expect("writes");
    let ids = receipt.ids();
    own.commit().await.expect("commits");
    receipt.committed();

    done(&db, 2).await;
    let mut delivered = recorder.ids();
    delivered.sort();
    assert_eq!(delivered, ids);
    assert_eq!(outbox.metrics().counts().hot_enqueued, 2);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_told_of_the_rollback_delivers_nothing() {
    let db = Sqlite::fresh().await;
    let (recorder, diary) = (Recorder::done(), Diary { name: "d", ..Diary::default() });
    let outbox = outbox(&db).hook(diary.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");

    let receipt = outbox.writer().write(&mut own, order(1)).await.expect("writes");
    own.rollback().await.expect("rolls back");
    receipt.rolled_back();

    nothing_else_is_delivered(&db, &outbox).await;
    assert_eq!(recorder.count(), 0);
    assert_eq!(diary.lines().last().map(String::as_str), Some("d rolled back 1"));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_dropped_receipt_are_taken_by_the_poller_without_waiting_for_a_lease() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).poller(drowsy()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");

    let receipt = outbox.writer().write(&mut own, order(1)).await.expect("writes");
    own.commit().await.expect("commits");
    drop(receipt);

    // The clock of the database stands still, so a lease would never end.
    done(&db, 1).await;
    let counts = outbox.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.cold_enqueued, recorder.count()), (0, 1, 1));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_without_a_transaction_fails_before_any_sql() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).start().await.expect("starts");
    let mut connection = db.other_program().acquire().await.expect("a connection");
    // Any statement on the table would fail now, and with another error.
    sqlx::query("ALTER TABLE outbox_event RENAME TO elsewhere").execute(&mut *connection).await.expect("renames");

    let error = outbox.writer().write(&mut connection, order(1)).await.expect_err("refused");

    assert!(matches!(error, WriteError::NoTransaction), "{error:?}");
    assert!(error.to_string().contains("begin one"), "it says what to do: {error}");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_id_is_refused_and_the_transaction_stays_usable() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let first = order(1);
    commit(&outbox, vec![first.clone()]).await;

    let mut transaction = outbox.begin().await.expect("begins");
    let error = transaction.write_all(vec![order(2), first.clone(), order(3)]).await.expect_err("refused");
    let skipped = transaction.write_new(vec![first.clone(), order(4)]).await.expect("usable");
    transaction.commit().await.expect("commits");

    assert!(matches!(&error, WriteError::Duplicate { ids } if *ids == [first.id()]), "{error:?}");
    assert!(error.to_string().contains(first.id().as_str()), "{error}");
    assert_eq!(skipped.len(), 1, "only the new one");
    assert_eq!(rows(&db).await, 2, "nothing of the refused call is there");
    done(&db, 2).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_excluded_event_is_delivered_after_its_commit_but_never_stored() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let excluded = |number: u32| Envelope::new("OrderPlaced").aggregate("Order", "x").excluded().json(&number).expect("good");

    let ids = commit(&outbox, vec![excluded(1)]).await;
    let mut rolled_back = outbox.begin().await.expect("begins");
    rolled_back.write(excluded(2)).await.expect("writes");
    rolled_back.rollback().await.expect("rolls back");

    assert_eq!(recorder.started().await.id(), ids[0]);
    assert_eq!(rows(&db).await, 0);
    nothing_else_is_delivered(&db, &outbox).await;
    assert_eq!(recorder.ids(), ids, "and the one that was rolled back is not delivered");
    at_rest(&outbox).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn emitted_events_are_committed_at_once_and_repeats_are_skipped() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let envelopes = orders(3);

    let ids = outbox.writer().emit(envelopes.clone()).await.expect("emits");
    let again = outbox.writer().emit(envelopes.clone()).await.expect("a repeat is safe");

    assert_eq!(ids, envelopes.iter().map(Envelope::id).collect::<Vec<EventId>>());
    assert!(again.is_empty());
    done(&db, 3).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_after_shutdown_is_an_error_and_leaves_no_row() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).start().await.expect("starts");
    let writer = outbox.writer().clone();
    outbox.shutdown().await;
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");

    let emitted = writer.emit(orders(1)).await.expect_err("stopped");
    let written = writer.write(&mut own, order(1)).await.expect_err("stopped");
    own.commit().await.expect("the caller's own data may still be committed");

    assert!(matches!(emitted, WriteError::Stopped) && matches!(written, WriteError::Stopped), "{emitted:?} {written:?}");
    assert_eq!(rows(&db).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_committed_after_a_shutdown_wait_for_the_next_host() {
    let db = Sqlite::fresh().await;
    let first = outbox(&db).poller(drowsy()).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    // Whatever a start writes is written by now: our transaction is about to hold the lock.
    commit_one(&first).await;
    done(&db, 1).await;
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");
    let receipt = first.writer().write(&mut own, order(1)).await.expect("writes");
    let ids = receipt.ids();
    first.shutdown().await;
    own.commit().await.expect("commits");
    receipt.committed();

    // Nobody is left to give its claim back, so it ends with its lease.
    db.let_pass(std::time::Duration::from_secs(31)).await;
    let recorder = Recorder::done();
    let second = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    reaches(&db, ids[0], Status::Done).await;
    assert_eq!(recorder.ids(), ids);
    assert_eq!(db.sqlite().stats().await.expect("counts").in_flight, 0);
    second.shutdown().await;
}

outbox::names! { enum Aggregate { Order } }
outbox::names! { enum Happened { OrderPlaced, Everywhere } }

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_is_written_as_json_and_read_back_by_a_listener_that_enums_name() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db)
        .listener((Aggregate::Order, Happened::OrderPlaced), recorder.listener())
        .listener(Happened::Everywhere, recorder.listener())
        .start()
        .await
        .expect("starts");
    let value = (42, "ü".to_owned());

    let mut transaction = outbox.begin().await.expect("begins");
    let first = transaction.write_json(Happened::Everywhere, &value).await.expect("writes").expect("not suppressed");
    transaction.commit().await.expect("commits");
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");
    let receipt = outbox.writer().write_json(&mut own, Happened::Everywhere, &value).await.expect("writes");
    let ids = [first, receipt.ids()[0]];
    own.commit().await.expect("commits");
    receipt.committed();
    commit(&outbox, vec![order(1)]).await;

    done(&db, 3).await;
    for event in recorder.calls().iter().filter(|event| ids.contains(&event.id())) {
        assert_eq!(event.payload::<(i32, String)>().expect("of this shape"), value);
        assert_eq!((event.route().to_string().as_str(), event.content_type()), ("__GLOBAL__/Everywhere", "application/json"));
    }
    assert_eq!(recorder.count(), 3);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_no_json_fails_the_write_and_names_the_reason() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).start().await.expect("starts");
    let not_json = std::collections::HashMap::from([((1, 2), 3)]);

    let mut transaction = outbox.begin().await.expect("begins");
    let error = transaction.write_json("X", &not_json).await.expect_err("a key that is no string");
    transaction.rollback().await.expect("rolls back");

    assert!(matches!(error, WriteError::Envelope(_)), "{error:?}");
    assert!(error.to_string().contains("could not be serialised as JSON"), "{error}");
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
async fn a_transaction_with_settings_of_its_own_is_begun_by_the_driver_and_one_begun_by_text_is_refused_with_advice() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let mut connection = db.other_program().acquire().await.expect("a connection");

    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await.expect("begins");
    let error = outbox.writer().write(&mut connection, order(1)).await.expect_err("the driver does not know of it");
    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.expect("rolls back");
    drop(connection);
    let mut own = db.other_program().begin_with("BEGIN IMMEDIATE").await.expect("begins");
    let receipt = outbox.writer().write(&mut own, order(1)).await.expect("writes");
    own.commit().await.expect("commits");
    receipt.committed();

    assert!(matches!(error, WriteError::NoTransaction) && error.to_string().contains("begin_with"), "{error}");
    done(&db, 1).await;
    outbox.shutdown().await;
}
