//! Runs that print figures. The long ones are asked for through the environment, and do nothing otherwise:
//!
//! ```text
//! OUTBOX_TEST_GROUNDS=postgres/ordered,mysql/multi_node OUTBOX_TEST_EVENTS=100000 cargo xtask test -p outbox-tests --test flow chaos::long
//! ```
//!
//! `OUTBOX_TEST_GROUNDS=all` means each mode on each database. Without `OUTBOX_TEST_EVENTS` they are 10,000.

use std::time::{Duration, Instant};

use outbox::Mode;
use rand::RngExt;
use support::history::Report;
use support::{Faults, PATIENCE, Seed, Witness, Writers};

use super::host::{Host, Left, Orders, TAKES};
use super::{Ground, asked, say, wait_until_all_is_delivered};

/// How many events a long run commits, unless `OUTBOX_TEST_EVENTS` says otherwise.
const EVENTS: usize = 10_000;
const HOSTS: usize = 3;
/// How many events each host commits that is not killed any more.
const LAST: usize = 100;
/// A host is killed each second.
const BETWEEN_KILLS: Duration = Duration::from_secs(1);
/// Where one host has everything, it has it for so long at least: to take over takes longer than a second.
const HOLDS: Duration = Duration::from_secs(5);
/// How long a writer rests after a transaction: a long run is to have many events in a short time.
const REST: Duration = Duration::from_millis(20);
/// One queue has one call at a time, and one writer, of whose events one order can be proved.
const REST_OF_ONE_WRITER: Duration = Duration::from_millis(5);

const MODES: [Mode; 4] = [Mode::SingleNode, Mode::MultiNode, Mode::Ordered, Mode::OrderedByAggregate];
const DATABASES: [&str; 3] = ["sqlite", "postgres", "mysql"];

#[test]
fn hosts_that_are_killed_each_second_lose_nothing() {
    for (database, mode) in grounds() {
        killed_each_second(&format!("{database}/{}", mode.as_str()), &ground(database, mode));
    }
}

#[test]
fn hosts_that_are_restarted_one_after_the_other_repeat_nothing() {
    let asked = grounds();
    let shared = |mode: &Mode| matches!(mode, Mode::MultiNode | Mode::OrderedByAggregate);
    for (database, mode) in asked.iter().filter(|(_, mode)| shared(mode)) {
        restarted(&format!("{database}/{}", mode.as_str()), &ground(database, *mode), 500, 10);
    }
    if asked.is_empty() {
        restarted("postgres/multi_node", &ground("postgres", Mode::MultiNode), 100, 1);
    }
}

/// The databases and modes that were asked for.
#[expect(clippy::disallowed_methods, reason = "a longer run is asked for through the environment")]
fn grounds() -> Vec<(&'static str, Mode)> {
    let asked = std::env::var("OUTBOX_TEST_GROUNDS").unwrap_or_default();
    let all = || DATABASES.into_iter().flat_map(|database| MODES.map(|mode| (database, mode)));
    let name = |(database, mode): &(&str, Mode)| format!("{database}/{}", mode.as_str());
    let known = |asked: &str| all().find(|ground| name(ground) == asked);
    match asked.as_str() {
        "" => Vec::new(),
        "all" => all().collect(),
        some => some.split(',').map(|one| known(one).unwrap_or_else(|| panic!("no ground for {one}"))).collect(),
    }
}

fn ground(database: &str, mode: Mode) -> Ground {
    match database {
        "sqlite" => Ground::sqlite(mode),
        "postgres" => Ground::postgres(mode),
        _ => Ground::mysql(mode),
    }
}

/// Three hosts write hot, as far as their mode has a hot path, others write cold; each second a host is killed and another one started.
fn killed_each_second(title: &str, ground: &Ground) {
    let events = asked("OUTBOX_TEST_EVENTS").unwrap_or(EVENTS);
    let witness = ground.witness();
    let mut choices = Seed::of_this_run().choices_of(title);
    let rest = if ground.mode == Mode::Ordered { REST_OF_ONE_WRITER } else { REST };
    let start = |number: usize, events| Host::start(Orders { rest, ..ground.orders(&format!("host-{number}"), events) });
    let writers = if ground.mode == Mode::Ordered { 1 } else { 3 };
    let writers = Writers { writers, events: 0, rest, takes: TAKES, faults: Faults::None };
    let cold = writers.start_cold(&ground.url, ground.evidence.path());
    let started = Instant::now();
    let mut hosts: Vec<Host> = (0..HOSTS).map(|number| start(number, usize::MAX)).collect();
    for host in &mut hosts {
        host.wait_until_it_lives(&witness);
    }
    let mut left: Vec<Left> = Vec::new();
    let mut kill = |hosts: &mut Vec<Host>, number: usize, events| {
        let next = start(HOSTS + left.len(), events);
        left.push(std::mem::replace(&mut hosts[number], next).die(&witness));
    };
    let (mut holder, mut since) = (None, Instant::now());
    while rows(&witness) < events as u64 {
        std::thread::sleep(BETWEEN_KILLS); // the plan, not a wait for something
        let mut chosen = choices.random_range(0..HOSTS);
        if ground.has_one_holder() {
            let holds = hosts.iter().position(|host| host.partitions(&witness) > 0);
            if holder != holds {
                (holder, since) = (holds, Instant::now());
            }
            if holder == Some(chosen) && since.elapsed() < HOLDS {
                chosen = (chosen + 1) % HOSTS;
            }
        }
        kill(&mut hosts, chosen, usize::MAX);
        if holder == Some(chosen) {
            holder = None;
        }
    }
    cold.end();
    for number in 0..HOSTS {
        kill(&mut hosts, number, LAST);
    }
    for host in &mut hosts {
        wait_until_all_is_delivered(&witness, host, patience(events));
    }
    let took = started.elapsed();
    conclude(title, ground, &witness, hosts, &left, took);
}

/// Cold events, of which so many are written each second, while each of three hosts is stopped and started again, so often.
fn restarted(title: &str, ground: &Ground, each_second: usize, rounds: usize) {
    // Of three events each; one of three transactions is rolled back.
    let writers = each_second / 50;
    let writers = Writers { writers, events: 0, rest: Duration::from_millis(35), takes: TAKES, faults: Faults::None };
    let witness = ground.witness();
    let start = |number: usize| Host::start(ground.orders(&format!("host-{number}"), 0));
    let mut hosts: Vec<Host> = (0..HOSTS).map(start).collect();
    for host in &mut hosts {
        host.wait_until_it_lives(&witness);
    }
    let started = Instant::now();
    let cold = writers.start_cold(&ground.url, ground.evidence.path());
    for number in 0..rounds * HOSTS {
        std::thread::sleep(BETWEEN_KILLS); // the plan, not a wait for something
        let mut next = start(HOSTS + number);
        next.wait_until_it_lives(&witness);
        std::mem::replace(&mut hosts[number % HOSTS], next).stop();
    }
    cold.end();
    for host in &mut hosts {
        wait_until_all_is_delivered(&witness, host, 4 * PATIENCE);
    }
    let took = started.elapsed();
    let report = conclude(title, ground, &witness, hosts, &[], took);
    assert_eq!(report, Report::default(), "nobody was killed: {report}");
}

/// Prints the figures, and proves what must be.
fn conclude(title: &str, ground: &Ground, witness: &Witness, hosts: Vec<Host>, left: &[Left], took: Duration) -> Report {
    for host in hosts {
        host.stop();
    }
    let history = ground.history(witness);
    let report = history.check(&ground.rules());
    let held: usize = left.iter().map(|left| left.held).sum();
    let waits = history.waits();
    let at = |percent: usize| waits.get((waits.len() * percent / 100).min(waits.len().saturating_sub(1))).copied();
    let gaps = left.iter().filter_map(|left| history.until_one_is_called(left.at, &left.readable));
    say(&format!(
        "{title}: {} committed, {} rolled back, {} of unknown end, {} deliveries in {took:.1?}; {} kills, {held} events held then; \
         from commit to first call p50 {:?}, p99 {:?}, longest {:?}; longest until something of a dead host's was read again {:?}; \
         {report}\n",
        history.committed(),
        history.rolled_back(),
        history.unknown(),
        history.deliveries(),
        left.len(),
        at(50).unwrap_or_default(),
        at(99).unwrap_or_default(),
        waits.last().copied().unwrap_or_default(),
        gaps.max().unwrap_or_default(),
    ));
    assert_eq!(report.clone().without_duplicates(), Report::default(), "{report}");
    assert!(report.duplicates <= held, "{report}");
    ground.agree_nothing_is_left(witness);
    report
}

/// How many events were committed.
fn rows(witness: &Witness) -> u64 {
    let stats = witness.run(witness.store().stats()).expect("counts");
    stats.new + stats.retry + stats.done + stats.dead + stats.parked + stats.blocked
}

/// One queue may have much to do still.
fn patience(events: usize) -> Duration {
    4 * PATIENCE + REST * u32::try_from(events).expect("small")
}
