//! What a service is tested with.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outbox::listener::Fixed;
use outbox::testing::{self, WrittenError};
use outbox::{Context, DispatchResult, Envelope, Failure, SqliteStore, Status, Writer};
use support::{Postgres, Recorder};

use crate::common::{ROUTE, commit, order, orders, outbox};

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
