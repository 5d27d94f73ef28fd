//! `outbox route`, `outbox node`, `outbox audit`.

use crate::program::{Host, Place};

#[test]
fn a_route_is_paused_and_resumed_and_both_are_noted() {
    let place = Place::migrated();
    place.order("one", "42");

    place.ok(&["route", "pause", "Order/OrderPlaced", "--reason", "the mail server moves"]);
    let routes = place.json(&["route", "list", "--output", "json"]);
    let again = place.json(&["route", "pause", "Order/OrderPlaced", "--output", "json"]);
    place.ok(&["route", "resume", "Order/OrderPlaced"]);
    let twice = place.run(&["route", "resume", "Order/OrderPlaced"]);
    let not_paused = place.json(&["route", "resume", "Order/OrderPlaced", "--output", "json"]);

    assert_eq!((twice.stdout.as_str(), twice.stderr.as_str()), ("Order/OrderPlaced was not paused\n", ""));
    let route = &routes[0];
    assert_eq!((route["aggregate_type"].as_str(), route["event_type"].as_str()), (Some("Order"), Some("OrderPlaced")));
    assert_eq!((route["waiting"].as_u64(), route["pause_reason"].as_str()), (Some(1), Some("the mail server moves")));
    assert!(route["paused_at"].is_string() && route["paused_by"].is_string(), "{route}");
    assert_eq!((again["changed"].as_bool(), not_paused["changed"].as_bool()), (Some(false), Some(false)));
    let audit = place.json(&["audit", "list", "--output", "json"]);
    let actions: Vec<_> = audit.as_array().expect("an array").iter().map(|record| record["action"].as_str()).collect();
    assert_eq!(actions, [Some("resume"), Some("pause"), Some("migrate")], "newest first; what changed nothing is not noted");
    assert!(audit[2]["selector"]["steps"].as_str().is_some_and(|steps| steps.starts_with("1 outbox-")), "{audit}");
    assert_eq!(audit[1]["reason"], "the mail server moves");
}

#[test]
fn the_audit_names_the_route_first_cuts_nothing_in_a_pipe_and_refuses_an_action_that_there_is_not() {
    let place = Place::migrated();
    place.order("one", "42");
    place.sql("UPDATE outbox_event SET status = 3, due_at = NULL, attempts = 10, done_at = created_at");
    let error = "o".repeat(80);
    place.sql(&format!("UPDATE outbox_event SET last_error = '{error}'"));
    place.ok(&["dead", "replay", "--all", "--route", "Order/OrderPlaced", "--error", &error, "--yes"]);

    let listed = place.ok(&["audit", "list", "--action", "replay"]);
    let misspelt = place.run(&["audit", "list", "--action", "replya"]);

    assert!(listed.contains("  Order/OrderPlaced ") && listed.contains(&format!("error={error}")), "{listed}");
    assert_eq!((misspelt.code, misspelt.stdout.as_str()), (Some(2), ""), "{}", misspelt.stderr);
    assert!(misspelt.stderr.contains("'replay'") && misspelt.stderr.contains("forget_route"), "{}", misspelt.stderr);
}

#[test]
fn a_route_that_nobody_knows_may_be_paused_and_the_near_names_are_told() {
    let place = Place::migrated();
    place.order("one", "42");

    let paused = place.run(&["route", "pause", "Order/OrderPlacd"]);
    let global = place.run(&["route", "resume", "OrderPlaced"]);

    assert_eq!(paused.code, Some(0), "{}", paused.stderr);
    assert!(paused.stderr.contains("did you mean Order/OrderPlaced?"), "{}", paused.stderr);
    assert_eq!(global.code, Some(3), "nobody paused what is not there");
    assert!(global.stderr.contains("did you mean Order/OrderPlac"), "{}", global.stderr);
    assert_eq!(place.run(&["route", "pause", "Order/"]).code, Some(2));
}

#[test]
fn a_route_that_was_paused_by_a_misspelt_name_can_be_forgotten() {
    let place = Place::migrated();
    place.order("one", "42");
    let paused = place.run(&["route", "pause", "Order/OrderPlacd"]);
    assert!(paused.stderr.contains("outbox route forget Order/OrderPlacd"), "{}", paused.stderr);

    let in_use = place.run(&["route", "forget", "Order/OrderPlaced"]);
    let forgotten = place.json(&["route", "forget", "Order/OrderPlacd", "--reason", "a typo", "--output", "json"]);
    let again = place.run(&["route", "forget", "Order/OrderPlacd"]);

    assert_eq!(in_use.code, Some(7), "{}", in_use.stderr);
    assert!(in_use.stderr.contains("1 event not delivered yet"), "{}", in_use.stderr);
    assert_eq!(forgotten["forgotten"], true, "{forgotten}");
    assert_eq!(again.code, Some(3), "{}", again.stderr);
    let routes = place.json(&["route", "list", "--output", "json"]);
    let names: Vec<_> = routes.as_array().expect("an array").iter().map(|route| route["event_type"].as_str()).collect();
    assert_eq!(names, [Some("OrderPlaced")]);
    let audit = place.json(&["audit", "list", "--output", "json"]);
    assert_eq!((audit[0]["action"].as_str(), audit[0]["reason"].as_str()), (Some("forget_route"), Some("a typo")));
}

#[test]
fn a_route_that_a_host_answers_is_not_forgotten() {
    let place = Place::migrated();
    let _host = place.host(&[]);
    place.wait_until_hosts_tell_of_plugins();

    let refused = place.run(&["route", "forget", "Order/OrderPlaced"]);

    assert_eq!(refused.code, Some(7), "{}", refused.stderr);
    assert!(refused.stderr.contains("the plugin order-mailer on "), "{}", refused.stderr);
}

#[test]
fn a_star_that_would_hold_nothing_is_refused() {
    let place = Place::migrated();

    for (command, wanted) in [
        (&["route", "pause", "Order/Ord*"][..], "write Order/* or the full name"),
        (&["route", "pause", "*"], "write */* for every route"),
        (&["event", "list", "--route", "Order/Ord*"], "write Order/* or the full name"),
    ] {
        let ended = place.run(command);
        assert_eq!(ended.code, Some(2), "{command:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(wanted), "{command:?}: {}", ended.stderr);
    }
    let relay = "[sinks.console]\nkind = \"stdout\"\n[routes.\"Order/Ord*\"]\nsink = \"console\"\n";
    std::fs::write(place.path().join("outbox.toml"), relay).expect("can be written");
    let ended = place.run(&["config", "check"]);
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("write Order/* or the full name"), "{}", ended.stderr);
}

#[test]
fn printed_commands_carry_the_flags_that_say_which_database_is_meant() {
    let place = Place::migrated();
    let other = ["--database-url", "sqlite:other.db"];
    let run = |words: &[&str]| place.run(&[words, &other[..]].concat());
    let wanted = |command: &str| format!("{command} --database-url sqlite:other.db");

    let absent = run(&["route", "list"]);
    assert_eq!(run(&["migrate", "up"]).code, Some(0));
    let paused = run(&["route", "pause", "Order/OrderPlaced"]);
    let doctor = run(&["doctor"]);
    let event = ["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", "{}", "--id", "one"];
    assert_eq!(run(&event).code, Some(0));
    let why = run(&["event", "why", "one"]);

    assert!(absent.stderr.contains(&wanted("outbox migrate up")), "{}", absent.stderr);
    for ended in [paused, doctor, why] {
        assert!(ended.stdout.contains(&wanted("outbox route resume Order/OrderPlaced")), "{}{}", ended.stdout, ended.stderr);
    }
    let here = place.run(&["route", "pause", "Order/OrderPlaced"]);
    assert!(here.stdout.contains("`outbox route resume Order/OrderPlaced`"), "{}", here.stdout);
}

/// A place with two routes of orders, an event of each, and a paused pattern that covers them.
fn with_a_paused_pattern() -> Place {
    let place = Place::migrated();
    place.order("one", "42");
    place.ok(&["event", "emit", "--type", "OrderPaid", "--aggregate-type", "Order", "--payload", "{}", "--id", "two"]);
    place.ok(&["event", "emit", "--type", "UserCreated", "--aggregate-type", "User", "--payload", "{}", "--id", "three"]);
    place.ok(&["route", "pause", "Order/*", "--reason", "the mail server moves"]);
    // As a host parks it.
    place.sql("UPDATE outbox_event SET parked = 'the route Order/* is paused', due_at = NULL WHERE event_id = 'one'");
    place
}

#[test]
fn a_paused_pattern_is_told_with_every_route_that_it_holds() {
    let place = with_a_paused_pattern();

    let listed = place.json(&["route", "list", "--output", "json"]);
    let people = place.ok(&["route", "list"]);
    let doctor = place.run(&["doctor"]).stdout;

    let listed = listed.as_array().expect("an array");
    let held_by = |event_type: &str| {
        let known = listed.iter().find(|known| known["event_type"] == event_type);
        known.unwrap_or_else(|| panic!("{event_type} is listed: {listed:?}"))["held_by"].clone()
    };
    assert_eq!((held_by("OrderPlaced"), held_by("OrderPaid")), (["Order/*"].as_slice().into(), ["Order/*"].as_slice().into()));
    assert_eq!(held_by("UserCreated"), serde_json::json!([]));
    let line = |name: &str| people.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(line("Order/OrderPlaced").contains("Order/*, ") && line("Order/OrderPlaced").contains("mail server"), "{people}");
    assert!(line("User/UserCreated").ends_with('-'), "{people}");
    assert!(doctor.contains("Order/* has been paused by") && doctor.contains("1 event held back"), "{doctor}");
    assert!(doctor.contains("outbox route resume 'Order/*'"), "{doctor}");
    assert!(!doctor.contains("waiting without a listener"), "the pause is what holds them: {doctor}");
}

#[test]
fn what_a_pause_by_pattern_covers_is_told_when_it_is_made_and_when_it_ends() {
    let place = with_a_paused_pattern();

    let again = place.run(&["route", "pause", "*/OrderPaid"]);
    let nothing = place.run(&["route", "pause", "Nobody/*"]);
    let own = place.run(&["route", "pause", "Order/OrderPlaced"]);
    let held = place.run(&["route", "resume", "Order/OrderPlaced"]);
    let held_again = place.run(&["route", "resume", "Order/OrderPlaced", "--output", "json"]);
    let resumed = place.run(&["route", "resume", "Order/*"]);

    assert!(
        again.stderr.contains("this pattern holds Order/OrderPaid") && !again.stderr.contains("OrderPlaced"),
        "{}",
        again.stderr
    );
    assert!(nothing.stderr.contains("no known route matches this pattern"), "{}", nothing.stderr);
    assert!(own.stderr.contains("the pattern Order/* covers it and is paused as well, "), "{}", own.stderr);
    assert_eq!(held.code, Some(6), "its own pause has ended, and the pattern's holds it: {}", held.stderr);
    assert!(held.stderr.contains("still paused, by the pattern Order/*"), "{}", held.stderr);
    assert!(held.stderr.contains("resume the pattern: outbox route resume 'Order/*'"), "{}", held.stderr);
    assert_eq!(held_again.code, Some(7), "nothing was changed: {}", held_again.stderr);
    let answer: serde_json::Value = serde_json::from_str(&held_again.stdout).expect("one document");
    assert_eq!((answer["paused"].as_bool(), answer["changed"].as_bool()), (Some(true), Some(false)));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert!(resumed.stdout.contains("1 parked event will be delivered when a host is started"), "{}", resumed.stdout);
}

#[test]
fn a_resume_counts_the_events_that_the_pause_alone_held() {
    let place = with_a_paused_pattern();
    place.ok(&["event", "emit", "--type", "OrderSent", "--aggregate-type", "Order", "--payload", "{}", "--id", "four"]);
    place.ok(&["route", "pause", "Order/OrderSent"]);
    // As hosts park them: without a listener, and by a pause that goes on.
    let no_listener = "no listener answers Order/OrderPaid (1 route is answered)";
    place.sql(&format!("UPDATE outbox_event SET parked = '{no_listener}', due_at = NULL WHERE event_id = 'two'"));
    place.sql("UPDATE outbox_event SET parked = 'the route Order/OrderSent is paused', due_at = NULL WHERE event_id = 'four'");

    let doctor = place.run(&["doctor"]).stdout;
    let resumed = place.ok(&["route", "resume", "Order/*"]);

    assert!(doctor.contains("; 2 events held back"), "{doctor}");
    assert!(resumed.contains("; 1 parked event will be delivered when a host is started"), "{resumed}");
}

#[test]
fn a_pause_tells_that_running_hosts_have_yet_to_learn_of_it() {
    let place = Place::migrated();
    place.order("one", "42");
    let alone = place.ok(&["route", "pause", "Order/OrderPlaced"]);
    let again = place.ok(&["route", "pause", "Order/OrderPlaced"]);
    place.ok(&["route", "resume", "Order/OrderPlaced"]);
    place.sql(
        "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, room, session)
         VALUES ('a', 'shop 1', 'multi_node', '0.1.0', 1, 9000000000000000, 1, 0),
                ('b', 'shop 2', 'multi_node', '0.1.0', 2, 1000000, 1, 0)",
    );
    let hosts = place.ok(&["route", "pause", "Order/OrderPlaced"]);
    place.ok(&["route", "resume", "Order/OrderPlaced"]);
    let json = place.json(&["route", "pause", "Order/OrderPlaced", "--output", "json"]);

    assert!(alone.starts_with("Order/OrderPlaced is paused; no host is running."), "{alone}");
    assert!(again.starts_with("Order/OrderPlaced is paused; its events wait until"), "{again}");
    assert!(hosts.starts_with("Order/OrderPlaced will be paused within 2 s by 1 running host;"), "{hosts}");
    assert_eq!((json["hosts"].as_u64(), json["known_within_seconds"].as_u64()), (Some(1), Some(2)), "{json}");
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
fn a_parked_event_that_blocks_its_aggregate_is_told_with_its_way_out_and_that_way_works() {
    const IN_ORDER: [(&str, &str); 2] = [("OUTBOX_MODE", "ordered_by_aggregate"), ("OUTBOX_POLLER__INTERVAL", "100ms")];
    let place = Place::migrated();
    place.ok(&["migrate", "add-index", "ordered_by_aggregate"]);
    let payload = r#"{"order_id":42,"total":9.5}"#;
    let order = ["--aggregate-type", "Order", "--aggregate-id", "42", "--payload", payload];
    for (id, event_type) in [("lost", "OrderPlacd"), ("next", "OrderPlaced")] {
        place.ok(&[&["event", "emit", "--id", id, "--type", event_type], &order[..]].concat());
    }
    let host = place.host(&[&IN_ORDER[..], &[("OUTBOX_DISPATCHER__UNROUTABLE", "park")]].concat());
    place.wait_for("parked", 1);
    place.wait_for("blocked", 1);
    host.signal("TERM");
    host.end();

    let blocked = place.run(&["route", "blocked"]);
    let json = place.json(&["route", "blocked", "--output", "json"]);
    let why = place.ok(&["event", "why", "lost"]);
    let doctor = place.run(&["doctor", "--plugins", "plugins"]).stdout;

    let reason = "no listener answers Order/OrderPlacd (";
    assert!(blocked.stdout.contains(reason), "{}", blocked.stdout);
    assert!(json[0]["parked"].as_str().is_some_and(|parked| parked.starts_with(reason)), "{json}");
    let waits = "it waits for a listener: add a plugin that answers Order/OrderPlacd";
    assert!(blocked.stderr.contains(waits) && !blocked.stderr.contains("dead replay"), "{}", blocked.stderr);
    for told in [&blocked.stderr, &why, &doctor] {
        assert!(told.contains("`outbox run --set dispatcher.unroutable=dead`"), "{told}");
    }
    assert_ne!(place.run(&["dead", "skip", "lost", "--reason", "misspelt"]).code, Some(0), "it is not dead");

    let mut run = place.command(&[
        "run",
        "--plugins",
        "plugins",
        "--set",
        "dispatcher.unroutable=dead",
        "--set",
        "dispatcher.unroutable_grace=0s",
    ]);
    run.envs(IN_ORDER);
    let _host = Host::of(run);
    place.wait_for("dead", 1);
    place.ok(&["dead", "skip", "lost", "--reason", "misspelt"]);
    place.wait_for("done", 1);
}

#[test]
fn the_hint_below_blocked_aggregates_is_that_of_the_state_of_the_blocker() {
    let place = Place::migrated();
    place.order("one", "42");
    place.order("two", "42");
    place.sql("UPDATE outbox_event SET due_at = NULL, behind = 1 WHERE seq = 2");
    let hint = |columns: &str| {
        place.sql(&format!("UPDATE outbox_event SET {columns} WHERE seq = 1"));
        place.run(&["route", "blocked"]).stderr
    };

    let waits = hint("status = 2, attempts = 1, last_error = 'timeout'");
    assert_eq!(waits, "why: `outbox event why one`\n");
    let dead = hint("status = 3, due_at = NULL, done_at = 1, blocks = 1");
    assert!(dead.contains("`outbox dead replay one` delivers it again, and `outbox dead skip one` unblocks"), "{dead}");
    place.ok(&["route", "pause", "Order/*"]);
    let paused = hint("status = 0, done_at = NULL, blocks = 0, parked = 'the route Order/* is paused'");
    assert!(paused.contains("its route is paused: `outbox route resume 'Order/*'`"), "{paused}");
    place.ok(&["route", "resume", "Order/*"]);
    let over = place.run(&["route", "blocked"]);
    assert!(
        over.stderr.contains("its pause is over: it is delivered when a host that answers Order/OrderPlaced runs"),
        "{}",
        over.stderr
    );
    assert!(!over.stdout.contains("paused"), "{}", over.stdout);
}

#[test]
fn hosts_are_listed_whether_alive_or_gone() {
    let place = Place::migrated();
    place.sql(
        "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, room, session)
         VALUES ('a', 'shop 1', 'multi_node', '0.1.0', 1, 9000000000000000, 1, 0),
                ('b', 'shop 2', 'multi_node', '0.1.0', 2, unixepoch('now', '-1 hour') * 1000000, 1, 0)",
    );

    let nodes = place.json(&["node", "list", "--output", "json"]);

    let alive: Vec<_> = nodes.as_array().expect("an array").iter().map(|node| node["alive"].as_bool()).collect();
    assert_eq!(alive, [Some(true), Some(false)], "{nodes}");
    assert!(place.ok(&["node", "list"]).contains("shop 2"));
}
