//! The sinks of all live hosts, and those that are down.

use std::cmp::Reverse;

use outbox::node::{DownSink, HostSink, delivering_sinks, live_sinks, sinks};
use outbox_event::SinkStatus;
use outbox_store::NodeRecord;

use super::snapshot::Snapshot;

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

/// The sinks that are down, those with the most waiting events first. Ignores hosts that stand aside.
pub(crate) fn down(snapshot: &Snapshot) -> Vec<DownSink> {
    DownSink::of(&delivering_sinks(&snapshot.nodes, &snapshot.routes))
}
