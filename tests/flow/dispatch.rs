//! What becomes of a delivery.

use std::sync::Arc;
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::listener::{BreakerConfig, Fixed};
use outbox::store::{InspectStore, NewRow, Ownership, WriteStore};
use outbox::time::{Clock, ManualClock, SystemClock};
use outbox::units::ByteSize;
use outbox::{DispatchResult, Envelope, Event, Failure, Outbox, Registration, Route, Status};
use support::{Harness, Recorder, Sqlite, eventually};

use crate::common::{
    HOUR, ROUTE, at_rest, commit, commit_one, done, drowsy, nothing_else_is_delivered, one_worker, order, orders, outbox,
    reaches, row,
};

fn route() -> Route {
    ROUTE.try_into().expect("good names")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_listener_fails_its_event_and_the_worker_goes_on() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|event| {
        assert!(event.aggregate_id() != Some("0"), "a bad order");
        Ok(DispatchResult::Done)
    });
    let outbox = outbox(&db).dispatcher(one_worker()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let ids = commit(&outbox, orders(3)).await;

    done(&db, 2).await;
    let record = reaches(&db, ids[0], Status::Retry).await;
    assert_eq!(record.attempts, 1);
    let error = record.last_error.expect("an error");
    assert!(error.starts_with("panic: panicked: ") && error.contains("a bad order"), "{error}");
    at_rest(&outbox).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_panics_before_its_future_fails_its_event_too() {
    let db = Sqlite::fresh().await;
    let listener = |event: Arc<Event>| {
        assert!(event.attempt() > 1, "not at the first attempt");
        async { Ok(DispatchResult::Done) }
    };
    let outbox = outbox(&db).retry(Fixed(Duration::ZERO)).listener(ROUTE, listener).start().await.expect("starts");

    let id = commit_one(&outbox).await;

    assert_eq!(reaches(&db, id, Status::Done).await.attempts, 1);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_outlives_its_deadline_is_cut_off() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { deadline: Duration::from_millis(50), ..one_worker() };
    let outbox = outbox(&db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let id = commit_one(&outbox).await;

    let record = reaches(&db, id, Status::Retry).await;
    assert_eq!(record.attempts, 1);
    assert!(record.last_error.as_deref().is_some_and(|error| error.starts_with("deadline: ")), "{:?}", record.last_error);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_for_later_is_not_an_attempt() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|_| Ok(DispatchResult::RetryAfter(HOUR)));
    let config = DispatcherConfig { max_attempts: 1, max_deferrals: 3, ..DispatcherConfig::default() };
    let outbox = outbox(&db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let id = commit_one(&outbox).await;

    for deferrals in 1..=3 {
        assert_eq!(recorder.started().await.attempt(), 1);
        eventually("the deferral is stored", async || row(&db, id).await.deferrals == deferrals).await;
        assert_eq!((row(&db, id).await.status, row(&db, id).await.attempts), (Status::New, 0));
        db.let_pass(HOUR).await;
    }
    let record = reaches(&db, id, Status::Dead).await;
    assert_eq!(record.attempts, 0);
    assert!(record.last_error.as_deref().is_some_and(|error| error.contains("3 times")), "{:?}", record.last_error);
    assert_eq!(outbox.metrics().counts().dispatch_deferred, 3);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_may_give_an_event_up_at_once() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|event| match event.aggregate_id() {
        Some("0") => Ok(DispatchResult::Dead(Some("no such customer".to_owned()))),
        Some("1") => Ok(DispatchResult::Dead(None)),
        _ => Err(Failure::unrecoverable("not an order at all")),
    });
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let ids = commit(&outbox, orders(3)).await;

    for (id, reason) in ids.into_iter().zip(["no such customer", "the listener gave no reason", "not an order at all"]) {
        let record = reaches(&db, id, Status::Dead).await;
        assert_eq!((record.attempts, record.last_error.as_deref()), (0, Some(reason)), "not counted");
    }
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_may_bring_its_own_delay() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|event| match event.attempt() {
        1 => Err(Failure::retryable_after(HOUR * 5, "closed until five")),
        _ => Ok(DispatchResult::Done),
    });
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let id = commit_one(&outbox).await;

    let record = reaches(&db, id, Status::Retry).await;
    assert_eq!(record.attempts, 1, "counted");
    db.let_pass(HOUR * 4).await;
    nothing_else_is_delivered(&db, &outbox).await;
    assert_eq!(recorder.count(), 1, "the dispatcher's hour does not count");
    db.let_pass(HOUR).await;
    reaches(&db, id, Status::Done).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_may_have_a_retry_policy_and_a_bound_of_its_own() {
    let db = Sqlite::fresh().await;
    let failing = || Recorder::answering(|_| Err(Failure::retryable("no luck")));
    let (own, other) = (failing(), failing());
    let outbox = outbox(&db)
        .registration(Registration::new(route(), own.listener()).retry(Fixed(Duration::ZERO)).max_attempts(2))
        .listener("Other", other.listener())
        .start()
        .await
        .expect("starts");

    let ids = commit(&outbox, vec![order(1), Envelope::new("Other").json(&1).expect("good")]).await;

    assert_eq!(reaches(&db, ids[0], Status::Dead).await.attempts, 2);
    assert_eq!(reaches(&db, ids[1], Status::Retry).await.attempts, 1);
    assert_eq!((own.count(), other.count()), (2, 1));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_event_is_not_delivered_early() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let delayed = Envelope::new("OrderPlaced").aggregate("Order", "1").deliver_after(HOUR).json(&1).expect("good");

    let id = commit(&outbox, vec![delayed]).await[0];

    assert_eq!(outbox.metrics().counts().hot_skipped_delayed, 1);
    db.let_pass(HOUR - Duration::from_secs(120)).await;
    nothing_else_is_delivered(&db, &outbox).await;
    assert_eq!(recorder.count(), 0);
    db.let_pass(Duration::from_secs(120)).await;
    reaches(&db, id, Status::Done).await;
    assert_eq!(recorder.ids(), [id]);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resting_poller_wakes_for_a_delayed_event_in_time() {
    let (_db, store) = Sqlite::on_system_clock().await;
    let clock = SystemClock;
    let recorder = Recorder::answering(move |event| {
        assert!(clock.now() >= event.available_at(), "too early");
        Ok(DispatchResult::Done)
    });
    let outbox = outbox::Outbox::single_node(store.clone()).poller(drowsy()).listener(ROUTE, recorder.listener());
    let outbox = outbox.start().await.expect("starts");
    let delayed =
        Envelope::new("OrderPlaced").aggregate("Order", "1").deliver_after(Duration::from_millis(300)).json(&1).expect("good");

    let id = commit(&outbox, vec![delayed]).await[0];

    // Sooner than the poller would look by itself, which is in an hour.
    eventually("the event is delivered", async || recorder.count() > 0).await;
    eventually("the event is done", async || {
        store.get(id).await.expect("reads").expect("the row is there").status == Status::Done
    })
    .await;
    assert_eq!(recorder.count(), 1);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_event_dies_undelivered() {
    let db = Sqlite::fresh().await;
    let expires_at = db.now().await.plus(HOUR * 2);
    let envelope =
        Envelope::new("OrderPlaced").aggregate("Order", "1").deliver_after(HOUR).expires_at(expires_at).json(&1).expect("good");
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit(&outbox, vec![envelope]).await[0];

    db.let_pass(HOUR * 3).await;

    let record = reaches(&db, id, Status::Dead).await;
    assert!(record.last_error.as_deref().is_some_and(|error| error.starts_with("expired")), "{:?}", record.last_error);
    assert_eq!((record.attempts, recorder.count()), (0, 0));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_row_dies_with_the_reason_and_the_others_are_delivered() {
    let db = Sqlite::fresh().await;
    for (id, headers) in [("bad", "{broken"), ("told", "\"a secret\"")] {
        let insert = "INSERT INTO outbox_event (event_id, event_type, payload, headers)";
        db.execute(&format!("{insert} VALUES ('{id}', 'X', '1', '{headers}')")).await;
    }
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let good = commit_one(&outbox).await;

    reaches(&db, good, Status::Done).await;
    for (id, why) in [("bad", "headers: not JSON; look at line 1, column 2"), ("told", "headers: not an object of strings")] {
        let record = reaches(&db, id.parse().expect("an id"), Status::Dead).await;
        let error = record.last_error.expect("a reason");
        assert!(error.contains("cannot be read") && error.contains(why), "{error}");
        assert!(!error.contains("secret"), "not everybody who sees this may see headers: {error}");
    }
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_bytes_are_bounded_and_nothing_is_lost() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { queue_bytes: ByteSize::kib(64), ..one_worker() };
    let outbox = outbox(&db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let large: Vec<Envelope> = (0..50)
        .map(|number| {
            let builder = Envelope::new("OrderPlaced").aggregate("Order", number.to_string());
            builder.bytes("application/octet-stream", vec![7; 30_000]).expect("good")
        })
        .collect();

    commit(&outbox, large).await;
    recorder.started().await;

    // With two of them it has less than 64 KiB: a third comes in, and no fourth.
    eventually("the poller has filled its side", async || outbox.queue_depth().1 >= 3).await;
    let (hot, cold) = outbox.queue_depth();
    assert!(hot <= 3 && cold == 3, "{hot} hot and {cold} cold of 30 kB each in 64 KiB");
    recorder.finish(100);
    done(&db, 50).await;
    assert_eq!(recorder.count(), 50);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_travels_with_an_event_arrives_hot_and_cold_alike() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let build = || {
        Envelope::new("OrderPlaced")
            .aggregate("Order", "№ 42")
            .tenant("acme")
            .header("k", "v")
            .correlation_id("c-1")
            .transaction_id("t-1")
            .traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
            .json_text("{\"z\":1.0,   \"a\":12345678901234567890.10}")
            .expect("good")
    };
    let (hot, cold) = (build(), build());

    commit(&outbox, vec![hot.clone()]).await;
    let hot_event = recorder.started().await;
    let receipt = {
        let mut own = db.other_program().begin().await.expect("begins");
        let receipt = outbox.writer().write(&mut own, cold.clone()).await.expect("writes");
        own.commit().await.expect("commits");
        receipt
    };
    drop(receipt);
    let cold_event = recorder.started().await;

    assert_eq!((hot_event.envelope(), cold_event.envelope()), (&hot, &cold));
    assert_eq!(hot_event.payload_bytes(), cold_event.payload_bytes());
    assert_eq!((cold_event.tenant_id(), cold_event.headers().get("correlation-id")), (Some("acme"), Some("c-1")));
    assert_eq!(cold_event.headers().get("transaction-id"), Some("t-1"));
    let counts = outbox.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.cold_enqueued), (1, 1));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_has_not_expired_by_the_databases_clock_is_delivered_by_a_host_whose_clock_is_ahead() {
    let db = Sqlite::fresh().await;
    let behind = SystemClock.now().minus(HOUR);
    let clock = Arc::new(ManualClock::new(behind));
    let store = db.second_store(clock).await;
    let expires_at = behind.plus(HOUR / 2);
    let envelope =
        Envelope::new("OrderPlaced").now(behind).aggregate("Order", "1").expires_at(expires_at).json(&1).expect("good");
    let ownership = Ownership { owner: OwnerId::generate("writer"), lease: HOUR };
    store.write(&[NewRow { envelope: &envelope, claimed: false }], &ownership).await.expect("writes");

    let recorder = Recorder::done();
    let outbox = Outbox::single_node(store).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    reaches(&db, envelope.id(), Status::Done).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_expires_in_the_queue_is_not_delivered() {
    let (db, store) = Sqlite::on_system_clock().await;
    let recorder = Recorder::held();
    let outbox = Outbox::single_node(store).dispatcher(one_worker()).listener(ROUTE, recorder.listener());
    let outbox = outbox.start().await.expect("starts");
    let first = commit_one(&outbox).await;
    recorder.started().await;

    let clock = SystemClock;
    let expires_at = clock.now().plus(Duration::from_millis(300));
    let short = Envelope::new("OrderPlaced").aggregate("Order", "43").expires_at(expires_at).json(&1).expect("good");
    let short = commit(&outbox, vec![short]).await[0];
    eventually("its time is over", async || clock.now() > expires_at).await;
    recorder.finish(2);

    let dead = reaches(&db, short, Status::Dead).await;
    assert!(dead.last_error.as_deref().is_some_and(|error| error.starts_with("expired")), "{dead:?}");
    assert_eq!((dead.attempts, recorder.ids()), (0, vec![first]));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_is_paused_by_the_rule_that_the_host_was_given() {
    let db = Sqlite::fresh().await;
    let broken = Recorder::answering(|_| panic!("on purpose"));
    let rule = BreakerConfig { window: 3, threshold: 3, ..BreakerConfig::default() };
    let outbox =
        outbox(&db).dispatcher(one_worker()).breaker(rule).listener(ROUTE, broken.listener()).start().await.expect("starts");

    let ids = commit(&outbox, (0..5).map(order).collect()).await;

    for id in &ids[..3] {
        reaches(&db, *id, Status::Retry).await;
    }
    for id in &ids[3..] {
        eventually("the row says why it waits", async || row(&db, *id).await.wait_reason.is_some()).await;
        let waiting = row(&db, *id).await;
        assert_eq!(waiting.attempts, 0);
        let why = waiting.waits_for().expect("it waits");
        assert!(
            why.starts_with("the circuit breaker of its listener ") && why.ends_with(" is open after repeated failures"),
            "{why}"
        );
    }
    outbox.shutdown().await;
}
