//! The mode `ordered`: every event in the order of insertion, whatever its times say and whatever becomes of the one before it.

use std::collections::BTreeSet;
use std::panic::panic_any;
use std::time::Duration;

use outbox::event::OwnerId;
use outbox::listener::{BreakerConfig, Fixed};
use outbox::poller::PollerConfig;
use outbox::store::{Audit, InspectStore, NewRow, Ownership, RouteStore, SharedStore, WriteStore};
use outbox::{DispatchResult, Envelope, Failure, Mode, Outbox, OutboxBuilder, Registration, Route, Status, Store};
use sqlx::AssertSqlSafe;
use support::{Database, MySql, Postgres, Recorder, eventually};

use crate::common::{HOUR, ROUTE, done, drowsy, eager, order, orders, reaches, row, without_grace};

/// The route that is not [`ROUTE`].
const OTHER: (&str, &str) = ("Order", "OrderShipped");

fn ordered<S: SharedStore>(store: S) -> OutboxBuilder<S> {
    Outbox::ordered(store).poller(eager())
}

fn other() -> Envelope {
    Envelope::new(OTHER.1).aggregate(OTHER.0, "1").json(&0).expect("good")
}

/// Writes events before any host is there, so that a whole backlog waits for it. Returns their numbers.
async fn backlog<D: Database>(db: &D, envelopes: &[Envelope]) -> Vec<u64> {
    let ownership = Ownership { owner: OwnerId::generate("writer"), lease: HOUR };
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let written = db.another().await.write(&rows, &ownership).await.expect("writes");
    written.into_iter().map(|sequence| sequence.expect("it is new")).collect()
}

fn sequences(recorder: &Recorder) -> Vec<u64> {
    recorder.calls().iter().map(|event| event.sequence()).collect()
}

pub(crate) async fn events_are_delivered_in_the_order_of_insertion_whatever_their_times_say<D: Database>(db: &D) {
    let now = db.another().await.now().await.expect("tells the time");
    let placed = |ago: u64| Envelope::new("OrderPlaced").aggregate_type("Order").now(now.minus(Duration::from_secs(ago)));
    let in_aggregate = |ago: u64| placed(ago).aggregate_id("1").json(&ago).expect("good");
    // The clocks of their writers disagree, and the one that was written last says that it happened first.
    let mut envelopes: Vec<Envelope> = [10, 3_600, 20, 7_200, 86_400].into_iter().map(in_aggregate).collect();
    // Without an aggregate it stands in the same queue.
    envelopes.push(placed(90_000).json(&0).expect("good"));
    let written = backlog(db, &envelopes).await;
    let recorder = Recorder::done();
    // Small batches: what is claimed together is sorted anyway.
    let one_by_one = PollerConfig { batch_size: 1, drain_batch_size: 1, ..eager() };

    let host =
        ordered(db.another().await).poller(one_by_one).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    done(db, 6).await;
    assert_eq!(sequences(&recorder), written);
    host.shutdown().await;
}

pub(crate) async fn a_deferred_event_holds_up_all_later_ones<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| {
        let first = event.payload::<u32>().expect("a number") == 0;
        // The lower half of its fence counts outcomes: it is deferred twice.
        if first && event.fence() & u64::from(u32::MAX) < 2 {
            Ok(DispatchResult::RetryAfter(Duration::from_millis(50)))
        } else {
            Ok(DispatchResult::Done)
        }
    });
    let written = backlog(db, &orders(3)).await;

    let host = ordered(db.another().await).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    done(db, 3).await;
    assert_eq!(sequences(&recorder), [written[0], written[0], written[0], written[1], written[2]]);
    host.shutdown().await;
}

pub(crate) async fn a_failed_event_is_dead_after_one_attempt_whatever_its_listener_allows<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| match event.payload::<u32>().expect("a number") {
        0 => Err(Failure::retryable("no")),
        1 => Err(Failure::retryable_after(Duration::from_millis(1), "no")),
        _ => Ok(DispatchResult::Done),
    });
    let lenient = Registration::new(Route::try_from(ROUTE).expect("good"), recorder.listener());
    let lenient = lenient.max_attempts(5).retry(Fixed(Duration::from_millis(1)));
    let envelopes = orders(3);
    let written = backlog(db, &envelopes).await;

    let host = ordered(db.another().await).registration(lenient).start().await.expect("starts");

    reaches(db, envelopes[2].id(), Status::Done).await;
    assert_eq!(sequences(&recorder), written, "each once, and the queue goes on");
    for died in &envelopes[..2] {
        let record = row(db, died.id()).await;
        assert_eq!((record.status, record.attempts, record.blocks), (Status::Dead, 1, false));
    }
    host.shutdown().await;
}

pub(crate) async fn an_event_of_a_paused_route_holds_up_all_later_ones<D: Database>(db: &D) {
    let store = db.another().await;
    let route = Route::try_from(ROUTE).expect("good");
    store.pause(&route, &Audit::by("me")).await.expect("pauses");
    let recorder = Recorder::done();
    let envelopes = [order(1), other(), order(2)];
    let written = backlog(db, &envelopes).await;
    let host = ordered(store.clone()).listener(ROUTE, recorder.listener()).listener(OTHER, recorder.listener());
    let host = host.start().await.expect("starts");
    eventually("the first is parked", async || row(db, envelopes[0].id()).await.parked.is_some()).await;
    eventually("the others are given back", async || host.in_flight() == 0).await;

    store.resume(&route, &Audit::by("me")).await.expect("resumes");

    done(db, 3).await;
    assert_eq!(sequences(&recorder), written);
    host.shutdown().await;
}

pub(crate) async fn an_event_that_nobody_answers_holds_up_no_other_once_its_pause_is_over<D: Database>(db: &D) {
    let store = db.another().await;
    let all = Route::new("Order", "*").expect("good");
    store.pause(&all, &Audit::by("me")).await.expect("pauses");
    let recorder = Recorder::done();
    let envelopes = [other(), order(1)];
    backlog(db, &envelopes).await;
    let host = ordered(store.clone()).dispatcher(without_grace()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    eventually("the first is parked", async || row(db, envelopes[0].id()).await.parked.is_some()).await;

    store.resume(&all, &Audit::by("me")).await.expect("resumes");

    reaches(db, envelopes[1].id(), Status::Done).await;
    let first = row(db, envelopes[0].id()).await;
    assert_eq!((first.status, first.attempts), (Status::Dead, 0));
    assert_eq!(first.last_error.as_deref(), Some("no listener answers Order/OrderShipped (1 route is answered)"));
    host.shutdown().await;
}

pub(crate) async fn an_event_whose_listener_is_paused_by_its_breaker_holds_up_all_later_ones<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| match event.payload::<u32>().expect("a number") {
        1 => panic_any("it breaks"),
        _ => Ok(DispatchResult::Done),
    });
    let mut fragile = Registration::new(Route::try_from(ROUTE).expect("good"), recorder.listener());
    fragile.breaker = Some(BreakerConfig { window: 1, threshold: 1, pause: Duration::from_millis(200) });
    let envelopes = [order(1), order(2), other(), order(3)];
    let written = backlog(db, &envelopes).await;

    let host = ordered(db.another().await).registration(fragile).listener(OTHER, recorder.listener());
    let host = host.start().await.expect("starts");

    reaches(db, envelopes[0].id(), Status::Dead).await;
    done(db, 3).await;
    assert_eq!(sequences(&recorder), written);
    host.shutdown().await;
}

pub(crate) async fn a_delayed_event_holds_up_nobody_and_takes_its_place_when_its_time_comes<D: Database>(db: &D) {
    let now = db.another().await.now().await.expect("tells the time");
    let late = Envelope::new("OrderPlaced").now(now).aggregate("Order", "1").deliver_after(Duration::from_secs(5));
    let late = late.json(&9).expect("good");
    let written = backlog(db, &[late.clone(), order(1), order(2)]).await;
    let recorder = Recorder::done();

    let host = ordered(db.another().await).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    done(db, 3).await;
    assert_eq!(sequences(&recorder), [written[1], written[2], written[0]]);
    host.shutdown().await;
}

pub(crate) async fn order_survives_stops_in_the_middle_of_a_backlog<D: Database>(db: &D) {
    const STOPS: usize = 5;
    const PART: usize = 60;
    let envelopes = orders(u32::try_from(STOPS * PART * 2).expect("small"));
    let written = backlog(db, &envelopes).await;
    let recorder = Recorder::done();
    for stop in 1..=STOPS {
        let host = ordered(db.another().await).listener(ROUTE, recorder.listener()).start().await.expect("starts");
        eventually("a part is delivered", async || recorder.count() >= stop * PART).await;
        host.shutdown().await;
    }
    assert!(recorder.count() < envelopes.len(), "the stops came in the middle");

    let host = ordered(db.another().await).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    done(db, u64::try_from(envelopes.len()).expect("small")).await;
    let delivered = sequences(&recorder);
    assert!(delivered.is_sorted(), "{:?}", backward(&delivered));
    assert_eq!(delivered.into_iter().collect::<BTreeSet<_>>(), written.into_iter().collect());
    host.shutdown().await;
}

pub(crate) async fn a_backlog_of_expired_events_is_walked_without_a_poll<D: Database>(db: &D) {
    const EVENTS: u32 = 1_050;
    for (mode, dead) in [(Mode::Ordered, EVENTS), (Mode::OrderedByAggregate, EVENTS * 2)] {
        backlog(db, &orders(EVENTS)).await;
        db.execute("UPDATE outbox_event SET expires_at = created_at WHERE due_at IS NOT NULL").await;
        let (store, recorder) = (db.another().await, Recorder::done());
        let host = Outbox::builder(store.clone()).mode(mode).poller(drowsy()).listener(ROUTE, recorder.listener());

        let host = host.start().await.expect("starts");

        eventually("all are dead", async || store.stats().await.expect("counts").dead == u64::from(dead)).await;
        assert_eq!(recorder.count(), 0, "{mode:?}");
        host.shutdown().await;
    }
}

/// Each step back, for the message of a failure.
fn backward(sequences: &[u64]) -> Vec<(u64, u64)> {
    sequences.windows(2).filter(|pair| pair[0] > pair[1]).map(|pair| (pair[0], pair[1])).collect()
}

/// A host meets three events, of which the first is left under a claim that has ended, and its row is locked until `release`.
async fn waits_behind_a_locked_front<D: Database>(db: &D, written: &[u64], release: impl Future<Output = ()>) {
    let recorder = Recorder::done();
    let host = Outbox::ordered(db.another().await).poller(drowsy()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    let looks = || {
        let counts = host.metrics().counts();
        counts.reads_full + counts.reads_partial + counts.reads_empty
    };
    eventually("it has looked at the front", async || looks() > 0).await;

    let before = looks();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let more = looks() - before;
    assert!(more <= 20, "it rests between two looks: {more} of them in two seconds");
    eventually("it looks again", async || looks() > before).await;

    assert_eq!(recorder.count(), 0);
    release.await;
    done(db, 3).await;
    assert_eq!(sequences(&recorder), written);
    host.shutdown().await;
}

/// Three events, the first under a claim that has ended; with what locks its row.
async fn left_at_the_front<D: Database>(db: &D) -> (Vec<u64>, String) {
    let written = backlog(db, &orders(3)).await;
    let first = format!("seq = {}", written[0]);
    db.execute(&format!(
        "UPDATE outbox_event SET locked_by = 'gone', locked_at = created_at, lease_end = created_at, claim_seq = 1, claims = 1
         WHERE {first}"
    ))
    .await;
    (written, format!("SELECT seq FROM outbox_event WHERE {first} FOR UPDATE"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_front_holds_up_all_later_ones_and_makes_no_host_spin_on_postgres() {
    let db = Postgres::fresh().await;
    let (written, lock) = left_at_the_front(&db).await;
    let mut other = sqlx::PgPool::connect(db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(AssertSqlSafe(lock)).execute(&mut *other).await.expect("locks");

    waits_behind_a_locked_front(&db, &written, async { other.rollback().await.expect("lets it go") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_front_holds_up_all_later_ones_and_makes_no_host_spin_on_mysql() {
    let db = MySql::fresh().await;
    let (written, lock) = left_at_the_front(&db).await;
    let mut other = sqlx::MySqlPool::connect(&db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(AssertSqlSafe(lock)).execute(&mut *other).await.expect("locks");

    waits_behind_a_locked_front(&db, &written, async { other.rollback().await.expect("lets it go") }).await;
}
