use std::sync::Arc;
use std::time::Duration;

use outbox::purge::Overdue;
use outbox::why::RecentChanges;
use outbox_event::units::relative_to;
use outbox_event::{EventId, HostReport, Route, SinkOutage, SinkState, SinkStatus, Status};
use outbox_store::{
    AuditRecord, LaggingSequence, ListenerReport, NodeRecord, PurgeRow, Record, RouteRecord, StalledRoute, Stats, StuckEvent,
    StuckEvents, StuckReason, WaitReason,
};

use super::*;
use crate::pages::fake::{node, record, route, sink};
use crate::pages::known::snapshot::{Outage, SHOW_AGE_AFTER};

fn now() -> Timestamp {
    "2026-11-21T14:10:00Z".parse().unwrap()
}

fn snapshot() -> Snapshot {
    Snapshot { nodes: vec![node("web-1", now())], ..Snapshot::made_up(now()) }
}

fn said(snapshot: Snapshot) -> Vec<String> {
    let known = Known { snapshot: Some(Arc::new(snapshot)), outage: None };
    findings(&known, &[], "")
        .into_iter()
        .map(|finding| finding.said.map_or(finding.sentence.clone(), |said| format!("{} {said}", finding.sentence)))
        .collect()
}

fn dead(number: usize, event_type: &str, error: &str) -> Vec<Record> {
    let done_at = Some("2026-11-21T14:02:00Z".parse().unwrap());
    let one = changed!(Record { event_type: event_type.to_owned(), last_error: Some(error.to_owned()), done_at, ..record() });
    vec![one; number]
}

#[test]
fn nothing_is_said_when_all_is_well() {
    assert_eq!(said(snapshot()), Vec::<String>::new());
    assert_eq!(calm(&snapshot(), Some(412.0)), "All well · 1 host · 412/s on this host · no events waiting");
    let busy = changed!(Stats { new: 3, oldest_pending_seconds: Some(0.018), done: 9, ..Stats::default() });
    assert_eq!(calm(&Snapshot { stats: busy, ..snapshot() }, None), "All well · 1 host · oldest event waiting 18 ms");
}

#[test]
fn all_is_not_well_without_a_host() {
    assert_eq!(calm(&Snapshot { nodes: vec![], ..snapshot() }, None), "No host is alive · no events waiting");
}

#[test]
fn what_was_counted_long_ago_is_told_with_the_time() {
    let taken = snapshot().taken.checked_sub(SHOW_AGE_AFTER).expect("the machine runs for so long");
    let old = || Snapshot { taken, ..snapshot() };
    let well = calm(&old(), None);
    assert!(well.ends_with("· no events waiting · counted at 14:10:00 UTC"), "{well}");
    let all = said(Snapshot { stats: changed!(Stats { dead: 1, ..Stats::default() }), ..old() });
    assert!(all[0].ends_with("(counted at 14:10:00 UTC)"), "{all:?}");
}

#[test]
fn events_that_wait_without_a_live_host_are_a_fault() {
    let stats = changed!(Stats { new: 2_311, ..Stats::default() });
    let gone = changed!(NodeRecord { alive: false, ..node("web-1", now()) });
    let all = said(Snapshot { stats, nodes: vec![gone], ..snapshot() });
    assert_eq!(all[0], "Nothing is being delivered: 2,311 events are waiting, and no host is alive.");
    assert_eq!(said(Snapshot { stats, ..snapshot() }), Vec::<String>::new());
    assert_eq!(said(Snapshot { nodes: vec![], ..snapshot() }), Vec::<String>::new(), "nothing waits, nobody is missed");
}

/// Each of another route.
fn different(number: usize, error: &str) -> Vec<Record> {
    let one = |number| dead(1, &format!("Type{number}"), &error.replace("ROUTE", &format!("Order/Type{number}"))).remove(0);
    (0..number).map(one).collect()
}

#[test]
fn dead_events_that_no_listener_answers_are_told_by_that_and_not_by_one_of_their_routes() {
    let stats = |dead| changed!(Stats { dead, ..Stats::default() });
    let nobody = || different(140, "no listener answers ROUTE (2 routes are answered)");
    let all = Snapshot { stats: stats(167), dead: [dead(27, "Placed", "x"), nobody()].concat(), ..snapshot() };
    assert_eq!(said(all), ["167 events are dead, 140 of them because no listener answers their 140 routes."]);
    let many = Snapshot { stats: stats(10_000), dead: [dead(27, "Placed", "x"), nobody()].concat(), ..snapshot() };
    assert_eq!(said(many), ["10,000 events are dead, most of the newest because no listener answers their 140 routes."]);
    let few = Snapshot { stats: stats(300), dead: [dead(160, "Placed", "x"), nobody()].concat(), ..snapshot() };
    assert_eq!(said(few), ["300 events are dead, 160 of them of Order/Placed, the first of these 160 since 14:02:00 UTC: x"]);
}

#[test]
fn dead_events_are_told_with_their_route_and_what_went_wrong() {
    let stats = |dead| changed!(Stats { dead, ..Stats::default() });
    let all_of_one = Snapshot { stats: stats(17), dead: dead(17, "Paid", "deadline"), ..snapshot() };
    assert_eq!(said(all_of_one), ["17 events are dead, all of Order/Paid, the first since 14:02:00 UTC: deadline"]);
    let mixed = Snapshot { stats: stats(5), dead: [dead(2, "Paid", "x"), dead(3, "Placed", "y")].concat(), ..snapshot() };
    assert_eq!(said(mixed), ["5 events are dead, 3 of them of Order/Placed, the first of these 3 since 14:02:00 UTC: y"]);
    let many = Snapshot { stats: stats(10_000), dead: dead(500, "Paid", "deadline"), ..snapshot() };
    assert_eq!(said(many), ["10,000 events are dead, the newest mostly of Order/Paid: deadline"]);
    let some =
        Snapshot { stats: stats(10_000), dead: [dead(25, "Paid", "x"), different(475, "timeout")].concat(), ..snapshot() };
    assert_eq!(said(some), ["10,000 events are dead, the newest most often of Order/Paid: x"], "5 % are not most of them");
    let one = Snapshot { stats: stats(1), dead: dead(1, "Paid", "deadline"), ..snapshot() };
    assert_eq!(said(one), ["1 event of Order/Paid has been dead since 14:02:00 UTC: deadline"]);
}

#[test]
fn number_time_and_error_of_dead_events_are_those_of_the_route_that_is_named() {
    let stats = |dead| changed!(Stats { dead, ..Stats::default() });
    let at = |time: &str, records: Vec<Record>| {
        let done_at = Some(format!("2026-11-21T{time}Z").parse().unwrap());
        records.into_iter().map(|record| changed!(Record { done_at, ..record })).collect::<Vec<_>>()
    };
    let lost = || at("14:05:00", dead(1, "Lost", "no listener"));
    let earlier = || at("13:55:00", dead(1, "Paid", "timeout"));
    let two = Snapshot { stats: stats(2), dead: [lost(), earlier()].concat(), ..snapshot() };
    assert_eq!(said(two), ["2 events are dead, 1 of them of Order/Lost since 14:05:00 UTC: no listener"]);
    let more = Snapshot { stats: stats(3), dead: [lost(), lost(), earlier()].concat(), ..snapshot() };
    assert_eq!(
        said(more),
        ["3 events are dead, 2 of them of Order/Lost, the first of these 2 since 14:05:00 UTC: no listener"]
    );

    let scattered = [lost(), dead(1, "Paid", "timeout"), dead(1, "Paid", "no stock")].concat();
    let said_of = said(Snapshot { stats: stats(3), dead: scattered, ..snapshot() });
    assert!(said_of[0].starts_with("3 events are dead, 2 of them of Order/Paid"), "as many errors as events: {said_of:?}");

    let placed = || [dead(3, "Placed", "y"), at("14:01:00", dead(1, "Placed", "z"))].concat();
    let of_route = Snapshot { stats: stats(4), dead: placed(), ..snapshot() };
    assert_eq!(said(of_route), ["4 events are dead, all of Order/Placed, the first since 14:01:00 UTC, most often: y"]);
    let share = Snapshot { stats: stats(5), dead: [placed(), earlier()].concat(), ..snapshot() };
    assert_eq!(
        said(share),
        ["5 events are dead, 4 of them of Order/Placed, the first of these 4 since 14:01:00 UTC, most often: y"]
    );
    let many = Snapshot { stats: stats(10_000), dead: placed(), ..snapshot() };
    assert_eq!(said(many), ["10,000 events are dead, the newest mostly of Order/Placed, most often: y"]);
}

#[test]
fn events_that_wait_are_told_with_the_reason_that_their_host_noted() {
    let since = now().minus(Duration::from_secs(240));
    let wait =
        |event_type, reason: &str, events| WaitReason::new(&Route::new("Order", event_type).unwrap(), reason, events, since);
    let down = "the sink orders is down: connection refused";
    let waits =
        vec![wait("OrderPaid", down, 400), wait("OrderLost", "no listener answers Order/OrderLost (1 route is answered)", 1)];
    assert_eq!(
        said(Snapshot { waits, ..snapshot() }),
        [
            format!("400 events of Order/OrderPaid are waiting, the first for 4 min: {down}"),
            "1 event of Order/OrderLost is waiting, the first for 4 min: no listener answers Order/OrderLost (1 route is answered)"
                .to_owned()
        ]
    );
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

/// A host with these sinks.
fn host_with(label: &str, sinks: &[SinkStatus]) -> NodeRecord {
    changed!(NodeRecord { report: HostReport::new(Vec::new(), sinks.to_vec()).to_json(), ..node(label, now()) })
}

fn down_for(seconds: u64, sink: SinkStatus) -> SinkStatus {
    let since = now().minus(Duration::from_secs(seconds));
    let outage = SinkOutage { since, reason: "connection refused".to_owned(), next_try: now() };
    SinkStatus { state: SinkState::Down, outage: Some(outage), ..sink }
}

fn waiting_at(event_type: &str, waiting: u64) -> RouteRecord {
    changed!(RouteRecord { waiting, ..route("Order", event_type) })
}

#[test]
fn a_sink_that_is_down_is_named_with_its_routes_and_the_events_that_wait_for_it() {
    let down = || down_for(240, sink("orders", &["Order/*", "Invoice/Sent"]));
    let since = now().minus(Duration::from_secs(240));
    let wait =
        WaitReason::new(&Route::new("Order", "Placed").unwrap(), "the sink orders is down: connection refused", 7, since);
    let all = |waits| {
        let routes = vec![waiting_at("Placed", 1_400)];
        Snapshot { nodes: vec![host_with("web-1", &[down()])], routes, waits, ..snapshot() }
    };
    assert_eq!(
        said(all(vec![wait])),
        ["Sink orders has been down since 14:06:00 UTC; 1,400 events of Order/* and 1 other route are waiting: \
          connection refused"],
        "and the waiting events are not a finding of their own"
    );
    let wait = WaitReason::new(&Route::new("Order", "Placed").unwrap(), "no listener answers Order/Placed", 7, since);
    assert_eq!(said(all(vec![wait])).len(), 2, "another reason is a finding of its own");
    let idle = Snapshot { nodes: vec![host_with("web-1", &[down()])], ..snapshot() };
    assert_eq!(said(idle), ["Sink orders has been down since 14:06:00 UTC: connection refused"]);
}

#[test]
fn a_sink_that_other_hosts_reach_is_a_warning_with_the_host_that_does_not() {
    let orders = || sink("orders", &["Order/*"]);
    let hosts = |room| {
        let stalled = StalledRoute::new("Order/*".to_owned(), "the sink orders".to_owned(), "refused".to_owned(), now());
        let sick = host_with("web-2", &[down_for(9, orders())]);
        let sick = changed!(NodeRecord { room, listeners: ListenerReport::new(String::new(), [stalled]), ..sick });
        vec![host_with("web-1", &[orders()]), sick]
    };
    let known = |room| {
        let snapshot = Snapshot { nodes: hosts(room), routes: vec![waiting_at("Placed", 2)], ..snapshot() };
        findings(&Known { snapshot: Some(Arc::new(snapshot)), outage: None }, &[], "")
    };

    let all = known(9);
    assert_eq!(all[0].sentence, "Sink orders has been down on web-2 since 14:09:51 UTC; 2 events of Order/* are waiting:");
    assert_eq!((all[0].severity, all.len()), (Severity::Warning, 1));
    assert_eq!(all[0].preceding, None);
    let aside = known(0);
    assert!(aside.len() == 1 && aside[0].sentence.starts_with("Host web-2 stands aside"), "{aside:?}");
}

#[test]
fn an_outage_names_the_change_that_preceded_it() {
    let selector = serde_json::json!({ "plugin": "mailer", "from": "1.3.0 (ab)", "to": "1.4.0 (cd)" });
    let swap = AuditRecord::new(1, now().minus(Duration::from_secs(129)), "web-1", "swap_plugin", selector);
    let snapshot = Snapshot {
        nodes: vec![host_with("web-1", &[down_for(9, sink("orders", &["Order/*"]))])],
        routes: vec![waiting_at("Placed", 2)],
        recent: Some(RecentChanges { changes: outbox::why::changes([swap]), cut_at: None }),
        ..snapshot()
    };

    let all = findings(&Known { snapshot: Some(Arc::new(snapshot)), outage: None }, &[], "");

    let wanted = "it began 2 min after the swap of plugin mailer 1.3.0 (ab) → 1.4.0 (cd)";
    assert_eq!(all[0].preceding.as_deref(), Some(wanted), "{all:?}");
}

#[test]
fn findings_that_affect_the_most_events_come_first() {
    let down = |name: &str, route: &str, seconds| down_for(seconds, sink(name, &[route]));
    let failed = r#"{"plugins":[{"name":"unused","digest":"ab","state":"failed","routes":[],"error":"no world","file":"x"}]}"#;
    let sinks = vec![down("mails", "Order/Mailed", 9), down("orders", "Order/Placed", 9)];
    let report = HostReport { sinks, ..HostReport::read(failed) };
    let nodes = vec![changed!(NodeRecord { report: report.to_json(), ..node("web-1", now()) })];
    let routes = vec![waiting_at("Placed", 400), waiting_at("Mailed", 3)];
    let stats = changed!(Stats { dead: 17, ..Stats::default() });

    let all = said(Snapshot { nodes, routes, stats, dead: dead(17, "Paid", "deadline"), ..snapshot() });

    let starts = ["Sink orders ", "17 events are dead", "Sink mails ", "Plugin unused failed"];
    assert!(all.len() == 4 && all.iter().zip(starts).all(|(one, start)| one.starts_with(start)), "{all:#?}");
}

#[test]
fn hosts_are_not_behind_because_events_wait_for_their_receiver() {
    let waited = Duration::from_secs(240);
    let wait = WaitReason::new(&Route::new("Order", "OrderPaid").unwrap(), "the sink orders is down", 1, now().minus(waited));
    let stats = |seconds| changed!(Stats { new: 1, oldest_pending_seconds: Some(seconds), ..Stats::default() });

    let all = said(Snapshot { stats: stats(240.0), waits: vec![wait.clone()], ..snapshot() });
    assert_eq!(all.len(), 1, "{all:?}");
    let all = said(Snapshot { stats: stats(400.0), waits: vec![wait], ..snapshot() });
    assert_eq!(all[1], "The hosts are falling behind: an event that is due has been waiting for 6 min.");
}

#[test]
fn refused_outcomes_are_told_with_what_the_database_says() {
    let one = |seq: u64| StuckEvent { seq, event_id: None, error: "the order is archived".to_owned(), since: now() };
    let host = |name: &str, count: usize| {
        let stuck = vec![StuckEvents::new(StuckReason::OutcomeRefused, count, [one(1)])];
        changed!(NodeRecord { stuck, ..node(name, now()) })
    };

    let all = said(Snapshot { nodes: vec![host("web-1", 1)], ..snapshot() });
    assert_eq!(all, ["The database refuses to store the outcome of 1 event; the host retries it: the order is archived"]);
    let all = said(Snapshot { nodes: vec![host("web-1", 30), host("web-2", 1)], ..snapshot() });
    assert!(all[0].starts_with("The database refuses to store the outcomes of 31 events; the hosts retry them:"), "{all:?}");
}

#[test]
fn an_outcome_that_waits_for_a_lock_is_told_and_the_hosts_are_not_behind() {
    let since = now().minus(Duration::from_secs(240));
    let one = StuckEvent { seq: 1, event_id: None, error: "the row is locked by another transaction".to_owned(), since };
    let stuck = vec![StuckEvents::new(StuckReason::OutcomeLocked, 1, [one])];
    let stats = changed!(Stats { new: 1, oldest_pending_seconds: Some(243.0), ..Stats::default() });
    let nodes = vec![changed!(NodeRecord { stuck, ..node("web-1", now()) })];
    assert_eq!(
        said(Snapshot { nodes, stats, ..snapshot() }),
        ["The outcome of 1 event waits for a lock of another transaction, for 4 min: the row is locked by another transaction"]
    );
}

#[test]
fn an_event_whose_payload_cannot_be_returned_is_told_with_the_error() {
    let since = now().minus(Duration::from_secs(240));
    let one = StuckEvent { seq: 1, event_id: None, error: "unexpected chunk number 100".to_owned(), since };
    let stuck = vec![StuckEvents::new(StuckReason::ClaimRefused, 1, [one])];
    let nodes = vec![changed!(NodeRecord { stuck, ..node("web-1", now()) })];
    assert_eq!(
        said(Snapshot { nodes, ..snapshot() }),
        ["The database does not let the hosts claim 1 event, or cannot return the payload: not delivered, for 4 min: \
          unexpected chunk number 100"]
    );
}

#[test]
fn a_sequence_that_is_behind_its_table_comes_first_with_its_fix() {
    let lagging = LaggingSequence { table: "outbox_event".to_owned(), column: "seq".to_owned(), largest: 900, last: 1 };
    let stats = changed!(Stats { dead: 1, ..Stats::default() });
    let all = said(Snapshot { lagging_sequences: vec![lagging], stats, dead: dead(1, "Paid", "x"), ..snapshot() });
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(
        all[0].starts_with(
            "New events cannot be stored, because a sequence is behind its table: outbox_event.seq goes up to 900, but its sequence is \
             at 1: an INSERT fails"
        ),
        "{all:?}"
    );
    assert!(all[0].contains("SELECT setval(pg_get_serial_sequence('outbox_event', 'seq')"), "{all:?}");
}

#[test]
fn the_oldest_event_that_purges_do_not_delete_is_named() {
    let row = |event_id| PurgeRow { seq: 7, event_id, at: now().minus(Duration::from_secs(30 * 86_400)) };
    let id: EventId = "order-7".parse().unwrap();
    let of = |status, oldest| Overdue { status, finished_before: now(), oldest };
    let overdue = vec![of(Status::Done, row(Some(id))), of(Status::Dead, row(None))];
    assert_eq!(
        said(Snapshot { overdue, ..snapshot() }),
        [
            format!(
                "Purges do not delete old events: the oldest, order-7, finished {}, and purge.retention is shorter. `outbox purge` \
                 names the reason.",
                relative_to(row(None).at, now())
            ),
            format!(
                "Purges do not delete old events: the oldest, seq 7, finished {}, and purge.dead_retention is shorter. `outbox purge \
                 --dead` names the reason.",
                relative_to(row(None).at, now())
            ),
        ]
    );
}

#[test]
fn a_failed_plugin_is_told_with_what_serves_instead() {
    let told = |state: &str| {
        changed!(NodeRecord {
            report: Some(format!(
                r#"{{"plugins":[{{"name":"mailer","version":"1.3","digest":"ab","state":"{state}","routes":[],"error":"no world","file":"x"}}]}}"#
            )),
            ..node("web-1", now())
        })
    };
    let with = |state: &str| Snapshot { nodes: vec![told(state)], ..snapshot() };
    assert_eq!(
        said(with("serving_older")),
        ["The new file of plugin mailer failed to load on web-1; version 1.3 is still serving. no world"]
    );
    assert_eq!(said(with("failed")), ["Plugin mailer failed to load on web-1, and no version of it is running. no world"]);
    assert_eq!(
        said(with("breaker_open")),
        ["A breaker of plugin mailer is open on web-1, because it failed too often; its events wait. no world"]
    );
    assert_eq!(said(with("a_state_of_tomorrow")), Vec::<String>::new());
    let alive_until = now().minus(Duration::from_secs(3_600));
    let gone = changed!(NodeRecord { alive: false, alive_until, ..told("failed") });
    let others = Snapshot { nodes: vec![gone, node("web-2", now())], ..snapshot() };
    assert_eq!(said(others), Vec::<String>::new(), "a host that is gone serves nothing");
}

#[test]
fn a_paused_route_and_a_route_without_a_listener_are_different_things() {
    let paused = changed!(RouteRecord {
        paused_at: Some(now().minus(Duration::from_secs(120))),
        paused_by: Some("ada".to_owned()),
        pause_reason: Some("the bank is down".to_owned()),
        parked: 12,
        ..route("Order", "Paid")
    });
    let alone = changed!(RouteRecord { parked: 1, ..route("Order", "Refunded") });
    assert_eq!(
        said(Snapshot { routes: vec![paused.clone()], ..snapshot() }),
        ["Route Order/Paid was paused 2 min ago by ada; 12 events are waiting. the bank is down"]
    );
    assert_eq!(
        said(Snapshot { routes: vec![alone.clone()], ..snapshot() }),
        ["1 event is waiting for a listener for Order/Refunded."]
    );
    let pattern = changed!(RouteRecord { route: Route::new("Order", "*").unwrap(), parked: 0, ..paused });
    assert_eq!(said(Snapshot { routes: vec![pattern, alone], ..snapshot() }).len(), 1, "a paused pattern holds it");
}

#[test]
fn a_route_that_a_new_version_dropped_names_that_plugin_and_no_other_in_fault() {
    let report = r#"{"plugins":[
        {"name":"broken","state":"failed","error":"no component"},
        {"name":"shop","version":"1.1.0","digest":"ab","state":"serving","swaps":[
            {"at":"2026-11-21T14:02:00Z","result":"swapped","version":"1.1.0","digest":"ab",
             "dropped":[{"aggregate_type":"Order","event_type":"Refunded"}]},
            {"at":"2026-11-21T13:00:00Z","result":"loaded","version":"1.0.0","digest":"cd"}]}
    ]}"#;
    let host = changed!(NodeRecord { report: Some(report.to_owned()), ..node("web-1", now()) });
    let refunded = changed!(RouteRecord { parked: 1, ..route("Order", "Refunded") });
    let all = said(Snapshot { routes: vec![refunded], nodes: vec![host], ..snapshot() });
    assert!(all[0].starts_with("Plugin broken failed to load on web-1"), "{all:?}");
    let wanted = "1 event is waiting for a listener for Order/Refunded; plugin shop 1.1.0 no longer answers Order/Refunded, which \
                  1.0.0 did, since 14:02:00 UTC.";
    assert_eq!(all[1..], [wanted]);
}

#[test]
fn many_of_a_kind_are_told_in_one_sentence() {
    let paused =
        |number: usize| changed!(RouteRecord { paused_at: Some(now()), parked: 2, ..route("Order", &format!("E{number}")) });
    let few = Snapshot { routes: (0..3).map(paused).collect(), ..snapshot() };
    assert_eq!(said(few).len(), 3);
    let many = Snapshot { routes: (0..30_000).map(paused).collect(), ..snapshot() };
    assert_eq!(said(many), ["30,000 routes are paused; 60,000 events are waiting."]);

    let plugins: Vec<String> = (0..40)
        .map(|number| format!(r#"{{"name":"p{number}","digest":"ab","state":"failed","routes":[],"error":"no","file":"x"}}"#))
        .collect();
    let report = format!(r#"{{"plugins":[{}]}}"#, plugins.join(","));
    let node = changed!(NodeRecord { report: Some(report), ..node("web-1", now()) });
    assert_eq!(said(Snapshot { nodes: vec![node], ..snapshot() }), ["40 plugins failed to load."]);
}

#[test]
fn a_host_that_is_gone_and_a_growing_backlog_are_warnings() {
    let gone = |partitions| changed!(NodeRecord { alive: false, partitions, ..node("web-2", now()) });
    let stats = changed!(Stats { new: 9, oldest_pending_seconds: Some(250.0), ..Stats::default() });
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
        ["Host web-2 123 vanished 4 min ago without a stop: it was killed, stands still, or cannot reach the database."]
    );
    assert_eq!(
        with(vec![node("web-1 7", now()), gone(0, 240), gone(0, 250)]),
        [
            "2 hosts vanished without a stop (web-2 123, web-2 123): they were killed, stand still, or cannot reach the database."
        ]
    );
    assert_eq!(with(vec![node("web-1 7", now()), gone(0, 3_600)]), Vec::<String>::new(), "it is gone for good");
    assert_eq!(
        with(vec![node("web-1 7", now()), gone(1, 240), gone(2, 240), gone(0, 3_600)]),
        ["2 hosts are gone and still own 3 partitions; a live host takes them over within seconds."]
    );
}

#[test]
fn a_database_that_is_gone_comes_first_and_says_how_old_the_rest_is() {
    let stats = changed!(Stats { dead: 1, ..Stats::default() });
    let snapshot = Snapshot { stats, dead: dead(1, "Paid", "x"), ..snapshot() };
    let outage = Outage { since: now(), why: "connection refused".to_owned(), is_silence: true };
    let all = findings(&Known { snapshot: Some(Arc::new(snapshot)), outage: Some(outage.clone()) }, &[], "");
    assert_eq!(all[0].sentence, "The database does not answer; what you see is from 14:10:00 UTC.");
    assert_eq!((all[0].said.as_deref(), all.len()), (Some("connection refused"), 2));
    let blind = findings(&Known { snapshot: None, outage: Some(outage) }, &[], "");
    assert!(blind[0].sentence.ends_with("there is nothing to show yet."));
}

#[test]
fn nobody_is_told_who_is_alive_by_a_database_that_is_gone() {
    let gone = changed!(NodeRecord { alive: false, partitions: 64, ..node("web-1", now()) });
    let stats = changed!(Stats { new: 9, oldest_pending_seconds: Some(250.0), ..Stats::default() });
    let outage = Outage { since: now(), why: "connection refused".to_owned(), is_silence: true };
    for node in [gone, node("web-1", now())] {
        let snapshot = Snapshot { nodes: vec![node], stats, ..snapshot() };
        let all = findings(&Known { snapshot: Some(Arc::new(snapshot)), outage: Some(outage.clone()) }, &[], "");
        assert_eq!(all.len(), 1, "{all:?}");
    }
}

#[test]
fn a_reason_why_this_host_is_not_ready_is_a_fault_unless_another_finding_covers_it() {
    let unready = |code, message: &str| Unready { code, message: message.to_owned() };
    let reasons = [
        unready(UnreadyCode::Stopping, "the host stops"),
        unready(UnreadyCode::Plugin, "the required plugin mailer is not in the plugins directory"),
        unready(UnreadyCode::HeartbeatStuck, "the heartbeat could not be written"),
    ];
    let known = |snapshot, outage| Known { snapshot: Some(Arc::new(snapshot)), outage };
    let owner = node("web-1", now()).owner;
    let with = |known: Known, reasons: &[Unready]| -> Vec<String> {
        findings(&known, reasons, &owner).into_iter().map(|finding| finding.said.unwrap_or_default()).collect()
    };

    let said = |known| with(known, &reasons);
    assert_eq!(said(known(snapshot(), None)), [&*reasons[2].message, &*reasons[1].message]);
    let outage = Outage { since: now(), why: "connection refused".to_owned(), is_silence: true };
    assert_eq!(said(known(snapshot(), Some(outage))), ["connection refused", &*reasons[1].message]);
    let failed =
        r#"{"plugins":[{"name":"mailer","digest":"ab","state":"failed","routes":[],"error":"no component","file":"x"}]}"#;
    let node = changed!(NodeRecord { report: Some(failed.to_owned()), ..node("web-1", now()) });
    let elsewhere = changed!(NodeRecord { owner: "another".to_owned(), ..node.clone() });
    let does_not_serve = [unready(UnreadyCode::Plugin, "the required plugin mailer does not serve: no component")];
    let said = |node, reasons: &[Unready]| with(known(Snapshot { nodes: vec![node], ..snapshot() }, None), reasons).len();
    assert_eq!(said(node.clone(), &does_not_serve), 1, "the finding of the plugin covers it");
    assert_eq!(said(node, &reasons), 3, "the plugin is not missing for the same reason");
    assert_eq!(said(elsewhere, &does_not_serve), 2, "the plugin failed on another host");
}

#[test]
fn faults_come_before_warnings() {
    let paused = changed!(RouteRecord { paused_at: Some(now()), ..route("Order", "Paid") });
    let stats = changed!(Stats { dead: 1, ..Stats::default() });
    let known = Known {
        snapshot: Some(Arc::new(Snapshot { routes: vec![paused], stats, dead: dead(1, "Paid", "x"), ..snapshot() })),
        outage: None,
    };
    let all: Vec<Severity> = findings(&known, &[], "").iter().map(|finding| finding.severity).collect();
    assert_eq!(all, [Severity::Fault, Severity::Warning]);
}
