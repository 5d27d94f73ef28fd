//! A host among others, with the plugin `recorder`, and what it left in its log.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::history::{History, Order, Report, Step};
use support::sample_plugins;

use crate::program::{PATIENCE, Place, signal};

/// What the environment of a host says beside its database.
pub(crate) type Settings<'a> = &'a [(&'a str, &'a str)];

/// How a message of the plugin begins: an object with a delivery.
const DELIVERY: &str = "{";

/// How hosts work together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    Any,
    ByAggregate,
}

impl Mode {
    /// As the configuration calls it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Any => "multi_node",
            Self::ByAggregate => "ordered_by_aggregate",
        }
    }

    /// What it promises.
    pub(crate) const fn order(self) -> Order {
        match self {
            Self::Any => Order::Any,
            Self::ByAggregate => Order::Strict,
        }
    }
}

/// A host whose log goes straight into a file: what it said before it was killed is there, and nobody has to listen. Killed when
/// dropped.
pub(crate) struct Node {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Node {
    /// Starts it; returns at once.
    pub(crate) fn start(place: &Place, number: usize, settings: Settings<'_>) -> Self {
        let plugins = place.path().join("plugins");
        fs::create_dir_all(&plugins).expect("can be made");
        fs::copy(sample_plugins().join("recorder.wasm"), plugins.join("recorder.wasm")).expect("can be copied");
        let name = format!("host-{number}");
        let log = place.path().join(&name).with_extension("log");
        let child = spawn(place, &log, settings);
        Self { name, log, child }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        assert!(self.runs(), "{} ran until it was killed: {}", self.name, self.tail());
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Starts it anew after its end; its log goes on.
    pub(crate) fn revive(&mut self, place: &Place, settings: Settings<'_>) {
        self.child = spawn(place, &self.log, settings);
    }

    /// Asks it to end. Returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().expect("it ends").code()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Whether it has not ended by itself.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }

    /// Waits until the log has so many lines with this message.
    pub(crate) fn wait_for(&mut self, message: &str, times: usize) {
        let started = Instant::now();
        while self.said(message).len() < times {
            assert!(
                started.elapsed() < PATIENCE && self.runs(),
                "expected within {PATIENCE:?}: {} says `{message}`: {}",
                self.name,
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The lines of its log so far whose message begins like this.
    pub(crate) fn said(&self, message: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).expect("the log can be read");
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with(message))).collect()
    }

    /// How many deliveries it told of so far.
    pub(crate) fn deliveries(&self) -> usize {
        self.said(DELIVERY).len()
    }

    /// Waits for so many deliveries from now on; returns how long it took.
    pub(crate) fn wait_for_deliveries(&mut self, more: usize) -> Duration {
        let started = Instant::now();
        self.wait_for(DELIVERY, self.deliveries() + more);
        started.elapsed()
    }

    /// What it warned of, and its errors, without what it says of single events.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let lines = self.said("").into_iter().filter(|line| line["level"] == "WARN" || line["level"] == "ERROR");
        lines.filter_map(|line| Some(line["message"].as_str()?.to_owned())).collect()
    }

    /// How many of its outcomes came too late.
    pub(crate) fn fenced(&self) -> u64 {
        self.said("outcomes were dropped").iter().filter_map(|line| line["fenced"].as_u64()).sum()
    }

    fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing to do when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next kill may well meet it before it delivers anything.
fn spawn(place: &Place, log: &PathBuf, settings: Settings<'_>) -> Child {
    let mut command = place.command(&["run", "--plugins", "plugins", "--log", "info"]);
    let log = File::options().create(true).append(true).open(log).expect("the log can be written");
    command.env("OUTBOX_LOG__FORMAT", "json").envs(settings.iter().copied()).stdout(Stdio::null()).stderr(log);
    command.spawn().expect("the program can be started")
}

/// Everything that the writers and these hosts recorded.
pub(crate) fn history(place: &Place, nodes: &[Node]) -> History {
    let mut history = History::default();
    for entry in fs::read_dir(place.path()).expect("the directory is there").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "jsonl") {
            history.read(&entry.path());
        }
    }
    for node in nodes {
        history.read_host_log(&node.log, &node.name);
    }
    history
}

/// Waits until nothing is left to do; returns how long it took. Some hundred events a second are delivered at the least.
pub(crate) fn wait_until_all_is_delivered(place: &Place, events: usize) -> Duration {
    let patience = PATIENCE + Duration::from_millis(10) * u32::try_from(events).expect("small");
    let started = Instant::now();
    loop {
        let stats = place.json(&["stats", "--output", "json"]);
        if ["new", "retry", "in_flight", "blocked"].iter().all(|name| stats[name].as_u64() == Some(0)) {
            return started.elapsed();
        }
        assert!(started.elapsed() < patience, "expected within {patience:?}: every event is delivered: {stats}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until everything is delivered, stops the hosts, and proves that nothing is lost, nothing came after a rollback,
/// nothing half, and all in this order. Tells the figures under this title.
pub(crate) fn conclude(title: &str, place: &Place, nodes: &mut [Node], events: usize, order: Order) {
    wait_until_all_is_delivered(place, events);
    for node in &mut *nodes {
        assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well: {}", node.tail());
    }
    let history = history(place, nodes);
    let report = history.check(order);
    let unknown = history.lines().iter().filter(|line| matches!(line.step, Step::Unknown { .. })).count();
    let fenced: u64 = nodes.iter().map(Node::fenced).sum();
    say(&format!(
        "{title}: {} committed, {} rolled back, {unknown} transactions of unknown end, {} deliveries, {fenced} fenced; {report}\n",
        history.committed(),
        history.rolled_back(),
        history.deliveries().len(),
    ));
    // No transaction has more than five events.
    assert!(history.committed() + 5 * unknown >= events, "the writers did their part");
    assert_eq!(report.without_duplicates(), Report::default());
    assert_eq!((place.stat("dead"), place.stat("parked")), (0, 0));
}

/// Shown in any case: what a test prints is shown only when it fails.
pub(crate) fn say(figure: &str) {
    let _ = std::io::stderr().write_all(figure.as_bytes());
}
