//! Order: one event of an aggregate after the other, over workers and hosts, whatever fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::listener::Fixed;
use outbox::order::{OnDead, OrderConfig};
use outbox::purge::{OnDone, PurgeConfig};
use outbox::readiness::UnreadyCode;
use outbox::store::{Audit, InspectStore, NodeStore, RouteStore, SharedStore};
use outbox::{DispatchResult, Envelope, Event, Failure, Outbox, OutboxBuilder, Route, Status};
use support::{Database, Postgres, Recorder, eventually, in_time};

use crate::common::{ROUTE, at_rest, commit, done, eager, order, outbox as unordered, reaches, row, rows};

const MOMENT: Duration = Duration::from_millis(5);

/// A host that keeps the order of aggregates, on the system's clock, and tries failed events again after a moment.
fn ordered<S: SharedStore>(store: S) -> OutboxBuilder<S> {
    let three = DispatcherConfig { max_attempts: 3, ..DispatcherConfig::default() };
    Outbox::ordered_by_aggregate(store).poller(eager()).retry(Fixed(MOMENT)).dispatcher(three)
}

/// Hosts that notice each other soon: they say that they are alive ten times in a lease.
fn quick() -> DispatcherConfig {
    DispatcherConfig { lease: Duration::from_secs(12), deadline: Duration::from_secs(6), ..DispatcherConfig::default() }
}

/// `rounds` events for each of `aggregates` aggregates, in turns.
fn rounds_of(aggregates: u32, rounds: u32) -> Vec<Envelope> {
    (0..rounds).flat_map(|_| (0..aggregates).map(order)).collect()
}

/// What was delivered of each aggregate, by `seq`, repeats included.
fn by_aggregate(calls: &[Arc<Event>]) -> BTreeMap<String, Vec<u64>> {
    let mut queues: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in calls {
        queues.entry(event.aggregate_id().expect("it has one").to_owned()).or_default().push(event.sequence());
    }
    queues
}

/// A listener that fails now and then, by the event and its attempt alone, so that every run fails alike.
fn flaky() -> Recorder {
    Recorder::answering(|event| {
        if event.attempt() == 1 && event.sequence() % 7 == 0 {
            Err(Failure::retryable("flaky"))
        } else {
            Ok(DispatchResult::Done)
        }
    })
}

pub(crate) async fn events_of_one_aggregate_are_delivered_in_order_though_some_fail<D: Database>(db: &D) {
    let store = db.another().await;
    let recorder = flaky();
    let host = ordered(store).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    commit(&host, rounds_of(20, 30)).await;

    done(db, 600).await;
    for (aggregate, seqs) in by_aggregate(&recorder.calls()) {
        assert!(seqs.is_sorted(), "a failed one is tried again before the next: {aggregate}: {seqs:?}");
        assert_eq!(seqs.iter().collect::<BTreeSet<_>>().len(), 30);
    }
    host.shutdown().await;
}

pub(crate) async fn two_events_of_one_aggregate_are_never_with_a_listener_at_once<D: Database>(db: &D) {
    let store = db.another().await;
    let (held, free) = (Recorder::held(), Recorder::done());
    let host = ordered(store).workers(8);
    let host = host.listener(ROUTE, held.listener()).listener(("Order", "Other"), free.listener());
    let host = host.start().await.expect("starts");

    commit(&host, rounds_of(3, 10)).await;

    for round in 1..=10 {
        let mut at_work = BTreeSet::new();
        for _ in 0..3 {
            at_work.insert(held.started().await.aggregate_id().expect("it has one").to_owned());
        }
        assert_eq!(at_work.len(), 3, "one of each: {at_work:?}");
        // Five workers are free: a later event passes the earlier ones, which therefore wait for their turn and nothing else.
        let other = Envelope::new("Other").aggregate("Order", "free").json(&round).expect("good");
        let id = commit(&host, vec![other]).await[0];
        reaches(db, id, Status::Done).await;
        assert_eq!(held.count(), 3 * round);
        held.finish(3);
    }
    done(db, 40).await;
    assert!(by_aggregate(&held.calls()).values().all(|seqs| seqs.is_sorted() && seqs.len() == 10));
    host.shutdown().await;
}

pub(crate) async fn one_busy_aggregate_does_not_keep_the_others_waiting<D: Database>(db: &D) {
    let store = db.another().await;
    let (slow, recorder) = (Recorder::held(), Recorder::done());
    let brief = DispatcherConfig { drain_timeout: MOMENT, ..DispatcherConfig::default() };
    let host = ordered(store).dispatcher(brief);
    let host = host.listener(ROUTE, slow.listener()).listener(("Order", "Other"), recorder.listener());
    let host = host.start().await.expect("starts");
    commit(&host, (0..2_000).map(|_| order(1)).collect()).await;
    slow.started().await;

    let other = Envelope::new("Other").aggregate("Order", "2").json(&1).expect("good");
    let id = commit(&host, vec![other]).await[0];

    reaches(db, id, Status::Done).await;
    assert_eq!(slow.count(), 1, "one at a time");
    // More than wait in one key queue; all two thousand, one after the other, would take a busy machine minutes.
    slow.finish(200);
    done(db, 201).await;
    in_time("the stop waits for no key queue", host.shutdown()).await;
    assert!(by_aggregate(&slow.calls())["1"].is_sorted());
}

pub(crate) async fn a_dead_event_blocks_its_aggregate_until_it_is_skipped_or_replayed<D: Database>(db: &D) {
    let store = db.another().await;
    let fixed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let switch = fixed.clone();
    let recorder = Recorder::answering(move |event| {
        let fails = event.payload::<u32>().expect("a number") == 1 && !switch.load(std::sync::atomic::Ordering::SeqCst);
        if fails { Err(Failure::unrecoverable("no")) } else { Ok(DispatchResult::Done) }
    });
    let host = ordered(store.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let numbered =
        |aggregate: &str, number: u32| Envelope::new("OrderPlaced").aggregate("Order", aggregate).json(&number).expect("good");
    let first = commit(&host, vec![numbered("a", 1), numbered("a", 2), numbered("a", 3), numbered("free", 0)]).await;
    let second = commit(&host, vec![numbered("b", 1), numbered("b", 2)]).await;

    reaches(db, first[0], Status::Dead).await;
    reaches(db, first[3], Status::Done).await;
    reaches(db, second[0], Status::Dead).await;
    eventually("three wait behind", async || store.stats().await.expect("counts").blocked == 3).await;
    assert!(row(db, first[0]).await.blocks);

    assert!(host.dead().skip(first[0], &Audit::by("tester")).await.expect("skips"));
    reaches(db, first[2], Status::Done).await;
    assert_eq!(row(db, first[0]).await.status, Status::Dead);
    assert_eq!(row(db, second[1]).await.status, Status::New, "the other aggregate waits on");

    fixed.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(host.dead().replay(second[0], &Audit::by("tester")).await.expect("replays"));
    reaches(db, second[1], Status::Done).await;
    assert!(by_aggregate(&recorder.calls())["b"].is_sorted(), "the replayed one first");
    host.shutdown().await;
}

pub(crate) async fn a_dead_event_is_passed_by_when_that_is_asked_for<D: Database>(db: &D) {
    let store = db.another().await;
    let recorder = Recorder::answering(|event| match event.payload::<u32>().expect("a number") {
        1 => Err(Failure::retryable("no")),
        _ => Ok(DispatchResult::Done),
    });
    let skip = OrderConfig { on_dead: OnDead::Skip, ..OrderConfig::default() };
    let host = ordered(store).order(skip).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let numbered = |number: u32| Envelope::new("OrderPlaced").aggregate("Order", "a").json(&number).expect("good");

    let ids = commit(&host, vec![numbered(1), numbered(2)]).await;

    reaches(db, ids[1], Status::Done).await;
    let died = row(db, ids[0]).await;
    assert_eq!((died.status, died.blocks, died.attempts), (Status::Dead, false, 3));
    assert!(by_aggregate(&recorder.calls())["a"].is_sorted(), "not before it was given up");
    host.shutdown().await;
}

pub(crate) async fn a_failed_event_is_overtaken_when_that_is_asked_for<D: Database>(db: &D) {
    let store = db.another().await;
    let recorder = Recorder::answering(|event| match event.payload::<u32>().expect("a number") {
        1 => Err(Failure::retryable_after(Duration::from_secs(3_600), "later")),
        _ => Ok(DispatchResult::Done),
    });
    let overtake = OrderConfig { stop_on_first_failure: false, ..OrderConfig::default() };
    let host = ordered(store).order(overtake).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let numbered = |number: u32| Envelope::new("OrderPlaced").aggregate("Order", "a").json(&number).expect("good");

    let ids = commit(&host, vec![numbered(1), numbered(2), numbered(3)]).await;

    reaches(db, ids[2], Status::Done).await;
    assert_eq!(row(db, ids[0]).await.status, Status::Retry);
    host.shutdown().await;
}

pub(crate) async fn hosts_share_the_aggregates_and_take_over_from_one_that_leaves<D: Database>(db: &D) {
    let store = db.another().await;
    let recorder = flaky();
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let store = db.another().await;
        hosts.push(ordered(store).dispatcher(quick()).listener(ROUTE, recorder.listener()).start().await.expect("starts"));
    }
    eventually("each has its share of the partitions", async || {
        let nodes = store.nodes().await.expect("lists");
        nodes.len() == 3 && nodes.iter().all(|node| (80..=90).contains(&node.partitions))
    })
    .await;

    commit(&hosts[0], rounds_of(30, 10)).await;
    let leaving = hosts.pop().expect("three hosts");
    leaving.shutdown().await;
    commit(&hosts[0], rounds_of(30, 10)).await;

    done(db, 600).await;
    for (aggregate, seqs) in by_aggregate(&recorder.calls()) {
        assert!(seqs.is_sorted(), "{aggregate}: {seqs:?}");
    }
    assert_eq!(store.nodes().await.expect("lists").len(), 2);
    for host in hosts {
        assert_eq!(host.metrics().counts().fenced_outcomes, 0);
        host.shutdown().await;
    }
}

pub(crate) async fn what_waits_for_its_aggregate_does_not_keep_partitions_from_another_host<D: Database>(db: &D) {
    let (first_calls, second_calls) = (Recorder::held(), Recorder::done());
    // The other host delivers while the first call lasts. A call that its deadline cuts off would be made again.
    let (lease, deadline) = (Duration::from_secs(40), Duration::from_secs(38));
    let config = DispatcherConfig { workers: 1, lease, deadline, ..DispatcherConfig::default() };
    let first = ordered(db.another().await).dispatcher(config.clone());
    let first = first.listener(ROUTE, first_calls.listener()).start().await.expect("starts");
    commit(&first, rounds_of(30, 10)).await;
    first_calls.started().await;
    eventually("all are in hand", async || first.in_flight() == 300).await;

    let second = ordered(db.another().await).dispatcher(config);
    let second = second.listener(ROUTE, second_calls.listener()).start().await.expect("starts");

    eventually("the other host delivers whole aggregates", async || second_calls.count() >= 100).await;
    first_calls.finish(300);
    done(db, 300).await;
    let (first_calls, second_calls) = (by_aggregate(&first_calls.calls()), by_aggregate(&second_calls.calls()));
    for (aggregate, seqs) in first_calls.iter().chain(&second_calls) {
        assert!(seqs.is_sorted(), "{aggregate}: {seqs:?}");
    }
    for (aggregate, later) in &second_calls {
        let earlier = first_calls.get(aggregate).and_then(|seqs| seqs.last());
        assert!(earlier.is_none_or(|earlier| earlier < &later[0]), "{aggregate}: {earlier:?} {later:?}");
    }
    assert_eq!(first_calls.values().chain(second_calls.values()).map(Vec::len).sum::<usize>(), 300, "each once");
    first.shutdown().await;
    second.shutdown().await;
}

pub(crate) async fn in_total_order_one_host_works_and_another_takes_over<D: Database>(db: &D) {
    let store = db.another().await;
    let (one, two) = (Recorder::done(), Recorder::done());
    let host = |store, recorder: &Recorder| {
        Outbox::ordered(store).poller(eager()).dispatcher(quick()).listener(ROUTE, recorder.listener())
    };
    let first = host(store.clone(), &one).start().await.expect("starts");
    commit(&first, rounds_of(5, 5)).await;
    done(db, 25).await;
    let second = host(db.another().await, &two).start().await.expect("starts");
    commit(&second, rounds_of(5, 5)).await;
    done(db, 50).await;
    assert_eq!((one.count(), two.count()), (50, 0), "only one of them works");

    first.shutdown().await;
    commit(&second, rounds_of(5, 5)).await;

    done(db, 75).await;
    assert_eq!(two.count(), 25);
    assert!(one.calls().iter().map(|event| event.sequence()).is_sorted());
    second.shutdown().await;
}

pub(crate) async fn what_a_host_set_aside_before_it_died_is_found_by_the_others<D: Database>(db: &D) {
    let store = db.another().await;
    let recorder = Recorder::done();
    let short =
        DispatcherConfig { lease: Duration::from_secs(1), deadline: Duration::from_millis(900), ..DispatcherConfig::default() };
    let host = ordered(store).dispatcher(short).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let first = commit(&host, vec![order(1)]).await[0];
    let blocker = reaches(db, first, Status::Done).await.seq;

    // As by a host that still had it in hand when its partition had gone to ours, and that never came to let it go.
    db.execute(&format!(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload, due_at, behind)
         VALUES ('OrderPlaced', 'Order', '1', '1', NULL, {blocker})"
    ))
    .await;

    done(db, 2).await;
    host.shutdown().await;
}

pub(crate) async fn what_waits_behind_others_goes_on_when_order_is_no_longer_asked_for<D: Database>(db: &D) {
    let store = db.another().await;
    let failing = Recorder::answering(|_| Err(Failure::unrecoverable("no")));
    let host = ordered(store.clone()).listener(ROUTE, failing.listener()).start().await.expect("starts");
    let ids = commit(&host, vec![order(1), order(1)]).await;
    eventually("one waits behind", async || store.stats().await.expect("counts").blocked == 1).await;
    host.shutdown().await;

    let recorder = Recorder::done();
    let host = Outbox::multi_node(store).poller(eager()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    reaches(db, ids[1], Status::Done).await;
    host.shutdown().await;
}

pub(crate) async fn a_stop_gives_back_what_waits_in_key_queues<D: Database>(db: &D) {
    let store = db.another().await;
    let recorder = Recorder::held();
    let host = ordered(store.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    commit(&host, rounds_of(1, 50)).await;
    recorder.started().await;
    eventually("the others are in hand", async || host.in_flight() == 50).await;

    let stopping = tokio::spawn(host.shutdown());
    recorder.finish(1);
    in_time("it stops", stopping).await.expect("well");

    let stats = store.stats().await.expect("counts");
    assert_eq!((stats.done, stats.in_flight), (1, 0));
    let next = Recorder::done();
    let host = ordered(store).listener(ROUTE, next.listener()).start().await.expect("starts");
    done(db, 50).await;
    assert!(next.calls().iter().map(|event| event.sequence()).is_sorted());
    host.shutdown().await;
}

pub(crate) async fn events_of_a_paused_route_wait_until_it_is_resumed<D: Database>(db: &D) {
    let store = db.typed();
    let route = Route::try_from(ROUTE).expect("good");
    let recorder = Recorder::done();
    store.pause(&route, &Audit { actor: "me".to_owned(), reason: Some("repairs".to_owned()) }).await.expect("pauses");
    let host = unordered(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let id = commit(&host, vec![order(1)]).await[0];

    eventually("it is parked", async || row(db, id).await.parked.is_some()).await;
    let parked = row(db, id).await.parked.expect("parked");
    assert_eq!(parked, "the route Order/OrderPlaced is paused by me: repairs");
    at_rest(&host).await;
    assert_eq!(recorder.count(), 0);
    store.resume(&route, &Audit::by("me")).await.expect("resumes");
    reaches(db, id, Status::Done).await;
    store.pause(&route, &Audit::by("me")).await.expect("pauses again");
    eventually("the host has heard of it", async || host.listeners().paused(&route).is_some()).await;
    let id = commit(&host, vec![order(2)]).await[0];
    eventually("it is parked", async || row(db, id).await.parked.is_some()).await;
    assert_eq!(recorder.count(), 1);
    host.shutdown().await;
}

pub(crate) async fn a_done_event_leaves_no_row_when_that_is_asked_for<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let delete = PurgeConfig { on_done: OnDone::Delete, ..PurgeConfig::default() };
    let host = unordered(db).purge(delete).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    commit(&host, rounds_of(10, 2)).await;

    eventually("all rows are gone", async || rows(db).await == 0).await;
    assert_eq!(recorder.count(), 20);
    host.shutdown().await;
}

/// `CREATE INDEX` without `CONCURRENTLY` takes the same lock: reads are answered, and no outcome can be stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_that_reads_more_than_it_can_store_keeps_its_partitions() {
    let db = Postgres::fresh().await;
    let writer = Outbox::writer_only(db.another().await).start().await.expect("starts");
    for _ in 0..8 {
        commit(&writer, rounds_of(8, 100)).await;
    }
    let mut lock = db.services_pool(1).begin().await.expect("begins");
    db.run_on(&mut lock, "LOCK TABLE outbox_event IN SHARE MODE").await;
    let recorder = Recorder::done();
    let host = ordered(db.another().await).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    eventually("it reports that outcomes wait", async || {
        host.readiness().reasons().iter().any(|reason| reason.code == UnreadyCode::SettlerStuck)
    })
    .await;

    assert!(host.readiness().stalled().is_empty(), "the table can be read: {:?}", host.readiness());
    assert_eq!(host.standstill().await, None, "a restart would not help");
    let called = recorder.count();
    lock.rollback().await.expect("unlocks");
    eventually("the host is ready again", async || host.readiness().is_ready()).await;
    eventually("later events are delivered", async || recorder.count() > called).await;
    let ids = recorder.ids();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no event was delivered twice");
    assert_eq!(host.metrics().counts().leases_lost, 0);
    tokio::join!(host.shutdown(), writer.shutdown());
}
