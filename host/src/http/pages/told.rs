//! What hosts tell of their plugins, as every program can read it: the JSON list of a heartbeat. Read here by its field names, so that
//! the pages work in a program that is built without plugins.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::event::Route;
use crate::store::NodeRecord;

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
    let mut all: BTreeMap<(String, String, &'static str), Plugin> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.alive) {
        for told in of_node(node) {
            let key = (told.name.clone(), told.digest.clone().unwrap_or_default(), told.state.word());
            all.entry(key).or_insert_with(|| Plugin { told, hosts: Vec::new() }).hosts.push(node.label.clone());
        }
    }
    all.into_values().collect()
}
