//! A network between host and database that cuts connections, or goes silent.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use support::history::FaultKind;
use support::{Faults, Network, Proxy, Witness, Writers, sample_plugins};
use tokio::runtime::Runtime;

use crate::home::Home;
use crate::node::{Mode, Node, SHORT_LEASES, conclude, patience, say, wait_for_writers, wait_until_all_is_delivered};
use crate::program::Place;

const EVENTS: usize = 1_000;

/// How many bytes of the server's arrive before a connection is cut: within headers, within rows, and behind a commit's answer.
const CUTS: [u64; 40] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 21, 24, 27, 30, 35, 40, 45, 50, 60, 70, 85, 100, 130, 160,
    200, 300, 450, 700, 1_000, 1_500, 2_500, 4_000,
];

/// The plan of the cuts: how long each is, and how long it is until the next.
const CUT_FOR: Duration = Duration::from_millis(60);
const BETWEEN_CUTS: Duration = Duration::from_millis(150);
/// How much of its lease the host has left before a cut. Without a lease it repeats calls that no cut interrupted.
const LEASE_BEFORE_A_CUT: Duration = Duration::from_secs(3);

/// A proxy in front of a database of its own.
struct Wire {
    proxy: Proxy,
    /// The database's address, through the proxy.
    url: String,
    place: Place,
    mode: Mode,
    /// What the proxy lives on; the last to go.
    _runtime: Runtime,
}

impl Wire {
    fn to(home: Home, mode: Mode) -> Self {
        sample_plugins();
        let place = Place::on(home);
        let runtime = Runtime::new().expect("threads can be started");
        let proxy = runtime.block_on(Proxy::in_front_of(server_of(place.url())));
        Self { url: proxy.url(place.url()), proxy, place, mode, _runtime: runtime }
    }

    /// A host behind the proxy.
    fn far(&self, number: usize) -> Node {
        self.node(number, &self.url)
    }

    /// A host beside the database.
    fn near(&self, number: usize) -> Node {
        self.node(number, self.place.url())
    }

    fn node(&self, number: usize, url: &str) -> Node {
        let settings = [("OUTBOX_DATABASE_URL", url), ("OUTBOX_MODE", self.mode.name())];
        Node::start(&self.place, number, &[SHORT_LEASES, &settings].concat())
    }
}

fn server_of(url: &str) -> SocketAddr {
    let (_, rest) = url.rsplit_once('@').expect("the URL names an account");
    let (host, _) = rest.split_once('/').expect("the URL names a database");
    let port = host.rsplit_once(':').map_or(host, |(_, port)| port);
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().expect("the URL names a port")))
}

#[test]
fn nothing_is_lost_however_early_or_late_connections_are_cut_on_postgres() {
    nothing_is_lost_however_early_or_late_connections_are_cut("PostgreSQL", &Wire::to(Home::on_postgres(), Mode::Any));
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn nothing_is_lost_however_early_or_late_connections_are_cut_in_order_on_postgres() {
    nothing_is_lost_however_early_or_late_connections_are_cut("PostgreSQL", &Wire::to(Home::on_postgres(), Mode::ByAggregate));
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn nothing_is_lost_however_early_or_late_connections_are_cut_on_mysql() {
    nothing_is_lost_however_early_or_late_connections_are_cut("MySQL", &Wire::to(Home::on_mysql(), Mode::Any));
}

#[test]
fn nothing_is_lost_however_early_or_late_connections_are_cut_in_order_on_mysql() {
    nothing_is_lost_however_early_or_late_connections_are_cut("MySQL", &Wire::to(Home::on_mysql(), Mode::ByAggregate));
}

fn nothing_is_lost_however_early_or_late_connections_are_cut(name: &str, wire: &Wire) {
    let mut node = wire.far(0);
    node.wait_for("ready", 1);
    let (rest, takes) = (Duration::from_millis(10), Duration::from_millis(5));
    let writers = Writers { writers: 4, events: EVENTS, rest, takes, faults: Faults::Expected };
    let writers = writers.start(&wire.url, wire.place.path());
    node.wait_for_deliveries(20);

    let witness = Witness::of(wire.place.url(), wire.place.path());
    let (mut cuts, started) = (0, Instant::now());
    while cuts < CUTS.len() || !writers.is_finished() {
        assert!(started.elapsed() < patience(EVENTS), "expected within {:?}: everything is written", patience(EVENTS));
        node.wait_for_lease(&witness, LEASE_BEFORE_A_CUT);
        let cut = node.trouble(&witness, FaultKind::CutOff, || wire.proxy.set(Network::CutAfter(CUTS[cuts % CUTS.len()])));
        thread::sleep(CUT_FOR);
        witness.over(cut);
        wire.proxy.set(Network::Pass);
        thread::sleep(BETWEEN_CUTS);
        cuts += 1;
    }
    wait_for_writers(writers, EVENTS);

    let title = format!("{name}, {}, {cuts} cuts", wire.mode.name());
    conclude(&title, &wire.place, &mut [node], EVENTS, &wire.mode.rules(), &witness);
}

#[test]
fn a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing_on_postgres() {
    a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing("PostgreSQL", &Wire::to(Home::on_postgres(), Mode::Any));
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing_in_order_on_postgres() {
    a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing(
        "PostgreSQL",
        &Wire::to(Home::on_postgres(), Mode::ByAggregate),
    );
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing_on_mysql() {
    a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing("MySQL", &Wire::to(Home::on_mysql(), Mode::Any));
}

#[test]
fn a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing_in_order_on_mysql() {
    a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing("MySQL", &Wire::to(Home::on_mysql(), Mode::ByAggregate));
}

fn a_host_that_was_cut_off_for_longer_than_its_leases_changes_nothing(name: &str, wire: &Wire) {
    let mut far = wire.far(0);
    far.wait_for("ready", 1);
    let (rest, takes) = (Duration::from_millis(5), Duration::from_millis(20));
    let writers = Writers { writers: 4, events: EVENTS, rest, takes, faults: Faults::None };
    let writers = writers.start(wire.place.url(), wire.place.path());
    far.wait_for_deliveries(20);

    let witness = Witness::of(wire.place.url(), wire.place.path());
    let cut = far.trouble(&witness, FaultKind::CutOff, || wire.proxy.set(Network::HalfOpen));
    let mut near = wire.near(1);
    wait_for_writers(writers, EVENTS);
    // What the other one holds is delivered here as soon as its leases end.
    let taken_over = wait_until_all_is_delivered(&wire.place, EVENTS);
    witness.over(cut);
    wire.proxy.set(Network::Pass);
    // Whether it held an outcome when it was cut off, or events that it had not begun with, or nothing, is a matter of a moment.
    let back = ["outcomes were dropped", "lease lost;", "this host has a session again"];
    far.wait_for_any(&back, 1);

    say(&format!("{name}, half-open: all delivered by another host {taken_over:.1?} after the last write\n"));
    assert!(near.runs(), "the other host was not disturbed");
    conclude(
        &format!("{name}, {}, a host behind a half-open network", wire.mode.name()),
        &wire.place,
        &mut [far, near],
        EVENTS,
        &wire.mode.rules(),
        &witness,
    );
}
