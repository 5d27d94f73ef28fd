//! Three hosts on one database while programs write: left alone, and with one of them killed every second. `.ci/run` runs
//! them on some databases, `.ci/nightly` on the others.

use std::time::{Duration, Instant};

use support::history::Report;
use support::{Faults, Witness, Writers, sample_plugins};

use crate::home::Home;
use crate::node::{Mode, Node, Settings, history, patience, say, wait_for_writers, wait_until_all_is_delivered};
use crate::program::Place;

const HOSTS: usize = 3;

/// How many events are written, unless `OUTBOX_TEST_EVENTS` says more.
const EVENTS: usize = 1_000;

/// Written a little faster than all workers together can deliver: a kill finds every host at work, and with a backlog.
const REST: Duration = Duration::from_millis(5);
const TAKES: Duration = Duration::from_millis(20);

/// The least number of kills, even if everything is written before.
const KILLS: usize = 5;

/// Leases short enough to wait for, and long enough that a host on a busy machine renews them in time: one that expires without
/// a fault is a duplicate that nothing excuses. A short queue, so that little is in flight and the bound on duplicates means
/// something.
const KILLED: Settings<'_> = &[
    ("OUTBOX_DISPATCHER__LEASE", "10s"),
    ("OUTBOX_DISPATCHER__DEADLINE", "5s"),
    ("OUTBOX_DISPATCHER__COLD_QUEUE", "16"),
    ("OUTBOX_POLLER__DRAIN_BATCH_SIZE", "16"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
    ("OUTBOX_RETRY__POLICY", "fixed"),
    ("OUTBOX_RETRY__BASE", "100ms"),
];

/// The leases that users have.
const LEFT_ALONE: Settings<'_> = &[
    ("OUTBOX_MODE", "multi_node"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
    ("OUTBOX_RETRY__POLICY", "fixed"),
    ("OUTBOX_RETRY__BASE", "100ms"),
];

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn three_hosts_killed_in_turn_lose_nothing_and_repeat_only_what_was_in_flight_on_sqlite() {
    three_hosts_killed_in_turn("SQLite", &Place::migrated(), Mode::Any);
}

#[test]
fn three_hosts_killed_in_turn_lose_nothing_and_repeat_only_what_was_in_flight_on_postgres() {
    three_hosts_killed_in_turn("PostgreSQL", &Place::on(Home::on_postgres()), Mode::Any);
}

#[test]
fn three_hosts_killed_in_turn_lose_nothing_and_repeat_only_what_was_in_flight_on_mysql() {
    three_hosts_killed_in_turn("MySQL", &Place::on(Home::on_mysql()), Mode::Any);
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn three_hosts_killed_in_turn_keep_the_order_of_every_aggregate_on_sqlite() {
    let place = Place::migrated();
    place.ok(&["migrate", "add-index", "ordered_by_aggregate"]);
    three_hosts_killed_in_turn("SQLite", &place, Mode::ByAggregate);
}

#[test]
fn three_hosts_killed_in_turn_keep_the_order_of_every_aggregate_on_postgres() {
    three_hosts_killed_in_turn("PostgreSQL", &Place::on(Home::on_postgres()), Mode::ByAggregate);
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn three_hosts_killed_in_turn_keep_the_order_of_every_aggregate_on_mysql() {
    three_hosts_killed_in_turn("MySQL", &Place::on(Home::on_mysql()), Mode::ByAggregate);
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn three_hosts_that_are_left_alone_deliver_every_event_once_on_sqlite() {
    three_hosts_left_alone("SQLite", &Place::migrated());
}

#[test]
fn three_hosts_that_are_left_alone_deliver_every_event_once_on_postgres() {
    three_hosts_left_alone("PostgreSQL", &Place::on(Home::on_postgres()));
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn three_hosts_that_are_left_alone_deliver_every_event_once_on_mysql() {
    three_hosts_left_alone("MySQL", &Place::on(Home::on_mysql()));
}

fn three_hosts_killed_in_turn(database: &str, place: &Place, mode: Mode) {
    // Built before the first kill, which is not to wait for it.
    sample_plugins();
    let events = events();
    let witness = Witness::of(place.url(), place.path());
    let settings = &[KILLED, &[("OUTBOX_MODE", mode.name())]].concat()[..];
    let mut nodes: Vec<Node> = (0..HOSTS).map(|number| Node::start(place, number, settings)).collect();
    let writers =
        Writers { writers: 4, events, rest: REST, takes: TAKES, faults: Faults::None }.start(place.url(), place.path());

    let (mut kills, mut held) = (0, 0);
    let started = Instant::now();
    while kills < KILLS || !writers.is_finished() {
        assert!(started.elapsed() < patience(events), "expected within {:?}: everything is written", patience(events));
        std::thread::sleep(Duration::from_secs(1)); // the plan of the kills, not a wait for something
        held += nodes[kills % HOSTS].kill(&witness);
        nodes[kills % HOSTS].revive(place, settings);
        kills += 1;
    }
    wait_for_writers(writers, events);
    let waited = wait_until_all_is_delivered(place, events);
    for node in &mut nodes {
        assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well");
    }

    let history = history(place, &nodes, &witness);
    let report = history.check(&mode.rules());
    let fenced: u64 = nodes.iter().map(Node::fenced).sum();
    say(&format!(
        "{database}, {HOSTS} hosts, {kills} kills, {held} events held at them, {}: {} committed, {} rolled \
         back, {} deliveries, {fenced} fenced, all delivered {waited:.1?} after the last write; {report}\n",
        mode.name(),
        history.committed(),
        history.rolled_back(),
        history.deliveries(),
    ));
    assert!(history.committed() >= events && history.rolled_back() > 0, "the writers did their part");
    assert!(history.torn() <= kills, "{} lines are not whole", history.torn());
    assert!(report.duplicates <= held, "{report}");
    assert_eq!(report.clone().without_duplicates(), Report::default(), "{report}");
    assert_eq!((place.stat("dead"), place.stat("parked")), (0, 0));
}

fn three_hosts_left_alone(database: &str, place: &Place) {
    sample_plugins();
    let events = events();
    let mut nodes: Vec<Node> = (0..HOSTS).map(|number| Node::start(place, number, LEFT_ALONE)).collect();
    let started = Instant::now();
    let writers = Writers { writers: 4, events, rest: Duration::ZERO, takes: Duration::ZERO, faults: Faults::None }
        .start(place.url(), place.path());
    wait_for_writers(writers, events);
    wait_until_all_is_delivered(place, events);
    let took = started.elapsed();
    for node in &mut nodes {
        assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well");
    }

    let history = history(place, &nodes, &Witness::of(place.url(), place.path()));
    let report = history.check(&Mode::Any.rules());
    let fenced: u64 = nodes.iter().map(Node::fenced).sum();
    say(&format!(
        "{database}, {HOSTS} hosts, no fault: {} committed, {} rolled back, {} deliveries in {took:.1?}, {fenced} fenced; {report}\n",
        history.committed(),
        history.rolled_back(),
        history.deliveries(),
    ));
    assert!(history.committed() >= events && history.rolled_back() > 0, "the writers did their part");
    assert_eq!(report, Report::default(), "{report}");
    assert_eq!((fenced, history.torn()), (0, 0));
    assert_eq!((place.stat("dead"), place.stat("parked")), (0, 0));
}

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for through the environment")]
fn events() -> usize {
    std::env::var("OUTBOX_TEST_EVENTS").ok().map_or(EVENTS, |events| events.parse().expect("OUTBOX_TEST_EVENTS is a number"))
}
