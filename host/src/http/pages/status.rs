//! The status line: what is wrong, the worst first, each with a link to its cause. Pure: what is known in, sentences out.

use std::time::Duration;

use super::super::standing::RouteCounts;
use super::groups::{Group, groups};
use super::link::{Link, query};
use super::look::{Look, SAMPLE, Seen};
use super::served::{self, Served};
use super::words::{clock, short, verb, visible};
use crate::node::PluginState;
use crate::store::{NodeRecord, RouteRecord};
use crate::time::Timestamp;
use crate::units::{count, figure, number, relative_to, span};
use crate::why::Pauses;

/// An event that could be delivered and waits longer than this says that the hosts fall behind.
const LONG_WAIT: Duration = Duration::from_secs(60);

/// More findings of one kind than this are told as one: writers and hosts decide how many there are.
const ONE_BY_ONE: usize = 3;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// A person must act.
    Fault,
    /// It works, and will hurt.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// One sentence, without what a listener said.
    pub(super) sentence: String,
    /// What a listener or the database said about it.
    pub(super) said: Option<String>,
    /// Where its cause is.
    pub(super) link: Link,
}

impl Finding {
    fn new(severity: Severity, sentence: impl Into<String>, to: impl Into<String>, word: &'static str) -> Self {
        Self { severity, sentence: sentence.into(), said: None, link: Link { to: to.into(), word } }
    }

    fn said(self, said: impl Into<String>) -> Self {
        Self { said: Some(short(&visible(&said.into()), 160)), ..self }
    }
}

/// Everything that is wrong, the worst first; nothing when all is well.
pub(super) fn findings(seen: &Seen) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(database(seen));
    if let Some(look) = &seen.look {
        let now = look.now();
        all.extend(no_host(look));
        all.extend(plugins(look));
        all.extend(dead(look, now));
        all.extend(gone_hosts(look, now));
        all.extend(paused(look, now));
        all.extend(unanswered(look));
        all.extend(behind(look));
    }
    // Stable: within a severity the order above stays.
    all.sort_by_key(|finding| finding.severity);
    all
}

/// When all is well.
pub(super) fn all_well(look: &Look, rate: Option<f64>) -> String {
    let live = look.nodes.iter().filter(|node| node.alive).count() as u64;
    let mut parts = vec!["All well".to_owned(), count(live, "host")];
    parts.extend(rate.map(|rate| format!("{}/s on this host", figure(rate))));
    match look.stats.oldest_pending_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(oldest) if look.unfinished() > 0 => parts.push(format!("oldest event waiting {}", span(oldest))),
        _ => parts.push("no events waiting".to_owned()),
    }
    parts.join(" · ")
}

/// `is` or `are` waiting, with the number in front.
fn waiting(events: u64) -> String {
    format!("{} {} waiting", count(events, "event"), verb(events, "is", "are"))
}

fn database(seen: &Seen) -> Option<Finding> {
    let gone = seen.gone.as_ref()?;
    let since = clock(gone.since, crate::time::Clock::now(&*crate::time::system_clock()));
    let sentence = match &seen.look {
        Some(look) => {
            format!("The database has not answered since {since}; what you see is from {}.", clock(look.at, look.now()))
        }
        None => format!("The database has not answered since {since}, so there is nothing to show yet."),
    };
    Some(Finding::new(Severity::Fault, sentence, "hosts", "Show hosts").said(gone.why.clone()))
}

fn no_host(look: &Look) -> Option<Finding> {
    let events = look.stats.new + look.stats.retry + look.stats.blocked;
    if events == 0 || look.nodes.iter().any(|node| node.alive) {
        return None;
    }
    let sentence = format!("Nothing is being delivered: {}, and no host is alive.", waiting(events));
    Some(Finding::new(Severity::Fault, sentence, "hosts", "Show hosts"))
}

fn plugins(look: &Look) -> Vec<Finding> {
    let all = served::of_all(&look.nodes);
    let states = [PluginState::Failed, PluginState::ServingOlder, PluginState::Paused];
    let of_state = |state: PluginState| {
        let found: Vec<&Served> = all.iter().filter(|served| served.plugin.state == state).collect();
        if found.len() <= ONE_BY_ONE {
            return found.into_iter().map(plugin).collect();
        }
        let severity = if state == PluginState::Failed { Severity::Fault } else { Severity::Warning };
        let sentence = match state {
            PluginState::Failed => format!("{} plugins failed to load.", found.len()),
            PluginState::ServingOlder => {
                format!("The new files of {} plugins failed to load; older versions are still serving.", found.len())
            }
            _ => format!("{} plugins failed too often and are paused for a while; their events wait.", found.len()),
        };
        vec![Finding::new(severity, sentence, "plugins", "Show plugins")]
    };
    states.into_iter().flat_map(of_state).collect()
}

/// A plugin that failed, or that failed in part.
fn plugin(served: &Served) -> Finding {
    let Served { plugin, hosts } = served;
    let on = match hosts.as_slice() {
        [host] => format!(" on {}", visible(host)),
        hosts => format!(" on {} hosts", hosts.len()),
    };
    let name = visible(&plugin.name);
    let (severity, sentence) = match plugin.state {
        PluginState::ServingOlder => {
            let version = plugin
                .version
                .as_deref()
                .map_or_else(|| "the version before".to_owned(), |version| format!("version {}", visible(version)));
            (Severity::Warning, format!("The new file of plugin {name} failed to load{on}; {version} is still serving."))
        }
        PluginState::Paused => {
            (Severity::Warning, format!("Plugin {name} failed too often{on} and is paused for a while; its events wait."))
        }
        _ => (Severity::Fault, format!("Plugin {name} failed to load{on}, and no version of it is running.")),
    };
    let finding = Finding::new(severity, sentence, "plugins", "Show plugins");
    match &plugin.error {
        Some(error) => finding.said(error.clone()),
        None => finding,
    }
}

fn dead(look: &Look, now: Timestamp) -> Option<Finding> {
    let dead = look.stats.dead;
    if dead == 0 {
        return None;
    }
    let groups = groups(&look.dead);
    let is_whole = dead <= u64::from(SAMPLE);
    let Some(largest) = groups.first() else {
        let sentence = format!("{} {} dead.", count(dead, "event"), verb(dead, "is", "are"));
        return Some(Finding::new(Severity::Fault, sentence, "dead", "Show dead events"));
    };
    let route = format!("{}/{}", visible(&largest.aggregate_type), visible(&largest.event_type));
    let is_of = |group: &Group| group.aggregate_type == largest.aggregate_type && group.event_type == largest.event_type;
    let of_route = groups.iter().filter(|group| is_of(group)).map(|group| group.count).sum::<u64>();
    // Of more than were read the first is not known.
    let first = groups.iter().filter_map(|group| group.first).min().filter(|_| is_whole);
    let since = |before: &str| first.map_or_else(String::new, |first| format!("{before} since {}", clock(first, now)));
    let sentence = match (dead, is_whole) {
        (1, _) => format!("1 event of {route} has been dead{}:", since("")),
        (_, false) => format!("{} events are dead, the newest mostly of {route}:", number(dead)),
        (_, true) if of_route == dead => format!("{} events are dead, all of {route}{}:", number(dead), since(", the first")),
        (_, true) => {
            format!("{} events are dead, {} of them of {route}{}:", number(dead), number(of_route), since(", the first"))
        }
    };
    let to = if groups.len() == 1 && is_whole {
        format!("dead?{}", query(&[("aggregate_type", &largest.aggregate_type), ("event_type", &largest.event_type)]))
    } else {
        "dead".to_owned()
    };
    Some(Finding::new(Severity::Fault, sentence, to, "Show dead events").said(largest.error.clone()))
}

fn gone_hosts(look: &Look, now: Timestamp) -> Option<Finding> {
    let gone: Vec<&NodeRecord> = look.nodes.iter().filter(|node| !node.alive).collect();
    let sentence = match gone.as_slice() {
        [] => return None,
        [node] => format!(
            "Host {} has not been heard from since its lease ended {}; other hosts take over its events.",
            visible(&node.label),
            relative_to(node.alive_until, now)
        ),
        nodes => {
            format!(
                "{} hosts have not been heard from since their leases ended; other hosts take over their events.",
                nodes.len()
            )
        }
    };
    Some(Finding::new(Severity::Warning, sentence, "hosts", "Show hosts"))
}

fn paused(look: &Look, now: Timestamp) -> Vec<Finding> {
    let paused: Vec<&RouteRecord> = look.routes.iter().filter(|known| known.paused_at.is_some()).collect();
    let and_wait = |parked: u64| if parked == 0 { String::new() } else { format!("; {}", waiting(parked)) };
    let to = "routes?state=paused";
    if paused.len() > ONE_BY_ONE {
        let pauses = Pauses::of(&look.routes);
        let held = look.routes.iter().filter(|known| pauses.holding(&known.route).next().is_some());
        let sentence =
            format!("{} are paused{}.", count(paused.len() as u64, "route"), and_wait(held.map(|known| known.parked).sum()));
        return vec![Finding::new(Severity::Warning, sentence, to, "Show paused routes")];
    }
    let finding = |route: &RouteRecord| {
        let since = relative_to(route.paused_at?, now);
        let by = route.paused_by.as_deref().map_or_else(String::new, |by| format!(" by {}", visible(by)));
        let name = visible(&route.route.to_string());
        let sentence =
            format!("Route {name} was paused {since}{by}{}.", and_wait(RouteCounts::of(&route.route, &look.routes).parked));
        let finding = Finding::new(Severity::Warning, sentence, to, "Show paused routes");
        Some(match &route.pause_reason {
            Some(reason) => finding.said(reason.clone()),
            None => finding,
        })
    };
    paused.into_iter().filter_map(finding).collect()
}

/// Parked events whose route is not paused: no host has a listener for them.
fn unanswered(look: &Look) -> Option<Finding> {
    let pauses = Pauses::of(&look.routes);
    let is_open = |known: &&RouteRecord| known.parked > 0 && pauses.holding(&known.route).next().is_none();
    let open: Vec<&RouteRecord> = look.routes.iter().filter(is_open).collect();
    let events: u64 = open.iter().map(|known| known.parked).sum();
    let listener = match open.as_slice() {
        [] => return None,
        [known] => format!("a listener for {}", visible(&known.route.to_string())),
        more => format!("listeners for {} routes", number(more.len() as u64)),
    };
    let sentence = format!("{} for {listener}.", waiting(events));
    Some(Finding::new(Severity::Warning, sentence, "events?status=parked", "Show parked events"))
}

fn behind(look: &Look) -> Option<Finding> {
    let oldest = Duration::try_from_secs_f64(look.stats.oldest_pending_seconds?).ok()?;
    if oldest < LONG_WAIT || !look.nodes.iter().any(|node| node.alive) {
        return None;
    }
    let events = look.stats.new + look.stats.retry;
    let sentence = format!("The hosts are falling behind: {}, the oldest for {}.", waiting(events), span(oldest));
    Some(Finding::new(Severity::Warning, sentence, "events?status=new", "Show waiting events"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::Route;
    use crate::http::pages::fake::{node, record, route};
    use crate::http::pages::look::Gone;
    use crate::store::{Record, Stats};

    fn now() -> Timestamp {
        "2026-11-21T14:10:00Z".parse().unwrap()
    }

    fn look() -> Look {
        Look { nodes: vec![node("web-1", now())], ..Look::made_up(now()) }
    }

    fn said(look: Look) -> Vec<String> {
        let seen = Seen { look: Some(Arc::new(look)), gone: None };
        findings(&seen)
            .into_iter()
            .map(|finding| finding.said.map_or(finding.sentence.clone(), |said| format!("{} {said}", finding.sentence)))
            .collect()
    }

    fn dead(number: usize, event_type: &str, error: &str) -> Vec<Record> {
        let done_at = Some("2026-11-21T14:02:00Z".parse().unwrap());
        let one = Record { event_type: event_type.to_owned(), last_error: Some(error.to_owned()), done_at, ..record() };
        vec![one; number]
    }

    #[test]
    fn nothing_is_said_when_all_is_well() {
        assert_eq!(said(look()), Vec::<String>::new());
        assert_eq!(all_well(&look(), Some(412.0)), "All well · 1 host · 412/s on this host · no events waiting");
        let busy = Stats { new: 3, oldest_pending_seconds: Some(0.018), done: 9, ..Stats::default() };
        assert_eq!(all_well(&Look { stats: busy, ..look() }, None), "All well · 1 host · oldest event waiting 18 ms");
    }

    #[test]
    fn events_that_wait_without_a_live_host_are_a_fault() {
        let stats = Stats { new: 2_311, ..Stats::default() };
        let gone = NodeRecord { alive: false, ..node("web-1", now()) };
        let all = said(Look { stats, nodes: vec![gone], ..look() });
        assert_eq!(all[0], "Nothing is being delivered: 2,311 events are waiting, and no host is alive.");
        assert_eq!(said(Look { stats, ..look() }), Vec::<String>::new());
        assert_eq!(said(Look { nodes: vec![], ..look() }), Vec::<String>::new(), "nothing waits, nobody is missed");
    }

    #[test]
    fn dead_events_are_told_with_their_route_and_what_went_wrong() {
        let stats = |dead| Stats { dead, ..Stats::default() };
        let all_of_one = Look { stats: stats(17), dead: dead(17, "Paid", "deadline"), ..look() };
        assert_eq!(said(all_of_one), ["17 events are dead, all of Order/Paid, the first since 14:02:00: deadline"]);
        let mixed = Look { stats: stats(5), dead: [dead(2, "Paid", "x"), dead(3, "Placed", "y")].concat(), ..look() };
        assert_eq!(said(mixed), ["5 events are dead, 3 of them of Order/Placed, the first since 14:02:00: y"]);
        let many = Look { stats: stats(10_000), dead: dead(500, "Paid", "deadline"), ..look() };
        assert_eq!(said(many), ["10,000 events are dead, the newest mostly of Order/Paid: deadline"]);
        let one = Look { stats: stats(1), dead: dead(1, "Paid", "deadline"), ..look() };
        assert_eq!(said(one), ["1 event of Order/Paid has been dead since 14:02:00: deadline"]);
    }

    #[test]
    fn a_failed_plugin_is_told_with_what_serves_instead() {
        let told = |state: &str| NodeRecord {
            plugins: Some(format!(
                r#"[{{"name":"mailer","version":"1.3","digest":"ab","state":"{state}","routes":[],"error":"no world","file":"x"}}]"#
            )),
            ..node("web-1", now())
        };
        let with = |state: &str| Look { nodes: vec![told(state)], ..look() };
        assert_eq!(
            said(with("serving_older")),
            ["The new file of plugin mailer failed to load on web-1; version 1.3 is still serving. no world"]
        );
        assert_eq!(said(with("failed")), ["Plugin mailer failed to load on web-1, and no version of it is running. no world"]);
        assert_eq!(said(with("a_state_of_tomorrow")), Vec::<String>::new());
        let gone = NodeRecord { alive: false, ..told("failed") };
        assert!(
            !said(Look { nodes: vec![gone, node("web-2", now())], ..look() })[0].contains("mailer"),
            "a host that is gone serves nothing"
        );
    }

    #[test]
    fn a_paused_route_and_a_route_without_a_listener_are_different_things() {
        let paused = RouteRecord {
            paused_at: Some(now().minus(Duration::from_secs(120))),
            paused_by: Some("ada".to_owned()),
            pause_reason: Some("the bank is down".to_owned()),
            parked: 12,
            ..route("Order", "Paid")
        };
        let alone = RouteRecord { parked: 1, ..route("Order", "Refunded") };
        assert_eq!(
            said(Look { routes: vec![paused.clone()], ..look() }),
            ["Route Order/Paid was paused 2 min ago by ada; 12 events are waiting. the bank is down"]
        );
        assert_eq!(
            said(Look { routes: vec![alone.clone()], ..look() }),
            ["1 event is waiting for a listener for Order/Refunded."]
        );
        let pattern = RouteRecord { route: Route::new("Order", "*").unwrap(), parked: 0, ..paused };
        assert_eq!(said(Look { routes: vec![pattern, alone], ..look() }).len(), 1, "a paused pattern holds it");
    }

    #[test]
    fn many_of_a_kind_are_told_in_one_sentence() {
        let paused = |number: usize| RouteRecord { paused_at: Some(now()), parked: 2, ..route("Order", &format!("E{number}")) };
        let few = Look { routes: (0..3).map(paused).collect(), ..look() };
        assert_eq!(said(few).len(), 3);
        let many = Look { routes: (0..30_000).map(paused).collect(), ..look() };
        assert_eq!(said(many), ["30,000 routes are paused; 60,000 events are waiting."]);

        let plugins: Vec<String> = (0..40)
            .map(|number| {
                format!(r#"{{"name":"p{number}","digest":"ab","state":"failed","routes":[],"error":"no","file":"x"}}"#)
            })
            .collect();
        let node = NodeRecord { plugins: Some(format!("[{}]", plugins.join(","))), ..node("web-1", now()) };
        assert_eq!(said(Look { nodes: vec![node], ..look() }), ["40 plugins failed to load."]);
    }

    #[test]
    fn a_host_that_is_gone_and_a_growing_backlog_are_warnings() {
        let gone = NodeRecord { alive: false, alive_until: now().minus(Duration::from_secs(42)), ..node("web-2", now()) };
        let stats = Stats { new: 9, oldest_pending_seconds: Some(250.0), ..Stats::default() };
        let all = said(Look { nodes: vec![node("web-1", now()), gone], stats, ..look() });
        assert_eq!(
            all[0],
            "Host web-2 has not been heard from since its lease ended 42 s ago; other hosts take over its events."
        );
        assert_eq!(all[1], "The hosts are falling behind: 9 events are waiting, the oldest for 4 min.");
    }

    #[test]
    fn a_database_that_is_gone_comes_first_and_says_how_old_the_rest_is() {
        let stats = Stats { dead: 1, ..Stats::default() };
        let look = Look { stats, dead: dead(1, "Paid", "x"), ..look() };
        let gone = Gone { since: now(), why: "connection refused".to_owned() };
        let all = findings(&Seen { look: Some(Arc::new(look)), gone: Some(gone.clone()) });
        assert!(all[0].sentence.ends_with("what you see is from 14:10:00."), "{}", all[0].sentence);
        assert_eq!((all[0].said.as_deref(), all.len()), (Some("connection refused"), 2));
        let blind = findings(&Seen { look: None, gone: Some(gone) });
        assert!(blind[0].sentence.ends_with("there is nothing to show yet."));
    }

    #[test]
    fn faults_come_before_warnings() {
        let paused = RouteRecord { paused_at: Some(now()), ..route("Order", "Paid") };
        let stats = Stats { dead: 1, ..Stats::default() };
        let seen = Seen {
            look: Some(Arc::new(Look { routes: vec![paused], stats, dead: dead(1, "Paid", "x"), ..look() })),
            gone: None,
        };
        let all: Vec<Severity> = findings(&seen).iter().map(|finding| finding.severity).collect();
        assert_eq!(all, [Severity::Fault, Severity::Warning]);
    }
}
