//! Listeners that have no free place, and aggregates that are slow: nobody else waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::{InspectStore, NewRow, Ownership, WriteStore};
use outbox::{DispatchResult, Envelope, Event, EventId, Failure, Outbox, Registration, SqliteStore, Status};
use support::{Harness, Recorder, Sqlite, eventually};
use tokio::sync::Semaphore;

use crate::common::{HOUR, ROUTE, at_rest, commit, done, eager, order, orders, outbox, reaches, row};

/// A listener that takes at most this many events at once.
fn bounded(recorder: &Recorder, calls: usize) -> Registration {
    Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).concurrency(calls)
}

fn workers(workers: usize) -> DispatcherConfig {
    DispatcherConfig { workers, ..DispatcherConfig::default() }
}

fn others(count: u32) -> Vec<Envelope> {
    (0..count).map(|number| Envelope::new("Other").json(&number).expect("a good envelope")).collect()
}

/// Events that only the poller can find.
async fn insert(store: &SqliteStore, envelopes: &[Envelope]) -> Vec<EventId> {
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    store.write(&rows, &nobody).await.expect("writes");
    envelopes.iter().map(Envelope::id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_waited_for_a_place_has_all_of_its_deadline() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let slow = bounded(&recorder, 1).deadline(Duration::from_secs(2));
    let outbox = outbox(&db).dispatcher(workers(2)).registration(slow).start().await.expect("starts");

    let ids = commit(&outbox, orders(2)).await;
    let first = recorder.started().await.id();
    // The first keeps the only place until its deadline cuts it off.
    let second = recorder.started().await.id();
    recorder.finish(1);

    assert_eq!(reaches(&db, first, Status::Retry).await.attempts, 1);
    let record = reaches(&db, second, Status::Done).await;
    assert_eq!((record.attempts, record.last_error), (0, None));
    assert!(ids.contains(&first) && ids.contains(&second) && first != second);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_waits_for_a_place_keeps_no_worker_from_others() {
    let db = Sqlite::fresh().await;
    let (slow, quick) = (Recorder::held(), Recorder::done());
    let outbox = outbox(&db)
        .dispatcher(workers(2))
        .registration(bounded(&slow, 1))
        .listener("Other", quick.listener())
        .start()
        .await
        .expect("starts");

    commit(&outbox, orders(2)).await;
    slow.started().await;
    commit(&outbox, others(40)).await;

    done(&db, 40).await;
    assert_eq!((slow.count(), quick.count()), (1, 40));
    slow.finish(2);
    done(&db, 42).await;
    assert_eq!(slow.count(), 2);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_listeners_that_wait_with_half_of_the_workers_each_starve_no_third_one() {
    let db = Sqlite::fresh().await;
    let (first, second, third) = (Recorder::held(), Recorder::held(), Recorder::done());
    let half = |name: &str, recorder: &Recorder| {
        Registration::new(name.try_into().expect("good names"), recorder.listener()).concurrency(8)
    };
    let outbox = outbox(&db)
        .dispatcher(DispatcherConfig { deadline: HOUR, lease: HOUR * 2, ..workers(16) })
        .registration(half("First", &first))
        .registration(half("Second", &second))
        .registration(half("Other", &third))
        .start()
        .await
        .expect("starts");
    let events = |name: &str| (0..8).map(|number| Envelope::new(name).json(&number).expect("good")).collect::<Vec<_>>();

    commit(&outbox, [events("First"), events("Second")].concat()).await;
    eventually("the two have all workers that they get", async || first.count() + second.count() >= 14).await;
    commit(&outbox, others(40)).await;

    done(&db, 40).await;
    assert_eq!(third.count(), 40);
    assert_eq!(first.count() + second.count(), 14, "no call of the two has ended, and none was begun");
    first.finish(8);
    second.finish(8);
    done(&db, 56).await;
    outbox.shutdown().await;
}

/// Lets others run, as a plugin does when it computes for long: woken before it has returned.
async fn give_way() {
    let mut gave_way = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How long a call waits for its listener to be allowed one more computing call. Source: `host/outbox/src/dispatcher/presence.rs`.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Calls that wait at a gate, and then compute until they may end.
struct Busy {
    gate: Semaphore,
    waiting: AtomicUsize,
    computing: AtomicUsize,
    /// The most that computed at once.
    most: AtomicUsize,
    may_end: AtomicBool,
}

impl Busy {
    async fn call(self: Arc<Self>) -> Result<DispatchResult, Failure> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.expect("never closed").forget();
        self.most.fetch_max(self.computing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // It gives way to others, and waits for nothing.
        while !self.may_end.load(Ordering::SeqCst) {
            give_way().await;
        }
        self.computing.fetch_sub(1, Ordering::SeqCst);
        Ok(DispatchResult::Done)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_waited_and_then_compute_are_no_more_at_once_than_there_are_threads() {
    let db = Sqlite::fresh().await;
    let busy = Arc::new(Busy {
        gate: Semaphore::new(0),
        waiting: AtomicUsize::new(0),
        computing: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        may_end: AtomicBool::new(false),
    });
    let listener = {
        let busy = busy.clone();
        move |_: Arc<Event>| busy.clone().call()
    };
    let quick = Recorder::done();
    let outbox = outbox(&db)
        .dispatcher(DispatcherConfig { deadline: HOUR, lease: HOUR * 2, ..workers(16) })
        .registration(Registration::new(ROUTE.try_into().expect("good names"), listener).concurrency(8))
        .listener("Other", quick.listener())
        .start()
        .await
        .expect("starts");

    commit(&outbox, orders(8)).await;
    eventually("all wait", async || busy.waiting.load(Ordering::SeqCst) == 8).await;
    let opened = Instant::now();
    busy.gate.add_permits(8);
    eventually("as many compute as may", async || busy.most.load(Ordering::SeqCst) >= 2).await;
    commit(&outbox, others(40)).await;

    done(&db, 40).await;
    let most = busy.most.load(Ordering::SeqCst);
    // On a busy machine this may be later than the others wait.
    if opened.elapsed() < LONGEST_WAIT {
        assert_eq!(most, 2, "the others wait until one of them has ended");
    }
    busy.may_end.store(true, Ordering::SeqCst);
    done(&db, 48).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_events_that_wait_for_one_listener_delay_no_other_route() {
    let db = Sqlite::fresh().await;
    let (slow, quick) = (Recorder::held(), Recorder::done());
    let config = DispatcherConfig { deadline: HOUR, lease: HOUR * 2, ..workers(4) };
    let outbox = outbox(&db)
        .dispatcher(config)
        .registration(bounded(&slow, 2))
        .listener("Other", quick.listener())
        .start()
        .await
        .expect("starts");

    // As many as both queues hold, hot and cold.
    commit(&outbox, orders(1_000)).await;
    insert(&db.sqlite(), &orders(1_000)).await;
    eventually("all are in the host's hands", async || outbox.in_flight() == 2_000).await;
    for round in 1..=20 {
        commit(&outbox, others(1)).await;
        insert(&db.sqlite(), &others(1)).await;
        done(&db, round * 2).await;
    }

    assert_eq!((slow.count(), quick.count()), (2, 40), "no slow call has ended, and no third was begun");
    assert_eq!(outbox.metrics().counts().dispatch_released, 0, "what waits stays in hand");
    slow.finish(2_000);
    done(&db, 2_040).await;
    assert_eq!(slow.count(), 2_000, "each once");
    at_rest(&outbox).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_events_of_a_sleeping_listener_than_a_host_can_hold_stay_in_the_table_as_they_are() {
    let (db, store) = Sqlite::on_system_clock().await;
    let (slow, quick) = (Recorder::held(), Recorder::done());
    let config =
        DispatcherConfig { hot_queue: 20, cold_queue: 20, deadline: Duration::from_secs(3_000), lease: HOUR, ..workers(4) };
    let outbox = Outbox::single_node(store.clone())
        .poller(eager())
        .dispatcher(config)
        .registration(bounded(&slow, 2))
        .listener("Other", quick.listener())
        .start()
        .await
        .expect("starts");

    let waiting = insert(&store, &orders(400)).await;
    slow.started().await;
    insert(&store, &others(40)).await;

    done(&db, 40).await;
    assert_eq!((slow.count(), quick.count()), (2, 40), "no slow call has ended");
    // What was read just when the listener turned out to be slow may have gone back.
    let outcomes = db.number("SELECT sum(claim_seq) FROM outbox_event WHERE event_type <> 'Other'").await;
    assert!(outcomes <= 40, "{outcomes} outcomes of 400 events, of which none has ended");
    assert!(outbox.in_flight() < 100, "{} in hand", outbox.in_flight());
    let record = row(&db, waiting[399]).await;
    assert_eq!((record.status, record.attempts, record.claims), (Status::New, 0, 0), "nothing is counted");

    slow.finish(400);
    done(&db, 440).await;
    assert_eq!(slow.count(), 400, "each once");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_gives_back_what_waits_for_a_place() {
    let db = Sqlite::fresh().await;
    let slow = Recorder::held();
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(100), ..workers(2) };
    let outbox = outbox(&db).dispatcher(config).registration(bounded(&slow, 1)).start().await.expect("starts");
    let ids = commit(&outbox, orders(10)).await;
    slow.started().await;

    support::in_time("the shutdown ends", outbox.shutdown()).await;

    for id in &ids {
        let record = row(&db, *id).await;
        assert_eq!((record.status, record.attempts, record.claims), (Status::New, 0, 0), "nothing is counted");
        assert_eq!(record.locked_by, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_finishes_what_waits_for_a_place() {
    let db = Sqlite::fresh().await;
    let slow = Recorder::held();
    let outbox = outbox(&db).dispatcher(workers(4)).registration(bounded(&slow, 1)).start().await.expect("starts");
    commit(&outbox, orders(20)).await;
    slow.started().await;

    let stopping = tokio::spawn(outbox.shutdown());
    slow.finish(20);
    support::in_time("the shutdown ends", stopping).await.expect("does not panic");

    assert_eq!(db.sqlite().stats().await.expect("counts").done, 20);
    assert_eq!(slow.count(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_wait_for_a_place_are_parked_when_their_listener_goes_away() {
    // An event that was parked may be given back to time by a poller that saw the listener last, and steps back for a second when
    // it is claimed too soon: time must go on.
    let (db, store) = Sqlite::on_system_clock().await;
    let (slow, quick) = (Recorder::held(), Recorder::done());
    let outbox = Outbox::single_node(store).poller(eager()).dispatcher(workers(2)).listener("Other", quick.listener());
    let outbox = outbox.start().await.expect("starts");
    outbox.listeners().replace("plugin", vec![bounded(&slow, 1)]).expect("free");
    let ids = commit(&outbox, orders(10)).await;
    let first = slow.started().await.id();
    // The only free worker comes to this one when it has let the nine before it wait. One that it had found the listener for, but
    // no place yet, would be called when the first has ended.
    commit(&outbox, others(1)).await;
    quick.started().await;

    outbox.listeners().remove("plugin");
    slow.finish(1);

    reaches(&db, first, Status::Done).await;
    for id in ids.into_iter().filter(|id| *id != first) {
        eventually("the event is parked", async || row(&db, id).await.parked.is_some()).await;
    }
    assert_eq!(slow.count(), 1, "nobody called a listener that was gone");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dozen_slow_aggregates_leave_room_for_the_others() {
    let (db, store) = Sqlite::on_system_clock().await;
    let (slow, quick) = (Recorder::held(), Recorder::done());
    let config = DispatcherConfig { deadline: Duration::from_secs(3_000), lease: HOUR, ..workers(16) };
    let outbox = Outbox::ordered_by_aggregate(store)
        .poller(eager())
        .dispatcher(config)
        .listener(ROUTE, slow.listener())
        .listener(("Other", "Other"), quick.listener())
        .start()
        .await
        .expect("starts");
    let other = |number: u32| Envelope::new("Other").aggregate("Other", number.to_string()).json(&number).expect("good");

    commit(&outbox, (0..100).flat_map(|_| (0..12).map(order)).collect()).await;
    for _ in 0..12 {
        slow.started().await;
    }
    commit(&outbox, (0..40).map(other).collect()).await;

    done(&db, 40).await;
    assert_eq!((slow.count(), quick.count()), (12, 40), "no slow call has ended");
    slow.finish(1_200);
    done(&db, 1_240).await;
    assert_eq!(slow.count(), 1_200, "each once");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_event_is_not_forgotten_while_the_poller_works_on_a_backlog() {
    let db = Sqlite::fresh().await;
    let slow = |_: Arc<Event>| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(DispatchResult::Done)
    };
    insert(&db.sqlite(), &orders(4_000)).await;
    let outbox = outbox(&db).dispatcher(workers(1)).listener(ROUTE, slow).listener("Other", Recorder::done().listener());
    let outbox = outbox.start().await.expect("starts");
    eventually("it works on the backlog", async || db.store().stats().await.expect("counts").done > 0).await;

    // By another host, which has no listener for it yet. It has been due for longer than the backlog.
    let id = insert(&db.sqlite(), &others(1)).await[0];
    let parked = format!(
        "UPDATE outbox_event SET parked = 'nobody is there', due_at = NULL, available_at = available_at - 3600000000 \
         WHERE event_id = '{id}'"
    );
    assert_eq!(db.execute(&parked).await, 1);

    reaches(&db, id, Status::Done).await;
    assert!(db.store().stats().await.expect("counts").done < 4_000, "the backlog is not done yet");
    outbox.shutdown().await;
}
