//! Sinks that are down.

use outbox::why::RecentChanges;
use outbox_event::Route;
use outbox_store::{AuditRecord, ListenerReport, StalledRoute, WaitReason};

use super::*;

/// A host with these sinks.
fn host_with(label: &str, sinks: &[SinkStatus]) -> NodeRecord {
    changed!(NodeRecord { report: HostReport::new(Vec::new(), sinks.to_vec()).to_json(), ..node(label, now()) })
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
fn a_sink_that_is_down_on_all_hosts_is_down_since_the_last_one_lost_it() {
    let down = |seconds| [down_for(seconds, sink("orders", &["Order/*"]))];
    let nodes = vec![host_with("web-1", &down(240)), host_with("web-2", &down(9))];
    assert_eq!(
        said(Snapshot { nodes, ..snapshot() }),
        ["Sink orders has been down since 14:09:51 UTC, on web-1 since 14:06:00 UTC: connection refused"]
    );
}

#[test]
fn an_outage_names_the_change_that_preceded_it_on_its_host_and_no_other_change() {
    let before = |seconds: u64| now().minus(Duration::from_secs(9 + seconds));
    let loaded = serde_json::json!({ "plugin": "trouble", "to": "1.0.0 (ab)" });
    let changes = [
        AuditRecord::new(3, before(22), "web-1", "load_plugin", loaded),
        AuditRecord::new(2, before(60), "web-2", "stop_host", serde_json::json!({})),
        AuditRecord::new(1, before(120), "web-1", "start_host", serde_json::json!({})),
    ];
    let snapshot = Snapshot {
        nodes: vec![host_with("web-1", &[down_for(9, sink("orders", &["Order/*"]))])],
        routes: vec![waiting_at("Placed", 2)],
        recent: Some(RecentChanges { changes: outbox::why::changes(changes), cut_at: None }),
        ..snapshot()
    };

    let all = findings(&Known { snapshot: Some(Arc::new(snapshot)), outage: None }, &[], "");

    assert_eq!(all[0].preceding.as_deref(), Some("it began 2 min after the start of host web-1"), "{all:?}");
}
