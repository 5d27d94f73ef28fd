//! The log of a host: the required lines, each readable alone, and who decides what is logged.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::program::{Host, Place};

const POLL_OFTEN: [(&str, &str); 1] = [("OUTBOX_POLLER__INTERVAL", "50ms")];

/// Runs a host with these variables while `meanwhile` goes on; returns what it logged.
fn logged(place: &Place, variables: &[(&str, &str)], meanwhile: impl Fn(&mut Host)) -> Vec<String> {
    place.plugin("trouble");
    let mut command = place.command(&["run", "--plugins", "plugins", "--set", "dispatcher.unroutable_grace=0s"]);
    command.envs(POLL_OFTEN).envs(variables.iter().copied());
    let mut host = Host::of(command);
    host.wait_for_line("it says that it is ready", |line| line == "ready" || line.contains("\"ready\""));
    meanwhile(&mut host);
    host.signal("TERM");
    let (status, said) = host.end();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    said
}

fn emit(place: &Place, event_type: &str, id: &str) {
    place.ok(&["event", "emit", "--type", event_type, "--aggregate-type", "Trouble", "--payload", "1", "--id", id]);
}

/// The one line of several that contains this.
fn one<'a>(said: &'a [String], part: &str) -> &'a str {
    let found: Vec<&String> = said.iter().filter(|line| line.contains(part)).collect();
    let [line] = found[..] else { panic!("not one line with `{part}`, but {found:#?} of {said:#?}") };
    line
}

#[test]
fn an_event_that_becomes_dead_is_an_error_with_its_id_its_route_its_attempt_and_its_reason() {
    let place = Place::migrated();

    let said = logged(&place, &[], |_| {
        emit(&place, "Dead", "given-up");
        emit(&place, "Nobodys", "unanswered");
        place.wait_for("dead", 2);
    });

    let line = one(&said, "event.id=given-up");
    for part in [" ERROR ", "an event is dead", "route=Trouble/Dead", "attempt=1", "as asked"] {
        assert!(line.contains(part), "no `{part}`: {line}");
    }
    let line = one(&said, "event.id=unanswered");
    for part in [
        " ERROR ",
        "an event is dead; its route has no listener",
        "route=Trouble/Nobodys",
        "attempt=1",
        "no listener answers Trouble/Nobodys",
    ] {
        assert!(line.contains(part), "no `{part}`: {line}");
    }
}

/// The envelope of an event at which its listener gives up.
const DEAD: &str = "{\"event_type\":\"Dead\",\"aggregate_type\":\"Trouble\",\"payload\":1}\n";

#[test]
fn of_many_dead_events_the_log_has_some_and_the_number_of_the_others_whatever_routes_are_invented() {
    let place = Place::migrated();
    let invented = (0..2_000).map(|number| format!("{{\"event_type\":\"Nobodys{number}\",\"payload\":1}}\n"));
    let lines: String = invented.chain((0..25).map(|_| DEAD.to_owned())).collect();
    fs::write(place.path().join("events.jsonl"), lines).expect("written");

    let said = logged(&place, &[], |_| {
        place.ok(&["event", "emit", "--jsonl", "events.jsonl"]);
        place.wait_for("dead", 2_025);
    });

    let dead_of = |part: &str| said.iter().filter(|line| line.contains("an event is dead") && line.contains(part)).count();
    assert!(dead_of("route=Trouble/Dead") >= 20, "{said:#?}");
    // Each of the routes is another one: without a bound for all of them together, each would have lines of its own.
    assert!(dead_of("Nobodys") < 1_000, "{said:#?}");
    let left_out =
        |line: &String| line.split_once(" left_out=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<usize>().ok());
    let told = dead_of("") + said.iter().filter_map(left_out).sum::<usize>();
    assert_eq!(told, 2_025, "each event has a line, or is counted in one: {said:#?}");
    assert!(said.iter().any(|line| line.contains("more events died than are logged")), "{said:#?}");
}

#[test]
fn a_row_that_cannot_be_read_and_an_event_that_came_too_late_are_errors_with_what_is_known_of_them() {
    let place = Place::migrated();
    for id in ["broken", "late"] {
        emit(&place, "Done", id);
    }
    place.sql("UPDATE outbox_event SET headers = '{broken' WHERE event_id = 'broken'");
    place.sql("UPDATE outbox_event SET expires_at = 1 WHERE event_id = 'late'");

    let said = logged(&place, &[], |_| place.wait_for("dead", 2));

    let line = one(&said, "an event that cannot be read is dead");
    for part in [" ERROR ", "event.sequence=1", "the row cannot be read", "headers"] {
        assert!(line.contains(part), "no `{part}`: {line}");
    }
    let line = one(&said, "event.id=late");
    for part in [" ERROR ", "is dead before its listener was called", "route=Trouble/Done", "attempt=1", "expired"] {
        assert!(line.contains(part), "no `{part}`: {line}");
    }
}

#[test]
fn an_outcome_that_the_database_refuses_or_suppresses_is_an_error_with_its_event_and_what_the_database_says() {
    for (body, reason) in
        [("RAISE(ABORT, 'the order is archived')", "the order is archived"), ("RAISE(IGNORE)", "left the row as it was")]
    {
        let place = Place::migrated();
        emit(&place, "Done", "good");
        emit(&place, "Done", "odd");
        place.sql(&format!(
            "CREATE TRIGGER odd BEFORE UPDATE ON outbox_event WHEN OLD.event_id = 'odd' BEGIN SELECT {body}; END"
        ));

        let said = logged(&place, &[], |host| {
            place.wait_for("done", 1);
            host.wait_for_line("it names the event", |line| line.contains("the database refuses an outcome"));
            place.sql("DROP TRIGGER odd");
            place.wait_for("done", 2);
        });

        let line = one(&said, "the database refuses an outcome");
        for part in [" ERROR ", "event.id=odd", "event.sequence=2", "route=Trouble/Done", reason] {
            assert!(line.contains(part), "no `{part}`: {line}");
        }
    }
}

#[test]
fn a_poller_that_cannot_claim_says_so_once_as_an_error_and_again_when_it_can() {
    let place = Place::migrated();

    let said = logged(&place, &[], |host| {
        place.sql("ALTER TABLE outbox_event RENAME TO away");
        host.wait_for_line("it notices", |line| line.contains("the poller cannot take events"));
        place.sql("ALTER TABLE away RENAME TO outbox_event");
        host.wait_for_line("it notices, too", |line| line.contains("the database answers the poller again"));
        emit(&place, "Done", "afterwards");
        place.wait_for("done", 1);
    });

    let line = one(&said, "the poller cannot take events");
    assert!(line.contains(" ERROR ") && line.contains("error="), "{line}");
    assert!(one(&said, "the database answers the poller again").contains(" INFO "));
}

#[test]
fn a_file_that_is_moved_under_a_host_stops_it_with_the_reason_until_it_is_put_back() {
    let place = Place::migrated();
    let (file, elsewhere) = (place.path().join("outbox.db"), place.path().join("elsewhere.db"));

    let said = logged(&place, &[], |host| {
        emit(&place, "Done", "before");
        place.wait_for("done", 1);
        fs::rename(&file, &elsewhere).expect("the file is moved");
        host.wait_for_line("it notices", |line| line.contains("the poller cannot take events"));
        fs::rename(&elsewhere, &file).expect("the file is put back");
        host.wait_for_line("it notices, too", |line| line.contains("the database answers the poller again"));
        emit(&place, "Done", "afterwards");
        place.wait_for("done", 2);
    });

    let line = one(&said, "the poller cannot take events");
    assert!(line.contains("the file was moved, deleted or replaced while it was open"), "{line}");
}

/// Runs a host that has delivered an event while its `-wal` goes, as `how` says with the paths of the three files; returns the ids
/// of the events that were emitted then, and of those that the table has after the host's end.
fn after_the_wal_went(how: impl Fn(&[PathBuf; 3]), is_noticed: bool, later: &[&str]) -> Vec<String> {
    let place = Place::migrated();
    let files = ["", "-wal", "-shm"].map(|suffix| place.path().join(format!("outbox.db{suffix}")));

    let said = logged(&place, &[], |host| {
        emit(&place, "Done", "before");
        place.wait_for("done", 1);
        how(&files);
        if is_noticed {
            host.wait_for_line("it notices", |line| line.contains("the poller cannot take events"));
        }
        later.iter().for_each(|id| emit(&place, "Done", id));
        if !is_noticed {
            host.wait_for_line("it notices", |line| line.contains("the poller cannot take events"));
        }
    });

    let line = one(&said, "the poller cannot take events");
    assert!(line.contains("the -wal was moved, deleted or replaced while it was open"), "{line}");
    let listed: Value = serde_json::from_str(&place.ok(&["event", "list", "--output", "json"])).expect("it is JSON");
    let ids = listed.as_array().expect("a list").iter().map(|event| event["event_id"].as_str().expect("a text").to_owned());
    ids.collect()
}

#[test]
fn a_host_whose_wal_went_writes_over_nothing_that_others_have_written_since() {
    let remove = |files: &[PathBuf; 3]| files[1..].iter().for_each(|file| fs::remove_file(file).expect("removed"));
    let put_back_without_it = |files: &[PathBuf; 3]| {
        let aside = |file: &PathBuf| PathBuf::from(format!("{}-aside", file.display()));
        files.iter().for_each(|file| fs::rename(file, aside(file)).expect("moved"));
        fs::rename(aside(&files[0]), &files[0]).expect("put back");
    };
    let later = ["one", "two", "three"];
    for is_noticed in [true, false] {
        assert!(after_the_wal_went(remove, is_noticed, &later).ends_with(&later.map(str::to_owned)));
        assert!(after_the_wal_went(put_back_without_it, is_noticed, &later).ends_with(&later.map(str::to_owned)));
    }
    assert_eq!(after_the_wal_went(remove, true, &[]), ["before"], "what stood in it is saved where nobody else has written");
}

#[test]
fn a_line_of_json_carries_what_it_tells_of_as_fields_of_its_own() {
    let place = Place::migrated();

    let said = logged(&place, &[("OUTBOX_LOG__FORMAT", "json")], |_| {
        emit(&place, "Dead", "given-up");
        place.wait_for("dead", 1);
    });

    let line: Value = serde_json::from_str(one(&said, "an event is dead")).expect("each line is an object");
    assert_eq!(
        (&line["level"], &line["event.id"], &line["route"], &line["attempt"]),
        (&"ERROR".into(), &"given-up".into(), &"Trouble/Dead".into(), &1.into()),
        "{line}"
    );
}

#[test]
fn deceptive_characters_of_a_route_are_escaped_in_every_log_format() {
    for (format, escaped) in [("text", "Bi\\u{202e}di/\\u{2028}Line"), ("json", "Bi\\u202edi/\\u2028Line")] {
        let place = Place::migrated();

        let said = logged(&place, &[("OUTBOX_LOG__FORMAT", format)], |_| {
            let of = ["--type", "\u{2028}Line", "--aggregate-type", "Bi\u{202e}di"];
            place.ok(&[&["event", "emit", "--payload", "1", "--id", "odd"], &of[..]].concat());
            place.wait_for("dead", 1);
        });

        let line = one(&said, "an event is dead");
        assert!(line.contains(escaped), "{format}: {line}");
        for line in &said {
            assert!(!line.contains(['\u{202e}', '\u{2028}']), "{format}: {line}");
        }
    }
}

#[test]
fn rust_log_goes_before_the_file_and_behind_what_is_said_to_the_program_alone() {
    let said_with = |file: &str, variables: &[(&str, &str)]| {
        let place = Place::migrated();
        fs::write(place.path().join("outbox.toml"), format!("[log]\nlevel = '{file}'\n")).expect("written");
        logged(&place, variables, |_| {}).join("\n")
    };
    let (info, debug) = ("the host runs", "DEBUG");

    let said = said_with("warn", &[]);
    assert!(!said.contains(info), "{said}");
    let said = said_with("warn", &[("RUST_LOG", "info")]);
    assert!(said.contains(info), "the variable goes before the file: {said}");
    let said = said_with("warn", &[("RUST_LOG", "info"), ("OUTBOX_LOG", "error")]);
    assert!(!said.contains(info), "what is said to this program alone goes before it: {said}");
    let said = said_with("info", &[("RUST_LOG", "outbox::wasm=debug,hyper")]);
    assert!(said.contains(info), "what it does not name stays as it was: {said}");
    let said = said_with("info", &[("RUST_LOG", "debug")]);
    let of_compiler = said.lines().filter(|line| line.contains("cranelift")).count();
    assert_eq!(of_compiler, 0, "a bare level is not meant for the compiler: {said}");
    let said = said_with("info", &[("RUST_LOG", "outbox=what=ever")]);
    assert!(said.contains(info) && said.contains("RUST_LOG is ignored") && !said.contains(debug), "{said}");
}

#[test]
fn rust_log_is_heard_by_commands_that_run_no_host_and_its_absence_keeps_them_quiet() {
    let place = Place::migrated();
    let said = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["stats"]);
        command.envs(variables.iter().copied());
        crate::program::Ended::of(command).stderr
    };

    assert_eq!(said(&[]), "");
    let statements = said(&[("RUST_LOG", "sqlx=debug")]);
    assert!(statements.contains("DEBUG") && statements.contains("SELECT"), "{statements}");
}

#[test]
fn in_json_every_line_of_a_host_is_a_record_with_its_time_and_its_target() {
    let place = Place::migrated();
    let variables = [("OUTBOX_LOG__FORMAT", "json"), ("OUTBOX_HTTP__LISTEN", "127.0.0.1:0")];

    let said = logged(&place, &variables, |_| ());

    for line in &said {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(["timestamp", "level", "message", "target"].iter().all(|field| record[field].is_string()), "{line}");
    }
    one(&said, "\"message\":\"ready\"");
    one(&said, "\"message\":\"listening on http://127.0.0.1:");
}
