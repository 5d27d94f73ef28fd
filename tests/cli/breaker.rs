//! The open circuit breaker of a listener, as an operator sees it.

use std::fs;
use std::time::Instant;

use crate::http::{address, ask};
use crate::program::{Host, LOOK_AGAIN, PATIENCE, Place};

const PANIC: &str = "{\"event_type\":\"Panic\",\"aggregate_type\":\"Trouble\",\"payload\":1}\n";

/// Lists the routes until the breaker of the one that panics is open, and returns that breaker.
fn open_breaker(place: &Place, arguments: &[&str]) -> serde_json::Value {
    let started = Instant::now();
    loop {
        let routes = place.json(&[&["route", "list", "--output", "json"][..], arguments].concat());
        let route = routes.as_array().expect("a list").iter().find(|route| route["event_type"] == "Panic");
        if let Some(open) = route.and_then(|route| route["open_breakers"].get(0)) {
            return open.clone();
        }
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: an open breaker, not {routes}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[test]
fn a_route_whose_breaker_is_open_is_shown_everywhere_with_its_breaker() {
    let place = Place::migrated();
    place.plugin("trouble");
    fs::write(place.path().join("events.jsonl"), PANIC.repeat(20)).expect("written");
    place.ok(&["event", "emit", "--jsonl", "events.jsonl"]);
    let arguments = ["run", "--plugins", "plugins", "--listen", "127.0.0.1:0", "--set", "breaker.pause=1h"];
    let mut host = Host::of(place.command(&arguments));
    let address = address(&mut host);
    let url = format!("http://{address}");

    let open = open_breaker(&place, &[]);

    assert_eq!(open["listener"], "trouble", "{open}");
    assert!(open["host"].is_string() && open["since"].is_string() && open["next_try"].is_string(), "{open}");
    assert_eq!(open_breaker(&place, &["--url", &url]), open);
    let (started, mut plugins) = (Instant::now(), place.ok(&["plugin", "list"]));
    while !plugins.contains("breaker open") && started.elapsed() < PATIENCE {
        std::thread::sleep(LOOK_AGAIN);
        plugins = place.ok(&["plugin", "list"]);
    }
    assert!(plugins.contains("breaker open"), "{plugins}");
    assert_eq!(place.json(&["plugin", "list", "--output", "json"])[0]["state"], "breaker_open");
    let doctor = place.run(&["doctor"]).stdout;
    assert!(doctor.contains("the breaker of trouble on Trouble/Panic, which failed too often: open for "), "{doctor}");
    let routes = place.ok(&["route", "list"]);
    assert!(routes.contains("BREAKER") && routes.contains("open for ") && routes.contains("next try in "), "{routes}");
    for (request, part) in [("GET /v1/routes", "\"open_breakers\":[{\"host\":"), ("GET /routes", "next try in ")] {
        // Pages show what the host read from the table up to some seconds ago.
        let (started, mut answer) = (Instant::now(), ask(&address, request, "", ""));
        while !answer.contains(part) && started.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_AGAIN);
            answer = ask(&address, request, "", "");
        }
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(part), "{request}: {answer}");
    }
    host.kill();
}

#[test]
fn a_breaker_whose_pause_is_over_waits_for_a_trial_and_its_plugin_serves() {
    let place = Place::migrated();
    place.plugin("trouble");
    fs::write(place.path().join("events.jsonl"), PANIC.repeat(20)).expect("written");
    place.ok(&["event", "emit", "--jsonl", "events.jsonl"]);
    let settings = ["--set", "breaker.pause=10ms", "--set", "retry.base=1h", "--set", "retry.max=1h"];
    let arguments = [&["run", "--plugins", "plugins", "--listen", "127.0.0.1:0"][..], &settings[..]].concat();
    let mut host = Host::of(place.command(&arguments));
    let url = format!("http://{}", address(&mut host));

    // The host has started.
    open_breaker(&place, &[]);
    // Each event is one call or one trial, and the last of them leaves a pause that ends.
    let started = Instant::now();
    let is_over = || {
        let routes = place.ok(&["route", "list", "--url", &url]);
        let has_failed = place.json(&["stats", "--output", "json"])["retry"] == 20;
        has_failed && routes.contains("waits for a trial with the next event")
    };
    while !is_over() {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: a breaker whose pause is over");
        std::thread::sleep(LOOK_AGAIN);
    }

    let plugins = place.json(&["plugin", "list", "--url", &url, "--output", "json"]);
    assert_eq!(plugins[0]["state"], "serving", "{plugins}");
    host.kill();
}
