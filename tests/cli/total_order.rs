//! The mode `ordered` over restarts: hosts that are stopped and killed in the middle of a backlog, one after the other.

use std::time::{Duration, Instant};

use servers::Deal;
use support::history::Step;
use support::{Faults, Witness, Writers, sample_plugins};

use crate::home::Home;
use crate::node::{Node, Settings, history, say, wait_until_all_is_delivered};
use crate::pooler::Pooled;
use crate::program::{PATIENCE, Place};

/// How many events wait for the first host, unless `OUTBOX_TEST_EVENTS` says more.
const EVENTS: usize = 250;
/// How many times a host is restarted, unless `OUTBOX_TEST_RESTARTS` says more: by turns cleanly and by SIGKILL.
const RESTARTS: usize = 4;
/// How long the listener takes for each.
const TAKES: Duration = Duration::from_millis(5);

/// A lease short enough to wait for: after a kill the next host goes on when it ends.
const SETTINGS: Settings<'_> = &[
    ("OUTBOX_MODE", "ordered"),
    ("OUTBOX_DISPATCHER__LEASE", "3s"),
    ("OUTBOX_DISPATCHER__DEADLINE", "2s"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
];

#[test]
fn restarts_in_the_middle_of_a_backlog_keep_the_order_of_insertion_on_sqlite() {
    let place = Place::migrated();
    place.ok(&["migrate", "add-index", "ordered"]);
    restarts_in_the_middle_of_a_backlog("SQLite", &place);
}

#[test]
fn restarts_in_the_middle_of_a_backlog_keep_the_order_of_insertion_on_postgres() {
    restarts_in_the_middle_of_a_backlog("PostgreSQL", &Place::on(Home::on_postgres()));
}

#[test]
fn restarts_in_the_middle_of_a_backlog_keep_the_order_of_insertion_on_mysql() {
    restarts_in_the_middle_of_a_backlog("MySQL", &Place::on(Home::on_mysql()));
}

#[test]
fn restarts_in_the_middle_of_a_backlog_keep_the_order_of_insertion_behind_a_pooler() {
    restarts_in_the_middle_of_a_backlog("PgBouncer", Pooled::start(Deal::Last).place());
}

fn restarts_in_the_middle_of_a_backlog(database: &str, place: &Place) {
    sample_plugins();
    let (events, restarts) = (asked_for("OUTBOX_TEST_EVENTS", EVENTS), asked_for("OUTBOX_TEST_RESTARTS", RESTARTS));
    // One writer, so that the order of its commits is the order of insertion.
    Writers { writers: 1, events, rest: Duration::ZERO, takes: TAKES, faults: Faults::None }
        .start(place.url(), place.path())
        .join()
        .expect("everything is written");
    let witness = Witness::of(place.url(), place.path());
    let part = events / (restarts + 1);
    let started = Instant::now();
    let mut node = Node::start(place, 0, SETTINGS);
    for restart in 1..=restarts {
        wait_for_deliveries(&mut node, restart * part);
        if restart % 2 == 0 {
            node.kill(&witness);
        } else {
            assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well");
        }
        node.revive(place, SETTINGS);
    }
    wait_until_all_is_delivered(place, events);
    let took = started.elapsed();
    assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well");

    let history = history(place, std::slice::from_ref(&node), &witness);
    let delivered: Vec<u64> = history
        .lines()
        .iter()
        .filter_map(|line| match &line.step {
            Step::Began(delivery) => Some(delivery.sequence),
            _ => None,
        })
        .collect();
    let back: Vec<_> = delivered.windows(2).filter(|pair| pair[1] < pair[0]).collect();
    let mut once = delivered.clone();
    once.dedup();
    say(&format!(
        "{database}, ordered, {restarts} restarts: {} committed, {} deliveries, {} of them repeats, in {took:.1?}\n",
        history.committed(),
        delivered.len(),
        delivered.len() - once.len(),
    ));
    // The next one starts only when the outcome of the one before it is stored: a kill repeats the last one and no other.
    assert!(back.is_empty(), "steps back: {back:?}");
    assert_eq!(once.len(), history.committed(), "every committed event is delivered, and no other");
    assert!(delivered.len() - once.len() <= restarts / 2, "only a kill may repeat an event");
    assert_eq!((place.stat("done") + place.stat("dead"), place.stat("parked")), (once.len() as u64, 0));
}

/// Waits until this many deliveries of all its lives are in the log, as long as their number grows.
fn wait_for_deliveries(node: &mut Node, count: usize) {
    let (mut seen, mut since) = (node.deliveries(), Instant::now());
    while seen < count {
        assert!(
            since.elapsed() < PATIENCE && node.runs(),
            "expected within {PATIENCE:?}: more than {seen} of {count} deliveries: {:?}",
            node.complaints()
        );
        std::thread::sleep(Duration::from_millis(100));
        let deliveries = node.deliveries();
        if deliveries > seen {
            (seen, since) = (deliveries, Instant::now());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for through the environment")]
fn asked_for(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().map_or(otherwise, |number| number.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
