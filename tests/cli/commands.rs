//! Commands that do one thing and end.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use crate::program::{Ended, Place, end, signal};

pub(crate) const ORDER: [&str; 8] =
    ["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", r#"{"order_id":42,"total":9.5}"#];

#[test]
fn migrating_makes_the_file_and_repeats_safely() {
    let place = Place::empty();

    place.ok(&["migrate", "up"]);
    place.ok(&["migrate", "up"]);

    assert!(place.path().join("outbox.db").is_file());
    let steps = place.json(&["migrate", "status", "--output", "json"]);
    assert!(steps.as_array().is_some_and(|steps| !steps.is_empty()), "{steps}");
}

#[test]
fn a_command_without_a_schema_says_how_to_make_one_and_ends_with_5() {
    let place = Place::empty();

    let ended = place.run(&["stats"]);

    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("outbox migrate up"), "{}", ended.stderr);
    assert!(!place.path().join("outbox.db").exists(), "looking makes no file");
}

#[test]
fn emit_prints_the_id_alone_and_stats_count_it() {
    let place = Place::migrated();

    let id = place.ok(&ORDER);

    assert_eq!(id.lines().count(), 1, "{id}");
    let stats = place.json(&["stats", "--output", "json"]);
    for name in ["new", "retry", "done", "dead", "parked", "in_flight"] {
        assert_eq!(stats[name].as_u64(), Some(u64::from(name == "new")), "{name}: {stats}");
    }
    let oldest = &stats["oldest_pending_seconds"];
    assert!(oldest["waits_for_host"].is_number() && oldest["no_listener"].is_null(), "{stats}");
    let shown = place.json(&["event", "show", id.trim(), "--output", "json"]);
    assert_eq!((shown["event_id"].as_str(), shown["event_type"].as_str()), (Some(id.trim()), Some("OrderPlaced")));
}

#[test]
fn nothing_pending_is_null_not_a_false_zero() {
    let place = Place::migrated();

    let stats = place.json(&["stats", "--output", "json"]);

    let none = serde_json::json!({ "waits_for_host": null, "given_back": null, "no_listener": null });
    assert_eq!(stats["oldest_pending_seconds"], none, "{stats}");
}

#[test]
fn an_id_that_was_written_before_ends_with_7() {
    let place = Place::migrated();
    let with_id: Vec<&str> = ORDER.iter().copied().chain(["--id", "order-42"]).collect();

    assert_eq!(place.ok(&with_id).trim(), "order-42");
    let again = place.run(&with_id);

    assert_eq!((again.code, again.stdout.as_str()), (Some(7), ""), "{}", again.stderr);
    assert_eq!(place.stat("new"), 1);
}

#[test]
fn events_are_listed_by_what_they_wait_for_and_by_their_route() {
    let place = Place::migrated();
    for id in ["parked", "blocked", "due"] {
        place.order(id, "42");
    }
    place.ok(&["event", "emit", "--type", "UserCreated", "--aggregate-type", "User", "--payload", "{}", "--id", "user"]);
    place.sql("UPDATE outbox_event SET parked = 'no listener', due_at = NULL WHERE event_id = 'parked'");
    place.sql("UPDATE outbox_event SET behind = 1, due_at = NULL WHERE event_id = 'blocked'");

    for (filter, wanted) in [
        (vec!["--status", "parked"], vec!["parked"]),
        (vec!["--status", "BLOCKED"], vec!["blocked"]),
        (vec!["--status", "new", "--route", "User/UserCreated"], vec!["user"]),
        (vec!["--route", "Order/*"], vec!["parked", "blocked", "due"]),
        (vec!["--route", "Order/OrderPlaced", "--status", "blocked"], vec!["blocked"]),
        (vec!["--route", "User/*", "--status", "parked"], vec![]),
    ] {
        let listed = place.json(&[&["event", "list", "--output", "json"], &filter[..]].concat());
        let ids: Vec<&str> = listed.as_array().expect("an array").iter().filter_map(|row| row["event_id"].as_str()).collect();
        assert_eq!(ids, wanted, "{filter:?}");
    }
}

#[test]
fn events_that_wait_for_their_time_or_that_a_host_holds_are_listed() {
    let place = Place::migrated();
    for id in ["due", "retried", "held", "was-held"] {
        place.order(id, id);
    }
    place.ok(&["event", "emit", "--type", "OrderPlaced", "--payload", "{}", "--id", "later", "--deliver-after", "1h"]);
    place.sql("UPDATE outbox_event SET status = 2, attempts = 1, due_at = 9000000000000000 WHERE event_id = 'retried'");
    place.sql("UPDATE outbox_event SET claim_seq = 1, locked_by = 'a', locked_at = 1, lease_end = 9000000000000000 WHERE event_id = 'held'");
    place.sql(
        "UPDATE outbox_event SET claim_seq = 1, locked_by = 'a', locked_at = 1, lease_end = 2 WHERE event_id = 'was-held'",
    );

    for (status, wanted) in [
        ("delayed", vec!["retried", "later"]),
        ("claimed", vec!["held"]),
        ("in_flight", vec!["held"]),
        ("IN-FLIGHT", vec!["held"]),
    ] {
        let listed = place.json(&["event", "list", "--output", "json", "--status", status]);
        let ids: Vec<&str> = listed.as_array().expect("an array").iter().filter_map(|row| row["event_id"].as_str()).collect();
        assert_eq!(ids, wanted, "{status}");
    }
}

#[test]
fn an_error_is_whole_where_nobody_looks_at_a_terminal_and_every_time_has_the_same_digits() {
    let place = Place::migrated();
    place.order("dead", "42");
    let error = "the mail server did not answer within 5 seconds ".repeat(4);
    place
        .sql(&format!("UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1700000000000000, last_error = '{error}'"));

    for list in [&["dead", "list"][..], &["event", "list"]] {
        let listed = place.ok(list);
        assert!(listed.contains(error.trim_end()), "{list:?}: {listed}");
    }
    let listed = place.ok(&["dead", "list"]);
    let heads: Vec<&str> =
        listed.lines().next().unwrap_or_default().split("  ").map(str::trim).filter(|head| !head.is_empty()).collect();
    assert!(heads.contains(&"DIED") && !heads.contains(&"STATUS"), "{listed}");
    let row = place.json(&["event", "show", "dead", "--output", "json"]);
    assert_eq!(row["done_at"], "2023-11-14T22:13:20.000000Z");
    let lengths = ["occurred_at", "created_at", "available_at", "done_at"].map(|name| row[name].as_str().map(str::len));
    assert_eq!(lengths, [Some(27); 4], "{row}");
}

/// Whoever can insert a row chooses its texts; a terminal that gets them raw obeys them.
#[test]
fn no_text_of_an_event_commands_the_terminal_that_shows_it() {
    let place = Place::migrated();
    place.order("odd", "42");
    let erases = "char(27) || '[2J' || char(10) || 'forged: line'";
    // Headers hold no control characters, so these only write from right to left.
    let turns = "char(0x202E) || 'a'";
    place.sql(&format!("UPDATE outbox_event SET aggregate_id = {erases}, tenant_id = {erases}, last_error = {erases}"));
    place.sql(&format!("UPDATE outbox_event SET headers = json_object({turns}, {turns})"));

    for shows in [&["event", "show", "odd"][..], &["event", "list"], &["event", "why", "odd"]] {
        let shown = place.ok(shows);
        let raw = shown.chars().find(|c| *c == '\u{202e}' || (c.is_control() && *c != '\n'));
        assert_eq!(raw, None, "{shows:?}: {shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with("forged")), "{shows:?}: {shown}");
    }
    let shown = place.ok(&["event", "show", "odd"]);
    assert!(shown.contains("\\u{202e}a=\\u{202e}a"), "the name of a header and its value: {shown}");
}

#[test]
fn a_file_that_an_argument_names_and_that_is_not_there_ends_with_3_whatever_the_command() {
    let place = Place::migrated();
    place.order("one", "42");
    let emit = ["event", "emit", "--type", "X", "--payload-file", "nowhere"];

    for arguments in [
        &emit[..],
        &["event", "emit", "--jsonl", "nowhere"],
        &["event", "emit", "--jsonl", "nowhere", "--dry-run"],
        &["stats", "--config", "nowhere"],
        &["plugin", "check", "nowhere"],
        &["plugin", "check", ".", "--against", "nowhere"],
        &["plugin", "inspect", "nowhere"],
        &["plugin", "lock", "nowhere"],
        &["plugin", "componentize", "nowhere", "--out", "made.wasm"],
        &["plugin", "test", "nowhere"],
        &["plugin", "build", "nowhere"],
        &["dead", "test", "--plugin", "nowhere"],
        &["event", "test", "--plugin", "nowhere", "one"],
        &["bench", "--plugin", "nowhere"],
    ] {
        let ended = place.run(arguments);
        assert_eq!(ended.code, Some(3), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("nowhere"), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(place.command(&["stats"]).env("OUTBOX_CONFIG", "nowhere").output().expect("it runs").status.code(), Some(3));
    fs::create_dir(place.path().join("directory")).expect("can be made");
    let ended = place.run(&["event", "emit", "--type", "X", "--payload-file", "directory"]);
    assert_eq!(ended.code, Some(1), "it is there, and cannot be read: {}", ended.stderr);
    let ended = place.run(&["event", "emit", "--jsonl", "directory"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert_eq!(ended.stderr, "error: directory is a directory; give --jsonl a file with one JSON envelope per line\n");
}

#[test]
fn every_command_has_a_manual_page_with_its_examples() {
    let place = Place::empty();

    place.ok(&["man", "--out", "pages"]);
    let alone = place.ok(&["man", "event", "list"]);
    let nothing = place.run(&["man", "event", "lst"]);

    let pages: Vec<String> = fs::read_dir(place.path().join("pages"))
        .expect("was made")
        .map(|page| page.expect("can be read").file_name().to_string_lossy().into_owned())
        .collect();
    for page in ["outbox.1", "outbox-run.1", "outbox-event-list.1", "outbox-plugin-check.1", "outbox-man.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    assert!(pages.len() > 50, "{pages:?}");
    assert_eq!(fs::read_to_string(place.path().join("pages/outbox-event-list.1")).expect("is there"), alone);
    assert!(alone.contains(".SH EXAMPLES\n.nf\noutbox event list \\-\\-status parked\n"), "{alone}");
    assert_eq!(nothing.code, Some(2), "{}", nothing.stderr);
    assert!(nothing.stderr.contains("event has no command `lst`; it has emit, list"), "{}", nothing.stderr);
}

#[test]
fn every_shell_has_its_completions() {
    let place = Place::empty();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = place.ok(&["completions", shell]);
        for word in ["outbox", "plugin", "forget", "newest-first", "color"] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
}

#[test]
fn the_schema_of_the_configuration_needs_no_configuration() {
    let place = Place::empty();
    fs::write(place.path().join("outbox.toml"), "[dispatcher\n").expect("written");

    let schema = place.json(&["config", "schema"]);

    assert_eq!(schema["properties"]["database"]["properties"]["port"]["type"], "integer");
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn spans_and_sizes_are_numbers_in_json() {
    let place = Place::migrated();
    place.plugin("order-mailer");

    let report = place.json(&["plugin", "check", "plugins/order-mailer.wasm", "--output", "json"]);

    assert!(report["compile_ms"].is_u64() && report["size_bytes"].is_u64(), "{report}");
    assert_eq!(report["limits"]["deadline_ms"], 5_000, "{report}");
    assert_eq!(report["limits"]["memory_bytes"], 64 << 20, "{report}");
}

#[test]
fn a_configuration_is_written_to_standard_output_when_the_file_is_a_dash() {
    let place = Place::empty();

    let printed = place.ok(&["init", "--db", "postgres", "-"]);

    assert!(printed.contains("[database]") && printed.contains("postgres://"), "{printed}");
    assert_eq!(fs::read_dir(place.path()).expect("can be read").count(), 0, "no file is called -");
}

#[test]
fn colours_are_a_choice_and_by_themselves_only_on_a_terminal_that_has_them() {
    let place = Place::migrated();
    fs::create_dir(place.path().join("plugins")).expect("can be made");
    let coloured = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = place.command(arguments);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env("TERM", "xterm").envs(environment.iter().copied());
        Ended::of(command).stdout.contains('\u{1b}')
    };

    assert!(!coloured(&["doctor"], &[]), "a pipe");
    assert!(coloured(&["doctor", "--color", "always"], &[]));
    assert!(coloured(&["doctor", "--color=always"], &[("NO_COLOR", "1")]), "a flag goes before the environment");
    assert!(coloured(&["doctor"], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&["doctor"], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(!coloured(&["doctor", "--color", "never"], &[("CLICOLOR_FORCE", "1")]));
    assert!(coloured(&["--help", "--color", "always"], &[]), "help, too");
    assert!(!coloured(&["--help"], &[]));
    assert_eq!(place.run(&["doctor", "--color", "purple"]).code, Some(2));
}

#[test]
fn many_events_come_from_a_file_of_lines() {
    let place = Place::migrated();
    let lines: String = (0..1_500)
        .map(|number| format!("{{\"event_id\":\"e-{number}\",\"event_type\":\"OrderPlaced\",\"payload\":{number}}}\n"))
        .collect();
    fs::write(place.path().join("events.jsonl"), lines).expect("written");

    let ids = place.ok(&["event", "emit", "--jsonl", "events.jsonl"]);
    place.run(&["event", "emit", "--jsonl", "events.jsonl"]);

    assert_eq!((ids.lines().count(), ids.lines().next()), (1_500, Some("e-0")));
    assert_eq!(place.stat("new"), 1_500, "a repeat writes nothing twice");
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("{{\"event_type\":\"OrderPlaced\",\"payload\":{number}}}\n")).collect()
}

#[test]
fn all_events_of_a_file_are_written_though_the_reader_of_their_ids_goes_away() {
    let place = Place::migrated();
    fs::write(place.path().join("events.jsonl"), lines(0..5_000)).expect("written");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);

    let mut command = place.command(&["event", "emit", "--jsonl", "events.jsonl"]);
    let ended = command.stdout(writer).output().expect("it runs");

    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(said.contains("5,000 events written"), "{said}");
    assert_eq!(place.stat("new"), 5_000);
}

#[test]
fn a_file_that_is_written_in_part_is_continued_by_the_command_that_is_printed() {
    let place = Place::migrated();
    let text = format!("\n{}{{\n", lines(0..1_500));
    fs::write(place.path().join("my events.jsonl"), &text).expect("written");

    let ended = place.run(&["event", "emit", "--jsonl", "my events.jsonl"]);

    assert_eq!((ended.code, place.stat("new")), (Some(6), 1_000), "{}", ended.stderr);
    assert!(ended.stderr.contains("the lines 1 to 1001 of my events.jsonl are done"), "{}", ended.stderr);
    let line = ended.stderr.lines().find_map(|line| line.split_once("to continue after them: ")).expect("it says how").1;
    fs::write(place.path().join("my events.jsonl"), text.trim_end_matches("{\n")).expect("mended");
    let mut again = place.shell(line);
    let again = again.env("OUTBOX_DATABASE_URL", place.url()).output().expect("it runs");
    assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stderr));
    assert_eq!(place.stat("new"), 1_500, "each line once");
}

#[test]
fn ctrl_c_between_two_parts_of_a_file_says_how_far_it_came() {
    let place = Place::migrated();
    let mut command = place.command(&["event", "emit", "--jsonl", "-"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(lines(0..1_200).as_bytes()).expect("it reads");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    assert_eq!(output.lines().take(1_000).filter(Result::is_ok).count(), 1_000, "the first part is written");

    signal(&child, "INT");

    assert_eq!(end(&mut child, "it ends at Ctrl-C").code(), Some(130));
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("UTF-8");
    assert!(said.contains("1,000 events written before Ctrl-C; they are not undone"), "{said}");
    assert!(said.contains("give the lines from 1001 on to the same command"), "{said}");
    assert_eq!(place.stat("new"), 1_000);
    // Open until here: the program was not ended by the end of its input.
    drop(input);
}

#[test]
fn each_kind_of_mistake_has_its_exit_code() {
    let place = Place::migrated();
    fs::write(place.path().join("bad.toml"), "[dispatcher]\nworkres = 4\n").expect("written");

    for (arguments, code, part) in [
        (vec!["no-such-command"], 2, "no-such-command"),
        (vec!["event", "emit", "--type", "", "--payload", "1"], 2, "event_type is empty"),
        (vec!["event", "emit", "--type", "X", "--payload", "{"], 2, "--content-type text/plain"),
        (vec!["event", "show", "no-such-event"], 3, "no-such-event"),
        (vec!["config", "check", "--config", "bad.toml"], 4, "workers"),
        (vec!["stats", "--database-url", "sqlite:elsewhere.db"], 5, "elsewhere.db"),
        (vec!["run", "--plugins", "nowhere"], 4, "nowhere"),
        (vec!["dev", "--plugins", "nowhere"], 4, "mkdir -p nowhere"),
        (vec!["token", "new", "--name", "a", "--role", "viewer", "--expires-in", "0d"], 2, "--expires-in"),
    ] {
        let ended = place.run(&arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(part), "{arguments:?} does not name {part}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}: messages go to stderr");
    }
    assert!(!place.path().join("nowhere").exists(), "a mistyped name makes no directory");
}

#[test]
fn what_destroys_data_needs_a_yes() {
    let place = Place::migrated();
    for id in ["done", "dead", "discarded", "retried"] {
        place.order(id, id);
    }
    place.sql("UPDATE outbox_event SET status = 1, due_at = NULL, done_at = 1 WHERE event_id = 'done'");
    place.sql("UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1 WHERE event_id IN ('dead', 'discarded')");
    place.sql("UPDATE outbox_event SET status = 2, attempts = 1, due_at = 9000000000000000 WHERE event_id = 'retried'");
    // Whatever it ends with: without a schema there is nothing to list.
    let table =
        || [["migrate", "status"], ["event", "list"]].map(|[one, two]| place.run(&[one, two, "--output", "json"]).stdout);

    for command in [
        &["purge", "--older-than", "1h"][..],
        &["dead", "discard", "discarded"],
        &["dead", "replay", "--all"],
        &["replay"],
        &["migrate", "reset"],
        &["migrate", "down"],
    ] {
        let before = table();

        let refused = place.run(command);

        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{command:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("add --yes"), "{command:?}: {}", refused.stderr);
        assert_eq!(table(), before, "{command:?} without a yes changes nothing");
        place.ok(&[command, &["--yes"]].concat());
        assert_ne!(table(), before, "{command:?} with a yes does it");
    }
}

#[test]
fn the_tables_are_not_reset_while_a_host_is_alive() {
    let place = Place::migrated();
    place.order("new", "new");
    place.sql(
        "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, room, session)
         VALUES ('a', 'shop 1', 'multi_node', '0.1.0', 1, 9000000000000000, 1, 0)",
    );

    let refused = place.run(&["migrate", "reset", "--yes"]);

    assert_eq!(refused.code, Some(7), "{}", refused.stderr);
    assert!(refused.stderr.contains("hosts work on outbox_event: shop 1; stop them first"), "{}", refused.stderr);
    assert!(place.ok(&["event", "list"]).contains("new"));
}

#[test]
fn the_contract_is_written_with_what_it_depends_on_and_never_over_another_file() {
    let place = Place::empty();

    place.ok(&["wit", "--out", "wit"]);
    place.ok(&["wit", "--out", "wit"]);

    let listener = place.path().join("wit/listener.wit");
    assert_eq!(fs::read_to_string(&listener).expect("it is there"), place.ok(&["wit"]));
    for dependency in ["http/http.wit", "io/io.wit", "clocks/clocks.wit"] {
        assert!(place.path().join("wit/deps").join(dependency).is_file(), "{dependency}");
    }
    fs::write(&listener, "package mine:own;").expect("it can be written");
    let ended = place.run(&["wit", "--out", "wit"]);
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    assert_eq!(fs::read_to_string(&listener).expect("it is there"), "package mine:own;");
}
