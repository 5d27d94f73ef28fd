//! Commands that do one thing and end.

use std::fs;

use crate::program::Place;

const ORDER: [&str; 8] =
    ["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", r#"{"order_id":42,"total":9.5}"#];

#[test]
fn migrating_makes_the_file_and_repeats_safely() {
    let place = Place::empty();

    place.ok(&["migrate", "up"]);
    place.ok(&["migrate", "up"]);

    assert!(place.path().join("outbox.db").is_file());
    let steps = place.json(&["migrate", "status", "--output", "json"]);
    assert!(steps.as_array().is_some_and(|steps| !steps.is_empty()), "{steps}");
}

#[test]
fn a_command_without_a_schema_says_how_to_make_one_and_ends_with_5() {
    let place = Place::empty();

    let ended = place.run(&["stats"]);

    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("outbox migrate up"), "{}", ended.stderr);
    assert!(!place.path().join("outbox.db").exists(), "looking makes no file");
}

#[test]
fn emit_prints_the_id_alone_and_stats_count_it() {
    let place = Place::migrated();

    let id = place.ok(&ORDER);

    assert_eq!(id.lines().count(), 1, "{id}");
    let stats = place.json(&["stats", "--output", "json"]);
    for name in ["new", "retry", "done", "dead", "parked", "in_flight"] {
        assert_eq!(stats[name].as_u64(), Some(u64::from(name == "new")), "{name}: {stats}");
    }
    assert!(stats["oldest_pending_seconds"].is_number(), "{stats}");
    let shown = place.json(&["event", "show", id.trim(), "--output", "json"]);
    assert_eq!((shown["event_id"].as_str(), shown["event_type"].as_str()), (Some(id.trim()), Some("OrderPlaced")));
}

#[test]
fn nothing_pending_is_null_not_a_false_zero() {
    let place = Place::migrated();

    let stats = place.json(&["stats", "--output", "json"]);

    assert!(stats["oldest_pending_seconds"].is_null(), "{stats}");
}

#[test]
fn an_id_that_was_written_before_ends_with_7() {
    let place = Place::migrated();
    let with_id: Vec<&str> = ORDER.iter().copied().chain(["--id", "order-42"]).collect();

    assert_eq!(place.ok(&with_id).trim(), "order-42");
    let again = place.run(&with_id);

    assert_eq!((again.code, again.stdout.as_str()), (Some(7), ""), "{}", again.stderr);
    assert_eq!(place.stat("new"), 1);
}

#[test]
fn events_are_listed_by_what_they_wait_for_and_by_their_route() {
    let place = Place::migrated();
    for id in ["parked", "blocked", "due"] {
        place.order(id, "42");
    }
    place.ok(&["event", "emit", "--type", "UserCreated", "--aggregate-type", "User", "--payload", "{}", "--id", "user"]);
    place.sql("UPDATE outbox_event SET parked = 'no listener', due_at = NULL WHERE event_id = 'parked'");
    place.sql("UPDATE outbox_event SET behind = 1, due_at = NULL WHERE event_id = 'blocked'");

    for (filter, wanted) in [
        (vec!["--status", "parked"], vec!["parked"]),
        (vec!["--status", "BLOCKED"], vec!["blocked"]),
        (vec!["--status", "new", "--route", "User/UserCreated"], vec!["user"]),
        (vec!["--route", "Order/*"], vec!["parked", "blocked", "due"]),
        (vec!["--route", "Order/OrderPlaced", "--status", "blocked"], vec!["blocked"]),
        (vec!["--route", "User/*", "--status", "parked"], vec![]),
    ] {
        let listed = place.json(&[&["event", "list", "--output", "json"], &filter[..]].concat());
        let ids: Vec<&str> = listed.as_array().expect("an array").iter().filter_map(|row| row["event_id"].as_str()).collect();
        assert_eq!(ids, wanted, "{filter:?}");
    }
}

#[test]
fn many_events_come_from_a_file_of_lines() {
    let place = Place::migrated();
    let lines: String = (0..1_500)
        .map(|number| format!("{{\"event_id\":\"e-{number}\",\"event_type\":\"OrderPlaced\",\"payload\":{number}}}\n"))
        .collect();
    fs::write(place.path().join("events.jsonl"), lines).expect("written");

    let ids = place.ok(&["event", "emit", "--jsonl", "events.jsonl"]);
    place.run(&["event", "emit", "--jsonl", "events.jsonl"]);

    assert_eq!((ids.lines().count(), ids.lines().next()), (1_500, Some("e-0")));
    assert_eq!(place.stat("new"), 1_500, "a repeat writes nothing twice");
}

#[test]
fn each_kind_of_mistake_has_its_exit_code() {
    let place = Place::migrated();
    fs::write(place.path().join("bad.toml"), "[dispatcher]\nworkres = 4\n").expect("written");

    for (arguments, code, part) in [
        (vec!["no-such-command"], 2, "no-such-command"),
        (vec!["event", "emit", "--type", "", "--payload", "1"], 2, "event_type is empty"),
        (vec!["event", "emit", "--type", "X", "--payload", "{"], 2, "--content-type text/plain"),
        (vec!["event", "show", "no-such-event"], 3, "no-such-event"),
        (vec!["config", "check", "--config", "bad.toml"], 4, "workers"),
        (vec!["stats", "--database-url", "sqlite:elsewhere.db"], 5, "elsewhere.db"),
        (vec!["run", "--plugins", "nowhere"], 4, "nowhere"),
    ] {
        let ended = place.run(&arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{arguments:?} does not name {part}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}: messages go to stderr");
    }
}

#[test]
fn what_destroys_data_needs_a_yes() {
    let place = Place::migrated();
    for id in ["done", "dead", "discarded", "retried"] {
        place.order(id, id);
    }
    place.sql("UPDATE outbox_event SET status = 1, due_at = NULL, done_at = 1 WHERE event_id = 'done'");
    place.sql("UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1 WHERE event_id IN ('dead', 'discarded')");
    place.sql("UPDATE outbox_event SET status = 2, attempts = 1, due_at = 9000000000000000 WHERE event_id = 'retried'");
    // Whatever it ends with: without a schema there is nothing to list.
    let table =
        || [["migrate", "status"], ["event", "list"]].map(|[one, two]| place.run(&[one, two, "--output", "json"]).stdout);

    for command in [
        &["purge", "--older-than", "1h"][..],
        &["dead", "discard", "discarded"],
        &["dead", "replay", "--all"],
        &["replay"],
        &["migrate", "down"],
    ] {
        let before = table();

        let refused = place.run(command);

        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{command:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("add --yes"), "{command:?}: {}", refused.stderr);
        assert_eq!(table(), before, "{command:?} without a yes changes nothing");
        place.ok(&[command, &["--yes"]].concat());
        assert_ne!(table(), before, "{command:?} with a yes does it");
    }
}

#[test]
fn the_contract_is_written_with_what_it_depends_on_and_never_over_another_file() {
    let place = Place::empty();

    place.ok(&["wit", "--out", "wit"]);
    place.ok(&["wit", "--out", "wit"]);

    let listener = place.path().join("wit/listener.wit");
    assert_eq!(fs::read_to_string(&listener).expect("it is there"), place.ok(&["wit"]));
    for dependency in ["http/http.wit", "io/io.wit", "clocks/clocks.wit"] {
        assert!(place.path().join("wit/deps").join(dependency).is_file(), "{dependency}");
    }
    fs::write(&listener, "package mine:own;").expect("it can be written");
    let ended = place.run(&["wit", "--out", "wit"]);
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&listener).expect("it is there"), "package mine:own;");
}
