//! The sinks that are down, each once, however many hosts find it down.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use outbox_event::{Route, SinkOutage};

use super::sinks::HostSink;
use crate::time::Timestamp;

/// The first host is named apart if the last host noticed its outage this much later.
const NAMED_APART: Duration = Duration::from_secs(60);

/// A sink that is down on at least one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownSink {
    /// Its name in the configuration.
    pub name: String,
    /// The hosts that find it down. The first one noticed the outage first.
    pub hosts: Vec<String>,
    /// How many other hosts have it.
    pub other_hosts: usize,
    /// The routes that are relayed to it; `more_routes` are not named.
    pub routes: Vec<Route>,
    /// How many more routes are relayed to it.
    pub more_routes: usize,
    /// How many events of these routes wait.
    pub waiting: u64,
    /// The outage that was noticed last: before it, one of `hosts` still reached the sink.
    pub outage: SinkOutage,
    /// When the first of `hosts` noticed its outage.
    pub first_since: Timestamp,
}

impl DownSink {
    /// The sinks that are down, those with the most waiting events first.
    #[must_use]
    pub fn of(sinks: &[HostSink]) -> Vec<Self> {
        let mut all: BTreeMap<&str, Self> = BTreeMap::new();
        for HostSink { host, sink, waiting } in sinks {
            let Some(outage) = sink.outage.as_ref().filter(|_| sink.is_down()) else { continue };
            let one = all.entry(&sink.name).or_insert_with(|| Self {
                name: sink.name.clone(),
                hosts: Vec::new(),
                other_hosts: 0,
                routes: sink.routes.clone(),
                more_routes: sink.more_routes,
                waiting: 0,
                outage: outage.clone(),
                first_since: outage.since,
            });
            one.waiting = one.waiting.max(*waiting);
            if outage.since > one.outage.since {
                one.outage = outage.clone();
            }
            if outage.since < one.first_since {
                one.first_since = outage.since;
                one.hosts.insert(0, host.clone());
            } else {
                one.hosts.push(host.clone());
            }
        }
        for HostSink { sink, .. } in sinks.iter().filter(|one| !one.sink.is_down()) {
            if let Some(one) = all.get_mut(sink.name.as_str()) {
                one.other_hosts += 1;
            }
        }
        let mut all: Vec<Self> = all.into_values().collect();
        all.sort_by_key(|one| Reverse(one.waiting));
        all
    }

    /// The host that noticed its outage first, and when. `None` if the last host noticed its outage within a minute of that.
    #[must_use]
    pub fn first_host(&self) -> Option<(&str, Timestamp)> {
        let host = self.hosts.first().filter(|_| self.outage.since.since(self.first_since) >= NAMED_APART)?;
        Some((host.as_str(), self.first_since))
    }
}

#[cfg(test)]
mod tests {
    use outbox_event::{SinkState, SinkStatus};

    use super::*;

    fn on_host(host: &str, name: &str, down_since: Option<i64>, waiting: u64) -> HostSink {
        let outage = down_since.map(|micros| SinkOutage {
            since: Timestamp::from_micros(micros),
            reason: format!("{host} was refused"),
            next_try: Timestamp::from_micros(micros),
        });
        let sink = SinkStatus {
            name: name.to_owned(),
            kind: "nats".to_owned(),
            target: String::new(),
            state: if outage.is_some() { SinkState::Down } else { SinkState::Working },
            outage,
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: vec![Route::new("Order", "*").expect("valid")],
            more_routes: 0,
        };
        HostSink { host: host.to_owned(), sink, waiting }
    }

    #[test]
    fn sink_that_several_hosts_find_down_is_listed_once_with_its_last_outage() {
        let sinks = [
            on_host("a", "mails", Some(5), 3),
            on_host("a", "orders", Some(9), 7),
            on_host("b", "orders", Some(4), 8),
            on_host("c", "orders", None, 0),
            on_host("c", "audit", None, 0),
        ];

        let down = DownSink::of(&sinks);

        let listed: Vec<_> = down.iter().map(|one| (one.name.as_str(), one.hosts.join(" "), one.waiting)).collect();
        assert_eq!(listed, [("orders", "b a".to_owned(), 8), ("mails", "a".to_owned(), 3)]);
        assert_eq!((down[0].other_hosts, down[0].outage.reason.as_str()), (1, "a was refused"));
        assert_eq!(down[0].first_host(), None, "both lost it at about the same time");
    }

    #[test]
    fn sink_is_down_on_all_hosts_since_the_last_one_lost_it() {
        let minutes = |minutes: i64| minutes * 60_000_000;
        let sinks = [on_host("a", "orders", Some(minutes(5)), 7), on_host("b", "orders", Some(minutes(10)), 7)];

        let down = DownSink::of(&sinks);

        assert_eq!(down[0].outage.since, Timestamp::from_micros(minutes(10)));
        assert_eq!(down[0].first_host(), Some(("a", Timestamp::from_micros(minutes(5)))));
    }
}
