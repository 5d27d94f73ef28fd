//! Hosts that are missing. Pure: rows in, rows out.

use std::time::Duration;

use crate::store::NodeRecord;
use crate::time::Timestamp;

/// How long a host that vanished is reported: after that it is taken to be gone for good.
const REPORTED_FOR: Duration = Duration::from_secs(15 * 60);
/// A host replaces another of its machine if it starts no earlier than a lease before the lease of the other ends. The lease of a killed
/// host may end after its successor has started. At least this long: the lease of the other may be longer than that of the asking host.
const LEAST_OVERLAP: Duration = Duration::from_secs(60);

/// The hosts that vanished in the last 15 minutes and that no later host of their machine has replaced, the oldest start first. Such a
/// host was killed, stands still, or cannot reach the database. A host that stops deletes its row; if it stops with events in flight, its
/// row remains and has no room. `now` is the database's time, `lease` that of the asking host.
#[must_use]
pub fn vanished(nodes: &[NodeRecord], now: Timestamp, lease: Duration) -> Vec<&NodeRecord> {
    let overlap = lease.max(LEAST_OVERLAP);
    let replaces = |node: &NodeRecord, gone: &NodeRecord| {
        node.started_at > gone.started_at
            && node.started_at.plus(overlap) > gone.alive_until
            && machine(&node.label) == machine(&gone.label)
    };
    let is_vanished = |gone: &&NodeRecord| {
        let is_recent = now.since(gone.alive_until) < REPORTED_FOR;
        !gone.alive && gone.room > 0 && is_recent && !nodes.iter().any(|node| replaces(node, gone))
    };
    nodes.iter().filter(is_vanished).collect()
}

/// The label of a host without the number of its process.
pub(crate) fn machine(label: &str) -> &str {
    label.rsplit_once(' ').map_or(label, |(machine, _)| machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::OwnerId;
    use crate::store::Node;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn node(label: &str, started: i64) -> NodeRecord {
        NodeRecord::new(&Node::new(OwnerId::generate("test"), label, "multi_node", "1.0.0"), at(started))
    }

    fn gone(label: &str, started: i64, until: i64) -> NodeRecord {
        changed!(NodeRecord { alive: false, alive_until: at(until), ..node(label, started) })
    }

    fn labels(nodes: &[NodeRecord], now: i64) -> Vec<&str> {
        vanished(nodes, at(now), Duration::ZERO).iter().map(|node| &*node.label).collect()
    }

    #[test]
    fn a_host_that_vanished_is_reported_for_fifteen_minutes() {
        let nodes = [node("web-1 10", 0), gone("web-2 10", 0, 1_000), node("web-3 10", 5)];
        assert_eq!(labels(&nodes, 1_000), ["web-2 10"]);
        assert_eq!(labels(&nodes, 1_899), ["web-2 10"]);
        assert!(labels(&nodes, 1_900).is_empty());
    }

    #[test]
    fn a_later_host_of_the_same_machine_replaces_one_that_vanished() {
        let with = |label: &str, started| [gone("web-1 10", 0, 1_000), node(label, started)];
        assert!(labels(&with("web-1 11", 2_000), 1_100).is_empty());
        assert!(labels(&with("web-1 11", 980), 1_100).is_empty(), "it started before the lease of the other ended");
        assert_eq!(labels(&with("web-1 11", 500), 1_100), ["web-1 10"], "both ran at the same time");
        assert_eq!(labels(&with("web-2 10", 1_010), 1_100), ["web-1 10"], "another machine");
    }

    #[test]
    fn a_long_lease_may_end_long_after_the_start_of_the_next_host() {
        let nodes = [gone("web-1 10", 0, 1_000), node("web-1 11", 500)];
        let missed = |lease| vanished(&nodes, at(1_100), Duration::from_secs(lease)).len();
        assert_eq!((missed(30), missed(600)), (1, 0));
    }

    #[test]
    fn a_host_that_stopped_with_events_in_flight_is_not_reported() {
        let stopped = changed!(NodeRecord { room: 0, ..gone("web-1 10", 0, 1_000) });
        assert!(labels(&[stopped], 1_010).is_empty());
    }

    #[test]
    fn a_host_that_crashes_again_and_again_is_reported_once() {
        let nodes = [gone("web-1 10", 0, 100), gone("web-1 11", 103, 140), gone("web-1 12", 142, 170)];
        assert_eq!(labels(&nodes, 180), ["web-1 12"]);
    }
}
