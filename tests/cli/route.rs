//! `outbox route`, `outbox node`, `outbox audit`.

use crate::program::Place;

#[test]
fn a_route_is_paused_and_resumed_and_both_are_noted() {
    let place = Place::migrated();
    place.order("one", "42");

    place.ok(&["route", "pause", "Order/OrderPlaced", "--reason", "the mail server moves"]);
    let routes = place.json(&["route", "list", "--output", "json"]);
    let again = place.json(&["route", "pause", "Order/OrderPlaced", "--output", "json"]);
    place.ok(&["route", "resume", "Order/OrderPlaced"]);
    let not_paused = place.json(&["route", "resume", "Order/OrderPlaced", "--output", "json"]);

    let route = &routes[0];
    assert_eq!((route["aggregate_type"].as_str(), route["event_type"].as_str()), (Some("Order"), Some("OrderPlaced")));
    assert_eq!((route["waiting"].as_u64(), route["pause_reason"].as_str()), (Some(1), Some("the mail server moves")));
    assert!(route["paused_at"].is_string() && route["paused_by"].is_string(), "{route}");
    assert_eq!((again["changed"].as_bool(), not_paused["changed"].as_bool()), (Some(false), Some(false)));
    let audit = place.json(&["audit", "list", "--output", "json"]);
    let actions: Vec<_> = audit.as_array().expect("an array").iter().map(|entry| entry["action"].as_str()).collect();
    assert_eq!(actions, [Some("resume"), Some("pause")], "newest first; what changed nothing is not noted");
    assert_eq!(audit[1]["reason"], "the mail server moves");
}

#[test]
fn a_route_that_nobody_knows_may_be_paused_and_the_near_names_are_told() {
    let place = Place::migrated();
    place.order("one", "42");

    let paused = place.run(&["route", "pause", "Order/OrderPlacd"]);
    let global = place.run(&["route", "resume", "OrderPlaced"]);

    assert_eq!(paused.code, Some(0), "{}", paused.stderr);
    assert!(paused.stderr.contains("near it: Order/OrderPlaced"), "{}", paused.stderr);
    assert_eq!(global.code, Some(3), "nobody paused what is not there");
    assert!(global.stderr.contains("near it: Order/OrderPlac"), "{}", global.stderr);
    assert_eq!(place.run(&["route", "pause", "Order/"]).code, Some(2));
}

#[test]
fn blocked_aggregates_are_listed_with_their_cause() {
    let place = Place::migrated();
    assert_eq!(place.json(&["route", "blocked", "--output", "json"]).as_array().map(Vec::len), Some(0));
    for id in ["one", "two", "three"] {
        place.order(id, "42");
    }
    place.sql(
        "UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1, blocks = 1, last_error = 'no such customer'
         WHERE event_id = 'one'",
    );
    place.sql("UPDATE outbox_event SET due_at = NULL, behind = 1 WHERE seq > 1");

    let blocked = place.json(&["route", "blocked", "--output", "json"]);
    let people = place.run(&["route", "blocked"]);

    assert_eq!((blocked[0]["aggregate_id"].as_str(), blocked[0]["waiting"].as_u64()), (Some("42"), Some(2)));
    assert_eq!((blocked[0]["event_id"].as_str(), blocked[0]["status"].as_str()), (Some("one"), Some("DEAD")));
    assert!(people.stdout.contains("Order/42") && people.stdout.contains("no such customer"), "{}", people.stdout);
    assert!(people.stderr.contains("outbox event why one"), "{}", people.stderr);
}

#[test]
fn hosts_are_listed_whether_alive_or_gone() {
    let place = Place::migrated();
    place.sql(
        "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until)
         VALUES ('a', 'shop 1', 'multi_node', '0.1.0', 1, 9000000000000000),
                ('b', 'shop 2', 'multi_node', '0.1.0', 2, unixepoch('now', '-1 hour') * 1000000)",
    );

    let nodes = place.json(&["node", "list", "--output", "json"]);

    let alive: Vec<_> = nodes.as_array().expect("an array").iter().map(|node| node["alive"].as_bool()).collect();
    assert_eq!(alive, [Some(true), Some(false)], "{nodes}");
    assert!(place.ok(&["node", "list"]).contains("shop 2"));
}
