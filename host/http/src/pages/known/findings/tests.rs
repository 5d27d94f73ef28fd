//! The findings of whole snapshots.

mod breakers;
mod events;
mod hosts;
mod plugins;
mod routes;
mod sinks;
mod stuck;

use std::sync::Arc;
use std::time::Duration;

use outbox_event::{HostReport, SinkOutage, SinkState, SinkStatus};
use outbox_store::{LaggingSequence, NodeRecord, OldestPending, Record, RouteRecord, Stats};

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

fn down_for(seconds: u64, sink: SinkStatus) -> SinkStatus {
    let since = now().minus(Duration::from_secs(seconds));
    let outage = SinkOutage { since, reason: "connection refused".to_owned(), next_try: now() };
    SinkStatus { state: SinkState::Down, outage: Some(outage), ..sink }
}

fn waiting_at(event_type: &str, waiting: u64) -> RouteRecord {
    changed!(RouteRecord { waiting, ..route("Order", event_type) })
}

/// The oldest event that waits for a host has waited for so many seconds.
fn waiting_for_host(seconds: f64) -> OldestPending {
    changed!(OldestPending { waits_for_host: Some(seconds), ..OldestPending::default() })
}

#[test]
fn nothing_is_said_when_all_is_well() {
    assert_eq!(said(snapshot()), Vec::<String>::new());
    assert_eq!(calm(&snapshot(), Some(412.0)), "All well · 1 host · 412/s on this host · no events waiting");
    let busy = changed!(Stats { new: 3, oldest_pending_seconds: waiting_for_host(0.018), done: 9, ..Stats::default() });
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
fn failed_plugin_is_a_fault_only_while_events_wait_for_a_listener() {
    let failed = r#"{"plugins":[{"name":"old","digest":"ab","state":"failed","routes":[],"error":"no world","file":"x"}]}"#;
    let with_parked = |parked: u64| {
        let nodes = vec![changed!(NodeRecord { report: Some(failed.to_owned()), ..node("web-1", now()) })];
        let routes = vec![changed!(RouteRecord { parked, ..route("Order", "Refunded") })];
        let known = Known { snapshot: Some(Arc::new(Snapshot { nodes, routes, ..snapshot() })), outage: None };
        let all = findings(&known, &[], "").into_iter();
        all.map(|finding| (finding.severity, finding.sentence)).collect::<Vec<_>>()
    };
    let plugin = "Plugin old failed to load on web-1, and no version of it is running.".to_owned();
    let waiting = |events: &str| format!("{events} waiting for a listener for Order/Refunded.");

    assert_eq!(with_parked(0), [(Severity::Warning, plugin.clone())]);
    let few = [(Severity::Fault, plugin.clone()), (Severity::Warning, waiting("1 event is"))];
    assert_eq!(with_parked(1), few);
    let many = [(Severity::Fault, waiting("50,000 events are")), (Severity::Fault, plugin)];
    assert_eq!(with_parked(50_000), many, "findings that affect more events come first");
}

#[test]
fn a_sequence_that_is_behind_its_table_comes_first_with_its_fix() {
    let lagging = LaggingSequence { table: "outbox_event".to_owned(), column: "seq".to_owned(), largest: 900, next: 2 };
    let stats = changed!(Stats { dead: 1, ..Stats::default() });
    let all = said(Snapshot { lagging_sequences: vec![lagging], stats, dead: dead(1, "Paid", "x"), ..snapshot() });
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(
        all[0].starts_with(
            "New events cannot be stored, because a sequence is behind its table: outbox_event.seq goes up to 900, but its sequence \
             gives 2 next: an INSERT fails"
        ),
        "{all:?}"
    );
    assert!(all[0].contains("SELECT setval(pg_get_serial_sequence('outbox_event', 'seq')"), "{all:?}");
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
    let stats = changed!(Stats { new: 9, oldest_pending_seconds: waiting_for_host(250.0), ..Stats::default() });
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
