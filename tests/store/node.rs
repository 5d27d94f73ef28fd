//! Who works on the table, and what it looks like from outside.

use std::time::Duration;

use outbox::Route;
use outbox::event::OwnerId;
use outbox::store::{Expectations, ListenerReport, Node, PARTITIONS, Settlement, Severity, StalledRoute};
use outbox::time::Timestamp;
use support::Harness;

use crate::common::{LEASE, MOMENT, by_hand, claim, expectations, finished, kept, owner, plains, write, write_one};

fn node(owner: &OwnerId) -> Node {
    Node::new(owner.clone(), "here 1", "multi_node", "1.2.3")
}

pub(crate) async fn a_host_is_alive_as_long_as_it_says_so(db: &dyn Harness) {
    let (one, two, other) = (owner("one"), owner("two"), owner("other"));
    let store = db.store();
    assert_eq!(store.heartbeat(&node(&one), LEASE).await.expect("says that it is alive"), 1);
    db.let_pass(MOMENT).await;
    assert_eq!(store.heartbeat(&node(&two), LEASE).await.expect("says that it is alive"), 2);
    db.let_pass(MOMENT).await;
    let lonely = Node { mode: "single_node", ..node(&other) };
    assert_eq!(
        store.heartbeat(&lonely, LEASE).await.expect("says that it is alive"),
        1,
        "nodes of another mode are not counted"
    );
    db.let_pass(LEASE / 2).await;
    assert_eq!(store.heartbeat(&node(&one), LEASE).await.expect("says that it is alive"), 2);

    db.let_pass(LEASE / 2 + Duration::from_secs(1)).await;

    assert_eq!(store.heartbeat(&node(&one), LEASE).await.expect("says that it is alive"), 1, "two has said nothing");
    let nodes = store.nodes().await.expect("lists");
    let alive: Vec<_> = nodes.iter().map(|node| (node.owner.as_str(), node.alive)).collect();
    assert_eq!(alive, [(one.as_str(), true), (two.as_str(), false), (other.as_str(), false)]);
    assert_eq!((nodes[0].label.as_str(), nodes[0].mode.as_str(), nodes[0].version.as_str()), ("here 1", "multi_node", "1.2.3"));
    let telling = Node { report: Some("[\"ü\"]".to_owned()), ..node(&one) };
    store.heartbeat(&telling, LEASE).await.expect("says that it is alive");
    let told = store.nodes().await.expect("lists").remove(0).report.expect("it is written");
    assert_eq!(serde_json::from_str::<Vec<String>>(&told).expect("JSON"), ["ü"]);
    db.let_pass(LEASE + MOMENT).await;
    assert_eq!(store.nodes().await.expect("lists").remove(0).report, None, "the report of a host that is gone is not read");
    db.let_pass(Duration::from_secs(25 * 3_600)).await;
    store.heartbeat(&node(&one), LEASE).await.expect("says that it is alive");
    assert_eq!(store.nodes().await.expect("lists").len(), 1, "after a day they are forgotten");
}

pub(crate) async fn a_host_tells_how_it_works_and_each_beat_says_it_anew(db: &dyn Harness) {
    let (store, one) = (db.store(), owner("one"));
    let told = async || {
        let node = store.nodes().await.expect("lists").remove(0);
        (node.room, node.session)
    };

    store.heartbeat(&node(&one), LEASE).await.expect("says that it is alive");
    assert_eq!(told().await, (1, false));
    let reading = Node { room: u32::MAX, session: true, ..node(&one) };
    store.heartbeat(&reading, LEASE).await.expect("says that it is alive");
    assert_eq!(told().await, (i32::MAX.cast_unsigned(), true), "the column holds the largest number that fits");
    store.heartbeat(&Node { room: 7, session: false, ..reading }, LEASE).await.expect("says that it is alive");

    assert_eq!(told().await, (7, false));
}

pub(crate) async fn hosts_see_what_the_others_cannot_deliver(db: &dyn Harness) {
    let (store, [one, two]) = (db.store(), ["one", "two"].map(|name| node(&owner(name))));
    let seen = async || store.peers(&two).await.expect("lists");
    let beat = async |stalled: Vec<StalledRoute>| {
        let listeners = ListenerReport::new("digest".to_owned(), stalled);
        store.heartbeat(&Node { listeners, room: 7, ..one.clone() }, LEASE).await.expect("says that it is alive");
    };
    let stall = |number: usize, reason: &str| {
        let since = Timestamp::from_micros(1_800_000_000_000_000);
        StalledRoute::new(format!("Order/{number}"), "the sink orders".to_owned(), reason.to_owned(), since)
    };
    let told = vec![stall(1, "connection refused: ü"), stall(2, "")];
    store.heartbeat(&two, LEASE).await.expect("says that it is alive");
    assert!(seen().await.is_empty(), "it does not see itself");

    beat(told.clone()).await;
    let peer = seen().await.remove(0);
    assert_eq!((peer.label.as_str(), peer.room, peer.listeners.digest.as_str()), ("here 1", 7, "digest"));
    assert_eq!(peer.listeners.stalled, told);
    let row = async || {
        store.nodes().await.expect("lists").into_iter().find(|row| row.owner == one.owner.as_str()).expect("it is there")
    };
    assert_eq!(row().await.listeners, peer.listeners);
    beat((0..30).map(|number| stall(number, &"x".repeat(10_000))).collect()).await;
    let bounded = seen().await.remove(0).listeners.stalled;
    assert_eq!(bounded.len(), StalledRoute::NAMED);
    assert!(bounded.iter().all(|one| one.reason.len() < 600), "{bounded:?}");
    db.execute(&format!("UPDATE outbox_event_node SET listeners = '{}' WHERE owner LIKE 'one%'", "x".repeat(100_000))).await;
    assert_eq!(seen().await.remove(0).listeners, ListenerReport::default(), "no host writes so much");

    beat(told).await;
    let lonely = Node { mode: "single_node", ..two.clone() };
    assert!(store.peers(&lonely).await.expect("lists").is_empty(), "hosts of another mode are not peers");
    db.let_pass(LEASE + MOMENT).await;
    assert!(seen().await.is_empty(), "it is gone");
    assert_eq!(row().await.listeners, ListenerReport::default());
}

pub(crate) async fn a_host_that_is_about_to_stop_has_no_share_any_more(db: &dyn Harness) {
    let store = db.store();
    let [one, two] = ["one", "two"].map(|name| Node { room: 9, ..node(&owner(name)) });
    let live = async |node: &Node| store.heartbeat(node, LEASE).await.expect("says that it is alive");
    assert_eq!((live(&one).await, live(&two).await), (1, 2));

    let stops = Node { room: 0, ..one.clone() };

    assert_eq!((live(&stops).await, live(&two).await), (2, 1), "it counts itself, and the other one does not");
    assert_eq!((live(&one).await, live(&two).await), (2, 2));
}

pub(crate) async fn a_host_that_has_been_gone_for_a_day_is_not_shown_though_no_other_is_alive(db: &dyn Harness) {
    let store = db.store();
    store.heartbeat(&node(&owner("one")), LEASE).await.expect("says that it is alive");

    db.let_pass(LEASE + Duration::from_secs(23 * 3_600)).await;
    assert_eq!(store.nodes().await.expect("lists").len(), 1, "it is gone for less than a day");
    db.let_pass(Duration::from_secs(2 * 3_600)).await;

    assert!(store.nodes().await.expect("lists").is_empty());
}

pub(crate) async fn a_host_that_leaves_takes_nothing_with_it(db: &dyn Harness) {
    let (one, two) = (owner("one"), owner("two"));
    let store = db.store();
    store.heartbeat(&node(&one), LEASE).await.expect("says that it is alive");
    kept(&*store, &one, PARTITIONS, PARTITIONS).await;
    assert_eq!(store.nodes().await.expect("lists")[0].partitions, PARTITIONS);

    store.leave(&one).await.expect("leaves");

    assert!(store.nodes().await.expect("lists").is_empty());
    assert_eq!(kept(&*store, &two, PARTITIONS, PARTITIONS).await.len(), usize::from(PARTITIONS));
}

pub(crate) async fn a_late_heartbeat_does_not_bring_back_a_host_that_has_left(db: &dyn Harness) {
    let (store, one, two) = (db.store(), owner("one"), owner("two"));
    store.heartbeat(&node(&one), LEASE).await.expect("registers");
    kept(&*store, &one, PARTITIONS, PARTITIONS).await;
    let registered = Node { room: 7, is_registered: true, ..node(&one) };
    assert_eq!(store.heartbeat(&registered, LEASE).await.expect("renews"), 1);
    assert_eq!(store.nodes().await.expect("lists")[0].room, 7);
    store.leave(&one).await.expect("leaves");

    // As the database executes them if the network delivers them late.
    assert_eq!(store.heartbeat(&registered, LEASE).await.expect("finds no row"), 0);
    store.keep_partitions(&one, PARTITIONS, PARTITIONS).await.expect("keeps");

    assert!(store.nodes().await.expect("lists").is_empty());
    assert_eq!(kept(&*store, &two, PARTITIONS, PARTITIONS).await.len(), usize::from(PARTITIONS), "no lease is waited for");
    assert_eq!(store.heartbeat(&registered, LEASE).await.expect("finds no row"), 0, "though another host is live");
    assert_eq!(store.heartbeat(&node(&one), LEASE).await.expect("registers again"), 2);
}

pub(crate) async fn a_good_database_has_only_good_findings(db: &dyn Harness) {
    let findings = db.store().diagnose(&expectations()).await.expect("looks");

    let faults: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Fault).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    for check in ["connection", "version", "schema", "indexes", "lease"] {
        assert!(findings.iter().any(|finding| finding.check == check), "{check} was looked at");
    }
    assert!(findings.iter().all(|finding| finding.fix.is_none() == (finding.severity == Severity::Good)), "each with its fix");
}

pub(crate) async fn a_missing_schema_and_a_lease_below_the_deadline_are_found(db: &dyn Harness) {
    let store = db.other_table("not_there").await;

    let findings = store.diagnose(&Expectations { deadline: LEASE, ..expectations() }).await.expect("looks");

    let faults: Vec<_> =
        findings.iter().filter(|finding| finding.severity == Severity::Fault).map(|finding| finding.check).collect();
    assert_eq!(faults, ["schema", "lease"], "{findings:#?}");
}

pub(crate) async fn every_statement_that_must_be_fast_uses_its_index(db: &dyn Harness) {
    for _ in 0..20 {
        finished(db, Settlement::Done).await;
    }
    write(db, &plains(db, 20).await).await;

    let plans = db.store().plans().await.expect("explains");

    assert!(plans.len() >= 9);
    let names: Vec<_> = plans.iter().map(|plan| plan.statement).collect();
    for statement in [
        "claim",
        "read",
        "read the front",
        "heads of queues",
        "settle",
        "renew",
        "next due",
        "purge",
        "dead",
        "retry now",
        "unpark",
        "unblock",
        "audit",
        "audit of an event",
        "audit that touches an event",
    ] {
        assert!(names.contains(&statement), "{statement} is explained: {names:?}");
    }
    // On a table that fits into one page a database may well read it whole; what they do with a large one is tested for each.
    if db.store().kind() == "sqlite" {
        assert!(plans.iter().all(|plan| plan.good), "{plans:#?}");
    }
    assert_eq!(claim(db, 100).await.len(), 20, "explaining changes nothing");
}

pub(crate) async fn pausing_and_resuming_a_route_are_noted_once(db: &dyn Harness) {
    let route = outbox::Route::new("Order", "OrderPlaced").expect("good");
    let store = db.store();

    assert!(store.pause(&route, &by_hand()).await.expect("pauses"));
    assert!(!store.pause(&route, &by_hand()).await.expect("looks"), "it is paused already");
    let paused = store.routes().await.expect("reads");
    assert_eq!((paused.len(), paused[0].route.clone()), (1, route.clone()));
    assert!(paused[0].paused_at.is_some() && paused[0].first_seen_at.is_none());
    assert_eq!((paused[0].paused_by.as_deref(), paused[0].pause_reason.as_deref()), (Some("tester"), Some("to see")));
    assert!(store.resume(&route, &by_hand()).await.expect("resumes"));
    assert!(!store.resume(&route, &by_hand()).await.expect("looks"), "it was not paused");

    assert!(store.routes().await.expect("reads").is_empty());
    let actions: Vec<_> = store.audit(10).await.expect("reads").into_iter().map(|record| record.action).collect();
    assert_eq!(actions, ["resume", "pause"]);
}

pub(crate) async fn a_forgotten_route_leaves_nothing_but_its_events_and_a_note(db: &dyn Harness) {
    let [known, paused, other] =
        ["OrderPlaced", "OrderPlacd", "OrderPaid"].map(|event_type| outbox::Route::new("Order", event_type).expect("good"));
    let store = db.store();
    let event = write_one(db).await;
    store.remember_routes(&[known.clone(), other.clone()], &[]).await.expect("notes");
    for route in [&known, &paused] {
        assert!(store.pause(route, &by_hand()).await.expect("pauses"));
    }

    assert!(store.forget_route(&known, &by_hand()).await.expect("forgets"), "it had a listener and a pause");
    assert!(store.forget_route(&paused, &by_hand()).await.expect("forgets"), "it had a pause alone");
    assert!(!store.forget_route(&paused, &by_hand()).await.expect("looks"), "nothing was left of it");

    let left: Vec<_> = store.routes().await.expect("reads").into_iter().map(|record| record.route).collect();
    assert_eq!(left, [other]);
    assert!(store.get(event).await.expect("reads").is_some(), "its events stay");
    let audit = store.audit(10).await.expect("reads");
    let noted: Vec<_> = audit.iter().map(|record| (record.action.as_str(), record.count)).collect();
    assert_eq!(noted, [("forget_route", 1), ("forget_route", 1), ("pause", 1), ("pause", 1)]);
    assert_eq!(audit[1].selector["event_type"], "OrderPlaced");
}

pub(crate) async fn routes_are_counted_by_what_their_events_wait_for(db: &dyn Harness) {
    finished(db, Settlement::Parked { reason: "nobody".to_owned() }).await;
    finished(db, Settlement::Done).await;
    finished(db, crate::common::dead("no")).await;
    write_one(db).await;

    let routes = db.store().count_routes().await.expect("counts");

    assert_eq!(routes.len(), 1, "{routes:?}");
    let counts = (routes[0].waiting, routes[0].parked, routes[0].blocked, routes[0].dead);
    assert_eq!(counts, (1, 1, 0, 1));
}

pub(crate) async fn events_with_the_name_of_a_pattern_are_no_route(db: &dyn Harness) {
    db.execute("INSERT INTO outbox_event (event_id, aggregate_type, event_type, payload) VALUES ('a', '*', '*', '1')").await;
    db.execute("INSERT INTO outbox_event (event_id, aggregate_type, event_type, payload) VALUES ('b', 'Order', '*', '1')")
        .await;
    let pattern = Route::new("Order", "*").expect("a pattern");
    let store = db.store();
    assert!(store.count_routes().await.expect("counts").is_empty(), "somebody would pause all routes by the first");

    assert!(store.pause(&pattern, &by_hand()).await.expect("pauses"));

    let routes = store.count_routes().await.expect("counts");
    let counts: Vec<_> = routes.iter().map(|known| (&known.route, known.waiting)).collect();
    assert_eq!(counts, [(&pattern, 0)]);
}
