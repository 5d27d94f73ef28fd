//! `outbox dead`, `outbox replay`, `outbox purge`: what failed, and what is finished.

use crate::program::Place;

/// A microsecond of the year 2001.
const PAST: &str = "1000000000000000";

/// A place with this many dead orders, `dead-1` first; the first failed once, the second twice, …; each of an aggregate of its
/// own.
fn place(count: usize) -> Place {
    let place = Place::migrated();
    for number in 1..=count {
        place.order(&format!("dead-{number}"), &number.to_string());
    }
    place
        .sql("UPDATE outbox_event SET status = 3, due_at = NULL, attempts = seq, last_error = 'timeout', done_at = created_at");
    place
}

fn count(place: &Place, filter: &[&str]) -> u64 {
    let counted = place.json(&[&["dead", "count", "--output", "json"], filter].concat());
    counted["count"].as_u64().unwrap_or_else(|| panic!("no count: {counted}"))
}

#[test]
fn dead_events_are_chosen_by_everything_that_the_table_knows() {
    let place = place(3);
    place.sql(&format!("UPDATE outbox_event SET done_at = {PAST} WHERE event_id = 'dead-1'"));

    for (filter, wanted) in [
        (vec![], 3),
        (vec!["--type", "OrderPlaced", "--aggregate-type", "Order"], 3),
        (vec!["--route", "Order/OrderPlaced"], 3),
        (vec!["--route", "Order/*"], 3),
        (vec!["--route", "*/OrderPlaced", "--aggregate-id", "2"], 1),
        (vec!["--route", "OrderPlaced"], 0),
        (vec!["--route", "Order/OrderPaid"], 0),
        (vec!["--aggregate-id", "2"], 1),
        (vec!["--max-attempts", "2"], 2),
        (vec!["--since", "2h"], 2),
        (vec!["--until", "2h"], 1),
        (vec!["--since", "2001-01-01T00:00:00Z", "--until", "2002-01-01T00:00:00Z"], 1),
        (vec!["--error", "refused"], 0),
    ] {
        assert_eq!(count(&place, &filter), wanted, "{filter:?}");
        let listed = place.json(&[&["dead", "list", "--output", "json"], &filter[..]].concat());
        assert_eq!(listed.as_array().map(Vec::len), usize::try_from(wanted).ok(), "{filter:?}");
    }
    for both in [["--type", "OrderPlaced"], ["--aggregate-type", "Order"]] {
        let refused = place.run(&[&["dead", "count", "--route", "Order/OrderPlaced"], &both[..]].concat());
        assert_eq!(refused.code, Some(2), "a route says both: {}", refused.stderr);
    }
    let with_an_id = place.run(&["dead", "replay", "dead-1", "--route", "Order/OrderPlaced"]);
    assert_eq!(with_an_id.code, Some(2), "an event is named or chosen: {}", with_an_id.stderr);
    let bad = place.run(&["dead", "count", "--since", "yesterday"]);
    assert_eq!(bad.code, Some(2), "{}", bad.stderr);
    assert!(bad.stderr.contains("2h"), "{}", bad.stderr);
}

#[test]
fn a_replay_of_many_keeps_to_its_limits_and_is_noted_with_its_reason() {
    let place = place(5);

    let dry = place.json(&["dead", "replay", "--all", "--limit", "3", "--dry-run", "--output", "json"]);
    assert_eq!((dry["count"].as_u64(), dry["dry_run"].as_bool(), place.stat("dead")), (Some(3), Some(true), 5));
    let refused = place.run(&["dead", "replay", "--all"]);
    assert_eq!((refused.code, place.stat("dead")), (Some(2), 5), "{}", refused.stderr);
    let limits = ["--limit", "3", "--rate", "1000/s", "--batch-size", "2", "--time-limit", "10m"];
    let by_hand = ["--yes", "--reason", "the mail server is back", "--output", "json"];
    let replayed = place.json(&[&["dead", "replay", "--all"], &limits[..], &by_hand[..]].concat());

    assert_eq!((replayed["count"].as_u64(), place.stat("dead"), place.stat("new")), (Some(3), 2, 3));
    let audit = place.json(&["audit", "list", "--output", "json"]);
    assert_eq!((audit[0]["action"].as_str(), audit[0]["reason"].as_str()), (Some("replay"), Some("the mail server is back")));
    for many in [["--limit", "3"], ["--since", "2h"], ["--error", "timeout"]] {
        assert_eq!(place.run(&[&["dead", "replay", "dead-5"], &many[..]].concat()).code, Some(2), "{many:?} is for many");
    }
}

#[test]
fn a_skipped_event_stays_dead_and_holds_nobody_up() {
    let place = place(2);
    place.sql("UPDATE outbox_event SET blocks = 1 WHERE event_id = 'dead-1'");

    let ended = place.run(&["dead", "skip", "dead-1", "dead-2", "--reason", "sent by hand", "--output", "json"]);

    assert_eq!(ended.code, Some(6), "the second blocks nothing: {}", ended.stderr);
    let done: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((done["count"].as_u64(), done["missing"][0].as_str()), (Some(1), Some("dead-2")));
    assert_eq!(place.stat("dead"), 2);
    assert_eq!(place.json(&["event", "why", "dead-1", "--output", "json"])["state"], "dead");
    let (missing, idle) = (place.run(&["dead", "skip", "nobody"]), place.run(&["dead", "skip", "dead-2"]));
    assert!(missing.code == Some(3) && missing.stderr.contains("event nobody was not found"), "{}", missing.stderr);
    assert!(idle.code == Some(7) && idle.stderr.contains("event dead-2 blocks no event"), "{}", idle.stderr);
}

#[test]
fn replay_takes_what_waits_and_what_is_dead_but_not_what_failed_too_often() {
    let place = place(3);
    for id in ["soon", "often", "later"] {
        place.order(id, id);
    }
    place.sql("UPDATE outbox_event SET status = 2, attempts = 1, due_at = 9000000000000000 WHERE event_id = 'soon'");
    place.sql("UPDATE outbox_event SET status = 2, attempts = 9, due_at = 9000000000000000 WHERE event_id = 'often'");
    place.sql("UPDATE outbox_event SET deferrals = 1, due_at = 9000000000000000 WHERE event_id = 'later'");
    let dry = place.json(&["replay", "--retry-count-threshold", "2", "--dry-run", "--output", "json"]);
    assert_eq!((dry["retried_now"].as_u64(), dry["replayed"].as_u64()), (Some(2), Some(2)), "{dry}");
    let none = place.json(&["replay", "--time-limit", "0s", "--yes", "--output", "json"]);
    assert_eq!((none["retried_now"].as_u64(), none["replayed"].as_u64()), (Some(0), Some(0)), "{none}");

    let report = place.json(&["replay", "--retry-count-threshold", "2", "--yes", "--output", "json"]);

    let number = |name: &str| report[name].as_u64();
    assert_eq!((number("retried_now"), number("replayed"), number("left_dead")), (Some(2), Some(2), Some(1)), "{report}");
    let state = |id: &str| place.json(&["event", "why", id, "--output", "json"])["state"].clone();
    assert_eq!((state("soon"), state("often"), state("dead-3")), ("due".into(), "retrying".into(), "dead".into()));
    assert_eq!(state("later"), "due", "its listener put it off");
    let rest = place.json(&["replay", "--event-limit", "1", "--yes", "--output", "json"]);
    assert_eq!(
        (rest["retried_now"].as_u64(), rest["replayed"].as_u64(), rest["left_dead"].as_u64()),
        (Some(1), Some(0), Some(1))
    );
}

#[test]
fn a_purge_by_hand_keeps_to_its_limit_and_is_noted() {
    let place = place(3);
    place.sql(&format!("UPDATE outbox_event SET done_at = {PAST}"));

    let purge = ["purge", "--dead", "--older-than", "30d", "--limit", "2", "--time-limit", "1m", "--reason", "spring"];
    place.ok(&[&purge[..], &["--yes"]].concat());

    assert_eq!(place.stat("dead"), 1);
    let audit = place.json(&["audit", "list", "--output", "json"]);
    let record = &audit[0];
    assert_eq!(
        (record["action"].as_str(), record["count"].as_u64(), record["reason"].as_str()),
        (Some("purge"), Some(2), Some("spring"))
    );
    assert_eq!(record["selector"]["status"], "DEAD");
    let finished_before = record["selector"]["finished_before"].as_str();
    assert!(finished_before.is_some_and(|time| time.len() == 27 && time.ends_with('Z')), "a time, in UTC: {record}");
}

#[test]
fn a_purge_by_hand_writes_its_event_when_that_is_set() {
    let place = place(3);
    place.sql(&format!("UPDATE outbox_event SET done_at = {PAST}"));

    place.ok(&["purge", "--dead", "--older-than", "30d", "--yes", "--set", "purge.emit_event=true"]);

    let events = place.json(&["event", "list", "--output", "json"]);
    let types: Vec<_> = events.as_array().expect("a list").iter().map(|event| event["event_type"].as_str()).collect();
    assert_eq!(types, [Some("OutboxPurgeCompleted")]);
}

#[test]
fn a_purge_by_hand_keeps_what_blocks_others_and_says_so() {
    let place = place(3);
    place.sql(&format!("UPDATE outbox_event SET done_at = {PAST}, blocks = event_id = 'dead-2'"));

    let ended = place.run(&["purge", "--dead", "--older-than", "30d", "--yes"]);

    assert_eq!((ended.code, place.stat("dead")), (Some(0), 1), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 DEAD event kept, because later events of the same aggregates wait"), "{}", ended.stderr);
    assert_eq!(place.json(&["event", "why", "dead-2", "--output", "json"])["state"], "dead_blocking");
}

#[test]
fn a_purge_deletes_what_it_can_and_names_the_rest() {
    let place = place(3);
    place.sql(&format!("UPDATE outbox_event SET status = 1, done_at = {PAST}"));
    place.sql(
        "CREATE TRIGGER held BEFORE DELETE ON outbox_event WHEN OLD.event_id = 'dead-2' \
         BEGIN SELECT RAISE(ABORT, 'the order is archived'); END",
    );

    let some = place.run(&["purge", "--yes", "--output", "json"]);
    let nothing = place.run(&["purge", "--yes"]);
    let doctor = place.run(&["doctor", "--output", "json"]);

    assert_eq!((some.code, nothing.code), (Some(6), Some(1)), "{}{}", some.stderr, nothing.stderr);
    let report: serde_json::Value = serde_json::from_str(&some.stdout).expect("JSON");
    assert_eq!((report["count"].as_u64(), report["undeletable"]["count"].as_u64()), (Some(2), Some(1)), "{report}");
    assert_eq!(report["undeletable"]["first"][0]["event_id"], "dead-2");
    assert!(some.stderr.contains("error: 1 event could not be deleted\n  seq 2, dead-2: "), "{}", some.stderr);
    assert!(some.stderr.contains("the order is archived"), "{}", some.stderr);
    let findings: Vec<serde_json::Value> = serde_json::from_str(&doctor.stdout).expect("JSON");
    let purge: Vec<_> = findings.iter().filter(|finding| finding["check"] == "purge").collect();
    let [finding] = purge[..] else { panic!("one finding: {purge:?}") };
    assert_eq!(finding["severity"], "warning");
    let found = finding["found"].as_str().unwrap_or_default();
    assert!(found.starts_with("1 DONE event is older") && found.ends_with("the oldest: seq 2, dead-2"), "{found}");
}

#[test]
fn a_replay_replays_what_it_can_and_names_the_rest() {
    let place = place(3);
    place.sql(
        "CREATE TRIGGER held BEFORE UPDATE ON outbox_event WHEN OLD.event_id = 'dead-1' \
         BEGIN SELECT RAISE(ABORT, 'the order is archived'); END",
    );

    let some = place.run(&["dead", "replay", "--all", "--yes", "--output", "json"]);
    let nothing = place.run(&["replay", "--yes"]);

    assert_eq!((some.code, nothing.code), (Some(6), Some(1)), "{}{}", some.stderr, nothing.stderr);
    let report: serde_json::Value = serde_json::from_str(&some.stdout).expect("JSON");
    assert_eq!((report["count"].as_u64(), place.stat("dead"), place.stat("new")), (Some(2), 1, 2), "{report}");
    assert!(some.stderr.contains("error: 1 event could not be replayed\n  seq 1, dead-1: "), "{}", some.stderr);
    assert!(some.stderr.contains("the order is archived"), "{}", some.stderr);
}

#[test]
fn what_cannot_be_replayed_is_told_with_how_it_stands() {
    let place = place(1);
    place.order("new", "42");

    let ended = place.run(&["dead", "replay", "new", "nobody"]);
    let unnamed = place.run(&["dead", "replay", "--since", "2h"]);

    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("event new is NEW, not DEAD; see `outbox event why new`"), "{}", ended.stderr);
    assert!(ended.stderr.contains("nobody was not found"), "{}", ended.stderr);
    assert_eq!(unnamed.code, Some(2), "{}", unnamed.stderr);
    assert!(unnamed.stderr.contains("or --all with filters"), "{}", unnamed.stderr);
    assert_eq!(place.stat("dead"), 1, "nothing was replayed");
}

#[test]
fn a_replay_asks_for_what_there_is_alone() {
    let place = place(2);

    let dead = place.run(&["replay"]);
    place.sql("UPDATE outbox_event SET status = 2, due_at = 9000000000000000, done_at = NULL WHERE event_id = 'dead-1'");
    let both = place.run(&["replay"]);

    assert!(dead.stderr.contains("this would deliver 2 dead events again;"), "{}", dead.stderr);
    assert!(both.stderr.contains("this would deliver 1 waiting event and 1 dead event again;"), "{}", both.stderr);
}
