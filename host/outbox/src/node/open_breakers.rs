//! The open breakers of all hosts, by route.

use std::collections::HashMap;

use serde::Serialize;

use crate::event::Route;
use crate::store::{NodeRecord, OpenBreaker, RouteRecord};
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

/// The open breaker of a route on any host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteBreaker {
    /// The route.
    pub route: Route,
    /// Its listener: the name of a plugin, `the sink NAME`, or `native code`.
    pub listener: String,
    /// How many of its events wait.
    pub waiting: u64,
    /// The state of the breaker in words, as of [`OpenBreakers::words`].
    pub state: String,
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

    /// The routes with an open breaker, those with the most waiting events first. Skips a route without waiting events whose pauses are
    /// over, since its next event is a trial.
    #[must_use]
    pub fn of_routes(&self, routes: &[RouteRecord], now: Timestamp) -> Vec<RouteBreaker> {
        let breaker = |(route, open): (&Route, &Vec<HostBreaker>)| {
            let waiting = routes.iter().find(|known| known.route == *route).map_or(0, |known| known.waiting);
            let is_pausing = open.iter().any(|one| one.next_try > now);
            let (listener, state) = (open.first()?.listener.clone(), self.words(route, now)?);
            (is_pausing || waiting > 0).then(|| RouteBreaker { route: route.clone(), listener, waiting, state })
        };
        let mut all: Vec<RouteBreaker> = self.by_route.iter().filter_map(breaker).collect();
        all.sort_by(|one, other| other.waiting.cmp(&one.waiting).then_with(|| one.route.cmp(&other.route)));
        all
    }

    /// `open for 4 min on 1 of 2 hosts, next try in 20 s`; after the pause, `waits for a trial on 1 of 2 hosts with the next event, opened
    /// 4 min ago`. `None` if no breaker of the route is open.
    #[must_use]
    pub fn words(&self, route: &Route, now: Timestamp) -> Option<String> {
        let open = self.on(route);
        let since = open.iter().map(|one| one.since).min()?;
        let next_try = open.iter().map(|one| one.next_try).filter(|at| *at > now).min();
        let hosts = if open.len() < self.hosts {
            format!(" on {} of {} hosts", number(open.len() as u64), number(self.hosts as u64))
        } else {
            String::new()
        };
        let since = span(now.since(since));
        Some(match next_try {
            Some(at) => format!("open for {since}{hosts}, next try in {}", span(at.since(now))),
            None => format!("waits for a trial{hosts} with the next event, opened {since} ago"),
        })
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
        assert_eq!(words.as_deref(), Some("waits for a trial with the next event, opened 2 min ago"));
    }

    #[test]
    fn an_open_breaker_is_listed_while_its_pause_lasts_or_events_of_its_route_wait() {
        let known = |event_type, waiting| changed!(RouteRecord { waiting, ..RouteRecord::new(route(event_type)) });
        let (mut node, later) = (host("a", Some(60)), NOW.plus(Duration::from_secs(60)));
        let paid = node.listeners.open_breakers[0].clone();
        node.listeners.open_breakers.push(OpenBreaker { route: route("Billed"), ..paid });
        let listed = |routes: &[RouteRecord], now| {
            let all = OpenBreakers::of(std::slice::from_ref(&node)).of_routes(routes, now);
            all.into_iter().map(|one| (one.route.event_type.as_str().to_owned(), one.waiting, one.state)).collect::<Vec<_>>()
        };
        let one = |event_type: &str, waiting, state: &str| (event_type.to_owned(), waiting, state.to_owned());

        let open = "open for 1 min, next try in 20 s";
        let busy = [known("Paid", 50), known("Billed", 0), known("Placed", 9)];
        assert_eq!(listed(&busy, NOW), [one("Paid", 50, open), one("Billed", 0, open)]);
        let trial = "waits for a trial with the next event, opened 2 min ago";
        assert_eq!(listed(&busy, later), [one("Paid", 50, trial)], "no event waits for the other trial");
        assert!(listed(&[], later).is_empty());
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
