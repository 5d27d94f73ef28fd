//! Events that are delivered alone, because two hosts were gone while they held them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::listener::{Outcome, Reply, Visit};
use outbox::store::{Filter, NewRow, Ownership, WriteStore};
use outbox::time::{Clock, SystemClock};
use outbox::{DispatchResult, Envelope, Event, Listener, Outbox, SqliteStore, Status};
use support::{Harness, Recorder, Sqlite, eventually};

use crate::common::{HOUR, ROUTE, commit, done, order, outbox, reaches, row};

const LEASE: Duration = Duration::from_secs(3);

async fn write_cold(store: &SqliteStore, envelopes: &[Envelope]) {
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let ownership = Ownership { owner: OwnerId::generate("writer"), lease: LEASE };
    store.write(&rows, &ownership).await.expect("writes");
}

/// Claims everything that is due, as a host that goes without a word.
async fn claim_and_go(db: &Sqlite) {
    assert!(claim_all(db, LEASE).await > 0);
    db.let_pass(LEASE + Duration::from_millis(1)).await;
}

async fn claim_all(db: &Sqlite, lease: Duration) -> usize {
    support::claim_due(&*db.store(), &OwnerId::generate("gone"), lease, 100).await.expect("claims").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_two_hosts_held_when_they_went_are_delivered_one_at_a_time() {
    let db = Sqlite::fresh().await;
    write_cold(&db.sqlite(), &(0..6).map(order).collect::<Vec<_>>()).await;
    claim_and_go(&db).await;
    claim_and_go(&db).await;

    let recorder = Recorder::held();
    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    for delivered in 1..=6 {
        recorder.started().await;
        let starts = db.number("SELECT sum(starts) FROM outbox_event").await;
        assert_eq!((recorder.count(), starts), (delivered, 1), "one is started, its start is counted, and no other beside it");
        recorder.finish(1);
        eventually("its outcome is stored", async || db.store().stats().await.expect("counts").done == delivered as u64).await;
    }
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_host_that_went_makes_nobody_wait() {
    let db = Sqlite::fresh().await;
    write_cold(&db.sqlite(), &(0..4).map(order).collect::<Vec<_>>()).await;
    claim_and_go(&db).await;

    let recorder = Recorder::held();
    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    for _ in 0..4 {
        recorder.started().await;
    }
    assert_eq!(db.number("SELECT sum(starts) FROM outbox_event").await, 0);
    recorder.finish(4);
    host.shutdown().await;
    assert_eq!(db.store().list(&Filter { status: Some(Status::Done), ..Filter::default() }, 10).await.expect("lists").len(), 4);
}

/// Rows that two hosts held when they went.
async fn suspects(db: &Sqlite, envelopes: &[Envelope]) {
    write_cold(&db.sqlite(), envelopes).await;
    claim_and_go(db).await;
    claim_and_go(db).await;
}

/// Has no room for the first six calls.
struct Crowded(AtomicU32);

impl Listener for Crowded {
    fn call<'a>(&'a self, _: Visit<'a>) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        let call = self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if call < 6 { Outcome::Busy { after: Duration::ZERO, reason: "it is full".into() } } else { Outcome::Done }.into()
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_has_no_room_is_not_the_end_of_an_event() {
    let db = Sqlite::fresh().await;
    suspects(&db, &[order(1)]).await;

    let host = outbox(&db).listener(ROUTE, Crowded(AtomicU32::default())).start().await.expect("starts");

    let id = order_id(&db).await;
    eventually("it is done", async || {
        db.let_pass(Duration::from_millis(1)).await;
        row(&db, id).await.status == Status::Done
    })
    .await;
    assert_eq!(row(&db, id).await.starts, 0);
    host.shutdown().await;
}

async fn order_id(db: &Sqlite) -> outbox::EventId {
    db.store().list(&Filter::default(), 1).await.expect("lists")[0].event_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_cut_off_at_every_deploy_is_delivered_by_the_host_that_lets_it_end() {
    let db = Sqlite::fresh().await;
    suspects(&db, &[order(1)]).await;
    let id = order_id(&db).await;
    let hasty = DispatcherConfig { drain_timeout: Duration::ZERO, ..DispatcherConfig::default() };

    for _ in 0..6 {
        let recorder = Recorder::held();
        let host = outbox(&db).dispatcher(hasty.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
        recorder.started().await;
        assert_eq!(row(&db, id).await.starts, 1, "it is with its listener");
        host.shutdown().await;
        assert_eq!((row(&db, id).await.starts, row(&db, id).await.status), (0, Status::New), "the host has outlived it");
    }

    let recorder = Recorder::done();
    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    reaches(&db, id, Status::Done).await;
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_lost_while_an_event_is_alone_counts_nothing_against_it() {
    let db = Sqlite::fresh().await;
    suspects(&db, &[order(1)]).await;
    let id = order_id(&db).await;
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE - LEASE / 10, ..DispatcherConfig::default() };
    let recorder = Recorder::held();
    let host = outbox(&db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    recorder.started().await;

    // By the database's clock its lease ends, and another host takes it.
    eventually("another host has it", async || {
        db.let_pass(LEASE * 2).await;
        claim_all(&db, HOUR).await > 0
    })
    .await;
    eventually("the start is taken back", async || row(&db, id).await.starts == 0).await;
    assert_eq!(row(&db, id).await.status, Status::New);
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_other_routes_are_delivered_between_those_that_are_delivered_alone() {
    let db = Sqlite::fresh().await;
    let suspect = |number: u32| Envelope::new("Suspect").json(&number).expect("a good envelope");
    suspects(&db, &(0..6).map(suspect).collect::<Vec<_>>()).await;
    let recorder = Recorder::held();
    let host = outbox(&db).listener("Suspect", recorder.listener()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");

    let mut started = Vec::new();
    for number in 0..6 {
        started.push(recorder.started().await.route().to_string());
        // Written while one is alone: it waits for that one, and for no other.
        commit(&host, vec![order(number)]).await;
        tokio::time::sleep(Duration::from_millis(400)).await; // so long the others are kept away, and have as long afterwards
        recorder.finish(1);
        started.push(recorder.started().await.route().to_string());
        recorder.finish(1);
    }
    let is_suspect: Vec<bool> = started.iter().map(|route| route.ends_with("/Suspect")).collect();
    assert_eq!(is_suspect, [true, false].repeat(6), "{started:?}");
    done(&db, 12).await;
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_listener_that_blocks_its_thread_keeps_no_other_suspect_in_its_hosts_hands() {
    let db = Sqlite::fresh().await;
    suspects(&db, &[order(0), order(1), order(2), order(3)]).await;
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let listener = move |_: Arc<Event>| {
        // Not a wait of tokio's: nobody can cut this off.
        let _ = held.lock().expect("not poisoned").recv();
        async { Ok(DispatchResult::Done) }
    };
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 10, ..DispatcherConfig::default() };
    let host = outbox(&db).dispatcher(config).listener(ROUTE, listener).start().await.expect("starts");

    eventually("the others are given back", async || {
        let given_back = "SELECT count(*) FROM outbox_event WHERE locked_by IS NULL AND due_at IS NOT NULL";
        db.number(given_back).await == 3
    })
    .await;
    drop(let_go);
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waited_for_the_disk_takes_nothing_from_the_time_that_an_event_has() {
    let (db, store) = Sqlite::on_system_clock().await;
    let host = Outbox::single_node(store.clone()).poller(crate::common::eager()).listener(ROUTE, Recorder::done().listener());
    let host = host.start().await.expect("starts");
    let mut other = db.other_program().acquire().await.expect("a connection");
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *other).await.expect("locks");
    let expires_in = Duration::from_secs(3);
    let insert =
        "INSERT INTO outbox_event (event_type, aggregate_type, payload, expires_at) VALUES ('OrderPlaced', 'Order', '1', ?)";
    let expires_at = SystemClock.now().plus(expires_in + Duration::from_secs(1));
    sqlx::query(insert).bind(expires_at.as_micros()).execute(&mut *other).await.expect("inserts");
    tokio::time::sleep(expires_in).await; // the plan: the poller's claim waits as long as the event has after it, and more
    sqlx::query("COMMIT").execute(&mut *other).await.expect("unlocks");
    drop(other);

    eventually("the event is finished", async || {
        let stats = db.store().stats().await.expect("counts");
        stats.done + stats.dead == 1
    })
    .await;
    let event = &db.store().list(&Filter::default(), 1).await.expect("lists")[0];
    let was_in_time = event.done_at.expect("finished") < expires_at;
    assert!(event.status == Status::Done || !was_in_time, "{event:?}");
    host.shutdown().await;
}
