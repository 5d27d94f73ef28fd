//! A host among others, with the plugin `recorder`, and what it left in its log.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;
use support::history::History;
use support::sample_plugins;

use crate::program::{Place, signal};

/// What the environment of a host says beside its database.
pub(crate) type Settings<'a> = &'a [(&'a str, &'a str)];

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

    /// The lines of its log so far whose message begins like this.
    pub(crate) fn said(&self, message: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).expect("the log can be read");
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"].as_str().is_some_and(|text| text.starts_with(message))).collect()
    }

    /// How many of its outcomes came too late.
    pub(crate) fn fenced(&self) -> u64 {
        self.said("outcomes were dropped").iter().filter_map(|line| line["fenced"].as_u64()).sum()
    }

    fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
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
