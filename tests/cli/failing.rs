//! An event that fails and is tried again, as the log and `outbox doctor` tell of it.

use std::fs;

use serde_json::Value;

use crate::program::{Host, Place};

/// Runs a host with these arguments until three events have failed, each once; returns what it said of failed attempts.
fn failed(place: &Place, arguments: &[&str]) -> Vec<String> {
    place.plugin("trouble");
    fs::write(place.path().join("plugins/trouble.toml"), "[retry]\npolicy = 'fixed'\nbase = '1h'\n").expect("written");
    let mut host = Host::of(place.command(&[&["run", "--plugins", "plugins"], arguments].concat()));
    host.wait_for_line("it says that it is ready", |line| line == "ready");
    for id in ["one", "two", "three"] {
        place.ok(&["event", "emit", "--type", "Retryable", "--aggregate-type", "Trouble", "--payload", "1", "--id", id]);
    }
    place.wait_for("retry", 3);
    host.signal("TERM");
    host.end().1.into_iter().filter(|line| line.contains("an attempt failed")).collect()
}

#[test]
fn a_failed_attempt_is_a_warning_with_its_reason_once_for_all_that_fail_alike() {
    let place = Place::migrated();

    let said = failed(&place, &["--log", "info"]);

    assert_eq!(said.len(), 1, "{said:#?}");
    for part in ["WARN", "route=Trouble/Retryable", "attempt=1", "as asked", "next_in_ms=3600000", "the event is tried again"] {
        assert!(said[0].contains(part), "no `{part}`: {said:#?}");
    }
    assert!(["one", "two", "three"].iter().any(|id| said[0].contains(&format!("event.id={id} "))), "{said:#?}");
}

#[test]
fn every_failed_attempt_is_in_the_log_where_more_is_asked_for() {
    let place = Place::migrated();

    let said = failed(&place, &["-v"]);

    let of_level = |level: &str| said.iter().filter(|line| line.contains(level)).count();
    assert_eq!((said.len(), of_level(" WARN "), of_level("DEBUG ")), (3, 1, 2), "{said:#?}");
    for id in ["one", "two", "three"] {
        assert!(said.iter().any(|line| line.contains(&format!("event.id={id} "))), "{id}: {said:#?}");
    }
}

#[test]
fn the_doctor_tells_of_events_that_wait_for_another_attempt() {
    let place = Place::migrated();
    failed(&place, &[]);

    let ended = place.run(&["doctor", "--output", "json"]);

    assert_eq!(ended.code, Some(8), "{}{}", ended.stdout, ended.stderr);
    let findings: Vec<Value> = serde_json::from_str(&ended.stdout).expect("an array");
    let retry = findings.iter().find(|finding| finding["check"] == "retry").expect("there is such a check");
    let found = retry["found"].as_str().expect("a text");
    assert!(found.starts_with("3 events failed and wait for another attempt; most often: "), "{found}");
    assert!(found.contains("as asked") && retry["severity"] == "warning", "{retry}");
    assert_eq!(retry["fix"], "outbox event list --status retry\nthen outbox event why ID");
}
