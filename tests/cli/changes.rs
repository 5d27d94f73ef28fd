//! The changes that hosts make by themselves, in the audit log.

use std::fs;
use std::time::Instant;

use serde_json::Value;
use support::sample_plugins;

use crate::program::{Ended, Host, LOOK_AGAIN, PATIENCE, Place};

/// The records of this action, newest first.
fn records(place: &Place, action: &str) -> Vec<Value> {
    let listed = place.json(&["audit", "list", "--action", action, "--output", "json"]);
    listed.as_array().expect("a list").clone()
}

/// Waits until there are this many records of this action.
fn wait_for_records(place: &Place, action: &str, count: usize) -> Vec<Value> {
    let started = Instant::now();
    loop {
        let records = records(place, action);
        if records.len() == count {
            return records;
        }
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: {count} records of {action}: {records:?}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Waits until the host serves its plugin: a file that is replaced before that is never loaded.
fn wait_until_the_plugin_serves(place: &Place) {
    let started = Instant::now();
    let listed = || place.json(&["plugin", "list", "--output", "json"]);
    while listed()[0]["state"] != "serving" {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: the plugin serves: {}", listed());
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[test]
fn a_swap_a_rollback_and_the_life_of_a_host_are_in_the_audit_log() {
    let place = Place::migrated();
    let cache = place.path().join("cache");
    let host = place.host(&[("XDG_CACHE_HOME", cache.to_str().expect("a plain name"))]);
    let started = wait_for_records(&place, "start_host", 1);
    wait_until_the_plugin_serves(&place);

    fs::copy(sample_plugins().join("noop.wasm"), place.path().join("draft")).expect("can be copied");
    fs::rename(place.path().join("draft"), place.path().join("plugins/order-mailer.wasm")).expect("can be renamed");
    let swap = wait_for_records(&place, "swap_plugin", 1).remove(0);
    let mut rollback = place.command(&["plugin", "rollback", "order-mailer", "--reason", "it mails twice"]);
    rollback.env("XDG_CACHE_HOME", &cache);
    let rolled_back = Ended::of(rollback);
    let back = wait_for_records(&place, "swap_plugin", 2).remove(0);
    host.signal("TERM");
    let (status, _) = host.end();

    assert_eq!((rolled_back.code, status.code()), (Some(0), Some(0)), "{}", rolled_back.stderr);
    assert_eq!((&swap["selector"]["plugin"], &swap["actor"]), (&"order-mailer".into(), &started[0]["actor"]), "{swap}");
    assert_eq!(back["selector"]["from"], swap["selector"]["to"]);
    assert_eq!(back["selector"]["to"], swap["selector"]["from"]);
    let by_hand = records(&place, "rollback_plugin").remove(0);
    let to = by_hand["selector"]["to"].as_str().expect("a digest");
    assert!(back["selector"]["to"].as_str().is_some_and(|version| version.contains(to)), "{by_hand} {back}");
    assert_eq!(by_hand["reason"], "it mails twice");
    let loaded = records(&place, "load_plugin");
    assert_eq!(loaded.len(), 1, "no host recorded the plugin before: {loaded:?}");
    assert_eq!(loaded[0]["selector"]["to"], swap["selector"]["from"]);
    assert_eq!(records(&place, "stop_host").len(), 1);
    let table = place.ok(&["audit", "list"]);
    assert!(table.contains("swap_plugin") && table.contains("order-mailer ") && table.contains(" → "), "{table}");
}

#[test]
fn start_with_another_version_of_a_plugin_is_recorded_as_a_swap() {
    let place = Place::migrated();
    let cache = place.path().join("cache");
    place.plugin("order-mailer");
    let run = || {
        let mut command = place.command(&["run", "--plugins", "plugins", "--log", "info"]);
        command.env("XDG_CACHE_HOME", &cache);
        let mut host = Host::of(command);
        host.wait_for_line("it says that it is ready", |line| line == "ready");
        wait_until_the_plugin_serves(&place);
        host
    };
    let stop = |host: Host| {
        host.signal("TERM");
        assert_eq!(host.end().0.code(), Some(0));
    };
    let host = run();
    let loaded = wait_for_records(&place, "load_plugin", 1).remove(0);
    stop(host);
    stop(run());
    assert_eq!(records(&place, "swap_plugin"), Vec::<Value>::new(), "the same version");

    fs::copy(sample_plugins().join("noop.wasm"), place.path().join("plugins/order-mailer.wasm")).expect("can be copied");
    let host = run();
    let swap = wait_for_records(&place, "swap_plugin", 1).remove(0);
    stop(host);

    assert_eq!(swap["selector"]["from"], loaded["selector"]["to"]);
    assert_eq!(swap["actor"], records(&place, "start_host")[0]["actor"]);
    assert_eq!(records(&place, "load_plugin").len(), 1);
}
