//! The plugins of all live hosts, each once, and how the pages show their states.

use std::collections::BTreeMap;

use outbox::node::plugins;
use outbox_event::{PluginState, PluginStatus, PluginSwap};
use outbox_store::NodeRecord;

/// A plugin, and the labels of the live hosts that report it in the same version and state.
#[derive(Debug)]
pub(crate) struct LivePlugin {
    pub(crate) plugin: PluginStatus,
    pub(crate) hosts: Vec<String>,
}

/// The plugins of all live hosts by name; one that differs between hosts is listed once for each version and state.
pub(crate) fn of_all(nodes: &[NodeRecord]) -> Vec<LivePlugin> {
    of_hosts(nodes, plugins)
}

/// As [`of_all`], but with the current and complete plugins of this host: what hosts report to others is limited in size.
pub(crate) fn with_own(nodes: &[NodeRecord], owner: &str, own: &[PluginStatus]) -> Vec<LivePlugin> {
    of_hosts(nodes, |node| if node.owner == owner { own.to_vec() } else { plugins(node) })
}

fn of_hosts(nodes: &[NodeRecord], plugins: impl Fn(&NodeRecord) -> Vec<PluginStatus>) -> Vec<LivePlugin> {
    let mut all: BTreeMap<(String, String, &'static str), LivePlugin> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.alive) {
        for plugin in plugins(node) {
            let key = (plugin.name.clone(), plugin.digest.clone().unwrap_or_default(), plugin.state.word());
            all.entry(key).or_insert_with(|| LivePlugin { plugin, hosts: Vec::new() }).hosts.push(node.label.clone());
        }
    }
    all.into_values().collect()
}

/// The colour class and the symbol of a state.
pub(crate) const fn badge(state: PluginState) -> (&'static str, &'static str) {
    match state {
        PluginState::Serving | PluginState::Loads => ("done", "●"),
        PluginState::ServingOlder | PluginState::OlderLoads => ("retry", "↻"),
        PluginState::Failed => ("dead", "✕"),
        PluginState::Loading => ("in-flight", "◐"),
        PluginState::BreakerOpen => ("parked", "‖"),
        PluginState::Unknown => ("waiting", "○"),
    }
}

/// What became of a file, in words.
pub(crate) fn result(swap: &PluginSwap) -> &str {
    match swap.result.as_str() {
        "loaded" => "loaded",
        "swapped" => "replaced the previous version",
        "failed" => "failed to load",
        "last_good" => "serving again, because the new file failed to load",
        other => other,
    }
}
