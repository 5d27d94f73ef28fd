use std::collections::BTreeSet;
use std::time::Duration;

use outbox::event::OwnerId;
use outbox::node::{HostReport, SinkOutage, SinkState, SinkStatus};
use outbox::store::{
    AuditRecord, ListenerReport, Node, NodeRecord, OpenBreaker, Record, RouteRecord, Severity, StalledRoute, Stats, WaitReason,
};
use outbox::time::Timestamp;
use outbox::why::OldestWait;
use outbox::{Envelope, Route, Status};

use super::plugins::of_plugins;
use super::*;
use crate::config::Flags;
use crate::plugins::{PluginState, PluginStatus};

const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

fn node(label: &str, mode: &'static str, alive: bool) -> NodeRecord {
    let owner = OwnerId::generate(label);
    let mut node = NodeRecord::new(&Node::new(owner, label, mode, "1.0.0"), NOW);
    node.alive = alive;
    node
}

/// A host whose plugin `mailer` answers `Order/OrderPlaced`.
fn host_with_mailer() -> NodeRecord {
    let mut node = node("web-1", "multi_node", true);
    let routes = r#"[{"aggregate_type":"Order","event_type":"OrderPlaced"}]"#;
    node.report = Some(format!(r#"{{"plugins":[{{"name":"mailer","state":"serving","routes":{routes}}}]}}"#));
    node
}

fn stats(change: impl FnOnce(&mut Stats)) -> Stats {
    let mut stats = Stats::default();
    change(&mut stats);
    stats
}

fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap()
}

#[test]
fn a_finding_names_the_change_that_preceded_it() {
    let selector = serde_json::json!({ "plugin": "mailer", "from": "1.3.0 (ab)", "to": "1.4.0 (cd)" });
    let swap = AuditRecord::new(1, NOW.minus(Duration::from_secs(120)), "web-1", "swap_plugin", selector);
    let changes = outbox::why::changes([swap]);

    let scope = Scope::of_events("Order", "OrderPlaced", "timeout: no answer", &[host_with_mailer()]);

    let told = after_change("1 event given up".to_owned(), &changes, NOW, &scope);

    let wanted = "1 event given up\nit began 2 min after the swap of plugin mailer 1.3.0 (ab) → 1.4.0 (cd)";
    assert_eq!(told, wanted);
    assert_eq!(after_change("a".to_owned(), &[], NOW, &scope), "a");
}

#[test]
fn no_sink_is_called_working_while_a_host_stands_aside_or_events_wait_for_it() {
    let [mut delivers, mut aside] = ["web-1", "web-2"].map(|label| node(label, "multi_node", true));
    delivers.report = Some(r#"{"sinks":[{"name":"orders","state":"working"}]}"#.to_owned());
    let found = |nodes: &[NodeRecord], waits: &[WaitReason]| sinks(nodes, &[], waits, &[], &Flags::default(), NOW);
    assert_eq!(found(std::slice::from_ref(&delivers), &[])[0].found, "no sink is down");

    aside.report = Some(r#"{"sinks":[{"name":"orders","state":"down"}]}"#.to_owned());
    let stalled = StalledRoute::new("Order/*".to_owned(), "the sink orders".to_owned(), "refused".to_owned(), NOW);
    (aside.room, aside.listeners) = (0, ListenerReport::new(String::new(), [stalled]));
    let nodes = [delivers, aside];
    let wanted = "no host that delivers finds a sink down; down on hosts that stand aside: orders (on web-2)";
    assert_eq!(found(&nodes, &[])[0].found, wanted);

    let route = Route::new("Order", "Placed").unwrap();
    let wait = WaitReason::new(&route, "the sink orders is down: answered 503", 1_500, NOW);
    assert_eq!(found(&nodes, &[wait]).len(), 0, "the waiting events are the finding");
}

#[test]
fn hosts_that_share_a_table_must_know_it() {
    use Severity::{Fault, Good, Warning};
    for (modes, severity) in [
        (vec![], Good),
        (vec!["single_node"], Good),
        (vec!["multi_node", "multi_node"], Good),
        (vec!["ordered_by_aggregate", "ordered_by_aggregate"], Good),
        (vec!["single_node", "multi_node"], Warning),
        (vec!["single_node", "single_node"], Warning),
        (vec!["ordered", "ordered"], Good),
        (vec!["ordered", "multi_node"], Fault),
        (vec!["ordered_by_aggregate", "single_node"], Fault),
    ] {
        // Two hosts of one name are two machines whose names are the same: that hurts nobody.
        let live: Vec<NodeRecord> = modes.iter().map(|mode| node("same", mode, true)).collect();
        assert_eq!(worst(&nodes(&live, &[])), severity, "{modes:?}: {:?}", nodes(&live, &[]));
    }
    let gone = [node("a", "single_node", true), node("b", "multi_node", false)];
    assert_eq!(worst(&nodes(&gone, &[])), Good, "a host that has left is no problem");
}

#[test]
fn a_host_whose_session_has_ended_is_not_called_live() {
    let hosts = [node("killed 1", "single_node", true), node("runs 2", "single_node", true)];
    let without_lock = [hosts[0].owner.clone()];

    let alone = nodes(&hosts[..1], &without_lock);
    assert!(matches!(&alone[..], [one] if one.found.ends_with("was it killed? killed 1 (single_node)")), "{alone:?}");

    let both = nodes(&hosts, &without_lock);
    assert!(both[0].found.starts_with("1 live host") && both[0].found.ends_with("runs 2 (single_node)"), "{both:?}");
}

#[test]
fn host_whose_clock_differs_from_the_databases_is_named() {
    let mut ahead = node("web-2", "multi_node", true);
    ahead.report = Some(r#"{"clock_ahead_ms":300000}"#.to_owned());

    let found = clocks(&[node("web-1", "multi_node", true), ahead]).expect("one clock is wrong");

    assert_eq!(
        (found.severity, found.found.as_str()),
        (Severity::Warning, "the clock of web-2 is 5 min ahead of the database's")
    );
    assert!(clocks(&[node("web-1", "multi_node", true)]).is_none());
}

#[test]
fn open_breakers_are_named_with_their_route_until_only_a_trial_is_missing() {
    let route = Route::new("Order", "Paid").unwrap();
    let mut known = RouteRecord::new(route.clone());
    let (since, next_try) = (NOW.minus(Duration::from_secs(240)), NOW.plus(Duration::from_secs(20)));
    let open = OpenBreaker { route, listener: "mailer".to_owned(), since, next_try };
    let mut host = node("web-1", "multi_node", true);
    host.listeners = ListenerReport::default().with_open_breakers([open]);
    let mut found = |waiting, now| {
        known.waiting = waiting;
        breakers(std::slice::from_ref(&host), std::slice::from_ref(&known), &Flags::default(), now)
    };

    let pausing = found(60, NOW);
    assert_eq!(pausing.len(), 1, "{pausing:?}");
    assert_eq!(
        pausing[0].found,
        "the breaker of mailer on Order/Paid, which failed too often: open for 4 min, next try in 20 s; 60 waiting events"
    );
    assert_eq!((pausing[0].severity, pausing[0].events), (Severity::Warning, 60));
    let later = NOW.plus(Duration::from_secs(60));
    assert!(found(1, later)[0].found.contains("waits for a trial"));
    assert!(found(0, later).is_empty(), "the next event is a trial");
}

#[test]
fn sinks_that_are_only_named_rank_below_those_with_a_finding_of_their_own() {
    let outage = SinkOutage { since: NOW, reason: "connection refused".to_owned(), next_try: NOW };
    let (mut sinks, mut routes) = (Vec::new(), Vec::new());
    for number in 0..6 {
        let route = Route::new("Order", format!("E{number}")).unwrap();
        let mut known = RouteRecord::new(route.clone());
        known.waiting = 10 + number;
        routes.push(known);
        sinks.push(SinkStatus {
            name: format!("s{number}"),
            kind: "nats".to_owned(),
            target: String::new(),
            state: SinkState::Down,
            outage: Some(outage.clone()),
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: vec![route],
            more_routes: 0,
        });
    }
    let mut host = node("web-1", "multi_node", true);
    host.report = HostReport { sinks, ..HostReport::default() }.to_json();

    let mut found = super::sinks(&[host], &routes, &[], &[], &Flags::default(), NOW);
    found.sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.events)));

    let starts = ["the sink s5 ", "the sink s4 ", "the sink s3 ", "also down: s2, s1, s0"];
    let has_start = |(finding, start): (&Finding, &str)| finding.found.starts_with(start);
    assert!(found.len() == 4 && found.iter().zip(starts).all(has_start), "{found:?}");
}

#[test]
fn events_that_need_somebody_are_told() {
    let found = |blocked, oldest| events(&stats(|stats| stats.blocked = blocked), oldest, &Flags::default());
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(600));
    assert_eq!(worst(&found(0, OldestWait::Nothing)), Severity::Good);
    let findings = found(2, OldestWait::NoHost(long));
    assert!(findings.iter().all(|finding| finding.fix.is_some()), "{findings:?}");
    assert_eq!((findings[0].severity, findings[1].severity), (Severity::Warning, Severity::Fault), "{findings:?}");
    assert!(findings[1].fix.as_deref().is_some_and(|fix| fix.contains("start one")), "{findings:?}");
    assert_eq!(
        (worst(&found(0, OldestWait::Short(short))), worst(&found(0, OldestWait::NoHost(short)))),
        (Severity::Good, Severity::Fault)
    );
    let explained = found(0, OldestWait::Explained(long));
    assert_eq!(worst(&explained), Severity::Good);
    assert_eq!(explained[1].found, "the oldest due event has waited for 10 min; hosts report why events wait");
    let slow = found(0, OldestWait::TooSlow(long));
    assert!(slow[1].fix.as_deref().is_some_and(|fix| fix.contains("event why")), "{slow:?}");
    assert_eq!(slow[1].found, "a due event has waited for a host for 10 min");
}

#[test]
fn every_plugin_is_told_of_and_a_section_without_one_too() {
    let plugin = |name: &str, state, error: Option<&str>| PluginStatus {
        name: name.to_owned(),
        version: Some("1.2.3".to_owned()),
        digest: None,
        state,
        routes: vec![Route::new("Order", "OrderPlaced").unwrap()],
        more_routes: 0,
        error: error.map(str::to_owned),
        file: format!("plugins/{name}.wasm").into(),
        details: Default::default(),
    };
    let found = [
        plugin("good", PluginState::Loads, None),
        plugin("bad", PluginState::Failed, Some("it is no component")),
        plugin("older", PluginState::OlderLoads, Some("its manifest does not load")),
    ];
    let findings = of_plugins("plugins", &found, &BTreeSet::from(["good", "absent"]));
    let said: Vec<&str> = findings.iter().map(|finding| finding.found.as_str()).collect();
    assert_eq!(
        said,
        [
            "bad cannot serve: it is no component",
            "older: its current file cannot serve: its manifest does not load; version 1.2.3, which served before, still answers \
             Order/OrderPlaced",
            "the configuration has a section [plugins.absent], but plugins holds no absent.wasm",
            "good 1.2.3 answers Order/OrderPlaced"
        ]
    );
    let told: Vec<_> = findings.iter().map(|finding| (finding.severity, finding.fix.as_deref())).collect();
    assert_eq!(told[0], (Severity::Fault, Some("when that is fixed: outbox plugin check plugins/bad.wasm")));
    assert_eq!(told[1], (Severity::Warning, Some("when that is fixed: outbox plugin check plugins/older.wasm")));
    assert_eq!(worst(&of_plugins("plugins", &[], &BTreeSet::new())), Severity::Warning);
}

#[test]
fn events_that_fail_are_told_with_what_most_of_them_say() {
    let newest = [
        failed(Some("fuel: used up 5")),
        failed(Some("[http-500] https://a.example answered\u{1b}[31m 500")),
        failed(Some("[http-500] https://b.example answered 500")),
        failed(None),
    ];

    let found = retries(7, &newest, &Flags::default());

    assert_eq!(found.severity, Severity::Warning);
    assert_eq!(
        found.found,
        "7 events failed and wait for another attempt; most often: [http-500] https://a.example answered\\u{1b}[31m 500"
    );
    assert_eq!(found.fix.as_deref(), Some("outbox event list --status retry\nthen outbox event why ID"));
    let broken = retries(1, &[failed(Some("fuel: used up 5"))], &Flags::default());
    assert!(broken.fix.is_some_and(|fix| fix.contains("breaker.pause")), "the breaker of its listener may be open");
    assert_eq!(retries(1, &[], &Flags::default()).found, "1 event failed and waits for another attempt");
    assert_eq!(retries(0, &[], &Flags::default()).severity, Severity::Good);
}

#[test]
fn dead_events_are_told_with_what_most_of_them_say_and_a_replay_that_would_not_help_is_not_offered_first() {
    let no_listener = |event_type: &str| failed(Some(&format!("no listener answers Order/{event_type} (1 route is answered)")));
    let first = |finding: &Finding| finding.fix.as_deref().and_then(|fix| fix.lines().next()).map(str::to_owned);

    let unanswered =
        dead(3, &[no_listener("A"), failed(Some("fuel: used up 5")), no_listener("B")], &[], &[], &Flags::default(), NOW);
    let mut died = failed(Some("fuel: used up 5"));
    died.done_at = Some(NOW.minus(Duration::from_secs(3 * 3_600)));
    let failing = dead(1, &[died], &[], &[], &Flags::default(), NOW);

    assert_eq!(unanswered.found, "3 events given up; most often: no listener answers Order/A (1 route is answered)");
    assert!(
        first(&unanswered).is_some_and(|fix| fix.contains("add a plugin, listener or relay for their routes")),
        "{unanswered:?}"
    );
    assert_eq!(failing.found, "1 event given up; most often: fuel: used up 5; last 3 h ago");
    assert!(first(&failing).is_some_and(|fix| fix.contains("make sure that the cause is gone")), "{failing:?}");
    assert!(failing.fix.as_deref().is_some_and(|fix| fix.contains("outbox dead replay ID  delivers one again")), "{failing:?}");
    assert_eq!(dead(0, &[], &[], &[], &Flags::default(), NOW).severity, Severity::Good);
}

#[test]
fn dead_events_name_the_change_that_preceded_the_first_of_them_if_all_were_read() {
    let swap = serde_json::json!({ "plugin": "mailer", "from": "1.3.0 (ab)", "to": "1.4.0 (cd)" });
    let swap = AuditRecord::new(1, NOW.minus(Duration::from_secs(240)), "web-1", "swap_plugin", swap);
    let changes = outbox::why::changes([swap]);
    let died = |seconds: u64| {
        let mut died = failed(Some("fuel: used up 5"));
        died.done_at = Some(NOW.minus(Duration::from_secs(seconds)));
        died
    };
    let newest = [died(60), died(120)];

    let hosts = [host_with_mailer()];
    let all = dead(2, &newest, &hosts, &changes, &Flags::default(), NOW);
    let some = dead(1_000, &newest, &hosts, &changes, &Flags::default(), NOW);
    let of_another_plugin = dead(2, &newest, &[], &changes, &Flags::default(), NOW);

    let preceding = "\nit began 2 min after the swap of plugin mailer 1.3.0 (ab) → 1.4.0 (cd)";
    assert!(all.found.ends_with(preceding), "{all:?}");
    assert!(!some.found.contains("it began"), "{some:?}");
    assert!(!of_another_plugin.found.contains("it began"), "{of_another_plugin:?}");
}

/// An event that failed.
fn failed(error: Option<&str>) -> Record {
    let envelope = Envelope::new("OrderPlaced").aggregate("Order", "42").json(&1).unwrap();
    let mut record = Record::inserted(1, &envelope, NOW);
    (record.status, record.attempts, record.last_error) = (Status::Retry, 1, error.map(str::to_owned));
    record
}

#[test]
fn failed_plugin_is_a_fault_only_while_events_wait_for_a_listener_or_hosts_require_it() {
    let failed = PluginStatus {
        name: "old".to_owned(),
        version: None,
        digest: None,
        state: PluginState::Failed,
        routes: Vec::new(),
        more_routes: 0,
        error: Some("it is no component".to_owned()),
        file: "plugins/old.wasm".into(),
        details: Default::default(),
    };
    let mut parked = RouteRecord::new(Route::new("Order", "OrderPlaced").unwrap());
    parked.parked = 1;
    let severity = |required: &[&str], routes: &[RouteRecord]| {
        let required = required.iter().map(|name| (*name).to_owned()).collect();
        let mut findings = of_plugins("plugins", std::slice::from_ref(&failed), &BTreeSet::new());
        lower_plugin_severities(&mut findings, std::slice::from_ref(&failed), &required, routes);
        worst(&findings)
    };

    assert_eq!(severity(&[], &[]), Severity::Warning);
    assert_eq!(severity(&[], &[parked]), Severity::Fault);
    assert_eq!(severity(&["old"], &[]), Severity::Fault);
}
