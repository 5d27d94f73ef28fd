//! What an attempt cost, as the program tells it, on every database.

use std::fs;
use std::time::Instant;

use crate::home::Home;
use crate::program::{LOOK_AGAIN, PATIENCE, Place};

const QUICK: (&str, &str) = ("OUTBOX_POLLER__INTERVAL", "100ms");
const FUEL: u64 = 5_000_000;

/// Runs a host until these events have ended, this many of them dead and the others done; returns what it said.
fn run(place: &Place, settings: &[(&str, &str)], events: &[(&str, &str)], dead: u64) -> Vec<String> {
    place.plugin("trouble");
    let manifest = format!("limits.fuel = {FUEL}\n[retry]\nmax_attempts = 1\n");
    fs::write(place.path().join("plugins/trouble.toml"), manifest).expect("written");
    for (id, event_type) in events {
        place.ok(&["event", "emit", "--type", event_type, "--aggregate-type", "Trouble", "--payload", "1", "--id", id]);
    }
    let host = place.host(settings);
    place.wait_for("dead", dead);
    place.wait_for("done", events.len() as u64 - dead);
    host.signal("TERM");
    host.end().1
}

fn tells_what_an_attempt_cost(place: &Place) {
    let said = run(place, &[QUICK], &[("looped", "Loop"), ("dead", "Dead"), ("fine", "Done")], 2);

    let page = place.json(&["event", "why", "looped", "--output", "json"]);
    let cost = &page["last_cost"];
    let digest = cost["digest"].as_str().unwrap_or_else(|| panic!("no digest: {page}"));
    assert_eq!((cost["attempt"].as_u64(), cost["outcome"].as_str()), (Some(1), Some("dead")), "{page}");
    let fuel = cost["fuel"].as_u64().unwrap_or_default();
    assert!((FUEL * 9 / 10..=FUEL).contains(&fuel), "{page}");
    for figure in ["took_us", "memory_bytes"] {
        assert!(cost[figure].as_u64() > Some(0), "{figure}: {page}");
    }
    let inspected = place.json(&["plugin", "inspect", "plugins/trouble.wasm", "--output", "json"]);
    assert!(inspected["digest"].as_str().is_some_and(|whole| whole.starts_with(digest)), "{digest}: {inspected}");
    let text = place.ok(&["event", "why", "looped"]);
    assert!(text.contains("\ncost        attempt 1 (the event was given up): "), "{text}");
    assert!(text.replace(',', "").contains(&format!("{fuel} fuel ")) && text.contains(digest), "{text}");
    let shown = place.json(&["event", "show", "dead", "--output", "json"]);
    assert_eq!((&shown["last_cost"]["digest"], &shown["last_cost"]["attempt"]), (&cost["digest"], &1.into()), "{shown}");
    assert!(place.ok(&["event", "show", "dead"]).contains(" fuel, "));
    let fine = place.json(&["event", "why", "fine", "--output", "json"]);
    assert_eq!((fine["status"].as_str(), fine["last_cost"].is_null()), (Some("DONE"), true), "{fine}");
    assert!(!place.ok(&["event", "why", "fine"]).contains("cost "));
    let total = said.iter().find(|line| line.contains("listener totals"));
    let total = total.unwrap_or_else(|| panic!("the host says what all calls cost: {said:#?}"));
    assert!(total.contains("trouble") && total.contains("calls=3"), "{total}");
}

#[test]
fn a_failure_says_what_it_cost_and_a_success_does_not_on_sqlite() {
    tells_what_an_attempt_cost(&Place::migrated());
}

#[test]
fn a_failure_says_what_it_cost_and_a_success_does_not_on_postgres() {
    tells_what_an_attempt_cost(&Place::on(Home::on_postgres()));
}

#[test]
fn a_failure_says_what_it_cost_and_a_success_does_not_on_mysql() {
    tells_what_an_attempt_cost(&Place::on(Home::on_mysql()));
}

#[test]
fn a_success_says_what_it_cost_when_the_file_or_the_environment_asks_for_it() {
    let by_environment = Place::migrated();
    run(&by_environment, &[QUICK, ("OUTBOX_DISPATCHER__RECORD", "all")], &[("fine", "Done")], 0);
    let by_file = Place::migrated();
    fs::write(by_file.path().join("outbox.toml"), "[dispatcher]\nrecord = \"all\"\n").expect("written");
    run(&by_file, &[QUICK], &[("fine", "Done")], 0);

    for place in [by_environment, by_file] {
        let page = place.json(&["event", "why", "fine", "--output", "json"]);
        assert_eq!((page["status"].as_str(), page["last_cost"]["outcome"].as_str()), (Some("DONE"), Some("done")), "{page}");
        assert!(page["last_cost"]["fuel"].as_u64() > Some(0), "{page}");
        let text = place.ok(&["event", "why", "fine"]);
        assert!(text.contains("\ncost        attempt 1 (done): "), "{text}");
    }
}

#[test]
fn a_component_is_called_by_its_name_while_a_host_tells_of_it() {
    let place = Place::migrated();
    place.plugin("trouble");
    place.ok(&["event", "emit", "--type", "Dead", "--aggregate-type", "Trouble", "--payload", "1", "--id", "dead"]);
    let _host = place.host(&[QUICK]);
    place.wait_for("dead", 1);

    let started = Instant::now();
    let page = || place.ok(&["event", "why", "dead"]);
    while !page().contains(", by trouble 0.1.0 (") {
        assert!(started.elapsed() < PATIENCE, "{}", page());
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[test]
fn a_word_that_names_no_attempts_is_refused_with_those_that_do() {
    let place = Place::empty();
    let mut command = place.command(&["config", "check"]);
    command.env("OUTBOX_DISPATCHER__RECORD", "some");

    let ended = crate::program::Ended::of(command);

    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("`failures` or `all`"), "{}", ended.stderr);
}
