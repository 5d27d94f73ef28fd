//! A look, as lines that fit a terminal.

use std::collections::BTreeMap;

use outbox::node::{HostSink, OpenBreakers};
use outbox::store::NodeRecord;
use outbox::time::Timestamp;
use outbox::why::{LONG_WAIT, Pauses};

use super::sample::{Rates, Sample};
use crate::output::{Colour, count, or_dash, paint, relative_to, short, shown, span, table};
use crate::sinks::state;

/// Lines of the rest: the head, the counts, the titles, and empty ones.
const FIXED: usize = 12;

/// The lines of one look, for a terminal of this many columns and rows: the routes with most to do first, and as many as fit.
pub(super) fn frame(sample: &Sample, rates: &Rates, place: &str, (columns, rows): (usize, usize)) -> Vec<String> {
    let stats = &sample.stats;
    let hosts = count(u64::try_from(sample.hosts()).unwrap_or(u64::MAX), "host");
    let mut lines = vec![short(&format!("outbox  {}  {hosts}  q quits  {place}", sample.at), columns), String::new()];
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}/s"));
    lines.push(format!("written {:>10}   delivered {:>10}", rate(rates.written_per_second), rate(rates.delivered_per_second)));
    let oldest = stats.oldest_pending_seconds.longest();
    let age = oldest.map_or_else(|| "-".to_owned(), |(_, age)| span(age));
    let age_colour = if oldest.is_some_and(|(_, age)| age >= LONG_WAIT) { Colour::Yellow } else { Colour::Faint };
    let cause = oldest.map_or_else(String::new, |(cause, _)| format!("   cause {cause:>14}"));
    lines.push(format!("oldest  {}   done {:>15}{cause}", paint(&format!("{age:>10}"), age_colour), stats.done));
    let dead = format!("{:>10}", stats.dead);
    let dead = if stats.dead > 0 { paint(&dead, Colour::Red).into_owned() } else { dead };
    lines.push(format!("new     {:>10}   retry {:>14}   claimed {:>12}", stats.new, stats.retry, stats.in_flight));
    lines.push(format!("parked  {:>10}   blocked {:>12}   dead {dead:>15}", stats.parked, stats.blocked));
    let nodes = node_lines(&sample.nodes, sample.at);
    let sinks = sink_lines(&sample.sinks, sample.at);
    // With the empty line above them.
    let sinks_shown = sinks.len().min((rows / 5).max(2));
    let room = rows.saturating_sub(FIXED + if sinks.is_empty() { 0 } else { sinks_shown + 1 });
    let nodes_shown = nodes.len().min((room / 3).max(2));
    let routes = route_lines(sample, &OpenBreakers::of(&sample.nodes));
    let routes_shown = routes.len().min(room.saturating_sub(nodes_shown).max(2));
    for (all, many, what) in [(routes, routes_shown, "route"), (sinks, sinks_shown, "sink"), (nodes, nodes_shown, "host")] {
        if all.is_empty() {
            continue;
        }
        lines.push(String::new());
        let hidden = all.len() - many;
        lines.extend(all.into_iter().take(many).map(|line| short(&line, columns)));
        if hidden > 0 {
            lines.push(format!("and {}", count(u64::try_from(hidden).unwrap_or(u64::MAX), &format!("more {what}"))));
        }
    }
    lines.truncate(rows);
    lines
}

/// The title and one line for each route. Without open breakers there is no column for them.
fn route_lines(sample: &Sample, breakers: &OpenBreakers) -> Vec<String> {
    let (pauses, now) = (Pauses::of(&sample.routes), sample.at);
    let rows = sample.busiest_routes().into_iter().map(|known| {
        let pause = pauses.holding(&known.route).next().and_then(|pause| pause.paused_at);
        let numbers = [known.waiting, known.parked, known.blocked, known.dead].map(|number| number.to_string());
        let pause = pause.map_or_else(|| "-".to_owned(), |since| relative_to(since, now));
        let breaker = (!breakers.is_empty()).then(|| or_dash(breakers.words(&known.route, now).as_deref()));
        let cells = std::iter::once(short(&known.route.to_string(), 40)).chain(numbers);
        cells.chain([pause]).chain(breaker).collect::<Vec<_>>()
    });
    let breaker = (!breakers.is_empty()).then_some("~breaker");
    let titles = ["route", ">waiting", ">parked", ">blocked", ">dead", "paused"].into_iter().chain(breaker);
    table(&titles.collect::<Vec<_>>(), rows).lines().map(str::to_owned).collect()
}

/// The title and one line for each sink, those that are down first; nothing without sinks.
fn sink_lines(sinks: &[HostSink], now: Timestamp) -> Vec<String> {
    let mut by_name: BTreeMap<&str, Vec<&HostSink>> = BTreeMap::new();
    for one in sinks {
        by_name.entry(&one.sink.name).or_default().push(one);
    }
    if by_name.is_empty() {
        return Vec::new();
    }
    let mut by_name: Vec<_> = by_name.into_iter().collect();
    by_name.sort_by_key(|(_, hosts)| !hosts.iter().any(|one| one.sink.is_down()));
    let rows = by_name.into_iter().map(|(name, hosts)| {
        let outages = hosts.iter().filter_map(|one| one.sink.outage.as_ref());
        // The sink is down on all hosts that find it down since the last of them lost it.
        let last = outages.max_by_key(|outage| outage.since);
        [
            short(name, 40),
            state(hosts.iter().map(|one| one.sink.state)),
            last.map_or_else(|| "-".to_owned(), |outage| relative_to(outage.since, now)),
            hosts.iter().map(|one| one.waiting).max().unwrap_or(0).to_string(),
            or_dash(last.map(|outage| outage.reason.as_str())),
        ]
    });
    table(&["sink", "state", "since", ">waiting", "~reason"], rows).lines().map(str::to_owned).collect()
}

/// The title and one line for each host, live ones first.
fn node_lines(nodes: &[NodeRecord], now: Timestamp) -> Vec<String> {
    let mut nodes: Vec<&NodeRecord> = nodes.iter().collect();
    nodes.sort_by_key(|node| !node.alive);
    if nodes.is_empty() {
        return vec!["no host is running".to_owned()];
    }
    let rows = nodes.into_iter().map(|node| {
        [
            short(&node.label, 40),
            node.state().to_owned(),
            shown(&node.mode).into_owned(),
            or_dash(Some(&node.version)),
            relative_to(node.started_at, now),
        ]
    });
    table(&["host", "state", "mode", "version", "started"], rows).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox::Route;
    use outbox::event::OwnerId;
    use outbox::node::{SinkOutage, SinkState, SinkStatus};
    use outbox::store::{ListenerReport, Node, OpenBreaker, RouteRecord, StalledRoute, Stats};

    use super::*;

    fn sample(routes: usize) -> Sample {
        let at = Timestamp::from_micros(1_795_249_980_000_000);
        let route = |number: usize| {
            let mut route = RouteRecord::new(Route::new("Order", format!("Event{number:02}")).unwrap());
            route.first_seen_at = Some(at);
            route.paused_at = (number == 1).then(|| at.minus(Duration::from_secs(120)));
            route.waiting = u64::try_from(number).unwrap();
            route
        };
        let node = |label: &str, alive| {
            let mut node = NodeRecord::new(&Node::new(OwnerId::generate("shop"), label, "multi_node", "0.1.0"), at);
            node.alive = alive;
            node
        };
        let mut stats = Stats::default();
        (stats.new, stats.dead, stats.oldest_pending_seconds.given_back) = (41, 3, Some(75.0));
        Sample {
            at,
            seq: Some(7),
            stats,
            routes: (0..routes).map(route).collect(),
            nodes: vec![node("shop\u{1b}[2J 1", false), node("shop 2", true)],
            sinks: Vec::new(),
        }
    }

    /// The sinks of a host: one works, the other has been down for this many seconds.
    fn sinks(host: &str, seconds: u64, now: Timestamp) -> [HostSink; 2] {
        let outage = SinkOutage {
            since: now.minus(Duration::from_secs(seconds)),
            reason: "connection\u{1b}[2J refused".to_owned(),
            next_try: now,
        };
        let sink = |name: &str, state, outage| SinkStatus {
            name: name.to_owned(),
            kind: "nats".to_owned(),
            target: String::new(),
            state,
            outage,
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: Vec::new(),
            more_routes: 0,
        };
        let sinks = [sink("invoices", SinkState::Working, None), sink("orders", SinkState::Down, Some(outage))];
        sinks.map(|sink| HostSink { host: host.to_owned(), sink, waiting: 1_400 })
    }

    #[test]
    fn each_sink_has_a_line_and_those_that_are_down_come_first() {
        let mut sample = sample(100);
        let now = sample.at;
        sample.sinks = [sinks("shop 2", 60, now), sinks("shop 3", 240, now)].concat();

        let lines = frame(&sample, &Rates::default(), "sqlite:outbox.db", (100, 24));

        let starting =
            |name: &str| lines.iter().position(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{lines:#?}"));
        let orders = &lines[starting("orders ")];
        assert!(starting("orders ") < starting("invoices "), "{lines:#?}");
        for part in [" down ", " 1 min ago ", " 1400 ", "connection\\u{1b}[2J refused"] {
            assert!(orders.contains(part), "{part}: {orders}");
        }
        assert!(lines.len() <= 24 && lines.iter().any(|line| line.starts_with("shop 2")), "{lines:#?}");
    }

    #[test]
    fn an_open_breaker_is_named_beside_its_route() {
        let mut sample = sample(3);
        let text = |sample: &Sample| frame(sample, &Rates::default(), "sqlite:outbox.db", (120, 40)).join("\n");
        assert!(!text(&sample).contains("breaker"), "{}", text(&sample));
        sample.nodes[1].listeners = ListenerReport::default().with_open_breakers([OpenBreaker {
            route: Route::new("Order", "Event02").unwrap(),
            listener: "mailer".to_owned(),
            since: sample.at.minus(Duration::from_secs(240)),
            next_try: sample.at.plus(Duration::from_secs(20)),
        }]);

        let text = text(&sample);

        let line = text.lines().find(|line| line.starts_with("Order/Event02 ")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("open for 4 min, next try in 20 s"), "{text}");
        assert_eq!(text.matches("open for").count(), 1, "{text}");
    }

    #[test]
    fn host_that_stands_aside_is_not_called_alive() {
        let mut sample = sample(1);
        sample.nodes[1].room = 0;
        let texts = ["Order/Event00", "the sink orders", "connection refused"].map(str::to_owned);
        let [route, listener, reason] = texts;
        let stalled = StalledRoute::new(route, listener, reason, sample.at);
        sample.nodes[1].listeners = ListenerReport::new(String::new(), [stalled]);

        let lines = frame(&sample, &Rates::default(), "sqlite:outbox.db", (120, 40));

        let host = lines.iter().find(|line| line.starts_with("shop 2 ")).unwrap_or_else(|| panic!("{lines:#?}"));
        assert!(host.contains(" aside ") && !host.contains(" alive "), "{host}");
    }

    #[test]
    fn a_look_tells_rates_depths_lag_routes_and_hosts() {
        let rates = Rates { written_per_second: Some(120.0), delivered_per_second: None };
        let text = frame(&sample(3), &rates, "sqlite:outbox.db", (100, 40)).join("\n");
        for part in [
            "2026-11-21T08:33:00.000000Z  1 host  q quits  sqlite:outbox.db",
            "120/s",
            "oldest",
            "given_back",
            "2 min ago",
            "multi_node",
        ] {
            assert!(text.contains(part), "{part}\n---\n{text}");
        }
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(at("Order/Event02") < at("Order/Event01") && at("Order/Event01") < at("Order/Event00"), "most to do first");
        assert!(at("shop 2") < at("gone"), "live hosts first");
        assert!(text.contains("shop\\u{1b}[2J 1"), "nothing of a label steers the terminal: {text}");
    }

    #[test]
    fn a_look_fits_into_the_terminal_whatever_there_is_to_show() {
        for (columns, rows) in [(80, 24), (40, 15), (20, 5)] {
            let lines = frame(&sample(100), &Rates::default(), "sqlite:outbox.db", (columns, rows));
            assert!(lines.len() <= rows, "{} lines for {rows}", lines.len());
            if rows > 12 {
                assert!(lines.iter().any(|line| line.starts_with("and ") && line.ends_with("routes")), "{lines:#?}");
            }
        }
    }
}
