//! Envelopes into rows, inside the caller's transaction.

use outbox::store::InspectStore;
use outbox::{Envelope, EventId, Status, WriteError};
use support::{Harness, Recorder, Sqlite};

use crate::common::{
    ROUTE, at_rest, commit, commit_one, done, drowsy, nothing_else_is_delivered, order, orders, outbox, reaches, rows,
};
use crate::hooks::RecordingHook;

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
    let (recorder, hook) = (Recorder::done(), RecordingHook::named("d"));
    let outbox = outbox(&db).hook(hook.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");

    let receipt = outbox.writer().write(&mut own, order(1)).await.expect("writes");
    own.rollback().await.expect("rolls back");
    receipt.rolled_back();

    nothing_else_is_delivered(&db, &outbox).await;
    assert_eq!(recorder.count(), 0);
    assert_eq!(hook.lines().last().map(String::as_str), Some("d rolled back 1"));
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
