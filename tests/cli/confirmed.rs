//! What is replayed and purged is what the operator has confirmed, however long the question stands.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::http::address;
use crate::program::{Host, PATIENCE, Place};

/// A microsecond of the year 2001.
const PAST: &str = "1000000000000000";
/// The present time as a column.
const NOW: &str = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)";

/// A place with two dead events, and a third one that is new.
fn place() -> Place {
    let place = Place::migrated();
    for id in ["dead-1", "dead-2", "late"] {
        place.order(id, id);
    }
    place.sql(&format!(
        "UPDATE outbox_event SET status = 3, due_at = NULL, attempts = 1, last_error = 'timeout', done_at = {PAST}
         WHERE event_id LIKE 'dead-%'"
    ));
    place
}

/// The third event dies.
fn dies_late(place: &Place) {
    // SQLite tells the time in milliseconds: a shorter wait could date the death back before the count.
    std::thread::sleep(Duration::from_millis(20));
    place.sql(&format!(
        "UPDATE outbox_event SET status = 3, due_at = NULL, attempts = 1, last_error = 'timeout', done_at = {NOW}
         WHERE event_id = 'late'"
    ));
}

/// Runs a command on a terminal, acts while its question stands, and answers yes. Returns its exit code and the terminal's
/// text.
fn confirmed(command: &Command, meanwhile: impl FnOnce()) -> (Option<i32>, String) {
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_str().expect("text"));
    let line: Vec<String> = [command.get_program()].into_iter().chain(command.get_args()).map(quoted).collect();
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line.join(" "), "/dev/null"]).current_dir(command.get_current_dir().expect("a place"));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let spawned = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.expect("util-linux is installed");
    let (mut shown, seen) = (child.stdout.take().expect("it is piped"), mpsc::channel());
    std::thread::spawn(move || {
        let mut bytes = [0; 4_096];
        while let Ok(read @ 1..) = shown.read(&mut bytes) {
            let _ = seen.0.send(String::from_utf8_lossy(&bytes[..read]).into_owned());
        }
    });
    let mut text = String::new();
    while !text.contains("[y/N]") {
        text += &seen.1.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no question: {error}: {text}"));
    }
    meanwhile();
    child.stdin.take().expect("it is piped").write_all(b"y\n").expect("it asks");
    while let Ok(more) = seen.1.recv_timeout(PATIENCE) {
        text += &more;
    }
    (child.wait().expect("it ends").code(), text)
}

/// Does the same with the database and through a host.
fn both_ways(what: &[&str], check: impl Fn(&Place, &dyn Fn(&dyn Fn()) -> (Option<i32>, String))) {
    let place_of_database = place();
    let command = place_of_database.command(what);
    check(&place_of_database, &|meanwhile| confirmed(&command, meanwhile));

    let place = place();
    std::fs::write(place.path().join("host.toml"), "[purge]\nenabled = false\n").expect("can be written");
    let run = ["run", "--config", "host.toml", "--mode", "writer_only", "--listen", "127.0.0.1:0"];
    let mut host = Host::of(place.command(&run));
    let url = format!("http://{}", address(&mut host));
    host.wait_until_it_said("it is ready", |line| line == "ready");
    let mut command = place.command(&[what, &["--url", &url]].concat());
    command.env_remove("OUTBOX_DATABASE_URL");
    check(&place, &|meanwhile| confirmed(&command, meanwhile));
}

fn state(place: &Place, id: &str) -> String {
    place.json(&["event", "show", id, "--output", "json"])["status"].as_str().expect("a status").to_owned()
}

#[test]
fn what_dies_while_a_replay_asks_stays_dead() {
    for what in
        [&["replay", "--reason", "r"][..], &["dead", "replay", "--all"], &["dead", "replay", "--all", "--error", "time"]]
    {
        both_ways(what, |place, run| {
            let (code, text) = run(&|| dies_late(place));

            assert_eq!(code, Some(0), "{what:?}: {text}");
            assert!(text.contains("2 dead events"), "{what:?}: {text}");
            let states = ["dead-1", "dead-2", "late"].map(|id| state(place, id));
            assert_eq!(states, ["NEW", "NEW", "DEAD"], "{what:?}: {text}");
        });
    }
}

#[test]
fn what_begins_to_wait_while_a_replay_asks_takes_no_dead_events_place() {
    let waits = |place: &Place, id: &str| {
        place.sql(&format!(
            "UPDATE outbox_event SET status = 2, attempts = 1, done_at = NULL, due_at = 9000000000000000 WHERE event_id = '{id}'"
        ));
    };
    both_ways(&["replay", "--reason", "r"], |place, run| {
        waits(place, "dead-2");
        let (code, text) = run(&|| waits(place, "late"));

        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("deliver 1 waiting event and 1 dead event again"), "{text}");
        assert!(text.contains("1 waiting event is due now") && text.contains("1 dead event is new again"), "{text}");
        assert_eq!(state(place, "dead-1"), "NEW", "{text}");
    });
}

#[test]
fn what_comes_of_age_while_a_purge_asks_is_kept() {
    both_ways(&["purge", "--dead", "--older-than", "0s"], |place, run| {
        let (code, text) = run(&|| dies_late(place));

        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("permanently delete 2 DEAD events"), "{text}");
        assert!(text.contains("2 events deleted") && !text.contains("time limit"), "{text}");
        assert_eq!(state(place, "late"), "DEAD", "{text}");
    });
}

#[test]
fn a_purge_refuses_when_fewer_events_match_which_may_be_others() {
    both_ways(&["purge", "--dead", "--older-than", "0s"], |place, run| {
        let (code, text) = run(&|| drop(place.ok(&["dead", "replay", "dead-1"])));

        assert_eq!(code, Some(7), "{text}");
        assert!(text.contains("1 DEAD event matches, not 2; nothing was done"), "{text}");
        assert_eq!((state(place, "dead-1"), state(place, "dead-2")), ("NEW".to_owned(), "DEAD".to_owned()), "{text}");
    });
}

#[test]
fn a_replay_asks_for_no_more_than_its_limit_and_for_nothing_where_there_is_nothing() {
    let place = place();
    place.sql("UPDATE outbox_event SET status = 2, attempts = 1, due_at = 9000000000000000 WHERE event_id = 'late'");

    let one = place.run(&["replay", "--event-limit", "1"]);
    let two = place.run(&["replay", "--event-limit", "2"]);
    let none = place.run(&["replay", "--retry-count-threshold", "0"]);

    assert!(one.stderr.contains("this would deliver 1 waiting event again;"), "{}", one.stderr);
    assert!(two.stderr.contains("this would deliver 1 waiting event and 1 dead event again;"), "{}", two.stderr);
    assert_eq!(none.code, Some(0), "{}", none.stderr);
    assert!(none.stderr.contains("no event to deliver again; nothing was done"), "{}", none.stderr);
    assert!(none.stdout.contains("2 dead events stay dead"), "{}", none.stdout);
    assert_eq!(place.json(&["audit", "list", "--output", "json"])[0]["action"], "migrate", "the last change");
}

#[test]
fn a_purge_refuses_when_events_were_freed_while_it_asked() {
    both_ways(&["purge", "--dead", "--older-than", "0s"], |place, run| {
        place.sql("UPDATE outbox_event SET blocks = 1 WHERE event_id = 'dead-1'");

        let (code, text) = run(&|| drop(place.ok(&["dead", "skip", "dead-1"])));

        assert_eq!(code, Some(7), "{text}");
        assert!(text.contains("2 DEAD events match, not 1; nothing was done"), "{text}");
        assert_eq!(place.stat("dead"), 2, "{text}");
    });
}

#[test]
fn what_was_done_before_a_failure_is_told() {
    let place = place();
    place.sql("CREATE TRIGGER stuck BEFORE UPDATE ON outbox_event WHEN OLD.event_id = 'dead-2' BEGIN SELECT RAISE(ABORT, 'stuck'); END");
    place.sql(
        "CREATE TRIGGER unnoted BEFORE INSERT ON outbox_event_audit
         WHEN NEW.action = 'purge' AND EXISTS (SELECT 1 FROM outbox_event_audit WHERE action = 'purge')
         BEGIN SELECT RAISE(ABORT, 'unnoted'); END",
    );

    let replay = place.run(&["dead", "replay", "--all", "--yes", "--batch-size", "1"]);
    place.sql(&format!("UPDATE outbox_event SET status = 3, due_at = NULL, done_at = {PAST} WHERE event_id = 'dead-1'"));
    let purge = place.run(&["purge", "--dead", "--older-than", "0s", "--yes", "--set", "purge.batch_size=1"]);
    place.sql(&format!("UPDATE outbox_event SET status = 3, due_at = NULL, done_at = {PAST}"));
    let again = place.run(&["purge", "--dead", "--older-than", "0s", "--yes"]);

    assert_eq!(replay.code, Some(6), "{}", replay.stderr);
    assert!(replay.stdout.contains("1 event"), "{}", replay.stdout);
    assert!(replay.stderr.contains("seq 2, dead-2: ") && replay.stderr.contains("stuck"), "{}", replay.stderr);
    assert_eq!(purge.code, Some(1), "{}", purge.stderr);
    assert!(purge.stderr.contains("1 event was deleted before this; the audit log has it"), "{}", purge.stderr);
    assert!(again.code == Some(1) && !again.stderr.contains("before this"), "nothing was done: {}", again.stderr);
}
