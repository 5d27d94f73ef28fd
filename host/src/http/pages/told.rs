//! What hosts tell of their plugins, as every program can read it: the JSON list of a heartbeat. Read here by its field names, so that
//! the pages work in a program that is built without plugins.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::event::Route;
use crate::store::NodeRecord;
use crate::time::Timestamp;

/// One plugin, as a host tells of it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Told {
    /// The file's name without `.wasm`.
    pub(super) name: String,
    /// What the serving component says.
    #[serde(default)]
    pub(super) version: Option<String>,
    /// SHA-256 in hex.
    #[serde(default)]
    pub(super) digest: Option<String>,
    pub(super) state: State,
    /// What it answers; of many the first 100.
    #[serde(default)]
    pub(super) routes: Vec<Route>,
    /// How many routes it answers beside those.
    #[serde(default)]
    pub(super) more_routes: usize,
    /// Why the file as it is now does not serve.
    #[serde(default)]
    pub(super) error: Option<String>,
    /// What the serving component asks for, and what it is granted.
    #[serde(default)]
    pub(super) capabilities: Vec<Capability>,
    /// What one call may use.
    #[serde(default)]
    pub(super) limits: Option<Limits>,
    /// What became of its file, newest first.
    #[serde(default)]
    pub(super) swaps: Vec<Swap>,
}

/// Something outside of the sandbox.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Capability {
    pub(super) name: String,
    pub(super) asked: bool,
    pub(super) granted: Option<String>,
    /// What to add to the manifest.
    pub(super) to_add: Option<String>,
}

/// What one call may use.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Limits {
    pub(super) fuel: u64,
    pub(super) deadline_ms: u64,
    pub(super) memory_bytes: u64,
    pub(super) host_calls: u64,
    pub(super) concurrency: Option<u64>,
}

/// A change of what serves.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Swap {
    pub(super) at: Timestamp,
    pub(super) result: String,
    #[serde(default)]
    pub(super) version: Option<String>,
    #[serde(default)]
    pub(super) digest: Option<String>,
}

impl Swap {
    /// What happened, in words.
    pub(super) fn words(&self) -> &str {
        match self.result.as_str() {
            "loaded" => "loaded",
            "swapped" => "took the place of the version before",
            "failed" => "did not load",
            "last_good" => "serves again, since the file does not load",
            other => other,
        }
    }
}

/// Whether a plugin answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Serving,
    /// The version before answers, since the file as it is now does not load.
    ServingOlder,
    Failed,
    Loading,
    /// It broke so often that it rests for a while.
    Paused,
    /// A state of a later version of this program.
    #[default]
    #[serde(other)]
    Unknown,
}

impl State {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::ServingOlder => "serving an older version",
            Self::Failed => "failed",
            Self::Loading => "loading",
            Self::Paused => "paused after failures",
            Self::Unknown => "unknown",
        }
    }

    /// Colour class and shape.
    pub(super) const fn look(self) -> (&'static str, &'static str) {
        match self {
            Self::Serving => ("done", "●"),
            Self::ServingOlder => ("retry", "↻"),
            Self::Failed => ("dead", "✕"),
            Self::Loading => ("in-flight", "◐"),
            Self::Paused => ("parked", "‖"),
            Self::Unknown => ("waiting", "○"),
        }
    }
}

impl Told {
    /// The first 12 digits of the digest, by which people know it.
    pub(super) fn short_digest(&self) -> &str {
        let digest = self.digest.as_deref().unwrap_or("–");
        digest.get(..12).unwrap_or(digest)
    }
}

/// The plugins that a host has told of; none when it has told nothing that can be read.
pub(super) fn of_node(node: &NodeRecord) -> Vec<Told> {
    node.plugins.as_deref().and_then(|told| serde_json::from_str(told).ok()).unwrap_or_default()
}

/// A plugin, and the labels of the live hosts that tell the same of it.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) told: Told,
    pub(super) hosts: Vec<String>,
}

/// The plugins of all live hosts by name; one that differs between hosts is there once for each difference.
pub(super) fn of_all(nodes: &[NodeRecord]) -> Vec<Plugin> {
    of_hosts(nodes, of_node)
}

/// As [`of_all`], with the plugins of the host that answers as they are now and whole: what it tells others is cut to a bound.
pub(super) fn with_own(nodes: &[NodeRecord], owner: &str, own: &[serde_json::Value]) -> Vec<Plugin> {
    let read = |value: &serde_json::Value| Told::deserialize(value).ok();
    of_hosts(nodes, |node| if node.owner == owner { own.iter().filter_map(read).collect() } else { of_node(node) })
}

fn of_hosts(nodes: &[NodeRecord], plugins: impl Fn(&NodeRecord) -> Vec<Told>) -> Vec<Plugin> {
    let mut all: BTreeMap<(String, String, &'static str), Plugin> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.alive) {
        for told in plugins(node) {
            let key = (told.name.clone(), told.digest.clone().unwrap_or_default(), told.state.word());
            all.entry(key).or_insert_with(|| Plugin { told, hosts: Vec::new() }).hosts.push(node.label.clone());
        }
    }
    all.into_values().collect()
}
