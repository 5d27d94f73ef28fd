//! Hosts that are gone, stand aside or are too slow.

use outbox_event::Route;
use outbox_store::{ListenerReport, StalledRoute, WaitReason};

use super::*;

#[test]
fn events_that_wait_without_a_live_host_are_a_fault() {
    let stats = changed!(Stats { new: 2_311, ..Stats::default() });
    let gone = changed!(NodeRecord { alive: false, ..node("web-1", now()) });
    let all = said(Snapshot { stats, nodes: vec![gone], ..snapshot() });
    assert_eq!(all[0], "Nothing is being delivered: 2,311 events are waiting, and no host is alive.");
    assert_eq!(said(Snapshot { stats, ..snapshot() }), Vec::<String>::new());
    assert_eq!(said(Snapshot { nodes: vec![], ..snapshot() }), Vec::<String>::new(), "no event waits for a host");
}

#[test]
fn a_host_that_stands_aside_is_told_with_what_it_cannot_deliver() {
    let stalled = |route: &str, listener: &str| {
        let reason = "the sink orders is down: no route to host".to_owned();
        StalledRoute::new(route.to_owned(), listener.to_owned(), reason, now())
    };
    let host = |room, stalled: Vec<StalledRoute>| {
        let listeners = ListenerReport::new(String::new(), stalled);
        changed!(NodeRecord { room, listeners, ..node("web-1", now()) })
    };
    let one = vec![stalled("Order/*", "the sink orders")];

    assert_eq!(
        said(Snapshot { nodes: vec![host(0, one.clone())], ..snapshot() }),
        ["Host web-1 stands aside: it cannot deliver Order/* (the sink orders). Other hosts take over its events. \
          the sink orders is down: no route to host"]
    );
    let two = vec![stalled("", ""), stalled("Order/*", "the sink orders")];
    let all = said(Snapshot { nodes: vec![host(0, two)], ..snapshot() });
    assert!(all[0].starts_with("Host web-1 stands aside: it cannot deliver any event and 1 other route."), "{all:?}");
    assert_eq!(
        said(Snapshot { nodes: vec![host(9, one)], ..snapshot() }),
        Vec::<String>::new(),
        "the waiting events are a finding of their own"
    );
}

#[test]
fn hosts_are_not_behind_because_events_wait_for_their_receiver() {
    let waited = Duration::from_secs(240);
    let wait = WaitReason::new(&Route::new("Order", "OrderPaid").unwrap(), "the sink orders is down", 1, now().minus(waited));
    let given_back = changed!(OldestPending { given_back: Some(5_400.0), ..OldestPending::default() });
    let stats = |oldest_pending_seconds| changed!(Stats { new: 1, oldest_pending_seconds, ..Stats::default() });

    let all = said(Snapshot { stats: stats(given_back), waits: vec![wait.clone()], ..snapshot() });
    assert_eq!(all.len(), 1, "{all:?}");
    let both = changed!(OldestPending { waits_for_host: Some(400.0), ..given_back });
    let all = said(Snapshot { stats: stats(both), waits: vec![wait], ..snapshot() });
    assert_eq!(all[1], "The hosts are falling behind: an event that is due has been waiting for 6 min.");
}

#[test]
fn host_whose_clock_differs_from_the_databases_is_named() {
    let report = Some(r#"{"clock_ahead_ms":-3000}"#.to_owned());
    let behind = changed!(NodeRecord { report, ..node("web-2", now()) });
    assert_eq!(
        said(Snapshot { nodes: vec![node("web-1", now()), behind], ..snapshot() }),
        ["The clock of host web-2 is 3 s behind the database's: receivers of its webhooks may refuse their signatures."]
    );
}

#[test]
fn a_host_that_is_gone_and_a_growing_backlog_are_warnings() {
    let gone = |partitions| changed!(NodeRecord { alive: false, partitions, ..node("web-2", now()) });
    let stats = changed!(Stats { new: 9, oldest_pending_seconds: waiting_for_host(250.0), ..Stats::default() });
    let all = said(Snapshot { nodes: vec![node("web-1", now()), gone(64)], stats, ..snapshot() });
    assert_eq!(all[0], "Host web-2 is gone and still owns 64 partitions; a live host takes them over within seconds.");
    assert_eq!(all[1], "The hosts are falling behind: an event that is due has been waiting for 4 min.");
}

#[test]
fn a_host_that_is_gone_is_missed_for_a_while_after_others_have_taken_over_all_that_it_held() {
    let gone = |partitions, seconds| {
        let alive_until = now().minus(Duration::from_secs(seconds));
        changed!(NodeRecord { alive: false, partitions, alive_until, ..node("web-2 123", now()) })
    };
    let with = |nodes: Vec<NodeRecord>| said(Snapshot { nodes, ..snapshot() });
    assert_eq!(
        with(vec![node("web-1 7", now()), gone(0, 240)]),
        ["Host web-2 123 vanished 4 min ago without a stop: it was killed, is frozen, or cannot reach the database."]
    );
    assert_eq!(
        with(vec![node("web-1 7", now()), gone(0, 240), gone(0, 250)]),
        ["2 hosts vanished without a stop (web-2 123, web-2 123): they were killed, are frozen, or cannot reach the \
             database."]
    );
    assert_eq!(with(vec![node("web-1 7", now()), gone(0, 3_600)]), Vec::<String>::new(), "it is gone for good");
    assert_eq!(
        with(vec![node("web-1 7", now()), gone(1, 240), gone(2, 240), gone(0, 3_600)]),
        ["2 hosts are gone and still own 3 partitions; a live host takes them over within seconds."]
    );
}

#[test]
fn host_that_runs_though_its_lease_has_ended_is_named() {
    let alive_until = now().minus(Duration::from_secs(9));
    let frozen = changed!(NodeRecord { alive_until, ..node("web-2 123", now()) });

    assert_eq!(
        said(Snapshot { nodes: vec![frozen], ..snapshot() }),
        ["Host web-2 123 is running, but its lease has ended: it cannot write its heartbeat, or it is frozen."]
    );
}
