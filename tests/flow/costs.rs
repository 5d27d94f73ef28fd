//! What an attempt cost: which attempts have it with their events, and what stands there for native code.

use std::sync::Arc;
use std::time::Duration;

use outbox::dispatcher::{DispatcherConfig, RecordedCosts};
use outbox::listener::Fixed;
use outbox::store::{AttemptCost, AttemptEnd};
use outbox::{DispatchResult, Event, Failure, Status};
use support::{Database, Recorder, Sqlite, eventually};

use crate::common::{HOUR, ROUTE, commit, commit_one, one_worker, order, orders, outbox, reaches, row};

fn all() -> DispatcherConfig {
    DispatcherConfig { record: RecordedCosts::All, ..DispatcherConfig::default() }
}

/// Fails the first time, and is done with it then.
fn fails_once(event: &Event) -> Result<DispatchResult, Failure> {
    if event.attempt() == 1 { Err(Failure::retryable("not yet")) } else { Ok(DispatchResult::Done) }
}

/// Which attempt, what it came to; of native code nothing is known but its time.
fn native(cost: Option<AttemptCost>) -> Option<(u32, AttemptEnd)> {
    cost.map(|kept| {
        assert_eq!((kept.cost.guest, kept.cost.events), (None, 1), "no sandbox has counted anything");
        assert!(kept.cost.took > Duration::ZERO, "{kept:?}");
        (kept.attempt, kept.outcome)
    })
}

pub(crate) async fn a_failure_has_its_cost_with_it_and_a_success_has_none<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| match event.aggregate_id() {
        Some("dead") => Err(Failure::unrecoverable("never")),
        Some("slow") => Ok(DispatchResult::RetryAfter(HOUR)),
        Some("fails") => fails_once(event),
        _ => Ok(DispatchResult::Done),
    });
    let outbox = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let named = |id: &str| outbox::Envelope::new("OrderPlaced").aggregate("Order", id).json(&1).expect("a good envelope");
    let ids = commit(&outbox, ["dead", "slow", "fails", "done"].map(named).into()).await;

    let dead = reaches(db, ids[0], Status::Dead).await;
    let failed = reaches(db, ids[2], Status::Retry).await;
    let done = reaches(db, ids[3], Status::Done).await;
    eventually("the deferral is stored", async || row(db, ids[1]).await.deferrals == 1).await;

    assert_eq!(native(dead.last_cost), Some((1, AttemptEnd::Dead)));
    assert_eq!(native(failed.last_cost.clone()), Some((1, AttemptEnd::Retry)));
    assert_eq!((done.last_cost, row(db, ids[1]).await.last_cost), (None, None));
    db.let_pass(HOUR).await;
    let done_at_last = reaches(db, ids[2], Status::Done).await;
    assert_eq!(done_at_last.last_cost, failed.last_cost, "what the failure cost stays readable, as its error does");
    outbox.shutdown().await;
}

pub(crate) async fn every_attempt_has_its_cost_with_it_when_that_is_asked_for<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| match event.aggregate_id() {
        Some("1") => Ok(DispatchResult::RetryAfter(HOUR)),
        Some("2") => fails_once(event),
        _ => Ok(DispatchResult::Done),
    });
    let outbox = outbox(db).dispatcher(all()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let ids = commit(&outbox, orders(20)).await;

    for (number, id) in ids.iter().enumerate().filter(|(number, _)| !matches!(number, 1 | 2)) {
        let done = reaches(db, *id, Status::Done).await;
        assert_eq!(native(done.last_cost), Some((1, AttemptEnd::Done)), "number {number}");
    }
    eventually("the deferral is stored", async || row(db, ids[1]).await.deferrals == 1).await;
    assert_eq!(native(row(db, ids[1]).await.last_cost), Some((1, AttemptEnd::Deferred)));
    reaches(db, ids[2], Status::Retry).await;
    db.let_pass(HOUR).await;
    assert_eq!(native(reaches(db, ids[2], Status::Done).await.last_cost), Some((2, AttemptEnd::Done)), "the later one");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_no_listener_was_called_for_has_no_cost() {
    let db = Sqlite::fresh().await;
    let other = Recorder::done();
    let config = DispatcherConfig { unroutable_grace: Duration::ZERO, ..all() };
    let outbox = outbox(&db).dispatcher(config).listener("Other", other.listener()).start().await.expect("starts");

    let id = commit_one(&outbox).await;

    let dead = reaches(&db, id, Status::Dead).await;
    assert_eq!((dead.last_cost, outbox.metrics().calls.counts().len()), (None, 0));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_cut_off_or_panics_has_a_cost_too() {
    let db = Sqlite::fresh().await;
    let deadline = Duration::from_millis(50);
    let listener = |event: Arc<Event>| async move {
        assert!(event.aggregate_id() != Some("0"), "a bad order");
        std::future::pending().await
    };
    let config = DispatcherConfig { deadline, ..one_worker() };
    let outbox = outbox(&db).dispatcher(config).listener(ROUTE, listener).start().await.expect("starts");

    let ids = commit(&outbox, vec![order(0), order(1)]).await;

    let panicked = reaches(&db, ids[0], Status::Retry).await;
    assert_eq!(native(panicked.last_cost), Some((1, AttemptEnd::Retry)));
    let late = reaches(&db, ids[1], Status::Retry).await;
    assert!(late.last_cost.as_ref().is_some_and(|kept| kept.cost.took >= deadline), "{late:?}");
    assert_eq!(native(late.last_cost), Some((1, AttemptEnd::Retry)));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_count_each_call_and_the_time_of_all_of_them() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(fails_once);
    let builder = outbox(&db).dispatcher(all()).retry(Fixed(Duration::ZERO));
    let outbox = builder.listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let ids = commit(&outbox, orders(5)).await;
    let mut took = Duration::ZERO;
    for id in ids {
        took += reaches(&db, id, Status::Done).await.last_cost.expect("it is kept").cost.took;
    }

    let counts = outbox.metrics().calls.counts();
    let calls = counts["native code"];
    assert_eq!((counts.len(), calls.calls, calls.fuel_used, calls.memory_peak_bytes), (1, 10, 0, 0), "five failed first");
    assert!(calls.took > took, "{:?} of all calls, {took:?} of the last ones", calls.took);
    outbox.shutdown().await;
}
