//! Hosts that have the table for themselves, as they are told, and meet another.

use std::time::Instant;

use crate::program::{Host, PATIENCE, Place, mails};

/// Leases short enough to see one end, and so long that a busy machine alone does not end them.
const QUICK: [(&str, &str); 3] =
    [("OUTBOX_DISPATCHER__LEASE", "10s"), ("OUTBOX_DISPATCHER__DEADLINE", "5s"), ("OUTBOX_POLLER__INTERVAL", "100ms")];

/// Whether a line tells of this other host.
fn tells_of(line: &str, other: u32) -> bool {
    line.contains("on this table, and single_node is for one host alone")
        && line.contains(&format!(" {other} (single_node) was last heard from "))
        && (is_unsure(line) || line.contains("stop one of them, or set mode = \"multi_node\" for both"))
}

/// Whether it leaves open that the other was killed.
fn is_unsure(line: &str) -> bool {
    line.contains("was killed, do nothing: this host takes over within seconds")
}

fn write(place: &Place, ids: &[&str]) {
    for id in ids {
        let order = ["--aggregate-type", "Order", "--payload", "{\"order_id\":42,\"total\":9.5}", "--id", id];
        place.ok(&[&["event", "emit", "--type", "OrderPlaced"][..], &order].concat());
    }
}

#[test]
fn two_hosts_that_each_think_to_be_alone_warn_of_each_other_and_deliver_each_event_once() {
    let place = Place::migrated();
    let mut first = place.host(&QUICK);
    let mut second = place.host(&QUICK);
    let (one, two) = (first.id(), second.id());

    second.wait_until_it_said("it may not be alone", |line| tells_of(line, one) && is_unsure(line));
    first.wait_until_it_said("another came", |line| tells_of(line, two) && !is_unsure(line));
    second.wait_until_it_said("it is not alone", |line| tells_of(line, one) && !is_unsure(line));
    write(&place, &["a", "b", "c"]);
    place.wait_for("done", 3);

    let doctor = place.run(&["doctor"]);
    assert!(doctor.stdout.contains("runs as single_node, but other hosts work on the table"), "{}", doctor.stdout);
    second.signal("TERM");
    let (status, mut said) = second.end();
    assert_eq!(status.code(), Some(0), "{said:#?}");
    first.wait_for_line("the other is gone", |line| line.contains("every host that was reported is gone"));
    said.extend(first.kill());
    assert_eq!(mails(&said).into_values().collect::<Vec<_>>(), [1, 1, 1], "each once: {said:#?}");
}

#[test]
fn a_host_that_follows_a_killed_one_works_at_once_and_never_says_for_certain_that_it_is_not_alone() {
    let place = Place::migrated();
    let killed = place.host(&QUICK);
    let before = killed.id();
    let started = Instant::now();
    while !place.ok(&["node", "list"]).contains(&format!(" {before} ")) {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: the host says that it is alive");
    }
    killed.kill();

    let mut host: Host = place.host(&QUICK);

    host.wait_until_it_said("the other may still be there", |line| tells_of(line, before) && is_unsure(line));
    write(&place, &["a"]);
    host.wait_for_mails(1);
    host.wait_until_it_said("the other is gone", |line| line.contains("every host that was reported is gone"));
    let said = host.kill();
    assert!(said.iter().all(|line| !tells_of(line, before) || is_unsure(line)), "{said:#?}");
}
