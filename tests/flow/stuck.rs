//! Listeners and interceptors that do not come back, and listeners that keep breaking.

use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outbox::dispatcher::{DispatcherConfig, Interceptor};
use outbox::event::OwnerId;
use outbox::listener::{BreakerConfig, Fixed, Outcome, Reply, Visit};
use outbox::store::{NewRow, Ownership, WriteStore};
use outbox::{DispatchResult, Envelope, Event, Listener, Outbox, Registration, SqliteStore, Status};
use support::{Recorder, Sqlite, eventually, in_time};
use tokio::time::Instant;

use crate::common::{HOUR, ROUTE, commit, commit_one, drowsy, eager, one_worker, order, outbox, reaches, row};

const SECOND: Duration = Duration::from_secs(1);

/// Whether another host gets an event.
async fn another_host_takes_one(store: &SqliteStore) -> bool {
    support::claim_due(store, &OwnerId::generate("other"), SECOND * 60, 1).await.expect("claims").len() == 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_event_whose_listener_blocks_its_thread_can_be_taken_over() {
    let (_db, store) = Sqlite::on_system_clock().await;
    let (let_go, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let listener = move |_: Arc<Event>| {
        // Not a wait of tokio's: nobody can cut this off.
        let _ = held.lock().expect("not poisoned").recv();
        async { Ok(DispatchResult::Done) }
    };
    let config = DispatcherConfig { lease: SECOND, deadline: SECOND / 4, ..one_worker() };
    let outbox = Outbox::single_node(store.clone()).poller(drowsy()).dispatcher(config).listener(ROUTE, listener).start().await;
    let outbox = outbox.expect("starts");

    commit_one(&outbox).await;

    eventually("another host takes the event", async || another_host_takes_one(&store).await).await;
    drop(let_go);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_cold_event_whose_listener_blocks_its_thread_is_delivered_again_by_its_own_host() {
    let (db, store) = Sqlite::on_system_clock().await;
    let (let_go, held) = mpsc::channel::<()>();
    let (held, calls) = (Mutex::new(held), Arc::new(Mutex::new(Vec::new())));
    let listener = {
        let calls = calls.clone();
        move |event: Arc<Event>| {
            let is_first = {
                let mut calls = calls.lock().expect("not poisoned");
                calls.push(event.fence());
                calls.len() == 1
            };
            if is_first {
                let _ = held.lock().expect("not poisoned").recv();
            }
            async { Ok(DispatchResult::Done) }
        }
    };
    let config = DispatcherConfig { workers: 2, lease: SECOND, deadline: SECOND / 4, ..DispatcherConfig::default() };
    let outbox = Outbox::single_node(store.clone()).poller(eager()).dispatcher(config).listener(ROUTE, listener).start().await;
    let outbox = outbox.expect("starts");
    let envelope = order(1);
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    store.write(&[NewRow { envelope: &envelope, claimed: false }], &nobody).await.expect("writes");

    reaches(&db, envelope.id(), Status::Done).await;

    let calls = calls.lock().expect("not poisoned").clone();
    assert!(calls.len() == 2 && calls[1] > calls[0], "each delivery has a larger number: {calls:?}");
    drop(let_go);
    outbox.shutdown().await;
    assert_eq!(row(&db, envelope.id()).await.status, Status::Done, "the late outcome of the first changes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_call_that_blocks_its_thread_keeps_its_slot_and_delays_no_other_listener() {
    let (db, store) = Sqlite::on_system_clock().await;
    let (let_go, held) = mpsc::channel::<()>();
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    let held = Mutex::new(held);
    let blocking = move |event: Arc<Event>| {
        let _ = started.send(event.id());
        let _ = held.lock().expect("not poisoned").recv();
        async { Ok(DispatchResult::Done) }
    };
    let registration = Registration::new(ROUTE.try_into().expect("good"), blocking).concurrency(1);
    let other = Recorder::done();
    let config = DispatcherConfig { workers: 4, lease: SECOND, deadline: SECOND / 4, ..DispatcherConfig::default() };
    let outbox = Outbox::single_node(store).poller(eager()).dispatcher(config).registration(registration);
    let outbox = outbox.listener("Other", other.listener()).start().await.expect("starts");

    let blocked = commit_one(&outbox).await;
    assert_eq!(in_time("the first call begins", starts.recv()).await, Some(blocked));
    let waiting = commit_one(&outbox).await;
    let others = (0..40).map(|number| Envelope::new("Other").json(&number).expect("a good envelope")).collect();

    for id in commit(&outbox, others).await {
        reaches(&db, id, Status::Done).await;
    }
    assert!(starts.try_recv().is_err(), "the only slot is taken");
    assert_eq!(row(&db, waiting).await.status, Status::New);

    drop(let_go);
    for id in [blocked, waiting] {
        reaches(&db, id, Status::Done).await;
    }
    outbox.shutdown().await;
}

/// Never lets an event through, and never says so.
struct Endless;

#[async_trait]
impl Interceptor for Endless {
    async fn before(&self, _: &Event) -> Result<(), String> {
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interceptor_without_an_end_is_cut_off_by_the_deadline() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let config = DispatcherConfig { deadline: Duration::from_millis(100), ..one_worker() };
    let outbox = outbox(&db).dispatcher(config).interceptor(Endless).listener(ROUTE, recorder.listener()).start().await;
    let outbox = outbox.expect("starts");

    let id = commit_one(&outbox).await;

    let record = reaches(&db, id, Status::Retry).await;
    assert_eq!((record.attempts, recorder.count()), (1, 0));
    let error = record.last_error.expect("an error");
    assert!(error.starts_with("interceptor: ") && error.contains("100ms"), "{error}");
    outbox.shutdown().await;
}

/// Panics, except that its third call says that it has no room just now.
#[derive(Default)]
struct Full(std::sync::atomic::AtomicU32);

impl Listener for Full {
    fn call<'a>(&'a self, _: Visit<'a>) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        let call = self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Box::pin(async move {
            assert!(call == 2, "on purpose");
            Outcome::Busy { after: Duration::ZERO, reason: "it is full".into() }.into()
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trial_that_was_no_call_does_not_end_the_pause_of_a_broken_listener() {
    let (db, store) = Sqlite::on_system_clock().await;
    let breaker = BreakerConfig { window: 20, threshold: 2, pause: SECOND * 2 };
    let registration = Registration::new(ROUTE.try_into().expect("good"), Full::default()).breaker(breaker);
    let route = registration.route.clone();
    let outbox = Outbox::single_node(store).retry(Fixed(HOUR)).registration(registration).start().await.expect("starts");
    for _ in 0..2 {
        let id = commit_one(&outbox).await;
        reaches(&db, id, Status::Retry).await;
    }
    let found = outbox.listeners().find(&route).expect("registered");
    assert!(found.has_open_breaker(&route, Instant::now()), "two of two calls broke");

    // When the pause is over: first the call that finds no room, then one that panics.
    let id = commit_one(&outbox).await;
    eventually("the pause ends", async || !found.has_open_breaker(&route, Instant::now())).await;

    // Nobody may call before the next pause begins.
    eventually("the trial broke, so the pause begins again", async || found.has_open_breaker(&route, Instant::now())).await;
    assert_eq!(reaches(&db, id, Status::Retry).await.attempts, 1);
    outbox.shutdown().await;
}

/// Is told of every outcome, and never comes back.
struct Forgetful(Arc<tokio::sync::Semaphore>);

#[async_trait]
impl Interceptor for Forgetful {
    async fn after(&self, _: &Event, _: &Outcome) -> Result<(), String> {
        self.0.add_permits(1);
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_keeps_what_a_listener_said_while_its_interceptors_are_still_told() {
    let db = Sqlite::fresh().await;
    let told = Arc::new(tokio::sync::Semaphore::new(0));
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(100), ..DispatcherConfig::default() };
    let outbox =
        outbox(&db).dispatcher(config).interceptor(Forgetful(told.clone())).listener(ROUTE, Recorder::done().listener());
    let outbox = outbox.start().await.expect("starts");

    let id = commit_one(&outbox).await;
    told.acquire().await.expect("open").forget();
    outbox.shutdown().await;

    assert_eq!(row(&db, id).await.status, Status::Done);
}
