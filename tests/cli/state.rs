//! `outbox state`: what plugins keep.

use crate::program::Place;

/// A place where two plugins keep values, as a host has written them: versions 1, 2, … in the order of the keys.
fn place() -> Place {
    let place = Place::migrated();
    keep(
        &place,
        "totals",
        &[("/ada", "'2.50'"), ("/ben", "x'ff00'"), ("sum", "'a' || char(27) || '[31mred' || char(10) || 'b'")],
    );
    keep(&place, "Totals", &[("/ada", "''")]);
    place
}

fn keep(place: &Place, plugin: &str, values: &[(&str, &str)]) {
    for (number, (key, value)) in values.iter().enumerate() {
        place.sql(&format!(
            "INSERT INTO outbox_event_state (plugin, name, value, version, updated_at)
             VALUES ('{plugin}', '{key}', CAST({value} AS BLOB), {}, 1000000000000000)",
            number + 1
        ));
    }
    place.sql(&format!(
        "INSERT INTO outbox_event_state_usage (plugin, used_keys, used_bytes, revision)
         SELECT plugin, count(*), sum(length(CAST(name AS BLOB)) + length(value)), max(version) FROM outbox_event_state
         WHERE plugin = '{plugin}' GROUP BY plugin"
    ));
}

/// Plugin and key of what is listed.
fn listed(place: &Place, arguments: &[&str]) -> Vec<(String, String)> {
    let listed = place.json(&[&["state", "list", "--output", "json"], arguments].concat());
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_owned();
    listed.as_array().expect("a list").iter().map(|one| (text(&one["plugin"]), text(&one["key"]))).collect()
}

#[test]
fn what_a_plugin_keeps_is_shown_and_deleted_while_its_host_runs() {
    let place = Place::migrated();
    place.plugin("effects");
    std::fs::write(place.path().join("plugins/effects.toml"), "state = { max_keys = 10, max_bytes = \"1KiB\" }")
        .expect("can be written");
    let count = || {
        let what = ["event", "emit", "--type", "Do", "--aggregate-type", "Effects"];
        place.ok(&[&what[..], &["--payload", r#"{"count":"n","then":"done"}"#]].concat());
    };
    let _host = place.host(&[]);
    count();
    place.wait_for("done", 1);
    count();
    place.wait_for("done", 2);

    let value = || place.json(&["state", "get", "effects", "n", "--output", "json"]);
    let (before, usage) = (value(), place.json(&["state", "usage", "--output", "json", "--plugins", "plugins"]));
    place.ok(&["state", "delete", "effects", "n", "--yes", "--reason", "counted wrongly"]);
    let (gone, unused) = (place.run(&["state", "get", "effects", "n"]), place.json(&["state", "usage", "--output", "json"]));
    count();
    place.wait_for("done", 3);
    let after = value();

    assert_eq!((before["value_base64"].as_str(), before["value_bytes"].as_u64()), (Some("Mg=="), Some(1)), "{before}");
    let wanted = serde_json::json!([
        { "plugin": "effects", "used_keys": 1, "used_bytes": 2, "granted": true, "max_keys": 10, "max_bytes": 1024 }
    ]);
    assert_eq!(usage, wanted);
    assert_eq!((gone.code, unused.as_array().map(Vec::len)), (Some(3), Some(0)), "{}", gone.stderr);
    assert_eq!(after["value_base64"], "MQ==", "it counts from the beginning");
    assert!(after["version"].as_u64() > before["version"].as_u64(), "a version is never used twice: {before}, {after}");
    let audit = place.json(&["audit", "list", "--output", "json"]);
    assert_eq!((audit[0]["action"].as_str(), audit[0]["reason"].as_str()), (Some("delete_state"), Some("counted wrongly")));
}

#[test]
fn a_list_is_narrowed_and_goes_on_where_it_ended() {
    let place = place();
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(plugin, key)| ((*plugin).to_owned(), (*key).to_owned())).collect()
    };
    let all = [("Totals", "/ada"), ("totals", "/ada"), ("totals", "/ben"), ("totals", "sum")];

    assert_eq!(listed(&place, &[]), pairs(&all));
    assert_eq!(listed(&place, &["--plugin", "totals"]), pairs(&all[1..]));
    assert_eq!(listed(&place, &["--prefix", "/a"]), pairs(&all[..2]));
    assert_eq!(listed(&place, &["--plugin", "nobody"]), []);
    for limit in 1..4 {
        let (mut seen, mut after): (Vec<_>, Option<(String, String)>) = (Vec::new(), None);
        loop {
            let limit = limit.to_string();
            let mut arguments = vec!["--limit", &limit];
            if let Some((plugin, key)) = &after {
                arguments.extend(["--after", plugin, key]);
            }
            let page = listed(&place, &arguments);
            let Some(last) = page.last().cloned() else { break };
            seen.extend(page);
            after = Some(last);
        }
        assert_eq!(seen, pairs(&all), "{limit} at a time");
    }
    let people = place.run(&["state", "list", "--plugin", "totals", "--limit", "2"]);
    assert!(people.stdout.contains("/ben") && !people.stdout.contains("sum"), "{}", people.stdout);
    assert!(people.stderr.contains("continue with --after totals /ben"), "{}", people.stderr);
    assert!(people.stderr.contains("totals keeps 3 keys and 28 B; its limit is not known"), "{}", people.stderr);
    keep(&place, "quotes", &[("it''s", "''"), ("z", "''")]);
    let people = place.run(&["state", "list", "--plugin", "quotes", "--limit", "1"]);
    assert!(people.stderr.contains(r"--after quotes 'it'\''s'"), "{}", people.stderr);
}

#[test]
fn a_key_that_begins_with_a_hyphen_is_a_key_like_any_other() {
    let place = Place::migrated();
    keep(&place, "dashes", &[("-dash", "'v'"), ("--dash", "'w'"), ("z", "''")]);

    let first = place.run(&["state", "list", "--plugin", "dashes", "--limit", "2"]);
    let next = listed(&place, &["--plugin", "dashes", "--after", "dashes", "-dash"]);
    let value = place.json(&["state", "get", "dashes", "-dash", "--output", "json"]);
    let usage = place.run(&["state", "delete", "dashes"]);
    place.ok(&["state", "delete", "dashes", "--dash", "--yes"]);

    assert!(first.stderr.contains("continue with --after dashes -dash"), "{}", first.stderr);
    assert_eq!(next, [("dashes".to_owned(), "z".to_owned())]);
    assert_eq!(value["value_base64"], "dg==");
    assert_eq!(listed(&place, &["--prefix", "-"]), [("dashes".to_owned(), "-dash".to_owned())]);
    assert_eq!(usage.code, Some(2), "{}", usage.stderr);
    assert!(
        usage.stderr.contains("--all for all values") && usage.stderr.contains("outbox state list --plugin dashes"),
        "{}",
        usage.stderr
    );
}

#[test]
fn a_value_cannot_steer_the_terminal_and_is_whole_in_json() {
    let place = place();

    let text = place.ok(&["state", "get", "totals", "sum"]);
    let binary = place.ok(&["state", "get", "totals", "/ben"]);
    let json = |key| place.json(&["state", "get", "totals", key, "--output", "json"])["value_base64"].clone();

    assert!(text.ends_with("\na\\u{1b}[31mred\nb\n"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(binary.ends_with("\n/wA=\n"), "{binary}");
    assert_eq!((json("sum"), json("/ben")), ("YRtbMzFtcmVkCmI=".into(), "/wA=".into()));
    assert_eq!(place.run(&["state", "get", "totals", "/BEN"]).code, Some(3));
}

#[test]
fn deleting_asks_first_and_says_how_many_values() {
    let place = place();

    let asked = place.run(&["state", "delete", "totals", "--all"]);
    assert_eq!(asked.code, Some(2), "{}", asked.stderr);
    assert!(asked.stderr.contains("delete 3 values of totals (28 B) for good; add --yes"), "{}", asked.stderr);
    let asked = place.run(&["state", "delete", "totals", "/ada"]);
    assert_eq!(asked.code, Some(2), "{}", asked.stderr);
    assert!(asked.stderr.contains("the value of totals under /ada (4 B) for good"), "{}", asked.stderr);
    for wrong in [&["totals"][..], &["totals", "/ada", "--all"], &["--all"]] {
        assert_eq!(place.run(&[&["state", "delete", "--yes"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
    assert_eq!(listed(&place, &[]).len(), 4, "nothing is deleted without --yes");

    let one = place.json(&["state", "delete", "totals", "/ada", "--yes", "--output", "json"]);
    let rest = place.json(&["state", "delete", "totals", "--all", "--yes", "--output", "json"]);

    assert_eq!(one, serde_json::json!({ "plugin": "totals", "key": "/ada", "count": 1 }));
    assert_eq!(rest, serde_json::json!({ "plugin": "totals", "key": null, "count": 2 }));
    assert_eq!(listed(&place, &[]), [("Totals".to_owned(), "/ada".to_owned())], "another plugin's is left alone");
    for gone in [&["totals", "/ada"][..], &["totals", "--all"], &["totals", "/a"]] {
        assert_eq!(place.run(&[&["state", "delete", "--yes"], gone].concat()).code, Some(3), "{gone:?}");
    }
    let audit = place.json(&["audit", "list", "--action", "delete_state", "--output", "json"]);
    let noted: Vec<_> = audit.as_array().expect("a list").iter().map(|note| note["count"].as_u64()).collect();
    assert_eq!(noted, [Some(2), Some(1)]);
}

#[test]
fn a_quota_is_what_the_manifest_says() {
    let place = place();
    keep(&place, "../totals", &[("k", "'v'")]);
    let usage = |arguments: &[&str]| {
        let used = place.json(&[&["state", "usage", "--plugin", "totals", "--output", "json"], arguments].concat());
        (used[0]["granted"].as_bool(), used[0]["max_keys"].as_u64(), used[0]["used_keys"].as_u64())
    };
    assert_eq!(usage(&[]), (None, None, Some(3)), "there is no such plugin here");

    place.plugin("noop");
    let plugins = place.path().join("plugins");
    std::fs::rename(plugins.join("noop.wasm"), plugins.join("totals.wasm")).expect("it was copied");
    assert_eq!(usage(&[]), (Some(false), None, Some(3)), "without a manifest it may keep nothing");
    std::fs::write(plugins.join("totals.toml"), "").expect("can be written");
    assert_eq!(usage(&[]), (None, None, Some(3)), "an empty manifest is a fault for a host, and says nothing of a quota");
    std::fs::write(plugins.join("totals.toml"), "state = true").expect("can be written");
    assert_eq!(usage(&[]), (Some(true), Some(1_000), Some(3)));
    assert_eq!(usage(&["--set", "plugins.totals.state.max_keys=7"]), (Some(true), Some(7), Some(3)), "the operator's wins");

    let table = place.ok(&["state", "usage"]);
    assert!(
        table.contains("totals")
            && table.contains("28 B       1.0 MiB")
            && table.contains("MOST KEYS")
            && table.contains("../totals"),
        "{table}"
    );
}
