use outbox::store::Severity;

use super::*;

const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

fn node(label: &str, mode: &str, alive: bool) -> NodeRecord {
    NodeRecord {
        owner: format!("{label}-1"),
        label: label.to_owned(),
        mode: mode.to_owned(),
        version: "1.0.0".to_owned(),
        started_at: NOW,
        alive_until: NOW,
        alive,
        partitions: 0,
        plugins: None,
    }
}

fn route(event_type: &str, parked: u64) -> RouteRecord {
    RouteRecord {
        route: Route::new("Order", event_type).unwrap(),
        first_seen_at: None,
        paused_at: None,
        paused_by: None,
        pause_reason: None,
        waiting: 0,
        parked,
        blocked: 0,
        dead: 0,
    }
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
        (vec!["single_node", "writer_only"], Good),
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

    let never = RouteRecord { waiting: 3, ..route("A", 0) };
    let told = routes(std::slice::from_ref(&never), &answering(&[]), NOW);
    assert_eq!(told[0].found, "Order/A has 3 events waiting, and never had a listener");
    assert_eq!(
        worst(&routes(std::slice::from_ref(&never), &answering(std::slice::from_ref(&never.route)), NOW)),
        Severity::Good,
        "soon it has"
    );
    let seen = RouteRecord { first_seen_at: Some(NOW), ..never };
    assert_eq!(worst(&routes(&[seen], &answering(&[]), NOW)), Severity::Good, "another host may answer it");

    let relays = vec![Route::new("Order", "*").unwrap()];
    let had = RouteRecord { first_seen_at: Some(NOW), ..route("A", 2) };
    let relayed = routes(&[had, route("B", 2)], &Here { relays, ..answering(&[]) }, NOW);
    let says =
        |finding: &Finding| finding.fix.as_deref().is_some_and(|fix| fix.contains("write [routes.\"Order/A\"] to relay it"));
    assert_eq!(relayed.iter().map(says).collect::<Vec<_>>(), [true, false], "{relayed:?}");

    let paused = RouteRecord { paused_at: Some(NOW.minus(LONG)), paused_by: Some("anna".to_owned()), ..route("A", 2) };
    let paused = routes(&[paused], &Here::default(), NOW);
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].found, "Order/A has been paused by anna for 5 min; 2 events held back");
    assert!(paused[0].fix.as_deref().is_some_and(|fix| fix.ends_with("outbox route resume Order/A")), "{paused:?}");
}

#[test]
fn a_paused_pattern_is_told_once_with_all_events_that_it_holds_back() {
    let pattern = RouteRecord { paused_at: Some(NOW.minus(LONG)), paused_by: Some("anna".to_owned()), ..route("*", 0) };
    let never = RouteRecord { waiting: 1, ..route("C", 0) };

    let found = routes(&[pattern, route("A", 2), route("B", 3), never], &answering(&[]), NOW);

    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].found, "Order/* has been paused by anna for 5 min; 5 events held back");
    assert!(found[0].fix.as_deref().is_some_and(|fix| fix.ends_with("outbox route resume 'Order/*'")), "{found:?}");
}

#[test]
fn events_that_need_somebody_are_told() {
    assert_eq!(worst(&events(&Stats::default(), false, &Flags::default())), Severity::Good);
    let bad = Stats { dead: 1, blocked: 2, oldest_pending_seconds: Some(600.0), ..Stats::default() };
    let findings = events(&bad, false, &Flags::default());
    assert!(findings.iter().all(|finding| finding.severity == Severity::Warning && finding.fix.is_some()), "{findings:?}");
    assert!(findings[2].fix.as_deref().is_some_and(|fix| fix.contains("start one")), "{findings:?}");
    let due = Stats { oldest_pending_seconds: Some(1.0), ..Stats::default() };
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
    let failed = |error: &str| Record { last_error: Some(error.to_owned()), ..failing() };
    let newest = [
        failed("fuel: used up 5"),
        failed("[http-500] https://a.example answered\u{1b}[31m 500"),
        failed("[http-500] https://b.example answered 500"),
        Record { last_error: None, ..failing() },
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

fn failing() -> Record {
    Record {
        seq: 1,
        event_id: "failing".parse().unwrap(),
        event_type: "OrderPlaced".to_owned(),
        aggregate_type: "Order".to_owned(),
        aggregate_id: None,
        tenant_id: None,
        headers: outbox::event::Headers::default(),
        content_type: "application/json".to_owned(),
        payload_bytes: 2,
        payload: None,
        status: outbox::Status::Retry,
        attempts: 1,
        deferrals: 0,
        claims: 0,
        starts: 0,
        claim_seq: 1,
        replays: 0,
        occurred_at: NOW,
        created_at: NOW,
        available_at: NOW,
        due_at: Some(NOW),
        expires_at: None,
        done_at: None,
        parked: None,
        behind: None,
        blocks: false,
        locked_by: None,
        locked_at: None,
        lease_end: None,
        last_error: None,
        last_cost: None,
    }
}
