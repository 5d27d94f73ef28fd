//! Starting, stopping, modes, and several hosts at once.

use std::time::Duration;

use outbox::dead::ReplayLimits;
use outbox::dispatcher::DispatcherConfig;
use outbox::listener::Fixed;
use outbox::poller::PollerConfig;
use outbox::purge::PurgeConfig;
use outbox::store::{Audit, InspectStore, NodeStore, WriteStore};
use outbox::{Envelope, EventId, Failure, Mode, Outbox, StartError, Status, StoreError};
use support::{Harness, Ledger, Recorder, Report, Sqlite, eventually};

use crate::common::{
    HOUR, ROUTE, commit, commit_one, done, drowsy, eager, one_worker, order, orders, outbox, reaches, row, start_rested,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_a_configuration_is_reported_at_once() {
    let db = Sqlite::fresh().await;

    let error = outbox(&db)
        .dispatcher(DispatcherConfig { workers: 0, max_attempts: 0, deadline: HOUR, ..DispatcherConfig::default() })
        .poller(PollerConfig { batch_size: 0, ..PollerConfig::default() })
        .purge(PurgeConfig { interval: Duration::ZERO, ..PurgeConfig::default() })
        .start()
        .await
        .expect_err("refused");

    let StartError::Config(faults) = &error else { panic!("{error:?}") };
    assert_eq!(faults.len(), 5, "{faults:?}");
    for part in [
        "dispatcher.workers is 0",
        "dispatcher.max_attempts is 0",
        "dispatcher.deadline",
        "poller.batch_size",
        "purge.interval",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_schema_is_an_error_unless_migration_is_asked_for() {
    let db = Sqlite::fresh().await;
    while db.store().migrate_down().await.expect("takes the schema away").is_some() {}

    let error = outbox(&db).start().await.expect_err("refused");
    assert!(matches!(error, StartError::Store(StoreError::NoSchema { .. })), "{error:?}");

    let outbox = outbox(&db).migrate(true).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    reaches(&db, id, Status::Done).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_index_of_the_mode_is_an_error_unless_migration_is_asked_for() {
    for (mode, index) in [(Mode::Ordered, "ordered"), (Mode::OrderedByAggregate, "ordered_by_aggregate")] {
        let db = Sqlite::fresh().await;
        while db.store().migrate_down().await.expect("takes the schema away").is_some() {}
        db.store().migrate_up().await.expect("migrates");

        let error = outbox(&db).mode(mode).start().await.expect_err("refused");
        let StartError::Store(StoreError::NoIndex { index: missing, .. }) = &error else { panic!("{error:?}") };
        assert_eq!(*missing, index);

        let listener = Recorder::done().listener();
        let outbox = outbox(&db).mode(mode).migrate(true).listener(ROUTE, listener).start().await.expect("starts");
        let id = commit_one(&outbox).await;
        reaches(&db, id, Status::Done).await;
        outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_finishes_what_is_queued() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = outbox(&db).dispatcher(one_worker()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    commit(&outbox, orders(20)).await;
    recorder.started().await;

    let stopping = tokio::spawn(outbox.shutdown());
    recorder.finish(100);
    support::in_time("the shutdown ends", stopping).await.expect("does not panic");

    let stats = db.sqlite().stats().await.expect("counts");
    assert_eq!((stats.done, stats.new, stats.in_flight), (20, 0, 0));
    assert_eq!(recorder.count(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_gives_back_what_it_could_not_finish() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(100), ..one_worker() };
    let first = outbox(&db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let ids = commit(&first, orders(5)).await;
    recorder.started().await;

    support::in_time("the shutdown ends", first.shutdown()).await;

    for id in &ids {
        let record = row(&db, *id).await;
        assert_eq!((record.status, record.attempts, record.claims), (Status::New, 0, 0), "nothing is counted");
        assert_eq!((record.locked_by, record.locked_at), (None, None));
        assert!(record.due_at.expect("it waits") <= db.now().await, "due again at once");
    }
    let second = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, second.listener()).start().await.expect("starts");
    done(&db, 5).await;
    assert_eq!(second.count(), 5);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_an_outbox_dropped_without_a_shutdown_end_with_their_lease() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let builder = outbox(&db).poller(drowsy()).dispatcher(one_worker()).listener(ROUTE, recorder.listener());
    // Its poller sleeps: a claim that is on its way when it is dropped would take the events once more.
    let first = start_rested(&db, builder).await;
    let writer = first.writer().clone();
    commit(&first, orders(3)).await;
    recorder.started().await;
    drop(first);

    assert!(matches!(writer.emit(orders(1)).await, Err(outbox::WriteError::Stopped)));
    db.let_pass(Duration::from_secs(31)).await;
    let next = Recorder::done();
    let second = outbox(&db).listener(ROUTE, next.listener()).start().await.expect("starts");

    // With the one of the start.
    done(&db, 4).await;
    assert_eq!((recorder.count(), next.count()), (1, 3));
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_mode_keeps_the_order_of_insertion_and_tries_once() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|event| match event.aggregate_id() {
        Some("3") => Err(Failure::retryable("no luck")),
        _ => Ok(outbox::DispatchResult::Done),
    });
    let outbox =
        Outbox::ordered(db.sqlite()).poller(eager()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut written = Vec::new();
    for chunk in 0..20 {
        written.extend(commit(&outbox, (chunk * 10..chunk * 10 + 10).map(order).collect()).await);
    }

    done(&db, 199).await;
    assert_eq!(recorder.ids(), written);
    assert_eq!(reaches(&db, written[3], Status::Dead).await.attempts, 1, "one attempt");
    assert_eq!(outbox.metrics().counts().hot_enqueued, 0, "by the poller only");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_only_dispatches_nothing_and_leaves_its_rows_to_others() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let writer = Outbox::writer_only(db.sqlite()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let id = commit_one(&writer).await;

    let record = row(&db, id).await;
    assert_eq!((record.status, record.locked_by, record.claims), (Status::New, None, 0), "anybody may take it at once");
    assert!(db.sqlite().nodes().await.expect("lists").is_empty(), "who only writes is no node");
    let other = Recorder::done();
    let host = outbox(&db).listener(ROUTE, other.listener()).start().await.expect("starts");
    reaches(&db, id, Status::Done).await;
    assert_eq!((recorder.count(), other.count()), (0, 1));
    host.shutdown().await;
    writer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_on_one_database_deliver_two_thousand_events_exactly_once() {
    let (db, store) = Sqlite::on_system_clock().await;
    let recorder = Recorder::done();
    let mut hosts = Vec::new();
    for store in [store.clone(), db.second_store(std::sync::Arc::new(outbox::time::SystemClock)).await] {
        let host = Outbox::multi_node(store).poller(eager()).listener(ROUTE, recorder.listener()).start().await;
        hosts.push(host.expect("starts"));
    }
    let mut ledger = Ledger::default();

    // Hot on both, and cold: rows that no host wrote.
    for round in 0..10 {
        for host in &hosts {
            ledger.committed(commit(host, orders(75)).await);
        }
        let mut doomed = hosts[round % 2].begin().await.expect("begins");
        ledger.rolled_back(doomed.write_all(orders(5)).await.expect("writes"));
        doomed.rollback().await.expect("rolls back");
        let plain: Vec<Envelope> = orders(50);
        let rows: Vec<_> = plain.iter().map(|envelope| outbox::store::NewRow { envelope, claimed: false }).collect();
        let nobody = outbox::store::Ownership { owner: outbox::event::OwnerId::generate("producer"), lease: HOUR };
        store.write(&rows, &nobody).await.expect("writes");
        ledger.committed(plain.iter().map(Envelope::id));
    }

    done(&db, 2_000).await;
    for host in hosts {
        assert_eq!(host.metrics().counts().fenced_outcomes, 0);
        host.shutdown().await;
    }
    assert_eq!(ledger.compare(recorder.ids()), Report::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_are_brought_back_together() {
    let db = Sqlite::fresh().await;
    let fixed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switch = fixed.clone();
    let recorder = Recorder::answering(move |_| {
        if switch.load(std::sync::atomic::Ordering::SeqCst) {
            Ok(outbox::DispatchResult::Done)
        } else {
            Err(Failure::unrecoverable("no"))
        }
    });
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let ids = commit(&outbox, orders(25)).await;
    let filter = outbox::store::DeadFilter::default();
    eventually("all are dead", async || outbox.dead().count(&filter).await.expect("counts") == 25).await;

    fixed.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(outbox.dead().replay(ids[0], &Audit::by("tester")).await.expect("replays"));
    reaches(&db, ids[0], Status::Done).await;
    // Dead by a clock that is a minute ahead of the host's: what `replay_all` takes is dead by the host's clock.
    db.execute("UPDATE outbox_event SET done_at = done_at - 120000000 WHERE status = 3").await;
    let mut progress = Vec::new();
    let limits = ReplayLimits { batch_size: 10, ..ReplayLimits::default() };
    let by = Audit::by("tester");
    let replayed = outbox.dead().replay_all(&filter, &limits, &by, |so_far| progress.push(so_far)).await.expect("replays");

    assert_eq!((replayed.count, progress), (24, vec![10, 20, 24]));
    done(&db, 25).await;
    let replays: i64 = db.number("SELECT sum(replays) FROM outbox_event").await;
    assert_eq!((replays, outbox.dead().count(&filter).await.expect("counts")), (25, 0));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counters_tell_what_happened() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|event| match (event.aggregate_id(), event.attempt()) {
        (Some("1"), 1) => Err(Failure::retryable("no luck")),
        (Some("2"), _) => Err(Failure::unrecoverable("never")),
        _ => Ok(outbox::DispatchResult::Done),
    });
    let outbox = outbox(&db).retry(Fixed(Duration::ZERO)).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let ids: Vec<EventId> = commit(&outbox, orders(3)).await;

    for (id, status) in ids.iter().zip([Status::Done, Status::Done, Status::Dead]) {
        reaches(&db, *id, status).await;
    }
    let counts = outbox.metrics().counts();
    assert_eq!((counts.events_written, counts.hot_enqueued, counts.cold_enqueued), (3, 3, 1));
    assert_eq!((counts.dispatch_success, counts.dispatch_failure, counts.dispatch_dead), (2, 1, 1));
    assert_eq!((counts.fenced_outcomes, counts.leases_lost, counts.db_errors), (0, 0, 0));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_absurd_delay_does_not_stop_the_others() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|event| match event.aggregate_id() {
        Some("0") => Ok(outbox::DispatchResult::RetryAfter(Duration::MAX)),
        _ => Ok(outbox::DispatchResult::Done),
    });
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let absurd = commit(&outbox, orders(1)).await[0];
    eventually("the deferral is stored", async || row(&db, absurd).await.deferrals == 1).await;
    db.execute(
        "INSERT INTO outbox_event (event_id, aggregate_type, event_type, payload) VALUES ('cold', 'Order', 'OrderPlaced', '1')",
    )
    .await;

    reaches(&db, "cold".parse().expect("an id"), Status::Done).await;
    assert_eq!(outbox.metrics().counts().db_errors, 0);
    outbox.shutdown().await;
}
