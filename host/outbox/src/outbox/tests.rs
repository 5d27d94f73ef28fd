//! What only the inside of an outbox shows.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::dispatcher::DispatcherConfig;
use crate::event::{Envelope, Event};
use crate::listener::{DispatchResult, Registration};
use crate::log_lines::LogLines;
use crate::poller::PollerConfig;
use crate::purge::PurgeConfig;
use crate::store::SqliteStore;
use crate::store::sqlite::SqliteOptions;
use crate::time::{Clock, SystemClock, Timestamp};

/// A clock that breaks whoever looks at it, once that is asked for.
#[derive(Default)]
struct Trap {
    clock: SystemClock,
    set: AtomicBool,
}

impl Clock for Trap {
    fn now(&self) -> Timestamp {
        assert!(!self.set.load(Ordering::SeqCst), "on purpose");
        self.clock.now()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_keeper_that_panics_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let trap = Arc::new(Trap::default());
    let options = SqliteOptions::new(directory.path().join("outbox.db")).create(true).clock(trap.clone());
    let store = SqliteStore::open_with(options).await.expect("opens");
    let poller = PollerConfig { interval: Duration::from_secs(3_600), ..PollerConfig::default() };
    let purge = PurgeConfig { enabled: false, ..PurgeConfig::default() };
    let outbox = Outbox::single_node(store).migrate(true).poller(poller).purge(purge).start().await.expect("starts");

    trap.set.store(true, Ordering::SeqCst);
    // A new route is noted in the table, with the time.
    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let registration = Registration::new("OrderPlaced".try_into().expect("a good name"), listener);
    outbox.listeners().add("late", registration).expect("free");

    let breaks = outbox.inner.health.breaks("route keeper");
    tokio::time::timeout(Duration::from_secs(60), breaks).await.expect("it is noticed");
}

/// An outbox on a file of its own, whose poller sleeps after its first look.
async fn drowsy(directory: &std::path::Path) -> OutboxBuilder<SqliteStore> {
    let store = SqliteStore::open_with(SqliteOptions::new(directory.join("outbox.db")).create(true)).await.expect("opens");
    let poller = PollerConfig { interval: Duration::from_secs(3_600), ..PollerConfig::default() };
    let purge = PurgeConfig { enabled: false, ..PurgeConfig::default() };
    Outbox::single_node(store).migrate(true).poller(poller).purge(purge)
}

#[tokio::test]
async fn whoever_only_writes_runs_nothing_in_the_background_however_that_was_said() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let store =
        SqliteStore::open_with(SqliteOptions::new(directory.path().join("outbox.db")).create(true)).await.expect("opens");
    for builder in [Outbox::writer_only(store.clone()), Outbox::builder(store.clone()).mode(Mode::WriterOnly)] {
        let outbox = builder.migrate(true).start().await.expect("starts");

        let running = outbox.inner.running.lock().expect("nobody panics").take().expect("it runs");
        assert!(running.purge.is_none() && running.poller.is_none() && running.dispatcher.is_none());
        assert!(running.heartbeat.is_none() && running.routes.is_none() && running.watchers.is_empty());
        assert_eq!(running.notifiers.len(), 1, "which tells other hosts of what was written, and of nothing else");
    }
    let builder = Outbox::writer_only(store).mode(Mode::SingleNode).migrate(true).start().await.expect("starts");
    assert!(builder.inner.running.lock().expect("nobody panics").as_ref().expect("it runs").purge.is_some());
    builder.shutdown().await;
}

#[tokio::test]
async fn a_poller_is_stuck_when_a_turn_takes_longer_than_its_rest_and_ten_seconds() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let outbox = drowsy(directory.path()).await.start().await.expect("starts");
    let after = |seconds| outbox.inner.monitor.stuck_poller(tokio::time::Instant::now() + Duration::from_secs(seconds));

    assert_eq!(after(3_600), None, "it rests");

    let stuck = after(3_700).expect("it should have looked long ago");
    assert!(stuck.message.contains("has not come to the end of a turn for 3"), "{}", stuck.message);
    outbox.shutdown().await;
}

#[tokio::test]
async fn a_heartbeat_is_stuck_when_none_was_written_for_ten_seconds_longer_than_its_rest() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let outbox = drowsy(directory.path()).await.start().await.expect("starts");
    let after = |seconds| outbox.inner.monitor.stuck_heartbeat(tokio::time::Instant::now() + Duration::from_secs(seconds));

    assert_eq!(after(10), None, "it rests");

    let stuck = after(60).expect("it should have been written long ago");
    assert!(stuck.message.contains("could not be written for "), "{}", stuck.message);
    outbox.shutdown().await;
}

#[tokio::test]
async fn a_heartbeat_that_was_written_is_not_stuck() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let (lease, deadline) = (Duration::from_secs(1), Duration::from_millis(500));
    let dispatcher = DispatcherConfig { lease, deadline, ..DispatcherConfig::default() };
    let outbox = drowsy(directory.path()).await.dispatcher(dispatcher).start().await.expect("starts");
    let later = tokio::time::Instant::now() + Duration::from_secs(12);
    let is_stuck = || outbox.inner.monitor.stuck_heartbeat(later).is_some();
    assert!(is_stuck(), "if none were written until then");

    let written = async {
        while is_stuck() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("they are written");
    outbox.shutdown().await;
}

#[tokio::test]
async fn a_poller_stands_still_when_it_should_have_moved_and_the_database_answers() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let outbox = drowsy(directory.path()).await.start().await.expect("starts");
    let after = |seconds| outbox.standstill_at(tokio::time::Instant::now() + Duration::from_secs(seconds));

    assert_eq!(after(3_700).await, None, "it rests, and may take its time");
    let still = after(3_800).await.expect("it should have moved long ago");
    assert!(still.contains("although the database answers"), "{still}");

    outbox.store().close().await;
    assert_eq!(after(3_800).await, None, "another start would not bring the database back");
    outbox.shutdown().await;
    assert_eq!(after(3_800).await, None, "it stops");
}

#[tokio::test]
async fn a_part_that_has_broken_makes_the_host_unready() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let outbox = drowsy(directory.path()).await.start().await.expect("starts");
    assert!(outbox.readiness().is_ready(), "{:?}", outbox.readiness());

    let broken = tokio::spawn(outbox.inner.health.clone().watched("settler", async { panic!("on purpose") }));

    assert!(broken.await.is_err());
    let readiness = outbox.readiness();
    let [reason] = readiness.reasons() else { panic!("{readiness:?}") };
    assert_eq!(reason.code, crate::readiness::UnreadyCode::PartBroken);
    assert!(reason.message.contains("the settler of the host has broken"), "{}", reason.message);
    assert_eq!(outbox.standstill().await.as_ref(), Some(&reason.message), "and only another start helps");
    outbox.shutdown().await;
}

#[cfg(feature = "otel")]
#[tokio::test]
async fn an_exporter_that_panics_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let config = crate::telemetry::TelemetryConfig::default();
    let telemetry = crate::telemetry::Telemetry::start(&config).expect("nothing is exported");
    let outbox = drowsy(directory.path()).await.telemetry(&telemetry).start().await.expect("starts");

    let exporter = telemetry.health().spawn("exporter of spans", async { panic!("on purpose") });

    assert!(exporter.await.is_err());
    let breaks = outbox.inner.health.breaks("exporter of spans");
    tokio::time::timeout(Duration::from_secs(60), breaks).await.expect("it is noticed");
    outbox.shutdown().await;
}

#[tokio::test]
async fn the_first_event_that_finds_the_hot_queue_full_is_a_warning_and_the_next_ones_are_only_counted() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let lines = LogLines::of_this_thread();
    let (entered, mut started) = tokio::sync::mpsc::unbounded_channel();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let listener = {
        let gate = gate.clone();
        move |_: Arc<Event>| {
            let (gate, entered) = (gate.clone(), entered.clone());
            async move {
                entered.send(()).expect("the test listens");
                gate.acquire().await.expect("never closed").forget();
                Ok(DispatchResult::Done)
            }
        }
    };
    let config = DispatcherConfig { workers: 1, hot_queue: 1, ..DispatcherConfig::default() };
    let builder = drowsy(directory.path()).await.dispatcher(config).listener(("Order", "OrderPlaced"), listener);
    let outbox = builder.start().await.expect("starts");
    let write = async |count: u32| {
        let order = |number| Envelope::new("OrderPlaced").aggregate("Order", "1").json(&number).expect("good");
        let mut transaction = outbox.begin().await.expect("begins");
        let ids = transaction.write_all((0..count).map(order).collect()).await.expect("writes");
        transaction.commit().await.expect("commits");
        ids
    };
    write(1).await;
    started.recv().await.expect("the listener is called");

    let ids = write(4).await;

    let counts = outbox.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.hot_dropped), (2, 3));
    let said: Vec<String> = lines.containing("the hot queue is full");
    let [warning] = &said[..] else { panic!("one for all of them: {said:#?}") };
    let route = "route=Order/OrderPlaced";
    assert!(warning.starts_with("WARN ") && warning.contains(route) && warning.contains("dropped_total=1"), "{warning}");
    assert!(warning.contains(&format!("event.id={}", ids[1])), "the first that found no room: {warning}");
    gate.add_permits(100);
    outbox.shutdown().await;
}
