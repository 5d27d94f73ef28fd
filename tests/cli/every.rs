//! Every command of the program, run at least once.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::time::{Duration, Instant};

use crate::program::{Ended, Place, end, signal};

/// How long a command may take that ends by itself: a benchmark waits until its hosts share the table, and for polls.
const LONG: Duration = Duration::from_secs(180);

/// What ends by itself: the command with its arguments, and a part of what it prints, on standard output or, where that is
/// empty, on standard error. In this order: what deletes comes last.
const ONCE: [(&[&str], &str); 57] = [
    (&["version"], "outbox 0."),
    (&["completions", "bash"], "_outbox()"),
    (&["wit"], "package outbox:listener@0.1.0;"),
    (&["init", "made.toml"], "made.toml"),
    (&["config", "check"], "valid"),
    (&["config", "show"], "[dispatcher]"),
    (&["config", "schema"], "json-schema.org"),
    (&["man", "event", "list"], ".SH EXAMPLES"),
    (&["migrate", "up"], "up to date"),
    (&["migrate", "add-index", "aggregate"], "the index aggregate was added"),
    (&["migrate", "status"], "outbox"),
    (&["migrate", "sql"], "CREATE TABLE outbox_event ("),
    (&["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", "1", "--id", "new"], "new\n"),
    (&["event", "list"], "Order/OrderPlaced"),
    (&["event", "show", "new"], "Order/OrderPlaced"),
    (&["event", "why", "new"], "It has been due"),
    (&["stats"], "parked"),
    (&["token", "new", "--name", "deploy", "--role", "operator"], "obx_"),
    (&["doctor"], "connection"),
    (&["node", "list"], "no host"),
    (&["plugin", "list"], "order-mailer"),
    (&["plugin", "check", "plugins/order-mailer.wasm"], "Order/OrderPaid"),
    (&["plugin", "test", "plugins/order-mailer.wasm"], "0 failed"),
    (&["plugin", "new", "greeter", "--lang", "go"], "outbox plugin build"),
    (&["plugin", "build", "made"], "Order/OrderPlaced"),
    (&["plugin", "check", "plugins"], "added"),
    (&["plugin", "inspect", "plugins/order-mailer.wasm"], "outbox:listener@0.1.0, which this host speaks"),
    (&["plugin", "lock"], "order-mailer"),
    (&["plugin", "rollback", "order-mailer"], "no earlier version of order-mailer"),
    (&["plugin", "retry", "order-mailer"], "order-mailer was not quarantined"),
    (&["plugin", "componentize", "core.wasm", "--out", "made.wasm"], "made.wasm: "),
    (&["sinks", "list", "--set", "sinks.console.kind=stdout"], "standard output"),
    (&["sinks", "test", "console", "--set", "sinks.console.kind=stdout"], "\"type\":\"OutboxSinkTest\""),
    (&["state", "list"], "/customers"),
    (&["state", "get", "order-mailer", "/customers"], "thousands"),
    (&["state", "usage"], "order-mailer"),
    (&["state", "delete", "order-mailer", "/customers", "--yes"], "1 value deleted"),
    (&["route", "pause", "Order/OrderPlaced"], "Order/OrderPlaced"),
    (&["route", "list"], "Order/OrderPlaced"),
    (&["route", "resume", "Order/OrderPlaced"], "Order/OrderPlaced"),
    (&["route", "blocked"], "dead-1"),
    (&["route", "forget", "User/UserCreated"], "User/UserCreated is forgotten"),
    (&["dead", "list"], "dead-2"),
    (&["dead", "show", "dead-1"], "no such customer"),
    (&["dead", "count"], "3"),
    (&["dead", "test", "--plugin", "plugins/order-mailer.wasm"], "3 × dead"),
    (&["event", "test", "--plugin", "plugins/order-mailer.wasm", "new"], "1 × dead"),
    (&["dead", "skip", "dead-1"], "1 event"),
    (&["dead", "replay", "dead-2"], "1 event"),
    (&["dead", "discard", "dead-3", "--yes"], "1 event"),
    (&["replay", "--yes"], "1 dead"),
    (&["audit", "list"], "discard"),
    (&["purge", "--older-than", "1h", "--yes"], "1 event"),
    (&["bench", "--native", "--events", "1000"], "native listener"),
    (&["testing", "reset", "--yes"], "deleted from"),
    (&["migrate", "reset", "--yes"], "APPLIED AT"),
    (&["migrate", "down", "--yes"], "APPLIED AT"),
];

/// What runs until Ctrl-C, and a part of what it prints before.
const UNTIL_CTRL_C: [(&[&str], &str); 5] = [
    (&["run", "--plugins", "plugins"], "ready"),
    (&["dev", "--plugins", "plugins"], "delivered"),
    (&["plugin", "dev", "made"], "answer   done"),
    (&["event", "tail", "--after", "0"], "dead-1"),
    (&["top"], "delivered/s"),
];

/// A place with a plugin that keeps a value, a project of one, three dead events, of which the first is waited for, and a finished
/// one.
fn place() -> Place {
    let place = Place::migrated();
    place.plugin("order-mailer");
    place.core_module("core.wasm");
    place.project("made");
    for (id, aggregate) in [("dead-1", "42"), ("dead-2", "43"), ("dead-3", "44"), ("behind", "42"), ("done", "45")] {
        place.order(id, aggregate);
    }
    place.sql(
        "UPDATE outbox_event SET status = 3, due_at = NULL, done_at = 1, blocks = 1, last_error = 'no such customer'
         WHERE event_id LIKE 'dead-%'",
    );
    place.sql("UPDATE outbox_event SET due_at = NULL, behind = 1 WHERE event_id = 'behind'");
    place.sql("UPDATE outbox_event SET status = 1, due_at = NULL, done_at = 1 WHERE event_id = 'done'");
    place.sql("INSERT INTO outbox_event_route VALUES ('User', 'UserCreated', 1, 0)");
    place.sql("INSERT INTO outbox_event_state VALUES ('order-mailer', '/customers', CAST('thousands' AS BLOB), 1, 1)");
    place.sql("INSERT INTO outbox_event_state_usage VALUES ('order-mailer', 1, 19, 1)");
    place
}

/// The commands that a help page lists.
fn listed(place: &Place, of: &[&str]) -> Vec<String> {
    let help = place.ok(&[of, &["--help"]].concat());
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A name stands two spaces from the left; a description that goes on stands further in.
    let names = commands.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn no_command_is_forgotten_here() {
    let place = Place::empty();
    let mut there = BTreeSet::new();
    for command in listed(&place, &[]) {
        let below = listed(&place, &[&command]);
        there.extend(below.iter().map(|name| format!("{command} {name}")));
        if below.is_empty() {
            there.insert(command);
        }
    }

    let run = ONCE.iter().chain(&UNTIL_CTRL_C).map(|(arguments, _)| *arguments);
    let run: BTreeSet<String> = run
        .map(|arguments| there.iter().find(|name| arguments.join(" ").starts_with(*name)).expect("it is a command").clone())
        .collect();

    assert!(there.len() > 30, "{there:?}");
    assert_eq!(run, there);
}

#[test]
fn every_command_that_ends_by_itself_does_its_work() {
    let place = place();
    for (arguments, part) in ONCE {
        let ended = Ended::within(LONG, place.command(arguments));
        let code = match arguments {
            // Dead events need somebody, which is what it says by its code; and the plugin can use none of the payloads.
            ["doctor"] | ["dead" | "event", "test", ..] => 8,
            // No host has served another version here.
            ["plugin", "rollback", _] => 3,
            _ => 0,
        };
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        let said = if ended.stdout.is_empty() { &ended.stderr } else { &ended.stdout };
        assert!(said.contains(part), "{arguments:?} does not say `{part}`: {said}");
    }
}

/// By one run with all options: each run repeats the measurements that need none.
#[test]
fn every_option_of_the_benchmark_adds_what_it_measures() {
    let place = Place::migrated();
    let options = ["--finished", "50", "--parked", "50", "--snapshot", "--blocked", "50", "--hosts", "2", "--backlog", "20"];
    let measured = Ended::within(LONG, place.command(&[&["bench", "--native", "--events", "1000"][..], &options].concat()));
    assert_eq!(measured.code, Some(0), "{}", measured.stderr);
    for part in ["ordered, empty table", "beside blocked events", "several hosts together", "beside a slow route, p99"] {
        assert!(measured.stdout.contains(part), "`{part}` is not in {}", measured.stdout);
    }

    let costs = Ended::within(LONG, place.command(&["bench", "--native", "--events", "1000", "--costs"]));
    assert_eq!(costs.code, Some(2), "only a server counts what events cost: {}", costs.stderr);
    assert!(costs.stderr.contains("which SQLite does not have"), "{}", costs.stderr);
}

#[test]
fn every_command_that_goes_on_says_what_it_does_and_ends_at_ctrl_c_with_0() {
    for (arguments, part) in UNTIL_CTRL_C {
        let place = place();
        let file = place.path().join("said");
        let output = || File::options().create(true).append(true).open(&file).expect("can be written");
        let mut command = place.command(arguments);
        let mut child = command.stdout(output()).stderr(output()).spawn().expect("the program can be started");
        let said = || fs::read_to_string(&file).expect("can be read");
        let started = Instant::now();
        // The first compilation of a plugin in C takes long beside the other tests.
        while !said().contains(part) && started.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(50));
        }
        signal(&child, "INT");
        let status = end(&mut child, &format!("outbox {arguments:?} ends at Ctrl-C"));

        assert!(said().contains(part), "outbox {arguments:?} says `{part}`: {}", said());
        assert_eq!(status.code(), Some(0), "{arguments:?}: {}", said());
    }
}
