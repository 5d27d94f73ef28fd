use outbox::event::OwnerId;
use outbox::store::{Node, Severity};
use outbox::{Envelope, Status};

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

fn node(label: &str, mode: &'static str, alive: bool) -> NodeRecord {
    let owner = OwnerId::generate(label);
    let mut node = NodeRecord::new(&Node { owner, label: label.to_owned(), mode, version: "1.0.0", plugins: None }, NOW);
    node.alive = alive;
    node
}

fn route(event_type: &str, parked: u64) -> RouteRecord {
    let mut route = RouteRecord::new(Route::new("Order", event_type).unwrap());
    route.parked = parked;
    route
}

/// The same as somebody paused it long ago.
fn paused(mut route: RouteRecord) -> RouteRecord {
    (route.paused_at, route.paused_by) = (Some(NOW.minus(LONG)), Some("anna".to_owned()));
    route
}

/// The same with a listener that was there.
fn seen(mut route: RouteRecord) -> RouteRecord {
    route.first_seen_at = Some(NOW);
    route
}

/// A route that never had a listener, with events that wait.
fn waiting(event_type: &str, waiting: u64) -> RouteRecord {
    let mut route = route(event_type, 0);
    route.waiting = waiting;
    route
}

fn stats(change: impl FnOnce(&mut Stats)) -> Stats {
    let mut stats = Stats::default();
    change(&mut stats);
    stats
}

fn answering(answered: &[Route]) -> Here {
    Here { answered: Some(answered.to_vec()), ..Here::default() }
}

fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap()
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
        assert_eq!(worst(&nodes(&live)), severity, "{modes:?}: {:?}", nodes(&live));
    }
    let gone = [node("a", "single_node", true), node("b", "multi_node", false)];
    assert_eq!(worst(&nodes(&gone)), Good, "one that is gone disturbs nobody");
}

#[test]
fn a_route_that_waits_for_somebody_is_told_with_what_to_do() {
    assert_eq!(worst(&routes(&[route("A", 0)], &Here::default(), NOW)), Severity::Good);

    let parked = routes(&[route("A", 2), route("B", 0)], &answering(&[]), NOW);
    assert_eq!((parked.len(), worst(&parked)), (1, Severity::Warning));
    assert!(parked[0].fix.as_deref().is_some_and(|fix| fix.contains("answers Order/A")), "{parked:?}");
    let here = routes(&[route("A", 2)], &answering(&[Route::new("Order", "A").unwrap()]), NOW);
    assert!(here[0].fix.as_deref().is_some_and(|fix| fix.contains("outbox run")), "{here:?}");

    let never = waiting("A", 3);
    let told = routes(std::slice::from_ref(&never), &answering(&[]), NOW);
    assert_eq!(told[0].found, "Order/A has 3 events waiting, and never had a listener");
    assert_eq!(
        worst(&routes(std::slice::from_ref(&never), &answering(std::slice::from_ref(&never.route)), NOW)),
        Severity::Good,
        "soon it has"
    );
    assert_eq!(worst(&routes(&[seen(never)], &answering(&[]), NOW)), Severity::Good, "another host may answer it");

    let relays = vec![Route::new("Order", "*").unwrap()];
    let relayed = routes(&[seen(route("A", 2)), route("B", 2)], &Here { relays, ..answering(&[]) }, NOW);
    let says =
        |finding: &Finding| finding.fix.as_deref().is_some_and(|fix| fix.contains("write [routes.\"Order/A\"] to relay it"));
    assert_eq!(relayed.iter().map(says).collect::<Vec<_>>(), [true, false], "{relayed:?}");

    let paused = routes(&[paused(route("A", 2))], &Here::default(), NOW);
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].found, "Order/A has been paused by anna for 5 min; 2 events held back");
    assert!(paused[0].fix.as_deref().is_some_and(|fix| fix.ends_with("outbox route resume Order/A")), "{paused:?}");
}

#[test]
fn a_paused_pattern_is_told_once_with_all_events_that_it_holds_back() {
    let found = routes(&[paused(route("*", 0)), route("A", 2), route("B", 3), waiting("C", 1)], &answering(&[]), NOW);

    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].found, "Order/* has been paused by anna for 5 min; 5 events held back");
    assert!(found[0].fix.as_deref().is_some_and(|fix| fix.ends_with("outbox route resume 'Order/*'")), "{found:?}");
}

#[test]
fn events_that_need_somebody_are_told() {
    assert_eq!(worst(&events(&Stats::default(), false, &Flags::default())), Severity::Good);
    let bad = stats(|stats| (stats.dead, stats.blocked, stats.oldest_pending_seconds) = (1, 2, Some(600.0)));
    let findings = events(&bad, false, &Flags::default());
    assert!(findings.iter().all(|finding| finding.severity == Severity::Warning && finding.fix.is_some()), "{findings:?}");
    assert!(findings[2].fix.as_deref().is_some_and(|fix| fix.contains("start one")), "{findings:?}");
    let due = stats(|stats| stats.oldest_pending_seconds = Some(1.0));
    assert_eq!(
        (worst(&events(&due, true, &Flags::default())), worst(&events(&due, false, &Flags::default()))),
        (Severity::Good, Severity::Warning)
    );
    assert!(events(&bad, true, &Flags::default())[2].fix.as_deref().is_some_and(|fix| fix.contains("event why")));
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
    let found = [plugin("good", PluginState::Serving, None), plugin("bad", PluginState::Failed, Some("it is no component"))];
    let findings = of_plugins("plugins", &found, &BTreeSet::from(["good", "absent"]));
    let said: Vec<&str> = findings.iter().map(|finding| finding.found.as_str()).collect();
    assert_eq!(
        said,
        [
            "bad cannot serve: it is no component",
            "the configuration has a section [plugins.absent], but plugins holds no absent.wasm",
            "good 1.2.3 answers Order/OrderPlaced"
        ]
    );
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
    assert_eq!(retries(1, &[], &Flags::default()).found, "1 event failed and waits for another attempt");
    assert_eq!(retries(0, &[], &Flags::default()).severity, Severity::Good);
}

/// An event that failed.
fn failed(error: Option<&str>) -> Record {
    let envelope = Envelope::new("OrderPlaced").aggregate("Order", "42").json(&1).unwrap();
    let mut record = Record::inserted(1, &envelope, NOW);
    (record.status, record.attempts, record.last_error) = (Status::Retry, 1, error.map(str::to_owned));
    record
}
