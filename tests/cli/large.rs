//! Payloads of almost 1 MiB, as many as nobody has room for at once.

use std::time::Instant;

use support::sample_plugins;

use crate::home::Home;
use crate::node::{Node, say, wait_until_all_is_delivered};
use crate::program::Place;

/// How many, unless `OUTBOX_TEST_LARGE` says more.
const EVENTS: usize = 150;

/// The most memory that a host may ever have had, however many events there are: `queue_bytes` of payloads in hand, some of
/// them copied into guests, what a read brings, and what the allocator keeps of what was let go. Measured: 170 to 240.
const MOST_MIB: u64 = 320;

#[test]
fn large_payloads_are_delivered_in_bounded_memory_on_sqlite() {
    let place = Place::migrated();
    place.sql(&format!(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload)
         WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {})
         SELECT 'Changed', 'Account', number,
                CAST('{{\"succeeds_on\":1,\"rest\":\"' || replace(printf('%1048000s', ''), ' ', 'x') || '\"}}' AS BLOB) FROM numbers",
        events()
    ));
    large_payloads_are_delivered_in_bounded_memory("SQLite", &place);
}

#[test]
fn large_payloads_are_delivered_in_bounded_memory_on_postgres() {
    let home = Home::on_postgres();
    home.execute(&format!(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload)
         SELECT 'Changed', 'Account', number::text,
                convert_to('{{\"succeeds_on\":1,\"rest\":\"' || repeat('x', 1048000) || '\"}}', 'UTF8')
         FROM generate_series(1, {}) AS number",
        events()
    ));
    large_payloads_are_delivered_in_bounded_memory("PostgreSQL", &Place::on(home));
}

#[test]
fn large_payloads_are_delivered_in_bounded_memory_on_mysql() {
    let home = Home::on_mysql();
    home.execute(&format!(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload)
         WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {})
         SELECT 'Changed', 'Account', number, CONCAT('{{\"succeeds_on\":1,\"rest\":\"', REPEAT('x', 1048000), '\"}}') FROM numbers",
        events()
    ));
    large_payloads_are_delivered_in_bounded_memory("MySQL", &Place::on(home));
}

fn large_payloads_are_delivered_in_bounded_memory(database: &str, place: &Place) {
    sample_plugins();
    let started = Instant::now();
    let mut node = Node::start(place, 0, &[("OUTBOX_POLLER__INTERVAL", "100ms")]);

    wait_until_all_is_delivered(place, events());

    let (took, peak) = (started.elapsed(), node.peak_memory());
    say(&format!("{database}: {} payloads of 1 MiB in {took:.1?}, at most {peak} MiB resident\n", events()));
    assert_eq!((place.stat("done"), place.stat("dead")), (events() as u64, 0));
    assert!(peak < MOST_MIB, "{peak} MiB");
    assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well");
}

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for through the environment")]
fn events() -> usize {
    std::env::var("OUTBOX_TEST_LARGE").map_or(EVENTS, |number| number.parse().expect("OUTBOX_TEST_LARGE is a number"))
}
