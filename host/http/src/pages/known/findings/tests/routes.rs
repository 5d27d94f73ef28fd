//! Routes that are paused or have no listener.

use outbox_event::Route;

use super::*;

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
