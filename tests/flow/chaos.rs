//! Hosts that write hot and deliver, killed at every step, stopped for longer than their leases, cut off, and restarted one after the
//! other, beside programs that only write: nothing is lost, nothing dies, and nothing is repeated but what they held. `long.rs` has runs
//! that are asked for.

mod host;
mod long;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use outbox::Mode;
use rand::RngExt;
use support::history::{History, Order, Report, Rules};
use support::{
    ColdWriters, Evidence, Faults, Moment, MySql, Network, PATIENCE, Postgres, Proxy, Seed, Sqlite, Witness, Writers,
};
use tokio::runtime::Runtime;

use self::host::{Host, LEASE, Orders, RETRY, TAKES};

/// How many events the host commits that is left alone, unless `OUTBOX_TEST_EVENTS` says more. Those in trouble write until it comes.
const EVENTS: usize = 300;
/// How long a writer rests after a transaction. A doomed host passes its moment at most 14 times, so it needs few events.
const REST: Duration = Duration::from_millis(50);
/// The same for a cold writer that writes for as long as hosts are killed.
const REST_OF_COLD_WRITER: Duration = Duration::from_millis(80);

/// A database, and where the journals go.
struct Ground {
    url: String,
    evidence: Evidence,
    mode: Mode,
    /// Keeps the database; dropped before the threads that its connections live on.
    _database: Box<dyn std::any::Any>,
    runtime: Runtime,
}

impl Ground {
    fn of<D: 'static>(mode: Mode, making: impl Future<Output = D>, url: impl Fn(&D) -> String) -> Self {
        let runtime = Runtime::new().expect("threads can be started");
        let database = runtime.block_on(making);
        Self { url: url(&database), evidence: Evidence::of_this_test(), mode, _database: Box::new(database), runtime }
    }

    fn sqlite(mode: Mode) -> Self {
        Self::of(mode, Sqlite::fresh(), |database| format!("sqlite:{}", database.file().display()))
    }

    fn postgres(mode: Mode) -> Self {
        Self::of(mode, Postgres::fresh(), |database| database.url().to_owned())
    }

    fn mysql(mode: Mode) -> Self {
        Self::of(mode, MySql::fresh(), MySql::url)
    }

    fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    fn witness(&self) -> Witness {
        Witness::of(&self.url, self.evidence.path())
    }

    /// A host that writes so many events and is at no gate.
    fn orders(&self, name: &str, events: usize) -> Orders {
        let (url, directory) = (self.url.clone(), self.evidence.path().to_owned());
        let (name, mode) = (name.to_owned(), self.mode);
        // That all events come in one order can be proved of one writer alone.
        let writers = if mode == Mode::Ordered { 0 } else { 2 };
        Orders { url, directory, name, mode, writers, events, rest: REST, faults: Faults::None, moment: None, passage: 0 }
    }

    /// A host that writes until it comes to this moment for a number of times that is chance.
    fn orders_until(&self, name: &str, moment: Moment) -> Orders {
        let passage = Seed::of_this_run().choices_of(name).random_range(3..15);
        Orders { moment: Some(moment), passage, ..self.orders(name, usize::MAX) }
    }

    /// A program beside the hosts, which only writes: all that there is in the mode of one queue.
    fn cold_writers(&self) -> ColdWriters {
        let (events, rest) = if self.mode == Mode::Ordered { (events(), REST) } else { (0, REST_OF_COLD_WRITER) };
        let writers = Writers { writers: 1, events, rest, takes: TAKES, faults: Faults::None };
        writers.start_cold(&self.url, self.evidence.path())
    }

    /// Whether one host has all partitions, and the others stand by.
    fn has_one_holder(&self) -> bool {
        matches!(self.mode, Mode::SingleNode | Mode::Ordered)
    }

    fn rules(&self) -> Rules {
        let rules = Rules { retry: RETRY, ..Rules::default() };
        match self.mode {
            Mode::OrderedByAggregate => Rules { order: Order::Strict, ..rules },
            Mode::Ordered => Rules { order: Order::Total, max_attempts: 1, ..rules },
            _ => rules,
        }
    }

    /// Waits until everything is delivered, stops the host that was left alone, and proves what must be. `held` is what the others held
    /// when trouble came.
    fn conclude(&self, title: &str, witness: &Witness, steady: Host, held: usize) {
        let hot: u64 = steady.stop();
        let history = self.history(witness);
        let report = history.check(&self.rules());
        say(&format!(
            "{title}: {} committed, {} rolled back, {} of unknown end, {hot} hot beside those of the dead, {} deliveries, {held} \
             events held; {report}\n",
            history.committed(),
            history.rolled_back(),
            history.unknown(),
            history.deliveries(),
        ));
        assert_eq!(report.clone().without_duplicates(), Report::default(), "{report}");
        assert!(report.duplicates <= held, "{report}");
        assert!(history.committed() >= events(), "the host that was left alone wrote its share");
        let has_hot_path = matches!(self.mode, Mode::SingleNode | Mode::MultiNode);
        assert_eq!(hot > 0, has_hot_path, "in two of the modes there is a hot path");
        self.agree_nothing_is_left(witness);
    }

    fn agree_nothing_is_left(&self, witness: &Witness) {
        let stats = witness.run(witness.store().stats()).expect("counts");
        assert_eq!((stats.new, stats.retry, stats.parked, stats.blocked), (0, 0, 0, 0));
        // As one queue, an event has one attempt.
        assert!(stats.dead == 0 || self.mode == Mode::Ordered, "{stats:?}");
    }

    fn history(&self, witness: &Witness) -> History {
        witness.record_table();
        let mut history = History::default();
        history.read_all(self.evidence.path());
        history
    }
}

/// Waits until the host that was left alone has written its share, and nothing is left to do.
fn wait_until_all_is_delivered(witness: &Witness, steady: &mut Host, patience: Duration) {
    steady.wait_until_all_is_written();
    let started = Instant::now();
    loop {
        let stats = witness.run(witness.store().stats()).expect("counts");
        if stats.new + stats.retry + stats.in_flight + stats.blocked == 0 {
            return;
        }
        assert!(started.elapsed() < patience, "expected within {patience:?}: everything is delivered: {stats:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// One test for each database and mode.
macro_rules! everywhere {
    ($($name:ident($ground:expr) in $fact:ident;)+) => { $(#[test] fn $name() { $fact(stringify!($name), &$ground); })+ };
}

everywhere! {
    hosts_killed_at_every_step_lose_nothing_on_sqlite(Ground::sqlite(Mode::MultiNode)) in killed_at_every_step;
    hosts_killed_at_every_step_lose_nothing_on_postgres(Ground::postgres(Mode::MultiNode)) in killed_at_every_step;
    hosts_killed_at_every_step_lose_nothing_on_mysql(Ground::mysql(Mode::MultiNode)) in killed_at_every_step;
    hosts_killed_at_every_step_keep_the_order_on_sqlite(Ground::sqlite(Mode::OrderedByAggregate)) in killed_at_every_step;
    hosts_killed_at_every_step_keep_the_order_on_postgres(Ground::postgres(Mode::OrderedByAggregate)) in killed_at_every_step;
    hosts_killed_at_every_step_keep_the_order_on_mysql(Ground::mysql(Mode::OrderedByAggregate)) in killed_at_every_step;
    the_one_holder_is_killed_and_the_next_goes_on_on_sqlite(Ground::sqlite(Mode::SingleNode)) in killed_while_others_stand_by;
    the_one_holder_is_killed_and_the_next_goes_on_on_postgres(Ground::postgres(Mode::SingleNode)) in killed_while_others_stand_by;
    the_one_holder_is_killed_and_the_next_goes_on_on_mysql(Ground::mysql(Mode::SingleNode)) in killed_while_others_stand_by;
    the_one_holder_is_killed_and_the_next_keeps_the_order_on_sqlite(Ground::sqlite(Mode::Ordered)) in killed_while_others_stand_by;
    the_one_holder_is_killed_and_the_next_keeps_the_order_on_postgres(Ground::postgres(Mode::Ordered)) in killed_while_others_stand_by;
    the_one_holder_is_killed_and_the_next_keeps_the_order_on_mysql(Ground::mysql(Mode::Ordered)) in killed_while_others_stand_by;
    a_host_that_sleeps_through_its_leases_changes_nothing_on_postgres(Ground::postgres(Mode::MultiNode)) in stopped_for_longer_than_a_lease;
    a_host_that_sleeps_through_its_leases_changes_nothing_on_mysql(Ground::mysql(Mode::MultiNode)) in stopped_for_longer_than_a_lease;
    a_host_that_is_cut_off_time_and_again_loses_nothing_on_postgres(Ground::postgres(Mode::MultiNode)) in cut_off_time_and_again;
    a_host_that_is_cut_off_time_and_again_loses_nothing_on_mysql(Ground::mysql(Mode::MultiNode)) in cut_off_time_and_again;
}

fn killed_at_every_step(title: &str, ground: &Ground) {
    let witness = ground.witness();
    let mut steady = Host::start(ground.orders("steady", events()));
    let cold = ground.cold_writers();
    let mut held = 0;
    for round in 0..rounds() {
        for moment in Moment::ALL {
            let mut doomed = Host::start(ground.orders_until(&format!("doomed-{round}-{moment:?}"), moment));
            doomed.meet();
            held += doomed.kill(&witness);
        }
    }
    cold.end();
    wait_until_all_is_delivered(&witness, &mut steady, patience());
    ground.conclude(title, &witness, steady, held);
}

/// Each host that is killed holds everything, or waits to. One of them, at a moment that is chance, unless more rounds are asked for: it
/// takes seconds until the next one holds everything.
fn killed_while_others_stand_by(title: &str, ground: &Ground) {
    assert!(ground.has_one_holder());
    let witness = ground.witness();
    let comes_to = |moment: &Moment| match moment {
        // A host that writes nothing comes to none of the moments of a writer.
        Moment::Inserted | Moment::Committed | Moment::HandedOver if ground.mode == Mode::Ordered => false,
        // The open transaction of a host that waits to be killed keeps the file from the next one, which could not start.
        Moment::Inserted => !ground.is_sqlite(),
        _ => true,
    };
    let moments: Vec<Moment> = Moment::ALL.into_iter().filter(comes_to).collect();
    let chosen = Seed::of_this_run().choices_of(title).random_range(0..moments.len());
    let rounds = if rounds() == 1 { vec![moments[chosen]] } else { moments.repeat(rounds()) };
    let mut line = rounds.into_iter().enumerate();
    let mut next = || {
        let (number, moment) = line.next()?;
        Some(Host::start(ground.orders_until(&format!("doomed-{number}-{moment:?}"), moment)))
    };
    let cold = ground.cold_writers();
    let mut holder = next();
    let mut held = 0;
    let mut steady = None;
    while let Some(mut doomed) = holder {
        doomed.meet();
        holder = next();
        let standby = holder.as_mut().unwrap_or_else(|| steady.insert(Host::start(ground.orders("steady", events()))));
        standby.wait_until_it_lives(&witness);
        held += doomed.kill(&witness);
    }
    cold.end();
    let mut steady = steady.expect("there was one to be killed");
    wait_until_all_is_delivered(&witness, &mut steady, patience());
    ground.conclude(title, &witness, steady, held);
}

/// Not on SQLite: a process that is stopped in the middle of a transaction keeps the file from everybody, its own lease or not.
fn stopped_for_longer_than_a_lease(title: &str, ground: &Ground) {
    let witness = ground.witness();
    let mut choices = Seed::of_this_run().choices_of(title);
    let mut steady = Host::start(ground.orders("steady", events()));
    let mut held = 0;
    for round in 0..rounds() {
        let chosen = Moment::ALL[choices.random_range(0..Moment::ALL.len())];
        // Always there: an event that was looked at, and is not with its listener yet when the lease ends.
        let sleepers = [("light", Moment::Claimed), ("deep", chosen)].map(|(name, moment)| {
            let orders = ground.orders_until(&format!("{name}-sleeper-{round}-{moment:?}"), moment);
            let mut sleeper = Host::start(Orders { events: events() / 2, faults: Faults::SessionsEnd, ..orders });
            sleeper.meet();
            let asleep = sleeper.stall(&witness);
            (sleeper, asleep)
        });
        std::thread::sleep(LEASE + Duration::from_secs(2)); // the plan, not a wait for something
        for (sleeper, asleep) in sleepers {
            held += sleeper.wake(&witness, asleep);
            sleeper.stop();
        }
    }
    wait_until_all_is_delivered(&witness, &mut steady, patience());
    ground.conclude(title, &witness, steady, held);
}

fn cut_off_time_and_again(title: &str, ground: &Ground) {
    let witness = ground.witness();
    let mut choices = Seed::of_this_run().choices_of(title);
    let mut steady = Host::start(ground.orders("steady", events()));
    let proxy = ground.runtime.block_on(Proxy::in_front_of(server_of(&ground.url)));
    let orders = Orders { url: proxy.url(&ground.url), faults: Faults::Expected, ..ground.orders_until("far", Moment::Began) };
    let mut far = Host::start(Orders { events: events(), ..orders.clone() });
    far.meet();
    std::fs::remove_file(orders.directory.join("far.gate")).expect("it stands at its gate");

    let mut held = 0;
    for _ in 0..20 * rounds() {
        let bytes = choices.random_range(0..2_000);
        let cut = far.cut(&witness, || proxy.set(Network::CutAfter(bytes)));
        std::thread::sleep(Duration::from_millis(choices.random_range(10..80)));
        held += witness.over(cut);
        proxy.set(Network::Pass);
        std::thread::sleep(Duration::from_millis(choices.random_range(50..150)));
    }
    // Before: an event that it writes after the wait may be waiting for its next attempt when both hosts stop.
    far.wait_until_all_is_written();
    wait_until_all_is_delivered(&witness, &mut steady, patience());
    far.stop();
    ground.conclude(title, &witness, steady, held);
}

fn server_of(url: &str) -> SocketAddr {
    let (_, rest) = url.rsplit_once('@').expect("the URL names an account");
    let (host, _) = rest.split_once('/').expect("the URL names a database");
    let port = host.rsplit_once(':').map_or(host, |(_, port)| port);
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("the URL names a port")))
}

fn patience() -> Duration {
    4 * PATIENCE + REST * u32::try_from(events()).expect("small")
}

fn events() -> usize {
    asked("OUTBOX_TEST_EVENTS").unwrap_or(EVENTS)
}

/// How often everything is done, unless `OUTBOX_TEST_ROUNDS` says more than once.
fn rounds() -> usize {
    asked("OUTBOX_TEST_ROUNDS").unwrap_or(1)
}

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for through the environment")]
fn asked(name: &str) -> Option<usize> {
    std::env::var(name).ok().map(|number| number.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Shown in any case: what a test prints is shown only when it fails.
pub(crate) fn say(figure: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(figure.as_bytes());
}
