//! What a service is tested with.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::Effects;
use outbox::listener::{Fixed, Listener, Outcome, Reply, Visit};
use outbox::testing::{self, TestOutbox, WrittenError};
use outbox::{Context, DispatchResult, Envelope, Event, Failure, Outbox, SqliteStore, Status, Writer};
use support::{Database, Postgres, Recorder, Sqlite};

use crate::common::{ROUTE, commit, commit_one, eager, one_worker, order, orders, outbox, row};

const MINUTE: Duration = Duration::from_secs(60);

/// A listener's way to the outbox that calls it.
type Way = Arc<OnceLock<Writer<SqliteStore>>>;

async fn count_down(number: u32, context: Context<Way>) -> Result<(), Failure> {
    if number > 0 {
        let writer = context.state().get().expect("set before anything is written");
        writer.emit(vec![order(number - 1)]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_idle_outbox_has_delivered_all_that_was_written_and_all_that_its_listeners_wrote() {
    let way = Way::default();
    let state = way.clone();
    let test = testing::start_with(|outbox, _| outbox.state(state).listener_json("Order", "OrderPlaced", count_down));
    let test = test.await.expect("starts");
    way.set(test.writer().clone()).expect("nobody has set it");

    commit(&test, vec![order(20)]).await;
    test.run_until_idle().await;

    let events = test.written("OrderPlaced").all().await.expect("reads");
    assert_eq!(events.len(), 21);
    assert!(events.iter().all(|event| event.status == Status::Done));
}

#[tokio::test]
async fn time_that_passes_brings_delays_other_attempts_and_expiries_nearer() {
    let failing = Recorder::answering(|event| match event.attempt() {
        1 => Err(Failure::retryable("not yet")),
        _ => Ok(DispatchResult::Done),
    });
    let never = Recorder::done();
    let test = testing::start_with(|outbox, _| {
        outbox.retry(Fixed(MINUTE)).listener(ROUTE, failing.listener()).listener("Expiring", never.listener())
    });
    let test = test.await.expect("starts");
    let delayed = Envelope::new("OrderPlaced").aggregate("Order", "later").deliver_after(MINUTE).json(&0).expect("good");
    let occurred_at = delayed.occurred_at();
    let expiring = Envelope::new("Expiring").expires_at(occurred_at.plus(MINUTE)).json(&0).expect("good");
    let expiring = expiring.with(|event| event.deliver_after(MINUTE / 2)).expect("good");

    commit(&test, vec![order(1), delayed, expiring]).await;
    test.run_until_idle().await;
    let status = async |id: &str| test.written("OrderPlaced").aggregate("Order", id).one().await.expect("one").status;
    assert_eq!((status("1").await, status("later").await, failing.count()), (Status::Retry, Status::New, 1));

    test.advance(MINUTE * 2).await;
    test.run_until_idle().await;
    assert_eq!((status("1").await, status("later").await, failing.count()), (Status::Done, Status::Retry, 3));
    let expired = test.written("Expiring").one().await.expect("one").status;
    assert_eq!((expired, never.count()), (Status::Dead, 0), "its end came before its first delivery");
    test.advance(MINUTE * 2).await;
    test.run_until_idle().await;
    assert_eq!(status("later").await, Status::Done);
}

#[tokio::test]
async fn what_was_written_is_what_was_committed_and_a_miss_says_what_there_is() {
    let test = testing::start().await.expect("starts");
    let mut rolled_back = test.begin().await.expect("begins");
    rolled_back.write(order(1)).await.expect("writes");
    rolled_back.rollback().await.expect("rolls back");

    let none = test.written("OrderPlaced").one().await.expect_err("none was committed");
    assert_eq!(none.to_string(), "one event of type OrderPlaced was expected, and 0 were written; the table is empty");

    commit(&test, orders(2)).await;
    sqlx::query("INSERT INTO outbox_event (event_type, payload) VALUES ('Plain', '7')")
        .execute(test.pool())
        .await
        .expect("inserts");
    let two = test.written("OrderPlaced").one().await.expect_err("two were committed");
    assert!(matches!(two, WrittenError::NotOne { found: 2, .. }), "{two:?}");
    let typo = test.written("OrderPlced").aggregate("Order", "1").one().await.expect_err("misspelt").to_string();
    assert!(
        typo.contains("OrderPlced of Order 1") && typo.ends_with("in the table are Order/OrderPlaced, __GLOBAL__/Plain"),
        "{typo}"
    );
    let one = test.written("OrderPlaced").aggregate("Order", "1").one().await.expect("one of that aggregate");
    assert_eq!((one.json::<u32>().expect("a number"), one.aggregate_id.as_deref()), (1, Some("1")));
    assert_eq!(test.written("Plain").one().await.expect("one").json::<u32>().expect("a number"), 7);

    // Without a listener all of it is parked, and that is idle.
    test.run_until_idle().await;
    assert_eq!(test.store().stats().await.expect("counts").parked, 3);
}

#[tokio::test]
async fn nothing_is_left_of_an_outbox_that_a_test_has_dropped() {
    let test = testing::start().await.expect("starts");
    let file = test.pool().connect_options().get_filename().to_owned();
    commit(&test, orders(3)).await;
    assert!(file.exists());

    drop(test);

    assert!(!file.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_outbox_can_be_waited_for_and_asked() {
    let db = Postgres::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    commit(&outbox, orders(30)).await;
    testing::until_idle(&outbox).await;

    let written = testing::written(&outbox, "OrderPlaced").all().await.expect("reads");
    assert_eq!((recorder.count(), written.len()), (30, 30));
    assert!(written.iter().all(|event| event.status == Status::Done));
    outbox.shutdown().await;
}

/// Emits the next event with its answer, until the number in its payload is 0.
struct CountDown;

impl Listener for CountDown {
    fn call<'a>(&'a self, visit: Visit<'a>) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        let number: u32 = visit.event.payload().expect("a number");
        let emitted: Vec<Envelope> = number.checked_sub(1).map(order).into_iter().collect();
        let effects = (!emitted.is_empty()).then(|| Box::new(Effects { emitted, state: None }));
        Box::pin(async move { Reply { effects, ..Outcome::Done.into() } })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_are_emitted_with_an_answer_are_waited_for() {
    let test = testing::start_with(|outbox, _| outbox.listener(ROUTE, CountDown)).await.expect("starts");

    for length in 0..20 {
        let before = test.store().stats().await.expect("counts").done;
        commit(&test, vec![order(length)]).await;
        test.run_until_idle().await;

        let stats = test.store().stats().await.expect("counts");
        assert_eq!((stats.done - before, stats.new), (u64::from(length) + 1, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_put_off_by_nothing_is_waited_for() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = {
        let calls = calls.clone();
        move |_: Arc<Event>| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            async move { Ok(if call % 4 == 3 { DispatchResult::Done } else { DispatchResult::RetryAfter(Duration::ZERO) }) }
        }
    };
    let test = testing::start_with(|outbox, _| outbox.listener(ROUTE, counted)).await.expect("starts");

    for _ in 0..20 {
        let id = commit_one(&test).await;
        test.run_until_idle().await;
        assert_eq!(test.store().get(id).await.expect("reads").expect("there").status, Status::Done);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_is_not_idle_while_another_host_has_what_it_wrote() {
    let db = Postgres::fresh().await;
    let writer = Outbox::writer_only(db.typed()).start().await.expect("starts");
    let recorder = Recorder::done();
    let host = Outbox::multi_node(db.another().await).poller(eager()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");

    for _ in 0..200 {
        let id = commit_one(&writer).await;
        testing::until_idle(&writer).await;
        assert_eq!(row(&db, id).await.status, Status::Done);
    }
    host.shutdown().await;
    writer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_wait_in_the_table_behind_others_of_their_aggregate_are_waited_for() {
    let db = Sqlite::fresh().await;
    let config = DispatcherConfig { cold_queue: 4, ..one_worker() };
    let outbox = Outbox::ordered_by_aggregate(db.typed()).dispatcher(config).poller(eager());
    let outbox = outbox.listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");

    for round in 1..=5 {
        commit(&outbox, (0..40).map(|_| order(1)).collect()).await;
        testing::until_idle(&outbox).await;
        let stats = outbox.store().stats().await.expect("counts");
        assert_eq!((stats.done, stats.blocked), (40 * round, 0));
    }
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_waits_until_its_own_outbox_is_idle_is_told_so() {
    let own = Arc::new(OnceLock::<Arc<TestOutbox>>::new());
    let listener = {
        let own = own.clone();
        move |_: Arc<Event>| {
            let own = own.get().expect("set before anything is written").clone();
            async move {
                own.run_until_idle().await;
                Ok(DispatchResult::Done)
            }
        }
    };
    let test = testing::start_with(|outbox, _| outbox.retry(Fixed(MINUTE)).listener(ROUTE, listener));
    let test = Arc::new(test.await.expect("starts"));
    assert!(own.set(test.clone()).is_ok());

    let id = commit_one(&test).await;
    test.run_until_idle().await;

    let failed = test.store().get(id).await.expect("reads").expect("there");
    let error = failed.last_error.expect("it failed");
    assert!(failed.status == Status::Retry && error.contains("it would wait for itself"), "{error}");
    test.shutdown().await;
}

#[tokio::test]
async fn an_outbox_is_idle_while_an_event_that_is_excluded_from_the_store_waits_for_its_next_attempt() {
    let failing = Recorder::answering(|_| Err(Failure::retryable("not yet")));
    let deferred = Recorder::answering(|_| Ok(DispatchResult::RetryAfter(MINUTE)));
    let test = testing::start_with(|outbox, _| {
        outbox.retry(Fixed(MINUTE)).listener(ROUTE, failing.listener()).listener("Deferred", deferred.listener())
    });
    let test = test.await.expect("starts");
    let fails = Envelope::new(ROUTE.1).aggregate(ROUTE.0, "1").excluded().json(&0).expect("good");
    let asks_for_later = Envelope::new("Deferred").excluded().json(&0).expect("good");

    commit(&test, vec![fails, asks_for_later]).await;
    test.run_until_idle().await;

    assert_eq!((failing.count(), deferred.count(), test.in_flight()), (1, 1, 2), "each had its attempt, and none is forgotten");
    test.shutdown().await;
}

#[tokio::test]
async fn an_outbox_is_not_idle_while_an_event_that_is_excluded_from_the_store_comes_again_at_once() {
    let way = Way::default();
    let state = way.clone();
    let stubborn = async |_: u32, context: Context<Way>| -> Result<(), Failure> {
        if context.event().attempt() < 3 {
            return Err("again".into());
        }
        context.state().get().expect("set before anything is written").emit(vec![order(0)]).await?;
        Ok(())
    };
    let test = testing::start_with(|outbox, _| {
        outbox.retry(Fixed(Duration::ZERO)).state(state).listener_json("Order", "Excluded", stubborn)
    });
    let test = test.await.expect("starts");
    way.set(test.writer().clone()).expect("nobody has set it");

    commit(&test, vec![Envelope::new("Excluded").aggregate("Order", "1").excluded().json(&0).expect("good")]).await;
    test.run_until_idle().await;

    test.written("OrderPlaced").one().await.expect("it was written at the third attempt");
    test.shutdown().await;
}
