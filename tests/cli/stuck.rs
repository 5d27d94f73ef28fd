//! Somebody who stands still: a host that is stopped while it holds events, rows that somebody has locked, a pool that is small.

use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use support::history::FaultKind;
use support::{Faults, Witness, Writers, sample_plugins};

use crate::home::Home;
use crate::node::{Mode, Node, SHORT_LEASES, Settings, conclude, say, wait_for_writers, wait_until_all_is_delivered};
use crate::program::{LOOK_AGAIN, PATIENCE, Place, run};

const EVENTS: usize = 500;

/// Four connections, the fewest that the program takes, for sixteen workers.
const SMALL_POOL: Settings<'_> = &[
    ("OUTBOX_DATABASE__MAX_CONNECTIONS", "4"),
    ("OUTBOX_DISPATCHER__WORKERS", "16"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
    ("OUTBOX_RETRY__POLICY", "fixed"),
    ("OUTBOX_RETRY__BASE", "100ms"),
];

/// How long rows are locked: longer than a lease, and longer than MySQL waits for a lock. A plan, not a wait for something.
const LOCKED: Duration = Duration::from_secs(9);

fn write(place: &Place, takes: Duration) -> std::thread::JoinHandle<()> {
    sample_plugins();
    let writers = Writers { writers: 4, events: EVENTS, rest: Duration::from_millis(5), takes, faults: Faults::None };
    writers.start(place.url(), place.path())
}

#[test]
fn a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes_on_postgres() {
    a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes(
        "PostgreSQL",
        &Place::on(Home::on_postgres()),
        Mode::Any,
    );
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes_in_order_on_postgres() {
    a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes(
        "PostgreSQL",
        &Place::on(Home::on_postgres()),
        Mode::ByAggregate,
    );
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes_on_mysql() {
    a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes("MySQL", &Place::on(Home::on_mysql()), Mode::Any);
}

#[test]
fn a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes_in_order_on_mysql() {
    a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes(
        "MySQL",
        &Place::on(Home::on_mysql()),
        Mode::ByAggregate,
    );
}

fn a_host_that_slept_through_its_leases_changes_nothing_when_it_wakes(name: &str, place: &Place, mode: Mode) {
    let settings = &[SHORT_LEASES, &[("OUTBOX_MODE", mode.name())]].concat()[..];
    let writers = write(place, Duration::from_millis(50));
    let mut sleeper = Node::start(place, 0, settings);
    sleeper.wait_for_deliveries(20);

    let witness = Witness::of(place.url(), place.path());
    // Until it is stopped with events in its hands.
    let started = Instant::now();
    let asleep = loop {
        assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: the host is stopped with events in its hands");
        let asleep = sleeper.trouble(&witness, FaultKind::Stalled, || sleeper.signal("STOP"));
        if asleep.held() > 0 {
            break asleep;
        }
        witness.over(asleep);
        sleeper.signal("CONT");
    };
    let mut other = Node::start(place, 1, settings);
    wait_for_writers(writers, EVENTS);
    let taken_over = wait_until_all_is_delivered(place, EVENTS);
    witness.over(asleep);
    sleeper.signal("CONT");
    // Calls that had ended are fenced off when they are written; those that were under way end with their leases.
    sleeper.wait_for_any(&["outcomes were dropped", "lease lost;"], 1);

    say(&format!("{name}, a host asleep: all delivered by another {taken_over:.1?} after the last write\n"));
    assert!(other.runs() && other.fenced() == 0, "the other host was not disturbed");
    conclude(
        &format!("{name}, {}, a host that woke after its leases", mode.name()),
        place,
        &mut [sleeper, other],
        EVENTS,
        &mode.rules(),
        &witness,
    );
}

#[test]
fn rows_that_somebody_locks_for_long_are_delivered_afterwards_on_postgres() {
    let place = Place::on(Home::on_postgres());
    let url = place.url().to_owned();
    rows_that_somebody_locks_for_long_are_delivered_afterwards("PostgreSQL", &place, || {
        run(async {
            let mut other = PgConnection::connect(&url).await.expect("it answers");
            lock_all_rows(&mut other).await;
            tokio::time::sleep(LOCKED).await;
            other.execute("ROLLBACK").await.expect("rolls back");
        });
    });
}

#[test]
fn rows_that_somebody_locks_for_long_are_delivered_afterwards_on_mysql() {
    let place = Place::on(Home::on_mysql());
    let url = place.url().to_owned();
    rows_that_somebody_locks_for_long_are_delivered_afterwards("MySQL", &place, || {
        run(async {
            let mut other = MySqlConnection::connect(&url).await.expect("it answers");
            // Otherwise it locks the room between the rows as well, and nobody could write.
            let rows_alone = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
            other.execute(rows_alone).await.expect("anybody may");
            lock_all_rows(&mut other).await;
            tokio::time::sleep(LOCKED).await;
            other.execute("ROLLBACK").await.expect("rolls back");
        });
    });
}

/// Locks every row in a transaction that stays open. A deadlock with the host breaks one of the two off; when it is this one, it
/// tries again.
async fn lock_all_rows<C>(connection: &mut C)
where
    for<'c> &'c mut C: Executor<'c>,
{
    loop {
        connection.execute("BEGIN").await.expect("begins");
        let Err(error) = connection.execute("SELECT seq FROM outbox_event FOR UPDATE").await else { return };
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        assert!(["40001", "40P01"].contains(&&*code), "the rows can be locked: {error}");
        connection.execute("ROLLBACK").await.expect("rolls back");
    }
}

fn rows_that_somebody_locks_for_long_are_delivered_afterwards(name: &str, place: &Place, lock: impl FnOnce()) {
    let writers = write(place, Duration::from_millis(20));
    let mut node = Node::start(place, 0, SHORT_LEASES);
    node.wait_for_deliveries(20);

    let witness = Witness::of(place.url(), place.path());
    // What the host holds changes until the rows are locked, and the lock takes all of the time: nobody looks at the right moment.
    let locked_out = node.unseen(&witness, lock);
    witness.over(locked_out);
    let recovered = node.wait_for_deliveries(1);
    wait_for_writers(writers, EVENTS);

    say(&format!("{name}, rows locked for {LOCKED:?}: delivers {recovered:.1?} later; it said {:?}\n", node.complaints()));
    conclude(&format!("{name}, rows locked for a while"), place, &mut [node], EVENTS, &Mode::Any.rules(), &witness);
}

#[test]
fn sixteen_workers_share_the_smallest_pool_on_postgres() {
    sixteen_workers_share_the_smallest_pool("PostgreSQL", &Place::on(Home::on_postgres()));
}

#[test]
fn sixteen_workers_share_the_smallest_pool_on_mysql() {
    sixteen_workers_share_the_smallest_pool("MySQL", &Place::on(Home::on_mysql()));
}

fn sixteen_workers_share_the_smallest_pool(name: &str, place: &Place) {
    let writers = write(place, Duration::ZERO);
    let mut node = Node::start(place, 0, SMALL_POOL);
    wait_for_writers(writers, EVENTS);
    wait_until_all_is_delivered(place, EVENTS);

    assert!(node.runs() && node.complaints().is_empty(), "{:?}", node.complaints());
    let witness = Witness::of(place.url(), place.path());
    conclude(&format!("{name}, sixteen workers, four connections"), place, &mut [node], EVENTS, &Mode::Any.rules(), &witness);
}

#[test]
fn a_command_waits_longer_for_a_lock_than_a_host_on_postgres() {
    let home = Home::on_postgres();
    let waits = || {
        let waiting = "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
                       WHERE relation = 'outbox_event'::regclass AND NOT granted AND now() - query_start > interval '3 s')";
        run(async {
            let mut third = PgConnection::connect(home.url()).await.expect("it answers");
            sqlx::query_scalar::<_, bool>(waiting).fetch_one(&mut third).await.expect("it answers")
        })
    };
    let lock = "BEGIN; LOCK TABLE outbox_event IN SHARE MODE";
    a_command_waits_longer_for_a_lock_than_a_host(&home, lock, "ROLLBACK", waits);
}

#[test]
fn a_command_waits_longer_for_a_lock_than_a_host_on_mysql() {
    let home = Home::on_mysql();
    let waits = || {
        let waiting = "SELECT EXISTS (SELECT * FROM information_schema.processlist
                       WHERE db = DATABASE() AND state LIKE '%metadata lock%' AND time > 3)";
        run(async {
            let mut third = MySqlConnection::connect(home.url()).await.expect("it answers");
            sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut third).await.expect("it answers") > 0
        })
    };
    a_command_waits_longer_for_a_lock_than_a_host(&home, "LOCK TABLES outbox_event READ", "UNLOCK TABLES", waits);
}

/// `waits`: whether a statement has waited for the table for longer than one of a host does.
fn a_command_waits_longer_for_a_lock_than_a_host(home: &Home, lock: &str, unlock: &str, waits: impl Fn() -> bool) {
    let place = Place::at(home.url());
    home.execute(lock);

    let ended = std::thread::scope(|scope| {
        let emitting = scope.spawn(|| place.run(&["event", "emit", "--type", "OrderPlaced", "--payload", "{}"]));
        while !emitting.is_finished() && !waits() {
            std::thread::sleep(LOOK_AGAIN);
        }
        home.execute(unlock);
        emitting.join().expect("it does not panic")
    });

    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(place.stat("new"), 1);
}
