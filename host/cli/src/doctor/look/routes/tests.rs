use std::time::Duration;

use outbox::Envelope;
use outbox::store::Severity;

use super::*;
use crate::plugins::PluginState;

const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

fn route(event_type: &str, parked: u64) -> RouteRecord {
    let mut route = RouteRecord::new(Route::new("Order", event_type).unwrap());
    route.parked = parked;
    route
}

/// The same as somebody paused it long ago.
fn paused_by_anna(mut route: RouteRecord) -> RouteRecord {
    (route.paused_at, route.paused_by) = (Some(NOW.minus(Duration::from_secs(300))), Some("anna".to_owned()));
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

fn answering(answered: &[Route]) -> Here {
    Here { answered: answered.to_vec(), ..Here::default() }
}

fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap()
}

#[test]
fn a_route_that_waits_for_somebody_is_told_with_what_to_do() {
    assert_eq!(worst(&routes(&[route("A", 0)], &[], &Here::default(), NOW)), Severity::Good);

    let parked = routes(&[route("A", 2), route("B", 0)], &[], &answering(&[]), NOW);
    assert_eq!((parked.len(), worst(&parked)), (1, Severity::Warning));
    assert!(parked[0].fix.as_deref().is_some_and(|fix| fix.contains("answers Order/A")), "{parked:?}");
    let here = routes(&[route("A", 2)], &[], &answering(&[Route::new("Order", "A").unwrap()]), NOW);
    assert!(here[0].fix.as_deref().is_some_and(|fix| fix.contains("outbox run")), "{here:?}");

    let never = waiting("A", 3);
    let told = routes(std::slice::from_ref(&never), &[], &answering(&[]), NOW);
    assert_eq!(told[0].found, "Order/A has 3 events waiting, and never had a listener");
    assert_eq!(
        worst(&routes(std::slice::from_ref(&never), &[], &answering(std::slice::from_ref(&never.route)), NOW)),
        Severity::Good,
        "soon it has"
    );
    assert_eq!(worst(&routes(&[seen(never)], &[], &answering(&[]), NOW)), Severity::Good, "another host may answer it");

    let relays = vec![Route::new("Order", "*").unwrap()];
    let relaying = Here { relays: relays.clone(), ..answering(&[]) };
    assert_eq!(worst(&routes(&[waiting("A", 3)], &[], &relaying, NOW)), Severity::Good, "a host that starts here relays it");
    let relayed = routes(&[seen(route("A", 2)), route("B", 2)], &[], &Here { relays, ..answering(&[]) }, NOW);
    let says =
        |finding: &Finding| finding.fix.as_deref().is_some_and(|fix| fix.contains("write [routes.\"Order/A\"] to relay it"));
    assert_eq!(relayed.iter().map(says).collect::<Vec<_>>(), [true, false], "{relayed:?}");

    let paused = routes(&[paused_by_anna(route("A", 2))], &[held("A"), held("A")], &Here::default(), NOW);
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].found, "Order/A has been paused by anna for 5 min; 2 events held back");
    assert!(paused[0].fix.as_deref().is_some_and(|fix| fix.ends_with("outbox route resume Order/A")), "{paused:?}");
}

#[test]
fn a_paused_pattern_is_told_once_with_all_events_that_it_holds_back() {
    let known = [paused_by_anna(route("*", 0)), route("A", 2), route("B", 3), waiting("C", 1)];
    let events = [held("A"), held("A"), held("B"), held("B"), held("B")];
    let found = routes(&known, &events, &answering(&[]), NOW);

    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].found, "Order/* has been paused by anna for 5 min; 5 events held back");
    assert!(found[0].fix.as_deref().is_some_and(|fix| fix.ends_with("outbox route resume 'Order/*'")), "{found:?}");
}

#[test]
fn a_pause_holds_back_no_event_that_was_parked_without_a_listener() {
    let known = [paused_by_anna(route("*", 0)), route("A", 2), route("B", 1)];

    let told = |events: &[Record]| routes(&known, events, &answering(&[]), NOW).remove(0).found;

    assert!(told(&[held("A"), unanswered("A"), held("B")]).ends_with("; 2 events held back"));
    assert!(told(&[unanswered("A"), held("B")]).ends_with("; up to 2 events held back"), "the oldest is not known");
    assert!(told(&[unanswered("A"), unanswered("A"), unanswered("B")]).ends_with("by anna for 5 min"), "none of them");
}

#[test]
fn events_that_wait_for_a_misspelt_route_are_told_the_way_out_where_no_host_remembers_a_listener() {
    let way_out = |known: &[RouteRecord], events: &[Record]| {
        let told = routes(known, events, &answering(&[]), NOW);
        told[0].fix.as_deref().is_some_and(|fix| fix.contains("outbox run --set dispatcher.unroutable=dead"))
    };
    let by_settings = [unanswered("A"), unanswered("A")];
    assert!(way_out(&[route("A", 2)], &by_settings));
    assert!(way_out(&[route("A", 2)], &[parked("A", "this host has no listener at all")]));
    assert!(
        !way_out(&[route("A", 2)], &[parked("A", "broken.wasm does not load")]),
        "such a host parks whatever its settings say"
    );
    assert!(!way_out(&[seen(route("A", 2))], &by_settings), "hosts park its events whatever their settings say");
    assert!(!way_out(&[route("A", 2), seen(route("*", 0))], &by_settings), "a relay covered it");
    assert!(!way_out(&[waiting("A", 2)], &[]), "a host that starts does as its settings say");
}

#[test]
fn a_route_tells_why_its_events_wait_as_the_host_saw_it() {
    let why = "the manifest of greeter does not load: unknown field";
    let events = [parked("A", why), parked("B", "another reason"), parked("A", why), unanswered("C")];

    let told = routes(&[seen(route("A", 2)), route("B", 1), route("C", 1)], &events, &answering(&[]), NOW);

    let said: Vec<&str> = told.iter().map(|finding| finding.found.as_str()).collect();
    assert_eq!(
        said,
        [
            "Order/A has 2 events waiting without a listener: the manifest of greeter does not load: unknown field",
            "Order/B has 1 event waiting without a listener, and never had one: another reason",
            "Order/C has 1 event waiting without a listener, and never had one"
        ]
    );
    let fix = |index: usize| told[index].fix.as_deref().unwrap_or_default();
    assert!(fix(0).starts_with("bring back a plugin, listener or relay that answers Order/A"), "{told:?}");
    assert!(fix(1).contains("add a plugin, listener or relay that answers Order/B"), "{told:?}");
}

#[test]
fn no_name_is_to_be_corrected_while_a_plugin_that_does_not_serve_may_answer_the_route() {
    let fix = |events: &[Record], here: &Here| {
        let told = routes(&[route("A", 2)], events, here, NOW);
        told[0].fix.clone().unwrap_or_default()
    };
    let does_not_load = [parked("A", "the plugin greeter does not serve as it lies in the directory: no memory")];
    let on_host = fix(&does_not_load, &answering(&[]));
    assert!(on_host.starts_with("repair the plugin") && !on_host.contains("correct its name"), "{on_host}");
    assert!(on_host.contains("add a plugin, listener or relay that answers Order/A"), "{on_host}");

    let no_plugin = [unanswered("A"), parked("A", "this host has no listener at all")];
    assert!(fix(&no_plugin, &answering(&[])).starts_with("correct its name"));
    let failed = PluginStatus {
        name: "greeter".to_owned(),
        version: None,
        digest: None,
        state: PluginState::Failed,
        routes: Vec::new(),
        more_routes: 0,
        error: None,
        file: "plugins/greeter.wasm".into(),
        details: Default::default(),
    };
    let here = Here { failed: vec![failed], ..answering(&[]) };
    assert!(fix(&no_plugin, &here).starts_with("repair the plugin"), "it does not load here");
}

#[test]
fn many_routes_without_a_listener_are_one_finding() {
    let mut known: Vec<RouteRecord> = (0..138).map(|number| route(&format!("Never{number:03}"), 7)).collect();
    known.push(seen(route("Before", 20)));
    known.push(route("Here", 1));
    let events = [parked("Here", "rare"), parked("Before", "often"), unanswered("Never001"), parked("Never002", "often")];
    let here = answering(&[Route::new("Order", "Here").unwrap()]);

    let told = routes(&known, &events, &here, NOW);

    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        told[0].found,
        "987 events of 140 routes wait without a listener: Order/Before (20), Order/Never000 (7), Order/Never001 (7) and 137 \
         others; most often: often"
    );
    assert_eq!(
        told[0].fix.as_deref(),
        Some(
            "1 route answered by plugins or relays here: start a host with `outbox run`\n\
             1 route answered before: bring back their plugins, listeners or relays; see `outbox plugin list`\n\
             1 route never answered: repair the plugins that do not serve, which may answer them; see `outbox plugin list`\n\
             137 routes never answered: correct the names where the events are written, or add plugins, listeners or relays\n\
             where a name is a mistake, a host that serves other routes gives its events up, unless its settings say otherwise: start one with \
             `outbox run --set dispatcher.unroutable=dead`; then skip or discard them\n\
             outbox route list  shows them all"
        )
    );
}

/// An event that waits for a listener for this reason.
fn parked(event_type: &str, why: &str) -> Record {
    let mut record = unanswered(event_type);
    record.parked = Some(format!("no listener answers Order/{event_type} (1 route is answered); it waits for one: {why}"));
    record
}

/// An event that waits for a listener, of which only that is known.
fn unanswered(event_type: &str) -> Record {
    let envelope = Envelope::new(event_type).aggregate("Order", "42").json(&1).unwrap();
    let mut record = Record::inserted(1, &envelope, NOW);
    record.parked = Some(format!("no listener answers Order/{event_type} (1 route is answered)"));
    record
}

/// An event that its pause holds.
fn held(event_type: &str) -> Record {
    let mut record = unanswered(event_type);
    record.parked = Some("the route Order/* is paused by anna".to_owned());
    record
}

#[test]
fn a_route_with_a_space_at_its_end_does_not_look_like_another() {
    let mut known = RouteRecord::new(Route::new(" Order", "A").unwrap());
    known.waiting = 1;

    let told = routes(std::slice::from_ref(&known), &[], &answering(&[]), NOW);
    assert_eq!(told[0].found, "\" Order/A\" has 1 event waiting, and never had a listener");
    assert!(told[0].fix.as_deref().is_some_and(|fix| fix.contains("answers \" Order/A\"")), "{told:?}");

    let told = routes(&[paused_by_anna(known)], &[], &answering(&[]), NOW);
    assert!(told[0].found.starts_with("\" Order/A\" has been paused by anna"), "{told:?}");
}
