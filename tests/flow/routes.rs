//! Which listener answers which route.

use std::time::Duration;

use outbox::dispatcher::{DispatcherConfig, Unroutable};
use outbox::event::OwnerId;
use outbox::store::{Audit, NewRow, Ownership, RouteStore};
use outbox::why::explain;
use outbox::{Envelope, Registration, Route, StartError, Status};
use support::{Database, Recorder, Sqlite, eventually};

use crate::common::{HOUR, ROUTE, commit, commit_one, done, drowsy, orders, outbox, reaches, row, without_grace};

fn route() -> Route {
    ROUTE.try_into().expect("good names")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_nobody_answers_dies_with_the_near_names() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db)
        .dispatcher(without_grace())
        .listener(("Order", "OrderPlacd"), Recorder::done().listener())
        .listener("SomethingElse", Recorder::done().listener())
        .start()
        .await
        .expect("starts");

    let id = commit_one(&outbox).await;

    let record = reaches(&db, id, Status::Dead).await;
    assert_eq!(record.attempts, 0);
    assert_eq!(record.last_error.as_deref(), Some("no listener answers Order/OrderPlaced (did you mean Order/OrderPlacd?)"));
    outbox.shutdown().await;
}

/// As if its plugin were deployed a moment after the service that writes its events.
pub(crate) async fn an_event_waits_for_a_listener_that_comes_within_the_grace_and_is_dead_after_it<D: Database>(db: &D) {
    let config = DispatcherConfig { unroutable_grace: HOUR, ..DispatcherConfig::default() };
    let outbox = outbox(db).dispatcher(config).listener("Other", Recorder::done().listener()).start().await.expect("starts");
    let (late, never) = (commit_one(&outbox).await, commit(&outbox, vec![unanswered()]).await[0]);
    let awaited = async |id| {
        eventually("its row says why it waits", async || row(db, id).await.wait_reason.is_some()).await;
        row(db, id).await
    };
    for (id, name) in [(late, "Order/OrderPlaced"), (never, "Order/OrderLost")] {
        let waiting = awaited(id).await;
        assert_eq!((waiting.status, waiting.attempts, waiting.deferrals), (Status::New, 0, 0));
        let reason = waiting.wait_reason.expect("a reason");
        assert!(reason.starts_with(&format!("no listener answers {name} (")), "{reason}");
        assert!(
            reason.ends_with(
                "; it is dead if none comes within 1 h after its time, or after the last change of its host's listeners"
            ),
            "{reason}"
        );
        let why = explain(&*db.store(), id, Vec::new()).await.expect("explains").expect("is there");
        assert!(why.sentence.contains(&reason), "{}", why.sentence);
    }

    let recorder = Recorder::done();
    outbox.listeners().replace("late", vec![Registration::new(route(), recorder.listener())]).expect("free");
    db.let_pass(Duration::from_secs(1)).await;
    reaches(db, late, Status::Done).await;
    assert_eq!(recorder.ids(), [late]);
    outbox.shutdown().await;

    // A host that starts later gives it a grace of its own.
    db.let_pass(HOUR).await;
    let config = DispatcherConfig { unroutable_grace: Duration::from_secs(2), ..DispatcherConfig::default() };
    let outbox =
        self::outbox(db).dispatcher(config).listener("Other", Recorder::done().listener()).start().await.expect("starts");
    eventually("it has a grace", async || {
        row(db, never).await.wait_reason.is_some_and(|why| why.contains("comes within 2 s after"))
    })
    .await;
    eventually("it is dead in the end", async || {
        db.let_pass(Duration::from_millis(300)).await;
        row(db, never).await.status == Status::Dead
    })
    .await;
    let reason = row(db, never).await.last_error.expect("a reason");
    assert!(reason.starts_with("no listener answers Order/OrderLost ("), "{reason}");
    outbox.shutdown().await;
}

fn unanswered() -> Envelope {
    Envelope::new("OrderLost").aggregate("Order", "1").json(&1).expect("good")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_differ_by_case_are_different_routes() {
    let db = Sqlite::fresh().await;
    let (upper, lower) = (Recorder::done(), Recorder::done());
    let outbox = outbox(&db)
        .listener(ROUTE, upper.listener())
        .listener(("order", "OrderPlaced"), lower.listener())
        .start()
        .await
        .expect("starts");

    let id = commit_one(&outbox).await;

    reaches(&db, id, Status::Done).await;
    assert_eq!((upper.count(), lower.count()), (1, 0));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_route_that_lost_its_listener_wait_until_it_comes_back() {
    let db = Sqlite::fresh().await;
    // Only the change of listeners may wake it.
    let outbox = outbox(&db).poller(drowsy()).start().await.expect("starts");
    let (first, second) = (Recorder::done(), Recorder::done());
    outbox.listeners().replace("plugin", vec![Registration::new(route(), first.listener())]).expect("free");
    let before = commit_one(&outbox).await;
    reaches(&db, before, Status::Done).await;
    outbox.listeners().remove("plugin");

    let id = commit_one(&outbox).await;
    eventually("the event is parked", async || row(&db, id).await.parked.is_some()).await;
    let record = row(&db, id).await;
    assert_eq!((record.status, record.attempts, record.due_at), (Status::New, 0, None));
    outbox.listeners().replace("plugin", vec![Registration::new(route(), second.listener())]).expect("free");

    reaches(&db, id, Status::Done).await;
    assert_eq!((first.ids(), second.ids()), (vec![before], vec![id]));
    assert_eq!(outbox.metrics().counts().dispatch_parked, 1);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_is_remembered_across_a_restart() {
    let db = Sqlite::fresh().await;
    let first = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    eventually("the route is noted", async || {
        let known = db.sqlite().routes().await.expect("reads");
        known.into_iter().map(|known| known.route).eq([route()])
    })
    .await;
    first.shutdown().await;

    // The plugin is away at the next start.
    let second = outbox(&db).start().await.expect("starts");
    let id = commit_one(&second).await;

    eventually("the event is parked", async || row(&db, id).await.parked.is_some()).await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unroutable_events_wait_where_that_is_asked_for() {
    let db = Sqlite::fresh().await;
    let config = DispatcherConfig { unroutable: Unroutable::Park, ..DispatcherConfig::default() };
    let outbox = outbox(&db).dispatcher(config).start().await.expect("starts");

    let id = commit_one(&outbox).await;
    eventually("the event is parked", async || row(&db, id).await.parked.is_some()).await;
    let recorder = Recorder::done();
    outbox.listeners().add("late", Registration::new(route(), recorder.listener())).expect("free");

    reaches(&db, id, Status::Done).await;
    assert_eq!(recorder.ids(), [id]);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_listener_for_a_route_is_an_error() {
    let db = Sqlite::fresh().await;
    let twice =
        outbox(&db).listener(ROUTE, Recorder::done().listener()).listener(ROUTE, Recorder::done().listener()).start().await;

    let Err(StartError::Conflict(conflict)) = twice else { panic!("{twice:?}") };
    assert_eq!(conflict.route, route());

    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("nothing is left of the first start");
    let newcomer = Registration::new(route(), Recorder::done().listener());
    let error = outbox.listeners().replace("plugin", vec![newcomer]).expect_err("taken");
    assert!(error.to_string().contains("Order/OrderPlaced is already answered by native"), "{error}");
    let id = commit_one(&outbox).await;
    reaches(&db, id, Status::Done).await;
    assert_eq!(recorder.count(), 1, "the first one keeps answering");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_lets_the_running_call_end_where_it_began() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).start().await.expect("starts");
    let (old, new) = (Recorder::held(), Recorder::done());
    outbox.listeners().replace("plugin", vec![Registration::new(route(), old.listener())]).expect("free");
    let first = commit_one(&outbox).await;
    old.started().await;

    outbox.listeners().replace("plugin", vec![Registration::new(route(), new.listener())]).expect("its own route");
    let second = commit_one(&outbox).await;
    reaches(&db, second, Status::Done).await;
    old.finish(1);

    reaches(&db, first, Status::Done).await;
    assert_eq!((old.ids(), new.ids()), (vec![first], vec![second]));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_without_an_aggregate_type_goes_to_the_global_route() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = outbox(&db).listener("Tick", recorder.listener()).start().await.expect("starts");

    let ids = outbox.writer().emit(vec![Envelope::new("Tick").json(&1).expect("good")]).await.expect("emits");

    reaches(&db, ids[0], Status::Done).await;
    assert_eq!(recorder.calls()[0].aggregate_type().as_str(), "__GLOBAL__");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_somebody_forgot_is_noted_again_by_the_host_that_answers_it() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let is_noted = async || {
        let routes = outbox.store().routes().await.expect("reads");
        routes.iter().any(|known| known.route == route() && known.first_seen_at.is_some())
    };
    assert!(is_noted().await);

    assert!(outbox.store().forget_route(&route(), &Audit::by("tester")).await.expect("forgets"));

    eventually("other hosts are told again that somebody answers it", is_noted).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_host_learns_that_a_route_was_forgotten() {
    let db = Sqlite::fresh().await;
    db.sqlite().remember_routes(&[route()], &[]).await.expect("records");
    let outbox =
        outbox(&db).dispatcher(without_grace()).listener("Other", Recorder::done().listener()).start().await.expect("starts");
    outbox.listeners().replace("plugin", vec![Registration::new(route(), Recorder::done().listener())]).expect("free");
    outbox.listeners().remove("plugin");
    assert!(outbox.listeners().is_remembered(&route()));

    eventually("the host knows", async || {
        // The host may have recorded the route again, if it read its listeners while the plugin was there.
        outbox.store().forget_route(&route(), &Audit::by("tester")).await.expect("forgets");
        !outbox.listeners().is_remembered(&route())
    })
    .await;

    let id = commit_one(&outbox).await;
    let record = reaches(&db, id, Status::Dead).await;
    let reason = record.last_error.expect("a reason");
    assert!(reason.starts_with("no listener answers Order/OrderPlaced ("), "{reason}");
    outbox.shutdown().await;
}

pub(crate) async fn a_pause_of_all_routes_without_a_host_holds_whatever_a_host_finds_at_its_start<D: Database>(db: &D) {
    let (all, recorder) = (Route::new(Route::ANY, Route::ANY).expect("a pattern"), Recorder::done());
    let by_hand = Audit { actor: "anna".to_owned(), reason: Some("the dump was restored".to_owned()) };
    assert!(db.store().pause(&all, &by_hand).await.expect("pauses"));
    let mut envelopes = orders(20);
    let unanswered = Envelope::new("Unanswered").json(&1).expect("valid");
    let id = unanswered.id();
    envelopes.push(unanswered);
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("restored"), lease: HOUR };
    db.store().write(&rows, &nobody).await.expect("writes");

    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    eventually("all events are parked", async || db.store().stats().await.expect("counts").parked == 21).await;
    assert_eq!(recorder.count(), 0);
    assert_eq!(row(db, id).await.wait_reason, None, "nothing announces that an event without a listener dies soon");
    db.store().resume(&all, &by_hand).await.expect("resumes");
    done(db, 20).await;
    host.shutdown().await;
}
