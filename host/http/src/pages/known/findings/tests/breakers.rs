//! Breakers that are open.

use outbox_event::Route;
use outbox_store::{ListenerReport, OpenBreaker};

use super::*;

/// A snapshot with open breakers of these routes, whose next try is in so many seconds.
fn open(event_types: &[&str], seconds: u64, routes: Vec<RouteRecord>) -> Snapshot {
    let since = now().minus(Duration::from_secs(240));
    let next_try = since.plus(Duration::from_secs(240 + seconds));
    let listener = "mailer".to_owned();
    let breakers = event_types.iter().map(|event_type| OpenBreaker {
        route: Route::new("Order", *event_type).expect("valid"),
        listener: listener.clone(),
        since,
        next_try,
    });
    let listeners = ListenerReport::default().with_open_breakers(breakers);
    Snapshot { nodes: vec![changed!(NodeRecord { listeners, ..node("web-1", now()) })], routes, ..snapshot() }
}

#[test]
fn an_open_breaker_names_its_route_and_its_waiting_events() {
    let all = said(open(&["Paid"], 3_600, vec![waiting_at("Paid", 60)]));
    let [finding] = &all[..] else { panic!("{all:?}") };
    assert!(finding.starts_with("Breaker of route Order/Paid (mailer): open for 4 min, next try in "), "{finding}");
    assert!(finding.ends_with("; 60 events are waiting."), "{finding}");
}

#[test]
fn a_breaker_that_waits_for_a_trial_is_no_finding_without_waiting_events() {
    assert_eq!(said(open(&["Paid"], 0, vec![waiting_at("Paid", 0)])), Vec::<String>::new());
    let waiting =
        "Breaker of route Order/Paid (mailer): waits for a trial with the next event, opened 4 min ago; 1 event is waiting.";
    assert_eq!(said(open(&["Paid"], 0, vec![waiting_at("Paid", 1)])), [waiting]);
}

#[test]
fn many_open_breakers_are_one_finding() {
    let all = said(open(&["A", "B", "C", "D"], 3_600, vec![waiting_at("A", 2), waiting_at("D", 3)]));
    assert_eq!(all, ["Listeners of 4 routes failed too often; their breakers are open; 5 events are waiting."]);
}
