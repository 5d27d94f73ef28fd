//! The sinks of all live hosts, and those that are down.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use outbox::node::{HostSink, live_sinks, sinks};
use outbox_event::{Route, SinkOutage, SinkStatus};
use outbox_store::NodeRecord;

use super::snapshot::Snapshot;

/// A sink that is down on at least one live host.
#[derive(Debug)]
pub(crate) struct DownSink {
    pub(crate) name: String,
    /// The hosts that find it down.
    pub(crate) hosts: Vec<String>,
    /// How many other live hosts have it.
    pub(crate) other_hosts: usize,
    /// The routes that are relayed to it; `more_routes` are not named.
    pub(crate) routes: Vec<Route>,
    pub(crate) more_routes: usize,
    /// How many events of these routes wait.
    pub(crate) waiting: u64,
    /// The outage that was noticed first.
    pub(crate) outage: SinkOutage,
}

/// The sinks of the live hosts as of the snapshot, but with the current sinks of this host. Those that are down come first, then those
/// with the most waiting events.
pub(crate) fn with_own(snapshot: &Snapshot, owner: &str, own: &[SinkStatus]) -> Vec<HostSink> {
    let of_node = |node: &NodeRecord| if node.owner == owner { own.to_vec() } else { sinks(node) };
    let mut all = live_sinks(&snapshot.nodes, &snapshot.routes, of_node);
    all.sort_by_key(|one| (!one.sink.is_down(), Reverse(one.waiting), one.sink.name.clone()));
    all
}

/// Whether any live host finds a sink down.
pub(crate) fn is_any_down(snapshot: &Snapshot) -> bool {
    snapshot.nodes.iter().filter(|node| node.alive).flat_map(sinks).any(|sink| sink.is_down())
}

/// The sinks that are down, those with the most waiting events first. Ignores hosts that stand aside, since other hosts deliver their
/// events.
pub(crate) fn down(snapshot: &Snapshot) -> Vec<DownSink> {
    let seen = live_sinks(
        &snapshot.nodes,
        &snapshot.routes,
        |node: &NodeRecord| if node.stands_aside() { Vec::new() } else { sinks(node) },
    );
    let mut all: BTreeMap<&str, DownSink> = BTreeMap::new();
    for HostSink { host, sink, waiting } in &seen {
        let Some(outage) = sink.outage.as_ref().filter(|_| sink.is_down()) else { continue };
        let one = all.entry(&sink.name).or_insert_with(|| DownSink {
            name: sink.name.clone(),
            hosts: Vec::new(),
            other_hosts: 0,
            routes: sink.routes.clone(),
            more_routes: sink.more_routes,
            waiting: 0,
            outage: outage.clone(),
        });
        one.hosts.push(host.clone());
        one.waiting = one.waiting.max(*waiting);
        if outage.since < one.outage.since {
            one.outage = outage.clone();
        }
    }
    for HostSink { sink, .. } in seen.iter().filter(|one| !one.sink.is_down()) {
        if let Some(one) = all.get_mut(sink.name.as_str()) {
            one.other_hosts += 1;
        }
    }
    let mut all: Vec<DownSink> = all.into_values().collect();
    all.sort_by_key(|one| Reverse(one.waiting));
    all
}
