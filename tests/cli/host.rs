//! The host: what it does when it runs, is stopped, and is killed.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::time::Instant;

use crate::home::Home;
use crate::program::{Host, LOOK_AGAIN, PATIENCE, Place, end, mails, signal};

/// Leases short enough that what a killed host held is due again soon, and so long that a busy machine alone does not end them.
const QUICK: [(&str, &str); 3] =
    [("OUTBOX_DISPATCHER__LEASE", "10s"), ("OUTBOX_DISPATCHER__DEADLINE", "5s"), ("OUTBOX_POLLER__INTERVAL", "100ms")];

/// Leases that outlive the test: what is free again was given back. Workers enough for whoever sleeps, and a stop that does not
/// wait for them.
const PATIENT: [(&str, &str); 5] = [
    ("OUTBOX_DISPATCHER__LEASE", "10m"),
    ("OUTBOX_DISPATCHER__DEADLINE", "4m"),
    ("OUTBOX_DISPATCHER__WORKERS", "16"),
    ("OUTBOX_DISPATCHER__DRAIN_TIMEOUT", "200ms"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
];

/// Writes this many orders; returns their ids.
fn emit(place: &Place, count: usize) -> Vec<String> {
    let lines: String = (0..count)
        .map(|number| {
            format!(
                "{{\"event_type\":\"OrderPlaced\",\"aggregate_type\":\"Order\",\"aggregate_id\":\"{number}\",\
                 \"payload\":{{\"order_id\":{number},\"total\":9.5}}}}\n"
            )
        })
        .collect();
    fs::write(place.path().join("orders.jsonl"), lines).expect("written");
    let ids = place.ok(&["event", "emit", "--jsonl", "orders.jsonl"]);
    ids.lines().map(str::to_owned).collect()
}

#[test]
fn events_written_by_another_process_are_delivered_and_end_done() {
    let place = Place::migrated();
    let mut host = place.host(&QUICK);

    let ids = emit(&place, 3);

    host.wait_for_mails(3);
    place.wait_for("done", 3);
    host.signal("TERM");
    let (status, said) = host.end();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    let mails = mails(&said);
    assert!(ids.iter().all(|id| mails.get(id) == Some(&1)), "each once: {mails:?}");
}

#[test]
fn a_killed_host_is_not_called_alive_for_the_rest_of_its_lease() {
    let place = Place::migrated();
    let host = place.host(&PATIENT);
    let node = || place.json(&["node", "list", "--output", "json"])[0].clone();
    let started = Instant::now();
    while node()["session"] != true {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: the host reports its session");
        std::thread::sleep(LOOK_AGAIN);
    }
    host.kill();

    let paused = place.ok(&["route", "pause", "Order/OrderPlaced"]);
    let resumed = place.ok(&["route", "resume", "Order/OrderPlaced"]);
    place.order("one", "42");
    let why = place.ok(&["event", "why", "one"]);
    let reset = place.run(&["migrate", "reset", "--yes"]);

    assert_eq!(node()["alive"], false, "{}", node());
    assert!(paused.contains("is paused; no host is running."), "{paused}");
    assert!(resumed.contains("no host is running"), "{resumed}");
    assert!(why.contains("no host is running: start one with `outbox run`"), "{why}");
    assert_eq!(reset.code, Some(7), "{}", reset.stderr);
    assert!(
        reset.stderr.contains("no host is running on outbox_event, but an outcome of a host that was killed"),
        "{}",
        reset.stderr
    );
    assert!(place.ok(&["event", "list"]).contains("one"), "a late outcome could end another event, so nothing was reset");
}

/// More than a pipe holds, by what the plugin logs of each order.
const FLOOD: usize = 600;

#[test]
fn a_log_that_nobody_reads_holds_up_no_event_and_no_stop() {
    let place = Place::migrated();
    place.plugin("order-mailer");
    emit(&place, FLOOD);
    let mut command = place.command(&["run", "--plugins", "plugins", "--log", "info"]);
    let mut child =
        command.envs(QUICK).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program can be started");

    place.wait_for("done", FLOOD as u64);
    signal(&child, "TERM");
    let status = end(&mut child, "a host whose log nobody reads ends");

    let mut said = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("the program writes UTF-8");
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.len() >= 60 << 10, "the pipe was full: {} bytes", said.len());
    assert!(said.lines().any(|line| line == "ready"), "what the host says is among them");
}

#[test]
fn a_terminated_host_gives_back_what_it_did_not_finish_and_ends_with_0() {
    let place = Place::migrated();
    place.plugin("trouble");
    fs::write(place.path().join("plugins/trouble.toml"), "[limits]\ndeadline = \"200s\"\n").expect("written");
    emit(&place, 50);
    let sleepers = ["one", "two", "three", "four"];
    for id in sleepers {
        place.ok(&["event", "emit", "--type", "Sleep", "--aggregate-type", "Trouble", "--payload", "1", "--id", id]);
    }
    let mut host = place.host(&PATIENT);
    host.wait_for_mails(50);
    place.wait_for("done", 50);

    host.signal("TERM");
    let (status, said) = host.end();

    assert_eq!(status.code(), Some(0), "{:#?}", said.last());
    let mails = mails(&said);
    assert!(mails.len() == 50 && mails.values().all(|times| *times == 1), "{mails:?}");
    let stats = place.json(&["stats", "--output", "json"]);
    for (name, count) in [("done", 50), ("new", 4), ("retry", 0), ("dead", 0), ("in_flight", 0)] {
        assert_eq!(stats[name], count, "{name}: {stats}");
    }
    for id in sleepers {
        let row = place.json(&["event", "show", id, "--output", "json"]);
        assert!(row["locked_by"].is_null(), "nobody has it: {row}");
        assert_eq!((row["claims"].as_u64(), row["attempts"].as_u64()), (Some(0), Some(0)), "nothing is counted");
    }
}

/// A host that a shell started, and that is ready.
fn started_by_shell(place: &Place, line: &str) -> Host {
    place.plugin("order-mailer");
    let mut command = place.shell(line);
    command.env("OUTBOX_DATABASE_URL", place.url()).envs(QUICK);
    let mut host = Host::of(command);
    host.wait_for_line("it says that it is ready", |line| line == "ready");
    host
}

#[test]
fn host_drains_when_its_terminal_is_closed() {
    let place = Place::migrated();
    for name in ["HUP", "QUIT"] {
        // The tests themselves may run under nohup.
        let host = started_by_shell(&place, "exec env --default-signal=HUP outbox run --plugins plugins --log info");

        host.signal(name);
        let (status, said) = host.end();

        assert_eq!(status.code(), Some(0), "{name}: {said:#?}");
        assert!(said.iter().any(|line| line.contains("stopped")), "{name}: {said:#?}");
    }
}

#[test]
fn host_started_by_nohup_outlives_its_terminal() {
    let place = Place::migrated();
    let host = started_by_shell(&place, "trap '' HUP; exec outbox run --plugins plugins --log info");

    host.signal("HUP");

    emit(&place, 1);
    place.wait_for("done", 1);
    host.signal("TERM");
    assert_eq!(host.end().0.code(), Some(0));
}

#[test]
fn a_host_killed_three_times_loses_nothing_and_repeats_only_what_was_in_its_hands() {
    const EVENTS: usize = 2_500;
    /// What waits in the queue, and what is with the workers.
    const IN_HAND: usize = 1_000 + 256;
    let place = Place::migrated();
    let ids = emit(&place, EVENTS);
    let (mut said, mut in_flight) = (Vec::new(), 0);

    for mails_before in [100, 400, 700] {
        let mut host = place.host(&QUICK);
        host.wait_for_mails(mails_before);
        said.extend(host.kill());
        // Which of those that wait were in its hands, nobody wrote down.
        in_flight += IN_HAND.min(usize::try_from(place.stat("new")).expect("small"));
    }
    assert!(place.stat("done") < EVENTS as u64, "the kills came in the middle");
    let host = place.host(&QUICK);
    place.wait_for("done", EVENTS as u64);
    host.signal("TERM");
    let (status, last) = host.end();
    said.extend(last);

    assert_eq!(status.code(), Some(0));
    let mails = mails(&said);
    let lost: Vec<&String> = ids.iter().filter(|id| !mails.contains_key(*id)).collect();
    assert!(lost.is_empty(), "{} events were never mailed, the first is {:?}", lost.len(), lost.first());
    assert_eq!(mails.len(), EVENTS, "and nothing was mailed that was not written");
    let duplicates: usize = mails.values().map(|times| times - 1).sum();
    assert!(duplicates <= in_flight, "{duplicates} events were mailed again, but only {in_flight} were in flight at the kills");
    assert_eq!((place.stat("dead"), place.stat("new"), place.stat("in_flight")), (0, 0, 0));
}

#[test]
fn what_a_killed_host_had_read_is_delivered_by_the_next_long_before_its_lease_ends_on_sqlite() {
    what_a_killed_host_had_read_is_delivered_by_the_next_long_before_its_lease_ends(&Place::migrated());
}

#[test]
fn what_a_killed_host_had_read_is_delivered_by_the_next_long_before_its_lease_ends_on_postgres() {
    what_a_killed_host_had_read_is_delivered_by_the_next_long_before_its_lease_ends(&Place::on(Home::on_postgres()));
}

#[test]
fn what_a_killed_host_had_read_is_delivered_by_the_next_long_before_its_lease_ends_on_mysql() {
    what_a_killed_host_had_read_is_delivered_by_the_next_long_before_its_lease_ends(&Place::on(Home::on_mysql()));
}

fn what_a_killed_host_had_read_is_delivered_by_the_next_long_before_its_lease_ends(place: &Place) {
    const EVENTS: usize = 1_500;
    place.plugin("order-mailer");
    emit(place, EVENTS);
    let mut host = place.host(&PATIENT);
    host.wait_for_mails(100);
    host.kill();
    assert!(place.stat("done") < EVENTS as u64, "the kill came in the middle");

    let next = place.host(&PATIENT);

    // Within the patience of the test, which is far below the lease.
    place.wait_for("done", EVENTS as u64);
    next.signal("TERM");
    let (status, said) = next.end();
    assert_eq!(status.code(), Some(0), "{:#?}", said.last());
    assert_eq!((place.stat("dead"), place.stat("new")), (0, 0));
}

#[test]
fn a_plugin_that_is_taken_away_lets_its_events_wait_and_one_that_comes_back_delivers_them() {
    let place = Place::migrated();
    // One that stays: when all are gone at once, the host takes it for a fault.
    place.plugin("noop");
    let mut host = place.host(&QUICK);
    emit(&place, 1);
    host.wait_for_mails(1);
    let plugin = place.path().join("plugins/order-mailer.wasm");
    let aside = place.path().join("order-mailer.wasm");
    fs::rename(&plugin, &aside).expect("moved away");
    host.wait_for_line("it notices that the plugin is gone", |line| line.contains("plugin order-mailer unloaded"));

    emit(&place, 5);
    place.wait_for("parked", 5);
    fs::rename(&aside, &plugin).expect("moved back");

    host.wait_for_mails(5);
    place.wait_for("done", 6);
    host.signal("INT");
    assert_eq!(host.end().0.code(), Some(0), "an interrupt stops it cleanly, too");
}

#[test]
fn a_host_that_only_writes_purges_as_the_configuration_says() {
    let place = Place::migrated();
    for id in ["done", "waiting"] {
        place.order(id, id);
    }
    place.sql("UPDATE outbox_event SET status = 1, due_at = NULL, done_at = 1000000000000000 WHERE event_id = 'done'");

    let host = place.host(&[("OUTBOX_MODE", "writer_only"), ("OUTBOX_PURGE__INTERVAL", "50ms")]);

    place.wait_for("done", 0);
    assert_eq!(place.stat("new"), 1, "what is not delivered is kept");
    drop(host);
    let all = [("OUTBOX_MODE", "writer_only"), ("OUTBOX_PURGE__UNDELIVERED_RETENTION", "0s")];
    let _host = place.host(&all);
    place.wait_for("new", 0);
}
