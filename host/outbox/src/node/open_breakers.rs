//! The open breakers of all hosts, by route.

use std::collections::HashMap;

use serde::Serialize;

use crate::event::Route;
use crate::store::{NodeRecord, OpenBreaker};
use crate::time::Timestamp;
use crate::units::{number, span};

/// The open breakers of the live hosts, by route.
#[derive(Debug, Default)]
pub struct OpenBreakers {
    by_route: HashMap<Route, Vec<HostBreaker>>,
    /// How many are open on routes that their hosts do not name.
    more: u64,
    /// How many hosts deliver events.
    hosts: usize,
}

/// The open breaker of a route on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct HostBreaker {
    /// The host that reports it.
    pub host: String,
    /// The listener: the name of a plugin, `the sink NAME`, or `native code`.
    pub listener: String,
    /// Since when it has been open, by the database's clock.
    pub since: Timestamp,
    /// When the listener may be called again, for one event, by the database's clock. In the past if no event has come since.
    pub next_try: Timestamp,
}

impl OpenBreakers {
    /// Reads the rows of hosts. Ignores hosts that stand aside, since other hosts deliver their events.
    #[must_use]
    pub fn of(nodes: &[NodeRecord]) -> Self {
        let mut open = Self::default();
        for node in nodes.iter().filter(|node| node.delivers()) {
            open.hosts += 1;
            open.more = open.more.saturating_add(node.listeners.more_open_breakers);
            for breaker in &node.listeners.open_breakers {
                open.by_route.entry(breaker.route.clone()).or_default().push(HostBreaker {
                    host: node.label.clone(),
                    listener: breaker.listener.clone(),
                    since: breaker.since,
                    next_try: breaker.next_try,
                });
            }
        }
        open
    }

    /// Whether no breaker is open, on any route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_route.is_empty() && self.more == 0
    }

    /// How many breakers are open on routes that their hosts do not name. These routes look as if they were served.
    #[must_use]
    pub fn more(&self) -> u64 {
        self.more
    }

    /// `3 more breakers are open; a host names 20`; `None` if every open breaker is named.
    #[must_use]
    pub fn more_words(&self) -> Option<String> {
        let breakers = match self.more {
            0 => return None,
            1 => "1 more breaker is".to_owned(),
            more => format!("{} more breakers are", number(more)),
        };
        Some(format!("{breakers} open; a host names {}", OpenBreaker::NAMED))
    }

    /// The open breakers of a route, one for each host that has one.
    #[must_use]
    pub fn on(&self, route: &Route) -> &[HostBreaker] {
        self.by_route.get(route).map(Vec::as_slice).unwrap_or_default()
    }

    /// `open for 4 min on 1 of 2 hosts, next try in 20 s`; `None` if no breaker of the route is open.
    #[must_use]
    pub fn words(&self, route: &Route, now: Timestamp) -> Option<String> {
        let open = self.on(route);
        let since = open.iter().map(|one| one.since).min()?;
        let next_try = open.iter().map(|one| one.next_try).min().filter(|at| *at > now);
        let hosts = if open.len() < self.hosts {
            format!(" on {} of {} hosts", number(open.len() as u64), number(self.hosts as u64))
        } else {
            String::new()
        };
        let next = next_try.map_or_else(|| "with the next event".to_owned(), |at| format!("in {}", span(at.since(now))));
        Some(format!("open for {}{hosts}, next try {next}", span(now.since(since))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::OwnerId;
    use crate::store::{ListenerReport, Node};

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    fn route(event_type: &str) -> Route {
        Route::new("Order", event_type).expect("valid")
    }

    /// A host on which the breaker of `Order/Paid` has been open for so long; `None` for a host without open breakers.
    fn host(label: &str, seconds: Option<u64>) -> NodeRecord {
        let open = seconds.map(|seconds| OpenBreaker {
            route: route("Paid"),
            listener: "mailer".to_owned(),
            since: NOW.minus(Duration::from_secs(seconds)),
            next_try: NOW.plus(Duration::from_secs(20)),
        });
        let node = Node::new(OwnerId::generate(label), label, "multi_node", "0.1.0");
        let listeners = ListenerReport::default().with_open_breakers(open);
        changed!(NodeRecord { listeners, ..NodeRecord::new(&node, NOW) })
    }

    #[test]
    fn a_route_names_its_open_breakers_and_how_many_hosts_have_one() {
        let words = |nodes: &[NodeRecord]| OpenBreakers::of(nodes).words(&route("Paid"), NOW);

        assert_eq!(words(&[host("a", None)]), None);
        assert_eq!(words(&[host("a", Some(60))]).as_deref(), Some("open for 1 min, next try in 20 s"));
        let two = [host("a", Some(60)), host("b", None), host("c", Some(240))];
        assert_eq!(words(&two).as_deref(), Some("open for 4 min on 2 of 3 hosts, next try in 20 s"));
        let open = OpenBreakers::of(&two);
        assert_eq!(open.on(&route("Paid")).iter().map(|one| one.host.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        assert!(open.on(&route("Placed")).is_empty());
        let gone = changed!(NodeRecord { alive: false, ..host("a", Some(60)) });
        assert!(OpenBreakers::of(&[gone]).is_empty(), "a host that is gone calls no listener");
        let later = NOW.plus(Duration::from_secs(60));
        let words = OpenBreakers::of(&[host("a", Some(60))]).words(&route("Paid"), later);
        assert_eq!(words.as_deref(), Some("open for 2 min, next try with the next event"));
    }

    #[test]
    fn open_breakers_that_their_hosts_do_not_name_are_counted() {
        let mut nodes = [host("a", Some(60)), host("b", Some(60))];
        assert_eq!(OpenBreakers::of(&nodes).more_words(), None);
        let mut unnamed = host("a", None);
        unnamed.listeners.more_open_breakers = 1;
        assert!(OpenBreakers::of(&[host("a", None)]).is_empty());
        assert!(!OpenBreakers::of(&[unnamed]).is_empty(), "one is open, on an unnamed route");
        nodes[0].listeners.more_open_breakers = 1;
        assert_eq!(OpenBreakers::of(&nodes).more_words().as_deref(), Some("1 more breaker is open; a host names 20"));
        nodes[1].listeners.more_open_breakers = 1_999;
        assert_eq!(OpenBreakers::of(&nodes).more_words().as_deref(), Some("2,000 more breakers are open; a host names 20"));
    }
}
