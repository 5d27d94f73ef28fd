//! The sinks that routes are relayed to, for the list of routes.

use std::collections::BTreeMap;

use outbox::node::{HostSink, Relays, SinkStatus};
use outbox::store::{NodeRecord, RouteRecord};
use outbox::time::Timestamp;

use crate::output::{count, short, span};

/// The sinks of each live host. Skips hosts that stand aside, since other hosts deliver their events.
pub(super) fn by_host(sinks: Vec<HostSink>, nodes: &[NodeRecord]) -> Vec<Vec<SinkStatus>> {
    let delivers = |label: &str| nodes.iter().any(|node| node.label == label && node.delivers());
    let mut hosts: BTreeMap<String, Vec<SinkStatus>> = BTreeMap::new();
    for HostSink { host, sink, .. } in sinks {
        hosts.entry(host).or_default().push(sink);
    }
    hosts.into_iter().filter(|(label, _)| delivers(label)).map(|(_, sinks)| sinks).collect()
}

/// The sink that a route is relayed to.
pub(super) struct RouteSink<'s> {
    pub(super) name: &'s str,
    /// Since when it has been down on all hosts that find it down; `None` if it is down on no host.
    pub(super) down_since: Option<Timestamp>,
    /// How many hosts find it down.
    pub(super) down_on: usize,
    /// How many hosts relay the route to it.
    pub(super) hosts: usize,
}

impl<'s> RouteSink<'s> {
    /// The sink of a route; if hosts relay it to different sinks, the one that has been down for the longest time. `None` if the
    /// route is not relayed.
    pub(super) fn of(hosts: &[Relays<'s>], route: &RouteRecord) -> Option<Self> {
        let down_since = |sink: &SinkStatus| sink.outage.as_ref().filter(|_| sink.is_down()).map(|outage| outage.since);
        let on_hosts: Vec<&'s SinkStatus> = hosts.iter().filter_map(|relays| relays.sink(route)).collect();
        let first = on_hosts.iter().copied().min_by_key(|sink| (down_since(sink).is_none(), down_since(sink)))?;
        let same: Vec<&SinkStatus> = on_hosts.into_iter().filter(|sink| sink.name == first.name).collect();
        Some(Self {
            name: &first.name,
            down_since: same.iter().filter_map(|sink| down_since(sink)).max(),
            down_on: same.iter().filter(|sink| down_since(sink).is_some()).count(),
            hosts: same.len(),
        })
    }

    /// `orders`, `orders: down for 4 min`, or `orders: down for 4 min on 1 of 2 hosts`
    pub(super) fn words(&self, now: Timestamp) -> String {
        let name = short(self.name, 40);
        let Some(since) = self.down_since else { return name };
        let hosts = if self.down_on < self.hosts {
            format!(" on {} of {}", self.down_on, count(self.hosts as u64, "host"))
        } else {
            String::new()
        };
        format!("{name}: down for {}{hosts}", span(now.since(since)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox::Route;
    use outbox::event::OwnerId;
    use outbox::node::{SinkOutage, SinkState};
    use outbox::store::{ListenerReport, Node, StalledRoute};

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    fn on_host(host: &str, outage: Option<u64>) -> HostSink {
        let outage = outage.map(|seconds| SinkOutage {
            since: NOW.minus(Duration::from_secs(seconds)),
            reason: "connection refused".to_owned(),
            next_try: NOW,
        });
        let sink = SinkStatus {
            name: "orders".to_owned(),
            kind: "nats".to_owned(),
            target: "nats://a".to_owned(),
            state: if outage.is_some() { SinkState::Down } else { SinkState::Working },
            outage,
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: vec![Route::new("Order", "*").unwrap()],
            more_routes: 0,
        };
        HostSink { host: host.to_owned(), sink, waiting: 0 }
    }

    /// A live host.
    fn node(label: &str) -> NodeRecord {
        NodeRecord::new(&Node::new(OwnerId::generate(label), label, "multi_node", "0.1.0"), NOW)
    }

    fn route(aggregate_type: &str, event_type: &str) -> RouteRecord {
        RouteRecord::new(Route::new(aggregate_type, event_type).unwrap())
    }

    fn text(sinks: Vec<HostSink>, nodes: &[NodeRecord], route: &RouteRecord) -> Option<String> {
        let hosts = by_host(sinks, nodes);
        let relays: Vec<Relays<'_>> = hosts.iter().map(|sinks| Relays::of(sinks)).collect();
        RouteSink::of(&relays, route).map(|sink| sink.words(NOW))
    }

    #[test]
    fn a_route_names_its_sink_with_the_outage_since_its_last_host_lost_it() {
        let (relayed, nodes) = (route("Order", "Placed"), ["a", "b", "c"].map(node));

        let working = vec![on_host("a", None), on_host("b", None)];
        assert_eq!(text(working, &nodes, &relayed).as_deref(), Some("orders"));
        let some_down = vec![on_host("a", None), on_host("b", Some(60)), on_host("c", Some(240))];
        assert_eq!(text(some_down.clone(), &nodes, &relayed).as_deref(), Some("orders: down for 1 min on 2 of 3 hosts"));
        let all_down = vec![on_host("b", Some(60)), on_host("c", Some(240))];
        assert_eq!(text(all_down, &nodes, &relayed).as_deref(), Some("orders: down for 1 min"));
        assert_eq!(text(some_down, &nodes, &route("Mail", "Sent")), None);
    }

    #[test]
    fn a_sink_that_is_down_only_on_a_host_that_stands_aside_is_not_down() {
        let mut nodes = ["a", "b"].map(node);
        let stalled = StalledRoute::new("Order/*".to_owned(), "the sink orders".to_owned(), "refused".to_owned(), NOW);
        (nodes[1].room, nodes[1].listeners) = (0, ListenerReport::new(String::new(), [stalled]));

        let sinks = vec![on_host("a", None), on_host("b", Some(240))];
        assert_eq!(text(sinks, &nodes, &route("Order", "Placed")).as_deref(), Some("orders"));
    }
}
