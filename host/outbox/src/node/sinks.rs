//! The sinks of hosts, and the events that wait for them.

use std::collections::HashMap;

use outbox_event::{Route, SinkStatus};
use serde::{Deserialize, Serialize};

use super::report;
use crate::store::{NodeRecord, RouteRecord};

/// A sink, as one host sees it, with the events that wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct HostSink {
    /// The host that reports it.
    pub host: String,
    /// Its state there.
    #[serde(flatten)]
    pub sink: SinkStatus,
    /// Unfinished events of the routes that are relayed to it, without parked ones. Events that plugins publish are not counted.
    pub waiting: u64,
}

/// The relays of one host: finds the sink of a route without a search through all relays, because both may be many.
#[derive(Debug)]
pub struct Relays<'s> {
    sinks: &'s [SinkStatus],
    /// The position of each relay's sink, by aggregate and event type.
    positions: HashMap<(&'s str, &'s str), usize>,
}

/// Whether a wait reason is that of a relay whose sink is down, or whose receiver is unavailable.
#[must_use]
pub fn names_sink(reason: &str) -> bool {
    ["the sink ", "the receiver of the sink "].iter().any(|start| reason.starts_with(start))
}

/// The sinks of the live hosts. `routes` are all routes with their counts; `sinks` are those of one host, see [`sinks`](fn@super::sinks).
#[must_use]
pub fn live_sinks(
    nodes: &[NodeRecord],
    routes: &[RouteRecord],
    sinks: impl Fn(&NodeRecord) -> Vec<SinkStatus>,
) -> Vec<HostSink> {
    let of_host = |node: &NodeRecord| {
        let (host, sinks) = (&node.label, sinks(node));
        let waiting = waiting(&sinks, routes);
        let with_host = |(sink, waiting)| HostSink { host: host.clone(), sink, waiting };
        sinks.into_iter().zip(waiting).map(with_host).collect::<Vec<_>>()
    };
    nodes.iter().filter(|node| node.alive).flat_map(of_host).collect()
}

/// The sinks of the live hosts, without hosts that stand aside, since other hosts deliver their events.
#[must_use]
pub fn delivering_sinks(nodes: &[NodeRecord], routes: &[RouteRecord]) -> Vec<HostSink> {
    live_sinks(nodes, routes, |node| if node.delivers() { report::sinks(node) } else { Vec::new() })
}

/// The sinks of each live host. Skips hosts that stand aside.
#[must_use]
pub fn sinks_by_host(nodes: &[NodeRecord]) -> Vec<Vec<SinkStatus>> {
    nodes.iter().filter(|node| node.delivers()).map(report::sinks).collect()
}

/// How many events wait for each of the sinks of one host.
fn waiting(sinks: &[SinkStatus], routes: &[RouteRecord]) -> Vec<u64> {
    let relays = Relays::of(sinks);
    let mut waiting = vec![0_u64; sinks.len()];
    for route in routes {
        let events = route.waiting.saturating_add(route.blocked);
        // Most routes have no waiting events.
        if let Some(position) = (events > 0).then(|| relays.position(route)).flatten() {
            waiting[position] = waiting[position].saturating_add(events);
        }
    }
    waiting
}

impl<'s> Relays<'s> {
    /// Reads the routes of each sink. If several sinks have one route, the last one has it.
    #[must_use]
    pub fn of(sinks: &'s [SinkStatus]) -> Self {
        let routes =
            sinks.iter().enumerate().flat_map(|(position, sink)| sink.routes.iter().map(move |route| (route, position)));
        let key = |route: &'s Route| (route.aggregate_type.as_str(), route.event_type.as_str());
        Self { sinks, positions: routes.map(|(route, position)| (key(route), position)).collect() }
    }

    /// The sink that events of a route are relayed to; `None` if they are not relayed.
    #[must_use]
    pub fn sink(&self, route: &RouteRecord) -> Option<&'s SinkStatus> {
        self.position(route).map(|position| &self.sinks[position])
    }

    /// Whether events of a route are relayed to a sink that is down: then that outage explains why they wait.
    #[must_use]
    pub fn is_sink_down(&self, route: &RouteRecord) -> bool {
        self.sink(route).is_some_and(SinkStatus::is_down)
    }

    /// The position of that sink: the most exact relay decides, as in `Listeners::find`.
    fn position(&self, known: &RouteRecord) -> Option<usize> {
        let (aggregate, event) = (known.route.aggregate_type.as_str(), known.route.event_type.as_str());
        let any = Route::ANY;
        // A pattern does not apply to a route that had a listener of its own.
        let had_its_own = known.had_own_listener();
        let applies = |(aggregate, event): (&str, &str)| !(had_its_own && (aggregate == any || event == any));
        let most_exact_first = [(aggregate, event), (aggregate, any), (any, event), (any, any)];
        most_exact_first.into_iter().filter(|key| applies(*key)).find_map(|key| self.positions.get(&key).copied())
    }
}

#[cfg(test)]
mod tests {
    use outbox_event::SinkState;

    use super::*;
    use crate::event::OwnerId;
    use crate::store::Node;
    use crate::time::Timestamp;

    fn route(aggregate_type: &str, event_type: &str) -> Route {
        Route::new(aggregate_type, event_type).expect("valid")
    }

    fn sink(name: &str, routes: &[Route]) -> SinkStatus {
        SinkStatus {
            name: name.to_owned(),
            kind: "nats".to_owned(),
            target: String::new(),
            state: SinkState::Working,
            outage: None,
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: routes.to_vec(),
            more_routes: 0,
        }
    }

    fn counted(route: Route, waiting: u64, blocked: u64) -> RouteRecord {
        changed!(RouteRecord { waiting, blocked, ..RouteRecord::new(route) })
    }

    #[test]
    fn events_are_counted_at_the_sink_of_the_most_exact_relay() {
        let sinks = [sink("all", &[route("*", "*")]), sink("orders", &[route("Order", "*"), route("Invoice", "Sent")])];
        let had_its_own =
            |known: RouteRecord| changed!(RouteRecord { first_seen_at: Some(Timestamp::from_micros(0)), ..known });
        let routes = [
            counted(route("Order", "Placed"), 3, 4),
            counted(route("Mail", "Sent"), 20, 0),
            had_its_own(counted(route("Order", "Mailed"), 100, 0)),
            had_its_own(counted(route("Invoice", "Sent"), 1_000, 0)),
        ];

        assert_eq!(waiting(&sinks, &routes), [20, 1_007]);
        let relays = Relays::of(&sinks);
        assert_eq!(relays.sink(&routes[0]).map(|sink| sink.name.as_str()), Some("orders"));
        assert_eq!(relays.sink(&routes[2]), None);

        let [all, orders] = sinks;
        let sinks = [all, SinkStatus { state: SinkState::Down, ..orders }];
        let relays = Relays::of(&sinks);
        assert_eq!(routes.each_ref().map(|route| relays.is_sink_down(route)), [true, false, false, true]);
    }

    #[test]
    fn aggregate_type_of_a_relay_counts_more_than_its_event_type() {
        let of = |name: &str, aggregate: &str, event: &str| sink(name, &[route(aggregate, event)]);
        let mut sinks = vec![of("4", "Order", "Placed"), of("3", "Order", "*"), of("2", "*", "Placed"), of("1", "*", "*")];
        let known = counted(route("Order", "Placed"), 1, 0);
        for name in ["4", "3", "2", "1"] {
            assert_eq!(Relays::of(&sinks).sink(&known).map(|sink| sink.name.as_str()), Some(name));
            sinks.remove(0);
        }
        assert_eq!(Relays::of(&sinks).sink(&known), None);
    }

    #[test]
    fn sinks_of_a_host_that_is_gone_are_not_listed() {
        let node = Node::new(OwnerId::generate("a"), "web-1", "multi_node", "0.1.0");
        let live = NodeRecord::new(&node, Timestamp::from_micros(0));
        let gone = changed!(NodeRecord { alive: false, ..live.clone() });
        let sinks = |_: &NodeRecord| vec![sink("orders", &[route("Order", "*")])];

        let listed = live_sinks(&[live, gone], &[counted(route("Order", "Placed"), 7, 0)], sinks);

        assert_eq!(listed.iter().map(|one| (one.host.as_str(), one.waiting)).collect::<Vec<_>>(), [("web-1", 7)]);
    }
}
