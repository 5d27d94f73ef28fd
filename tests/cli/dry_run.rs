//! `outbox dead test` and `outbox event test`: a component file tried on events that are in the database.

use serde_json::Value;

use crate::program::Place;

const FIXED: &str = "plugins/order-mailer.wasm";

/// A place with this many dead orders that the sample can mail, `dead-1` first.
fn place(count: usize) -> Place {
    let place = Place::migrated();
    place.plugin("order-mailer");
    let lines = (1..=count).map(|number| {
        format!(
            "{{\"event_id\":\"dead-{number}\",\"event_type\":\"OrderPlaced\",\"aggregate_type\":\"Order\",\"aggregate_id\":\"{number}\",\
             \"payload\":{{\"order_id\":{number},\"total\":9.5}}}}\n"
        )
    });
    std::fs::write(place.path().join("orders.jsonl"), lines.collect::<String>()).expect("can be written");
    place.ok(&["event", "emit", "--jsonl", "orders.jsonl"]);
    place.sql(
        "UPDATE outbox_event SET status = 3, due_at = NULL, attempts = 10, last_error = 'trap: no such customer', done_at = created_at",
    );
    place
}

/// Everything that is in the table of events.
fn rows(place: &Place) -> Value {
    place.json(&["event", "list", "--limit", "1000", "--output", "json"])
}

#[test]
fn a_hundred_dead_events_would_be_done_by_a_fixed_plugin_and_a_replay_makes_it_true() {
    let place = place(100);
    let before = rows(&place);

    let ended = place.run(&["dead", "test", "--plugin", FIXED]);

    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("100 events with order-mailer 0.1.0: 100 × done\n"), "{}", ended.stdout);
    assert_eq!(rows(&place), before, "nothing is written");
    assert_eq!(place.json(&["audit", "list", "--output", "json"])[0]["action"], "migrate", "and nothing is noted");
    let replay = ended.stdout.lines().last().expect("the command is printed last");
    let words: Vec<&str> = replay.split_whitespace().collect();
    assert_eq!((words[0], words.len()), ("outbox", 103), "{replay}");
    place.ok(&words[1..]);
    let host = place.host(&[]);
    place.wait_for("done", 100);
    assert_eq!(place.stat("dead"), 0);
    drop(host);
}

#[test]
fn differences_come_first_and_what_would_not_be_done_is_told_by_the_code() {
    let place = place(3);
    place.sql("UPDATE outbox_event SET payload = '{\"order_id\": 1, \"total\": -1}' WHERE event_id = 'dead-1'");
    place.sql("UPDATE outbox_event SET event_type = 'Unknown' WHERE event_id = 'dead-2'");

    let json = place.run(&["dead", "test", "--plugin", FIXED, "--output", "json"]);

    assert_eq!(json.code, Some(8), "{}", json.stderr);
    let report: Value = serde_json::from_str(&json.stdout).expect("one document");
    let told: Vec<_> =
        report["events"].as_array().expect("a list").iter().map(|one| (&one["event_id"], &one["then"])).collect();
    let wanted = [("dead-3", "done"), ("dead-1", "dead")];
    assert_eq!(
        told,
        wanted.map(|(id, then)| (Value::from(id), Value::from(then))).iter().map(|(a, b)| (a, b)).collect::<Vec<_>>()
    );
    assert_eq!((&report["tested"], &report["of_other_routes"]), (&2.into(), &1.into()), "{report}");
    assert_eq!(report["replay"], "outbox dead replay dead-3");
    let asked = place.run(&["dead", "test", "--plugin", FIXED, "--route", "Order/Unknown"]);
    assert!(asked.code == Some(8) && asked.stdout.contains("1 × unanswered"), "{}{}", asked.stdout, asked.stderr);
    let table = place.run(&["dead", "test", "--plugin", FIXED, "--aggregate-id", "1"]);
    assert_eq!(table.code, Some(8));
    assert!(table.stdout.contains("less than nothing") && !table.stdout.contains("dead replay"), "{}", table.stdout);
    let none = place.run(&["dead", "test", "--plugin", FIXED, "--aggregate-id", "9"]);
    assert_eq!(none.code, Some(3), "{}", none.stderr);
    let absent = place.run(&["dead", "test", "--plugin", "none.wasm"]);
    assert!(absent.code == Some(3) && absent.stderr.contains("outbox plugin build"), "{}", absent.stderr);
}

#[test]
fn events_of_routes_that_the_component_does_not_answer_do_not_use_up_the_limit() {
    let place = place(10);
    place.sql("UPDATE outbox_event SET event_type = 'Unknown' WHERE event_id NOT IN ('dead-9', 'dead-10')");

    let both = place.run(&["dead", "test", "--plugin", FIXED, "--limit", "2"]);
    let one = place.run(&["dead", "test", "--plugin", FIXED, "--limit", "1", "--aggregate-type", "Order"]);
    let none = place.run(&["dead", "test", "--plugin", FIXED, "--type", "Unknown"]);

    assert_eq!(both.code, Some(0), "{}{}", both.stdout, both.stderr);
    assert!(both.stdout.contains("2 events with order-mailer 0.1.0: 2 × done\n"), "{}", both.stdout);
    assert!(both.stdout.contains("not tried: 8 dead events of routes that it does not answer\n"), "{}", both.stdout);
    assert!(!both.stdout.contains("Unknown") && !both.stderr.contains("raise --limit"), "{}{}", both.stdout, both.stderr);
    assert!(one.stdout.contains("dead-9") && one.stderr.contains("raise --limit"), "{}{}", one.stdout, one.stderr);
    assert_eq!(none.code, Some(3), "{}{}", none.stdout, none.stderr);
    assert!(none.stderr.contains("8 dead events of other routes"), "{}", none.stderr);
}

#[test]
fn a_file_of_another_name_is_tried_with_the_settings_and_grants_of_the_plugin_that_answers_the_events() {
    let place = Place::migrated();
    place.plugin("order-webhook");
    let write = |file: &str, text: &str| std::fs::write(place.path().join(file), text).expect("can be written");
    write(
        "plugins/order-webhook.toml",
        "http.allow = [\"https://hooks.example.com\"]\n[config]\nendpoint = \"https://hooks.example.com/orders\"\n\
         [secrets]\ntoken = \"t\"\n",
    );
    std::fs::create_dir(place.path().join("build")).expect("can be made");
    std::fs::rename(place.path().join("plugins/order-webhook.wasm"), place.path().join("build/fix.wasm"))
        .expect("can be moved");
    place.plugin("order-webhook");
    let order = ["--aggregate-type", "Order", "--payload", "{\"order_id\":7}", "--id", "order"];
    place.ok(&[&["event", "emit", "--type", "OrderShipped"][..], &order].concat());
    let test = |more: &[&str]| place.run(&[&["event", "test", "--plugin", "build/fix.wasm", "order"], more].concat());

    let found = test(&[]);
    let alone = test(&["--as", "fix"]);
    write("build/fix.toml", "[config]\nendpoint = \"https://elsewhere.example.com/orders\"\n");
    let beside = test(&[]);

    assert_eq!(found.code, Some(0), "{}{}", found.stdout, found.stderr);
    assert!(found.stderr.contains("tried as order-webhook, which answers these events"), "{}", found.stderr);
    assert!(found.stdout.contains("1 event with order-webhook"), "{}", found.stdout);
    assert_eq!(alone.code, Some(8), "it has no settings under its own name: {}", alone.stdout);
    assert!(alone.stderr.contains("it has no manifest yet: write build/fix.toml"), "{}", alone.stderr);
    assert_eq!(beside.code, Some(8), "its own manifest grants it nothing: {}", beside.stdout);
    assert!(!beside.stderr.contains("tried as"), "{}", beside.stderr);
}

#[test]
fn a_component_is_not_given_the_settings_of_a_plugin_whose_events_it_does_not_answer() {
    let place = place(1);
    std::fs::create_dir(place.path().join("build")).expect("can be made");
    place.plugin("effects");
    let plugins = place.path().join("plugins");
    std::fs::rename(plugins.join("effects.wasm"), place.path().join("build/effects.wasm")).expect("can be moved");

    let bulk = place.run(&["dead", "test", "--plugin", "build/effects.wasm"]);
    let other = place.run(&["event", "test", "--plugin", "build/effects.wasm", "dead-1"]);
    let unknown = place.run(&["dead", "test", "--plugin", "build/effects.wasm", "--as", "order-mailr"]);
    let asked = place.run(&["event", "test", "--plugin", "build/effects.wasm", "--as", "order-mailer", "dead-1"]);

    assert_eq!(bulk.code, Some(3), "{}{}", bulk.stdout, bulk.stderr);
    assert!(!bulk.stderr.contains("tried as") && bulk.stderr.contains("1 dead event of other routes"), "{}", bulk.stderr);
    assert_eq!(other.code, Some(8), "{}{}", other.stdout, other.stderr);
    assert!(!other.stderr.contains("tried as") && other.stdout.contains("1 × unanswered"), "{}{}", other.stdout, other.stderr);
    assert!(other.stdout.contains("1 event with effects"), "{}", other.stdout);
    assert_eq!(unknown.code, Some(3), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("no plugin is called order-mailr; did you mean order-mailer?"), "{}", unknown.stderr);
    assert!(asked.stdout.contains("1 event with order-mailer"), "{}{}", asked.stdout, asked.stderr);
}

#[test]
fn a_file_of_the_name_that_a_host_serves_is_that_plugin_wherever_the_host_has_it_from() {
    let place = place(1);
    std::fs::create_dir(place.path().join("build")).expect("can be made");
    let plugins = place.path().join("plugins");
    std::fs::copy(plugins.join("order-mailer.wasm"), place.path().join("build/order-mailer.wasm")).expect("can be copied");
    let _host = place.host(&[]);
    place.wait_until_hosts_tell_of_plugins();

    let ended = place.run(&["dead", "test", "--plugin", "build/order-mailer.wasm", "--plugins", "elsewhere"]);

    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(!ended.stderr.contains("tried as"), "{}", ended.stderr);
    assert!(ended.stdout.contains("1 event with order-mailer"), "{}", ended.stdout);
}

#[test]
fn any_event_can_be_tried_by_its_id_and_a_plugin_reads_its_state_and_does_not_change_it() {
    let place = Place::migrated();
    place.plugin("effects");
    std::fs::write(place.path().join("effects.toml"), "emit = true\nstate = true\n").expect("can be written");
    let payload = r#"{"emit":2,"count":"n","then":"done"}"#;
    place.ok(&["event", "emit", "--aggregate-type", "Effects", "--type", "Do", "--payload", payload, "--id", "deed"]);
    let before = rows(&place);
    let test = |more: &[&str]| {
        let named = ["event", "test", "--plugin", "plugins/effects.wasm", "--manifest", "effects.toml", "--output", "json"];
        let ended = place.run(&[&named[..], more].concat());
        (ended.code, serde_json::from_str::<Value>(&ended.stdout).unwrap_or(Value::Null), ended.stderr)
    };

    let (code, report, said) = test(&["deed"]);

    assert_eq!(code, Some(0), "{said}");
    let tried = &report["events"][0];
    assert_eq!((&tried["emits"], &tried["writes"], &tried["now"]), (&2.into(), &1.into(), &before[0]["status"]), "{tried}");
    assert_eq!(report["replay"], Value::Null, "it is not dead");
    assert_eq!(rows(&place), before, "nothing is emitted, and the event is as it was");
    let (code, _, said) = test(&["deed", "none"]);
    assert_eq!((code, said.contains("not found: none")), (Some(6), true), "{said}");
    assert_eq!(test(&["none"]).0, Some(3));
}

#[test]
fn requests_and_messages_that_were_answered_here_are_counted_and_said_not_to_be_sent() {
    let place = Place::migrated();
    place.plugin("effects");
    let manifest = "http.allow = ['https://hooks.example.com']\npublish.sinks = ['orders']\n";
    std::fs::write(place.path().join("plugins/effects.toml"), manifest).expect("can be written");
    let ask = r#""ask":[["POST","https://hooks.example.com/a"],["GET","https://hooks.example.com/b"]]"#;
    let emit = |id: &str, payload: &str| {
        place.ok(&["event", "emit", "--aggregate-type", "Effects", "--type", "Do", "--payload", payload, "--id", id]);
    };
    emit("asks", &format!(r#"{{{ask},"then":"done"}}"#));
    emit("publishes", r#"{"publish":["orders"],"then":"done"}"#);
    emit("neither", r#"{"then":"done"}"#);
    place
        .sql("UPDATE outbox_event SET status = 2, last_error = '[http-500] the endpoint answered 500' WHERE event_id = 'asks'");
    let test = |more: &[&str]| {
        let ended = place.run(&[&["event", "test", "--plugin", "plugins/effects.wasm"][..], more].concat());
        assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
        ended.stdout
    };

    let report: Value =
        serde_json::from_str(&test(&["asks", "publishes", "neither", "--output", "json"])).expect("one document");
    let both = test(&["asks", "publishes", "neither"]);
    let asks = test(&["asks"]);
    let publishes = test(&["publishes"]);
    let neither = test(&["neither"]);

    assert_eq!((&report["requests"], &report["messages"]), (&2.into(), &1.into()), "{report}");
    let counts = |one: &Value| (one["event_id"].clone(), one["requests"].clone(), one["messages"].clone());
    let mut counted: Vec<_> = report["events"].as_array().expect("a list").iter().map(counts).collect();
    counted.sort_by_key(|(id, ..)| id.to_string());
    let wanted = [("asks", 2, 0), ("neither", 0, 0), ("publishes", 0, 1)];
    assert_eq!(counted, wanted.map(|(id, requests, messages)| (id.into(), requests.into(), messages.into())));
    for (text, said) in [
        (both, "2 requests were answered with 200 here and 1 message confirmed; none was sent"),
        (asks, "2 requests were answered with 200 here and not sent; a failing endpoint would change the result"),
        (publishes, "1 message was confirmed here and not sent; a failing sink would change the result"),
    ] {
        assert!(text.contains(said), "{text}");
    }
    assert!(!neither.contains("sent"), "{neither}");
}
