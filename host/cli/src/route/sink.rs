//! The sinks that routes are relayed to, for the list of routes.

use std::collections::BTreeMap;

use outbox::node::{HostSink, Relays, SinkStatus};
use outbox::store::RouteRecord;
use outbox::time::Timestamp;

use crate::output::{short, span};

/// The sinks of each live host.
pub(super) fn by_host(sinks: Vec<HostSink>) -> Vec<Vec<SinkStatus>> {
    let mut hosts: BTreeMap<String, Vec<SinkStatus>> = BTreeMap::new();
    for HostSink { host, sink, .. } in sinks {
        hosts.entry(host).or_default().push(sink);
    }
    hosts.into_values().collect()
}

/// The sink that a route is relayed to; if hosts differ, the one that has been down for the longest time. `None` if the route is
/// not relayed.
pub(super) fn sink_of<'s>(hosts: &[Relays<'s>], route: &RouteRecord) -> Option<&'s SinkStatus> {
    let since = |sink: &SinkStatus| sink.outage.as_ref().map(|outage| outage.since);
    hosts.iter().filter_map(|relays| relays.sink(route)).min_by_key(|sink| (!sink.is_down(), since(sink)))
}

/// `orders`, or `orders: down for 4 min`
pub(super) fn words(sink: Option<&SinkStatus>, now: Timestamp) -> String {
    let Some(sink) = sink else { return "-".to_owned() };
    let name = short(&sink.name, 40);
    match &sink.outage {
        Some(outage) => format!("{name}: {} for {}", sink.state.word(), span(now.since(outage.since))),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox::Route;
    use outbox::node::{SinkOutage, SinkState};

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
            routes: vec![Route::new("Order", "*").unwrap()],
            more_routes: 0,
        };
        HostSink { host: host.to_owned(), sink, waiting: 0 }
    }

    #[test]
    fn a_route_names_its_sink_and_the_longest_outage_on_any_host() {
        let relayed = RouteRecord::new(Route::new("Order", "Placed").unwrap());
        let other = RouteRecord::new(Route::new("Mail", "Sent").unwrap());
        let text = |sinks: Vec<HostSink>, route: &RouteRecord| {
            let hosts = by_host(sinks);
            let relays: Vec<Relays<'_>> = hosts.iter().map(|sinks| Relays::of(sinks)).collect();
            words(sink_of(&relays, route), NOW)
        };

        assert_eq!(text(vec![on_host("a", None), on_host("b", None)], &relayed), "orders");
        let some_down = vec![on_host("a", None), on_host("b", Some(60)), on_host("c", Some(240))];
        assert_eq!(text(some_down.clone(), &relayed), "orders: down for 4 min");
        assert_eq!(text(some_down, &other), "-");
    }
}
