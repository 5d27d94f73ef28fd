//! Three hosts on one database, of which one is killed every second while programs write.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use support::history::{History, Order, Report};
use support::{Writers, sample_plugins};

use crate::program::{PATIENCE, Place};

const HOSTS: usize = 3;

/// How many events are written, unless `OUTBOX_TEST_EVENTS` says more.
const EVENTS: usize = 3_000;

/// Written a little faster than all workers together can deliver: a kill finds every host at work, and with a backlog.
const REST: Duration = Duration::from_millis(5);
const TAKES: Duration = Duration::from_millis(20);

/// So many kills at least, also when everything is written before.
const KILLS: usize = 5;

/// Leases short enough to wait for, and long enough that a host on a busy machine renews them in time: an expired one would be
/// one more way to a duplicate. A short queue, so that little is in flight and the bound on duplicates means something.
const SETTINGS: [(&str, &str); 10] = [
    ("OUTBOX_LOG__FORMAT", "json"),
    ("OUTBOX_MODE", "multi_node"),
    ("OUTBOX_DISPATCHER__LEASE", "6s"),
    ("OUTBOX_DISPATCHER__DEADLINE", "2s"),
    // In a long run some event meets many kills, none of them its fault.
    ("OUTBOX_DISPATCHER__MAX_CLAIMS", "100"),
    ("OUTBOX_DISPATCHER__COLD_QUEUE", "16"),
    ("OUTBOX_POLLER__DRAIN_BATCH_SIZE", "16"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
    ("OUTBOX_RETRY__POLICY", "fixed"),
    ("OUTBOX_RETRY__BASE", "100ms"),
];

#[test]
fn three_hosts_killed_in_turn_lose_nothing_and_repeat_only_what_was_in_flight_on_sqlite() {
    three_hosts_killed_in_turn(&Place::migrated());
}

fn three_hosts_killed_in_turn(place: &Place) {
    let events = events();
    let mut hosts: Vec<Host> = (0..HOSTS).map(|name| Host::start(place, name)).collect();
    let writers = Writers { writers: 4, events, rest: REST, takes: TAKES }.start(place.url(), place.path());

    let (mut kills, mut in_flight) = (0, 0);
    while kills < KILLS || !writers.is_finished() {
        std::thread::sleep(Duration::from_secs(1)); // the plan of the kills, not a wait for something
        hosts[kills % HOSTS].kill();
        // All that is claimed by anybody: at least what the killed host had in its hands.
        in_flight += place.stat("in_flight");
        hosts[kills % HOSTS].revive(place);
        kills += 1;
    }
    writers.join().expect("everything is written");
    wait_until_all_is_delivered(place);
    for host in &mut hosts {
        assert_eq!(host.stop(), Some(0), "a host that is asked to stop ends well");
    }

    let history = history(place, &hosts);
    let report = history.check(Order::Any);
    say(&format!(
        "{HOSTS} hosts, {kills} kills, {in_flight} events in flight at them: {} committed, {} rolled back, {} deliveries; {report}\n",
        history.committed(),
        history.rolled_back(),
        history.deliveries().len(),
    ));
    assert!(history.committed() >= events && history.rolled_back() > 0, "the writers did their part");
    assert!(history.torn() <= kills, "{} lines are not whole", history.torn());
    assert!(u64::try_from(report.duplicates).expect("small") <= in_flight, "{report}");
    assert_eq!(report.without_duplicates(), Report::default());
    assert_eq!((place.stat("dead"), place.stat("parked")), (0, 0));
}

/// Waits until nothing is left to do. Some hundred events a second are delivered at the least.
fn wait_until_all_is_delivered(place: &Place) {
    let patience = PATIENCE + Duration::from_millis(10) * u32::try_from(events()).expect("small");
    let started = Instant::now();
    loop {
        let stats = place.json(&["stats", "--output", "json"]);
        if ["new", "retry", "in_flight"].iter().all(|name| stats[name].as_u64() == Some(0)) {
            return;
        }
        assert!(started.elapsed() < patience, "expected within {patience:?}: every event is delivered: {stats}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn history(place: &Place, hosts: &[Host]) -> History {
    let mut history = History::default();
    for entry in fs::read_dir(place.path()).expect("the directory is there").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "jsonl") {
            history.read(&entry.path());
        }
    }
    for host in hosts {
        history.read_host_log(&host.log, &host.name);
    }
    history
}

/// A host whose log goes straight into a file: what it said before it was killed is there, and nobody has to listen.
struct Host {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Host {
    fn start(place: &Place, number: usize) -> Self {
        let plugins = place.path().join("plugins");
        fs::create_dir_all(&plugins).expect("can be made");
        fs::copy(sample_plugins().join("recorder.wasm"), plugins.join("recorder.wasm")).expect("can be copied");
        let name = format!("host-{number}");
        let log = place.path().join(&name).with_extension("log");
        let child = spawn(place, &log);
        Self { name, log, child }
    }

    /// `kill -9`.
    fn kill(&mut self) {
        assert_eq!(self.child.try_wait().expect("it can be waited for"), None, "{} ran until it was killed", self.name);
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn revive(&mut self, place: &Place) {
        self.child = spawn(place, &self.log);
    }

    /// Asks it to end. Returns its exit code.
    fn stop(&mut self) -> Option<i32> {
        crate::program::signal(&self.child, "TERM");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Nothing to do when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a host; returns at once. The next kill may well meet it before it delivers anything.
fn spawn(place: &Place, log: &PathBuf) -> Child {
    let mut command = place.command(&["run", "--plugins", "plugins", "--log", "info"]);
    let log = File::options().create(true).append(true).open(log).expect("the log can be written");
    command.envs(SETTINGS).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("the program can be started")
}

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for through the environment")]
fn events() -> usize {
    std::env::var("OUTBOX_TEST_EVENTS").ok().map_or(EVENTS, |events| events.parse().expect("OUTBOX_TEST_EVENTS is a number"))
}

/// Shown in any case: what a test prints is shown only when it fails.
fn say(figure: &str) {
    let _ = std::io::stderr().write_all(figure.as_bytes());
}
