//! A host among others, with the plugin `recorder`, and what it left in its log.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::history::{FaultKind, History, Order, Report, Rules};
use support::{Trouble, Witness, sample_plugins};

use crate::program::{LOOK_AGAIN, PATIENCE, Place, signal};

/// What the environment of a host says beside its database.
pub(crate) type Settings<'a> = &'a [(&'a str, &'a str)];

/// Leases short enough to wait for, and so long that a busy machine alone does not end them.
pub(crate) const SHORT_LEASES: Settings<'_> = &[
    ("OUTBOX_DISPATCHER__LEASE", "6s"),
    ("OUTBOX_DISPATCHER__DEADLINE", "4s"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
    ("OUTBOX_RETRY__POLICY", "fixed"),
    ("OUTBOX_RETRY__BASE", "100ms"),
];

/// How a message of the plugin begins that tells of the end of a call.
const DELIVERY: &str = "{\"ending\"";

/// How long these hosts rest after a failure: what the settings of every test here say.
pub(crate) const RETRY: Duration = Duration::from_millis(100);

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
    pub(crate) fn rules(self) -> Rules {
        let order = match self {
            Self::Any => Order::Any,
            Self::ByAggregate => Order::Strict,
        };
        Rules { order, retry: RETRY, ..Rules::default() }
    }
}

/// A host whose log goes straight into a file: what it said before it was killed is there, and nobody has to listen. Killed when
/// dropped.
pub(crate) struct Node {
    name: String,
    log: PathBuf,
    /// How long its log was when it was started last, in bytes.
    log_before: u64,
    /// How much of its log was looked at by waits for a line, in bytes.
    log_seen: u64,
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
        Self { name, log, log_before: 0, log_seen: 0, child }
    }

    /// `kill -9`. Returns how many events it held.
    pub(crate) fn kill(&mut self, witness: &Witness) -> usize {
        assert!(self.runs(), "{} ran until it was killed: {}", self.name, self.tail());
        let name = self.name.clone();
        let killed = witness.trouble(&name, FaultKind::Killed, self.child.id(), || {
            self.child.kill().expect("it runs");
            self.child.wait().expect("it ends");
        });
        witness.over(killed)
    }

    /// Something is done to it by `act`, until [`Witness::over`].
    pub(crate) fn trouble(&self, witness: &Witness, kind: FaultKind, act: impl FnOnce()) -> Trouble {
        witness.trouble(&self.name, kind, self.child.id(), act)
    }

    /// The same, while the database is away.
    pub(crate) fn unseen(&self, witness: &Witness, act: impl FnOnce()) -> Trouble {
        witness.unseen(&self.name, FaultKind::CutOff, act)
    }

    /// Waits until its lease ends this much later or more.
    pub(crate) fn wait_for_lease(&self, witness: &Witness, left: Duration) {
        let started = Instant::now();
        while witness.lease_left(self.child.id()) < left {
            assert!(
                started.elapsed() < PATIENCE,
                "expected within {PATIENCE:?}: {} renews its lease: {}",
                self.name,
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts it anew after its end; its log goes on.
    pub(crate) fn revive(&mut self, place: &Place, settings: Settings<'_>) {
        self.log_before = fs::metadata(&self.log).expect("it was started before").len();
        self.child = spawn(place, &self.log, settings);
    }

    /// Waits until it is ready, asks it to end, and waits for that. Returns its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        let started = Instant::now();
        while !self.is_ready() {
            assert!(
                started.elapsed() < PATIENCE && self.runs(),
                "expected within {PATIENCE:?}: {} is ready: {}",
                self.name,
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        self.end()
    }

    /// Whether it has said so since its last start.
    fn is_ready(&self) -> bool {
        let mut log = File::open(&self.log).expect("the log is there");
        log.seek(SeekFrom::Start(self.log_before)).expect("the log can be read");
        let mut said = String::new();
        log.read_to_string(&mut said).expect("the log can be read");
        said.contains(r#""message":"ready""#)
    }

    /// Asks it to end, ready or not, and waits for that. Returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.signal("TERM");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status.code();
            }
            assert!(started.elapsed() < PATIENCE, "expected within {PATIENCE:?}: {} ends: {}", self.name, self.tail());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The ID of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Whether it has not ended by itself.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_none()
    }

    /// Waits until the log has this many lines with this message.
    pub(crate) fn wait_for(&mut self, message: &str, times: usize) {
        self.wait_for_any(&[message], times);
    }

    /// Waits until the log has this many lines with any of these messages.
    pub(crate) fn wait_for_any(&mut self, messages: &[&str], times: usize) {
        let started = Instant::now();
        while messages.iter().map(|message| self.said(message).len()).sum::<usize>() < times {
            assert!(
                started.elapsed() < PATIENCE && self.runs(),
                "expected within {PATIENCE:?}: {} says one of {messages:?}: {}",
                self.name,
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the log has a line like this. Each line is looked at once: a later wait begins behind the lines of this one,
    /// since a long run logs more than can be read each time.
    pub(crate) fn wait_for_line(&mut self, what: &str, is_wanted: impl Fn(&Value) -> bool) {
        let started = Instant::now();
        while !self.lines_not_seen().iter().any(&is_wanted) {
            let name = self.name.clone();
            assert!(
                started.elapsed() < PATIENCE && self.runs(),
                "expected within {PATIENCE:?}: {name}: {what}: {}",
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The digests of the plugins that calls ended in, in the order of the calls.
    pub(crate) fn digests(&self) -> Vec<String> {
        self.said(DELIVERY).iter().filter_map(|line| line["digest"].as_str().map(str::to_owned)).collect()
    }

    /// The whole lines that nobody has waited for yet.
    fn lines_not_seen(&mut self) -> Vec<Value> {
        let mut log = File::open(&self.log).expect("the log is there");
        log.seek(SeekFrom::Start(self.log_seen)).expect("the log can be read");
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).expect("the log can be read");
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.log_seen += whole as u64;
        bytes[..whole].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).expect("the log can be read");
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The lines of its log so far whose message begins like this.
    pub(crate) fn said(&self, message: &str) -> Vec<Value> {
        let lines = self.lines().into_iter();
        lines.filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with(message))).collect()
    }

    /// How many deliveries it told of so far.
    pub(crate) fn deliveries(&self) -> usize {
        self.said(DELIVERY).len()
    }

    /// Waits for this many deliveries from now on; returns how long it took.
    pub(crate) fn wait_for_deliveries(&mut self, more: usize) -> Duration {
        let started = Instant::now();
        self.wait_for(DELIVERY, self.deliveries() + more);
        started.elapsed()
    }

    /// The most memory that it has ever had, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux tells");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib / 1024
    }

    /// What it warned of, and its errors, without what it says of single events.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let lines = self.said("").into_iter().filter(|line| line["level"] == "WARN" || line["level"] == "ERROR");
        let messages = lines.filter_map(|line| Some(line["message"].as_str()?.to_owned()));
        // The listener of these tests fails now and then, as it is asked to.
        messages.filter(|message| !message.starts_with("an attempt failed")).collect()
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

/// Everything that the writers, these hosts and the witness recorded, and the table as it is now.
pub(crate) fn history(place: &Place, nodes: &[Node], witness: &Witness) -> History {
    witness.record_table();
    let mut history = History::default();
    history.read_all(place.path());
    for node in nodes {
        history.read_host_log(&node.log, &node.name);
    }
    history
}

/// Waits until the writers have written everything.
pub(crate) fn wait_for_writers(writers: JoinHandle<()>, events: usize) {
    let patience = patience(events);
    let started = Instant::now();
    while !writers.is_finished() {
        assert!(started.elapsed() < patience, "expected within {patience:?}: everything is written");
        std::thread::sleep(Duration::from_millis(20));
    }
    writers.join().expect("everything is written");
}

/// Some hundred events a second are written and delivered at the least.
pub(crate) fn patience(events: usize) -> Duration {
    PATIENCE + Duration::from_millis(20) * u32::try_from(events).expect("small")
}

/// Waits until nothing is left to do; returns how long it took.
pub(crate) fn wait_until_all_is_delivered(place: &Place, events: usize) -> Duration {
    let patience = patience(events);
    let started = Instant::now();
    loop {
        let stats = place.json(&["stats", "--output", "json"]);
        // Hosts park events until they have compiled the plugin.
        if ["new", "retry", "in_flight", "blocked", "parked"].iter().all(|name| stats[name].as_u64() == Some(0)) {
            return started.elapsed();
        }
        assert!(started.elapsed() < patience, "expected within {patience:?}: every event is delivered: {stats}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Waits until everything is delivered, stops the hosts, and proves that nothing but duplicates came of the troubles, and these
/// only of what the hosts held then. Tells the figures under this title.
pub(crate) fn conclude(title: &str, place: &Place, nodes: &mut [Node], events: usize, rules: &Rules, witness: &Witness) {
    wait_until_all_is_delivered(place, events);
    for node in &mut *nodes {
        assert_eq!(node.stop(), Some(0), "a host that is asked to stop ends well: {}", node.tail());
    }
    let history = history(place, nodes, witness);
    let report = history.check(rules);
    let fenced: u64 = nodes.iter().map(Node::fenced).sum();
    say(&format!(
        "{title}: {} committed, {} rolled back, {} of unknown end, {} deliveries, {fenced} fenced; {report}\n",
        history.committed(),
        history.rolled_back(),
        history.unknown(),
        history.deliveries(),
    ));
    assert!(history.committed() + history.unknown() >= events, "the writers did their part");
    assert_eq!(report.clone().without_duplicates(), Report::default(), "{report}");
    assert_eq!((place.stat("dead"), place.stat("parked")), (0, 0));
}

/// Shown in any case: what a test prints is shown only when it fails.
pub(crate) fn say(figure: &str) {
    let _ = std::io::stderr().write_all(figure.as_bytes());
}
