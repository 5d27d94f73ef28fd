//! `outbox doctor`: what it finds, and how it ends.

use std::fs;
use std::time::Instant;

use crate::program::{Ended, LOOK_AGAIN, PATIENCE, Place};

/// A place with one good plugin.
fn place() -> Place {
    let place = Place::migrated();
    place.plugin("order-mailer");
    place
}

fn findings(ended: &Ended) -> Vec<serde_json::Value> {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr))
}

/// The findings of one check, as `severity: what was found`.
fn found(ended: &Ended, check: &str) -> String {
    let findings = findings(ended);
    let of_check = findings.iter().filter(|finding| finding["check"] == check);
    of_check.map(|finding| format!("{}: {}\n", finding["severity"], finding["found"])).collect()
}

#[test]
fn a_healthy_setup_has_only_good_findings_and_ends_with_0() {
    let place = place();

    let ended = place.run(&["doctor", "--output", "json"]);

    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for check in ["configuration", "plugins", "connection", "schema", "indexes", "nodes", "routes", "dead", "retry", "pending"]
    {
        assert!(found(&ended, check).starts_with("\"good\": "), "{check}: {}", ended.stdout);
    }
    assert!(findings(&ended).iter().all(|finding| finding["fix"].is_null()), "{}", ended.stdout);
    let people = place.run(&["doctor"]);
    assert_eq!(people.code, Some(0));
    assert!(people.stdout.lines().all(|line| line.starts_with('✓')), "{}", people.stdout);
    assert!(!people.stdout.contains('\u{1b}'), "no colour where nobody sees it");
}

#[test]
fn what_needs_an_operator_is_found_with_its_fix_and_ends_with_8() {
    let place = place();
    fs::write(place.path().join("plugins/broken.wasm"), "no component").expect("written");
    for id in ["dead", "parked", "old"] {
        place.order(id, id);
    }
    place.ok(&["route", "pause", "Order/OrderPaid", "--reason", "the mail server moves"]);
    place.sql("UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1 WHERE event_id = 'dead'");
    place.sql("UPDATE outbox_event SET parked = 'no listener', due_at = NULL WHERE event_id = 'parked'");
    place.sql("UPDATE outbox_event SET available_at = 1, due_at = 1 WHERE event_id = 'old'");
    place.sql(
        "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, room, session)
         VALUES ('a', 'shop 1', 'single_node', '0.1.0', 1, 9000000000000000, 1, 0),
                ('b', 'shop 2', 'multi_node', '0.1.0', 1, 9000000000000000, 1, 0)",
    );

    let ended = place.run(&["doctor", "--output", "json"]);

    assert_eq!(ended.code, Some(8), "{}", ended.stderr);
    for (check, part) in [
        ("plugins", "broken cannot serve"),
        ("nodes", "shop 1 runs as single_node, but other hosts work on the table"),
        ("routes", "Order/OrderPaid has been paused by"),
        ("routes", "Order/OrderPlaced has 1 event waiting without a listener"),
        ("dead", "1 event given up"),
        ("pending", "the oldest due event has waited for"),
    ] {
        let found = found(&ended, check);
        assert!(found.contains(part), "{check} does not say `{part}`: {found}");
    }
    let severities: Vec<_> = findings(&ended).iter().map(|finding| finding["severity"].clone()).collect();
    let rank = |severity: &serde_json::Value| ["fault", "warning", "good"].iter().position(|one| severity == one);
    assert!(severities.is_sorted_by_key(rank), "problems come first: {severities:?}");
    let bad = findings(&ended).into_iter().filter(|finding| finding["severity"] != "good");
    assert!(bad.into_iter().all(|finding| finding["fix"].is_string()), "{}", ended.stdout);
    assert!(place.run(&["doctor"]).stdout.contains("→ to resume it: outbox route resume Order/OrderPaid"));
}

#[test]
fn a_partition_table_that_was_changed_by_hand_is_a_fault_and_a_host_mends_it_and_says_so() {
    let place = place();
    place.sql("DELETE FROM outbox_event_partition WHERE partition_id >= 128");

    let ended = place.run(&["doctor", "--output", "json"]);
    let mut host = place.host(&[("OUTBOX_DISPATCHER__LEASE", "3s"), ("OUTBOX_DISPATCHER__DEADLINE", "2s")]);

    assert_eq!(ended.code, Some(8), "{}", ended.stdout);
    let fault = found(&ended, "partitions");
    assert!(fault.contains("fault") && fault.contains("128 of 256 partitions have no row"), "{fault}");
    host.wait_until_it_said("what was done", |line| {
        line.contains("ERROR") && line.contains("the partition table was changed by hand: 128 of 256 partitions have no row")
    });
    let order = r#"{"order_id":42,"total":9.5}"#;
    for key in ["1", "2", "3", "4", "5"] {
        let of = ["--aggregate-type", "Order", "--aggregate-id", key, "--payload", order];
        place.ok(&[&["event", "emit", "--type", "OrderPlaced"], &of[..]].concat());
    }
    place.wait_for("done", 5);
    assert!(found(&place.run(&["doctor", "--output", "json"]), "partitions").contains("good"));
    host.signal("TERM");
    assert_eq!(host.end().0.code(), Some(0));
}

#[test]
fn a_host_that_was_killed_is_missed_and_one_that_was_stopped_is_not() {
    let place = place();
    let settings = [("OUTBOX_MODE", "multi_node")];
    let (_stays, stopped, killed) = (place.host(&settings), place.host(&settings), place.host(&settings));
    let (of_stopped, of_killed) = (format!(" {} ", stopped.id()), format!(" {} ", killed.id()));
    let wait_for = |fact: &str, holds: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !holds() {
            assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: {fact}");
            std::thread::sleep(LOOK_AGAIN);
        }
    };
    wait_for("both say that they are alive", &|| {
        let listed = place.ok(&["node", "list"]);
        listed.contains(&of_stopped) && listed.contains(&of_killed)
    });

    stopped.signal("TERM");
    assert_eq!(stopped.end().0.code(), Some(0));
    killed.kill();

    let nodes = || found(&place.run(&["doctor", "--output", "json"]), "nodes");
    wait_for("the killed host is missed", &|| nodes().contains(&format!("{of_killed}vanished ")));
    assert!(!nodes().contains(&of_stopped), "{}", nodes());
}

#[test]
fn a_host_whose_process_holds_its_session_without_a_lease_is_not_called_gone() {
    const ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let place = place();
    place.order("due", "42");
    place.sql(&format!(
        "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, room, session)
         VALUES ('shop/{ID}', 'shop 1', 'multi_node', '0.1.0', 1, (unixepoch() - 50) * 1000000, 1, 1)"
    ));
    let session = fs::File::create(place.path().join(format!("outbox.db-session-{ID}"))).expect("made");
    session.lock().expect("locks");
    let findings_of = |check: &str| found(&place.run(&["doctor", "--output", "json"]), check);

    let (nodes, pending) = (findings_of("nodes"), findings_of("pending"));

    assert!(nodes.contains("\"fault\": \"shop 1 is running, but its lease ended"), "{nodes}");
    assert!(!nodes.contains("vanished") && !pending.contains("no host"), "{nodes}{pending}");
    drop(session);
    let (nodes, pending) = (findings_of("nodes"), findings_of("pending"));
    assert!(nodes.contains("shop 1 vanished") && pending.contains("no host that delivers is running"), "{nodes}{pending}");
}

#[test]
fn due_events_that_nobody_delivers_are_found_at_once() {
    let place = place();
    place.order("due", "42");

    let ended = place.run(&["doctor", "--output", "json"]);

    assert_eq!(ended.code, Some(8), "{}", ended.stdout);
    let pending = found(&ended, "pending");
    assert!(pending.starts_with("\"fault\": ") && pending.contains("no host"), "{pending}");
    assert!(found(&ended, "routes").starts_with("\"good\": "), "a plugin here answers it: {}", ended.stdout);
    assert_eq!(found(&ended, "nodes"), "\"good\": \"no host is running\"\n");
}

#[test]
fn an_empty_directory_of_plugins_is_told_with_what_that_means() {
    let place = Place::migrated();
    fs::create_dir(place.path().join("plugins")).expect("can be made");

    let ended = place.run(&["doctor", "--output", "json"]);

    let plugins = found(&ended, "plugins");
    assert_eq!(plugins, "\"warning\": \"the directory plugins is empty, so no plugin answers any route\"\n");
}

#[test]
fn a_route_that_never_had_a_listener_is_told_of_as_such() {
    let place = place();
    place.ok(&["event", "emit", "--type", "OrderPlacd", "--aggregate-type", "Order", "--payload", "{}"]);

    let ended = place.run(&["doctor", "--output", "json"]);

    let routes = found(&ended, "routes");
    assert!(!routes.contains("none without its listener"), "{routes}");
    assert!(routes.contains("Order/OrderPlacd has 1 event waiting, and never had a listener"), "{routes}");
}

#[test]
fn a_database_that_cannot_be_reached_ends_with_5_after_what_can_be_looked_at_without_it() {
    let place = place();

    let ended = place.run(&["doctor", "--database-url", "sqlite:elsewhere.db", "--output", "json"]);

    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(found(&ended, "plugins").starts_with("\"good\": "), "{}", ended.stdout);
    assert!(found(&ended, "connection").starts_with("\"fault\": "), "{}", ended.stdout);
    assert!(ended.stderr.contains("elsewhere.db"), "{}", ended.stderr);
    assert!(!place.path().join("elsewhere.db").exists(), "looking makes no file");
}

#[test]
fn the_finding_of_a_server_that_cannot_be_reached_has_the_cause() {
    let place = place();

    let ended = place.run(&["doctor", "--database-url", "postgres://shop@127.0.0.1:1/shop", "--output", "json"]);

    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(found(&ended, "connection").contains("Connection refused"), "{}", ended.stdout);
}

#[test]
fn plugins_that_a_host_serves_from_another_directory_are_no_fault() {
    let place = place();
    let alone = place.run(&["doctor", "--plugins", "elsewhere", "--output", "json"]);
    let _host = place.host(&[]);
    place.wait_until_hosts_tell_of_plugins();

    let ended = place.run(&["doctor", "--plugins", "elsewhere", "--output", "json"]);

    assert!(found(&alone, "plugins").starts_with("\"fault\": "), "nobody serves: {}", alone.stdout);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let plugins = found(&ended, "plugins");
    assert!(plugins.starts_with("\"good\": ") && plugins.contains("outbox doctor --plugins "), "{plugins}");
}

#[test]
fn a_plugin_whose_variable_is_missing_in_this_shell_alone_is_a_warning() {
    let place = place();
    fs::write(place.path().join("plugins/order-mailer.toml"), "[config]\ntoken = \"${env:OUTBOX_PLUGIN_TOKEN}\"\n")
        .expect("written");
    let alone = place.run(&["doctor", "--plugins", "plugins", "--output", "json"]);
    let _host = place.host(&[("OUTBOX_PLUGIN_TOKEN", "hunter2")]);
    place.wait_until_hosts_tell_of_plugins();

    let ended = place.run(&["doctor", "--plugins", "plugins", "--output", "json"]);

    assert!(found(&alone, "plugins").starts_with("\"warning\": \"order-mailer cannot serve: "), "{}", alone.stdout);
    let plugins = found(&ended, "plugins");
    assert!(plugins.starts_with("\"warning\": \"order-mailer cannot be checked from this shell: "), "{plugins}");
    assert!(plugins.contains("OUTBOX_PLUGIN_TOKEN is not set") && plugins.contains("serves this very file"), "{plugins}");
}

#[test]
fn a_directory_without_components_is_no_warning_where_a_host_serves_another_one() {
    let place = place();
    fs::create_dir(place.path().join("sources")).expect("can be made");
    fs::create_dir(place.path().join("sources/mailer")).expect("can be made");
    let alone = place.run(&["doctor", "--plugins", "sources", "--output", "json"]);
    let _host = place.host(&[]);
    place.wait_until_hosts_tell_of_plugins();

    let ended = place.run(&["doctor", "--plugins", "sources", "--output", "json"]);

    assert!(
        found(&alone, "plugins").starts_with("\"warning\": \"the directory sources holds no plugins"),
        "nobody serves: {}",
        alone.stdout
    );
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let plugins = found(&ended, "plugins");
    assert!(plugins.starts_with("\"good\": \"sources holds no plugins, but running hosts serve plugins from"), "{plugins}");
    for check in ["http", "lease"] {
        assert!(found(&ended, check).contains("in this configuration"), "{check}: {}", ended.stdout);
    }
}

#[test]
fn a_plugin_whose_file_does_not_load_any_more_is_told_of_though_the_version_before_would_serve() {
    let place = place();
    drop(place.host(&[]));
    fs::write(place.path().join("plugins/order-mailer.toml"), "fule = 3\n").expect("written");

    let ended = place.run(&["doctor", "--output", "json"]);

    assert_eq!(ended.code, Some(8), "{}{}", ended.stdout, ended.stderr);
    let plugins = found(&ended, "plugins");
    assert!(plugins.starts_with("\"warning\": \"order-mailer: its current file cannot serve"), "{plugins}");
    assert!(plugins.contains("fule") && plugins.contains("which served before, still answers Order/"), "{plugins}");
    let fix = findings(&ended).into_iter().find(|finding| finding["check"] == "plugins").map(|finding| finding["fix"].clone());
    assert!(fix.is_some_and(|fix| fix.to_string().contains("outbox plugin check")), "{}", ended.stdout);
}

#[test]
fn the_manifest_beside_a_component_is_held_against_the_settings() {
    let place = place();
    fs::write(place.path().join("plugins/order-mailer.toml"), "limits.deadline = '30s'\n").expect("written");

    let ended = place.run(&["doctor", "--output", "json"]);

    let settings = found(&ended, "settings");
    assert!(settings.contains("limits.deadline of order-mailer.toml (30s) is not below dispatcher.lease (30s)"), "{settings}");
}

#[test]
fn many_routes_that_nobody_answers_are_one_finding() {
    let place = place();
    for number in 0..5 {
        let event_type = format!("Order{number}");
        place.ok(&["event", "emit", "--type", &event_type, "--aggregate-type", "Order", "--payload", "{}"]);
    }

    let ended = place.run(&["doctor", "--output", "json"]);

    let routes = found(&ended, "routes");
    assert!(routes.starts_with("\"warning\": \"5 events of 5 routes wait without a listener: Order/Order0 (1)"), "{routes}");
    assert_eq!(routes.lines().count(), 1, "{routes}");
}

#[test]
fn a_schema_that_is_not_there_is_a_finding() {
    let place = place();
    place.ok(&["migrate", "down", "--yes"]);

    let ended = place.run(&["doctor", "--output", "json"]);

    assert_eq!(ended.code, Some(8), "{}", ended.stderr);
    assert!(found(&ended, "schema").starts_with("\"fault\": "), "{}", ended.stdout);
}

#[test]
fn a_fix_names_the_database_that_was_looked_at() {
    let place = place();
    place.ok(&["migrate", "up", "--database-url", "sqlite:other.db?mode=rwc"]);
    place.ok(&["migrate", "down", "--yes", "--database-url", "sqlite:other.db"]);

    let ended =
        place.run(&["doctor", "--database-url", "sqlite:other.db", "--set", "database.table=outbox_event", "--output", "json"]);

    let schema = findings(&ended).into_iter().find(|finding| finding["check"] == "schema").expect("it is looked at");
    let fix = "outbox migrate up --database-url sqlite:other.db --set database.table=outbox_event";
    assert_eq!(schema["fix"], fix, "{}", ended.stdout);
}

#[test]
fn a_required_plugin_that_is_not_there_is_a_fault() {
    let place = place();

    let ended = place.run(&["doctor", "--set", "plugins.required=[\"order-mailer\", \"mailer\"]", "--output", "json"]);

    assert_eq!(ended.code, Some(8), "{}", ended.stderr);
    let plugins = found(&ended, "plugins");
    assert!(plugins.contains("\"fault\": \"plugins.required names mailer, but plugins holds no mailer.wasm"), "{plugins}");
    assert!(!plugins.contains("names order-mailer"), "{plugins}");
}

#[test]
fn the_plans_and_the_grants_are_printed_alone() {
    let place = place();

    let plans = place.json(&["doctor", "--explain", "--output", "json"]);
    let grants = place.ok(&["doctor", "--grants"]);

    let plans = plans.as_array().expect("an array");
    let index = |statement: &str| plans.iter().find(|plan| plan["statement"] == statement).map(|plan| plan["index"].clone());
    assert_eq!(index("read"), Some("outbox_event_due".into()));
    assert!(plans.iter().all(|plan| plan["good"] == true), "{plans:?}");
    assert!(grants.starts_with("--"), "{grants}");
}

#[test]
fn a_password_that_was_typed_stands_nowhere_in_what_is_said() {
    let place = Place::migrated();
    for url in [
        "postgres://app:s3cret@127.0.0.1:1/shop",
        "mysql://app:s3/cret@127.0.0.1:1/shop",
        "postgres://127.0.0.1:1/shop?password=s3cret",
        "postgres://app:s3cret@127.0.0.1:port/shop",
        "postgres:app:s3cret@127.0.0.1/shop",
        "oracle://app:s3cret@127.0.0.1/shop",
    ] {
        for flag in [format!("--database-url={url}"), format!("--set=database.url={url}")] {
            for command in [&["doctor"][..], &["doctor", "--output", "json"], &["migrate", "up"], &["event", "why", "one"]] {
                let ended = place.run(&[command, &[&flag]].concat());
                let said = format!("{}{}", ended.stdout, ended.stderr);
                assert!(matches!(ended.code, Some(4 | 5)), "{flag} {command:?}: {said}");
                assert!(!said.contains("cret"), "{flag} {command:?}: {said}");
            }
        }
    }
}
