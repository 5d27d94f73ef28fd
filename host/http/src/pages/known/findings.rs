//! The findings of the status line: what is wrong, the worst first, each with a link to its cause. Pure: facts in, sentences
//! out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use outbox::node::{HostSink, Relays, names_sink, sinks};
use outbox::readiness::{Unready, UnreadyCode};
use outbox::why::Pauses;
use outbox_event::text::escape;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, figure, number, relative_to, span};
use outbox_event::{PluginState, SinkStatus};
use outbox_listener::{NO_LISTENER, is_unroutable};
use outbox_store::{NodeRecord, RouteRecord, WaitReason};

use super::groups::{Group, groups};
use super::plugins::{self, LivePlugin};
use super::sinks::{DownSink, down};
use super::snapshot::{Known, SAMPLE, Snapshot};
use crate::pages::link::{Link, encoded, query};
use crate::pages::words::{clock, short, verb, visible};
use crate::standing::RouteCounts;

/// If a due event waits longer than this, the hosts are falling behind.
const LONG_WAIT: Duration = Duration::from_secs(60);

/// More findings of one kind than this are summed up in one: there may be any number of routes and plugins.
const ONE_BY_ONE: usize = 3;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// A person must act.
    Fault,
    /// It works, but will become a problem.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// One sentence, without the error.
    pub(crate) sentence: String,
    /// The error of the listener or the database.
    pub(crate) said: Option<String>,
    /// The page that shows its cause.
    pub(crate) link: Link,
    /// How many events it affects; `u64::MAX` for all.
    events: u64,
}

impl Finding {
    fn new(severity: Severity, sentence: impl Into<String>, to: impl Into<String>, word: &'static str) -> Self {
        Self { severity, sentence: sentence.into(), said: None, link: Link { to: to.into(), word }, events: 0 }
    }

    fn said(self, said: impl Into<String>) -> Self {
        Self { said: Some(short(&visible(&said.into()), 160)), ..self }
    }

    fn affecting(self, events: u64) -> Self {
        Self { events, ..self }
    }
}

/// Everything that is wrong, the worst first; nothing when all is well. `reasons` say why this host is not ready, and
/// `owner` is its ID.
pub(crate) fn findings(known: &Known, reasons: &[Unready], owner: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    all.extend(database(known));
    all.extend(reasons.iter().filter(|reason| !is_covered(reason, known, owner)).map(unready));
    if let Some(snapshot) = &known.snapshot {
        let now = snapshot.now();
        // Who is alive, and whether events move, cannot be known while the database does not answer.
        let current = known.outage.is_none().then_some(&**snapshot);
        all.extend(current.and_then(no_host));
        all.extend(current.and_then(refused));
        all.extend(current.into_iter().flat_map(aside));
        all.extend(sinks_down(snapshot, now));
        all.extend(plugins(snapshot));
        all.extend(dead(snapshot, now));
        all.extend(current.and_then(gone_hosts));
        all.extend(waits(snapshot, now));
        all.extend(paused(snapshot, now));
        all.extend(unanswered(snapshot));
        all.extend(current.and_then(behind));
    }
    // Stable: findings that affect as many events stay in the order above.
    all.sort_by_key(|finding| (finding.severity, Reverse(finding.events)));
    // The line about a database that does not answer tells the time itself.
    let old = known.snapshot.as_ref().filter(|_| known.outage.is_none()).and_then(|snapshot| counted(snapshot));
    if let (Some(first), Some(counted)) = (all.first_mut(), old) {
        first.sentence.push_str(&format!(" ({counted})"));
    }
    all
}

/// The status line when there is no finding.
pub(crate) fn calm(snapshot: &Snapshot, rate: Option<f64>) -> String {
    let live = snapshot.nodes.iter().filter(|node| node.alive).count() as u64;
    // "All well" beside no host would contradict itself, also where a host came after the snapshot.
    let mut parts =
        if live == 0 { vec!["No host is alive".to_owned()] } else { vec!["All well".to_owned(), count(live, "host")] };
    parts.extend(rate.map(|rate| format!("{}/s on this host", figure(rate))));
    match snapshot.stats.oldest_pending_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        Some(oldest) if snapshot.unfinished() > 0 => parts.push(format!("oldest event waiting {}", span(oldest))),
        _ => parts.push("no events waiting".to_owned()),
    }
    parts.extend(counted(snapshot));
    parts.join(" · ")
}

/// When the events were counted, where that is longer ago than a visitor would think.
fn counted(snapshot: &Snapshot) -> Option<String> {
    snapshot.time_if_old().map(|at| format!("counted at {}", utc(at, snapshot.now())))
}

/// `is` or `are` waiting, with the number in front.
fn waiting(events: u64) -> String {
    format!("{} {} waiting", count(events, "event"), verb(events, "is", "are"))
}

/// As [`clock`], with its zone.
fn utc(time: Timestamp, now: Timestamp) -> String {
    format!("{} UTC", clock(time, now))
}

fn database(known: &Known) -> Option<Finding> {
    let outage = known.outage.as_ref()?;
    let since = utc(outage.since, known.now());
    let sentence = match &known.snapshot {
        Some(_) => format!("The database does not answer; what you see is from {since}."),
        None => format!("The database has not answered since {since}, so there is nothing to show yet."),
    };
    // Whole: what to do stands at its end.
    let said = Some(short(&visible(&outage.why), 600));
    Some(Finding { said, events: u64::MAX, ..Finding::new(Severity::Fault, sentence, "hosts", "Show hosts") })
}

/// Whether another finding covers a reason why this host is not ready, or no person must act on it.
fn is_covered(reason: &Unready, known: &Known, owner: &str) -> bool {
    match reason.code {
        UnreadyCode::Stopping => true,
        UnreadyCode::PollerStuck | UnreadyCode::HeartbeatStuck => known.outage.is_some(),
        UnreadyCode::Plugin => known.snapshot.as_ref().is_some_and(|snapshot| {
            let own = snapshot.nodes.iter().filter(|node| node.alive && node.owner == owner).flat_map(outbox::node::plugins);
            let mut failed = own.filter(|plugin| Trouble::of(plugin.state) == Some(Trouble::Failed));
            failed.any(|plugin| {
                reason.message.starts_with(&format!("the required plugin {} does not serve: ", escape(&plugin.name)))
            })
        }),
        _ => false,
    }
}

/// A reason why this host is not ready: its `/readyz` answers 503.
fn unready(reason: &Unready) -> Finding {
    let sentence = "This host is not ready:";
    let finding = match reason.code {
        UnreadyCode::Plugin => Finding::new(Severity::Fault, sentence, "plugins", "Show plugins"),
        _ => Finding::new(Severity::Fault, sentence, "hosts", "Show hosts").affecting(u64::MAX),
    };
    // Not cut at the usual length: the message ends with what to do.
    Finding { said: Some(short(&visible(&reason.message), 600)), ..finding }
}

fn no_host(snapshot: &Snapshot) -> Option<Finding> {
    let events = snapshot.stats.new + snapshot.stats.retry + snapshot.stats.blocked;
    if events == 0 || snapshot.nodes.iter().any(|node| node.alive) {
        return None;
    }
    let sentence = format!("Nothing is being delivered: {}, and no host is alive.", waiting(events));
    Some(Finding::new(Severity::Fault, sentence, "hosts", "Show hosts").affecting(u64::MAX))
}

/// Outcomes that the database refuses.
fn refused(snapshot: &Snapshot) -> Option<Finding> {
    let hosts = || snapshot.nodes.iter().filter(|node| node.alive).map(|node| &node.refused);
    let events: u64 = hosts().map(|refused| u64::from(refused.count)).sum();
    let first = hosts().flat_map(|refused| &refused.first).min_by_key(|one| one.since)?;
    let sentence = match events {
        1 => "The database refuses to store the outcome of 1 event; the host retries it.".to_owned(),
        _ => format!("The database refuses to store the outcomes of {}; the hosts retry them.", count(events, "event")),
    };
    let finding = match first.event_id {
        Some(id) => Finding::new(Severity::Fault, sentence, format!("events/{}", encoded(id.as_str())), "Show event"),
        None => Finding::new(Severity::Fault, sentence, "hosts", "Show hosts"),
    };
    Some(finding.said(&first.error).affecting(events))
}

/// Sinks that take no messages, the one with the most waiting events first.
fn sinks_down(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let all = down(snapshot);
    if all.len() > ONE_BY_ONE {
        let events: u64 = all.iter().map(|sink| sink.waiting).sum();
        let and_wait = if events == 0 { String::new() } else { format!("; {}", waiting(events)) };
        let sentence = format!("{} sinks are down{and_wait}.", all.len());
        return vec![Finding::new(Severity::Fault, sentence, "sinks", "Show sinks").affecting(events)];
    }
    let finding = |sink: &DownSink| {
        // Elsewhere its events may be delivered; without events nothing is lost.
        let severity = if sink.other_hosts == 0 && sink.waiting > 0 { Severity::Fault } else { Severity::Warning };
        let sentence = format!(
            "Sink {} has been down{} since {}{}:",
            visible(&short(&sink.name, 80)),
            on_hosts(sink),
            utc(sink.outage.since, now),
            events_of_routes(sink)
        );
        Finding::new(severity, sentence, "sinks", "Show sinks").said(&*sink.outage.reason).affecting(sink.waiting)
    };
    all.iter().map(finding).collect()
}

/// The hosts that find the sink down, if others do not.
fn on_hosts(sink: &DownSink) -> String {
    match (sink.hosts.as_slice(), sink.other_hosts) {
        (_, 0) => String::new(),
        ([host], _) => format!(" on {}", visible(host)),
        (hosts, _) => format!(" on {} hosts", hosts.len()),
    }
}

/// The events that wait for the sink, with their routes; empty without waiting events.
fn events_of_routes(sink: &DownSink) -> String {
    let Some(first) = sink.routes.first().filter(|_| sink.waiting > 0) else { return String::new() };
    let first = visible(&short(&first.to_string(), 80));
    let routes = match (sink.routes.len() - 1).saturating_add(sink.more_routes) {
        0 => first,
        more => format!("{first} and {}", count(more as u64, "other route")),
    };
    format!("; {} of {routes} {} waiting", count(sink.waiting, "event"), verb(sink.waiting, "is", "are"))
}

/// Hosts that stand aside, since other hosts can deliver what they cannot.
fn aside(snapshot: &Snapshot) -> Vec<Finding> {
    let finding = |node: &NodeRecord| {
        let first = node.listeners.stalled.first().filter(|_| node.stands_aside())?;
        let more = node.listeners.stalled.len() - 1;
        let and_more = if more == 0 { String::new() } else { format!(" and {}", count(more as u64, "other route")) };
        let what = short(&visible(&first.to_string()), 100);
        let sentence = format!(
            "Host {} stands aside: it cannot deliver {what}{and_more}. Other hosts take over its events.",
            visible(&node.label)
        );
        Some(Finding::new(Severity::Warning, sentence, "hosts", "Show hosts").said(&*first.reason))
    };
    snapshot.nodes.iter().filter_map(finding).take(ONE_BY_ONE).collect()
}

/// What is wrong with a plugin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// No version of it is running.
    Failed,
    /// An older version is running.
    Older,
    /// It is paused because it failed too often.
    Paused,
}

impl Trouble {
    /// All of them, the worst first.
    const ALL: [Self; 3] = [Self::Failed, Self::Older, Self::Paused];

    /// `None` for a plugin that serves or may yet serve, and for a state that this version does not know.
    const fn of(state: PluginState) -> Option<Self> {
        match state {
            PluginState::Failed => Some(Self::Failed),
            PluginState::ServingOlder | PluginState::OlderLoads => Some(Self::Older),
            PluginState::Paused => Some(Self::Paused),
            PluginState::Serving | PluginState::Loads | PluginState::Loading | PluginState::Unknown => None,
        }
    }

    const fn severity(self) -> Severity {
        match self {
            Self::Failed => Severity::Fault,
            Self::Older | Self::Paused => Severity::Warning,
        }
    }

    fn of_one(self, LivePlugin { plugin, hosts }: &LivePlugin) -> String {
        let name = visible(&plugin.name);
        let on = match hosts.as_slice() {
            [host] => format!(" on {}", visible(host)),
            hosts => format!(" on {} hosts", hosts.len()),
        };
        match self {
            Self::Failed => format!("Plugin {name} failed to load{on}, and no version of it is running."),
            Self::Older => {
                let version = plugin.version.as_deref();
                let older =
                    version.map_or_else(|| "an older version".to_owned(), |version| format!("version {}", visible(version)));
                format!("The new file of plugin {name} failed to load{on}; {older} is still serving.")
            }
            Self::Paused => format!("Plugin {name} failed too often{on} and is paused for a while; its events wait."),
        }
    }

    fn of_many(self, plugins: usize) -> String {
        match self {
            Self::Failed => format!("{plugins} plugins failed to load."),
            Self::Older => format!("The new files of {plugins} plugins failed to load; older versions are still serving."),
            Self::Paused => format!("{plugins} plugins failed too often and are paused for a while; their events wait."),
        }
    }
}

fn plugins(snapshot: &Snapshot) -> Vec<Finding> {
    let all = plugins::of_all(&snapshot.nodes);
    let told = |trouble: Trouble| {
        let found: Vec<&LivePlugin> = all.iter().filter(|served| Trouble::of(served.plugin.state) == Some(trouble)).collect();
        let finding = |sentence: String| Finding::new(trouble.severity(), sentence, "plugins", "Show plugins");
        if found.len() > ONE_BY_ONE {
            return vec![finding(trouble.of_many(found.len()))];
        }
        let one = |served: &&LivePlugin| {
            let finding = finding(trouble.of_one(served));
            match &served.plugin.error {
                Some(error) => finding.said(error.clone()),
                None => finding,
            }
        };
        found.iter().map(one).collect()
    };
    Trouble::ALL.into_iter().flat_map(told).collect()
}

/// The largest group of the route with the most dead events among these groups.
fn of_worst_route(groups: &[Group]) -> Option<&Group> {
    let mut of_routes: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for group in groups {
        *of_routes.entry((&group.aggregate_type, &group.event_type)).or_default() += group.count;
    }
    let most = of_routes.values().copied().max()?;
    groups.iter().find(|group| of_routes[&(&*group.aggregate_type, &*group.event_type)] == most)
}

fn dead(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let dead = snapshot.stats.dead;
    if dead == 0 {
        return None;
    }
    let groups = groups(&snapshot.dead);
    let is_whole = dead <= u64::from(SAMPLE);
    let Some(largest) = of_worst_route(&groups) else {
        let sentence = format!("{} {} dead.", count(dead, "event"), verb(dead, "is", "are"));
        return Some(Finding::new(Severity::Fault, sentence, "dead", "Show dead events").affecting(dead));
    };
    if let Some(finding) = unroutable(snapshot) {
        return Some(finding);
    }
    let route = format!("{}/{}", visible(&largest.aggregate_type), visible(&largest.event_type));
    let is_of = |group: &Group| group.aggregate_type == largest.aggregate_type && group.event_type == largest.event_type;
    // Count, time and error are of the events of this one route.
    let of_route = groups.iter().filter(|group| is_of(group)).map(|group| group.count).sum::<u64>();
    // If there are more dead events than were read, the first is not known.
    let first = groups.iter().filter(|group| is_of(group)).filter_map(|group| group.first).min().filter(|_| is_whole);
    let before = match of_route {
        1 => String::new(),
        all if all == dead => ", the first".to_owned(),
        some => format!(", the first of these {}", number(some)),
    };
    let since = first.map_or_else(String::new, |first| format!("{before} since {}", utc(first, now)));
    let often = if largest.count == of_route { "" } else { ", most often" };
    let sentence = match (dead, is_whole) {
        (1, _) => format!("1 event of {route} has been dead{since}:"),
        (_, false) if of_route * 2 > snapshot.dead.len() as u64 => {
            format!("{} events are dead, the newest mostly of {route}{often}:", number(dead))
        }
        (_, false) => format!("{} events are dead, the newest most often of {route}:", number(dead)),
        (_, true) if of_route == dead => format!("{} events are dead, all of {route}{since}{often}:", number(dead)),
        (_, true) => format!("{} events are dead, {} of them of {route}{since}{often}:", number(dead), number(of_route)),
    };
    let to = if groups.len() == 1 && is_whole {
        format!("dead?{}", query(&[("aggregate_type", &largest.aggregate_type), ("event_type", &largest.event_type)]))
    } else {
        "dead".to_owned()
    };
    Some(Finding::new(Severity::Fault, sentence, to, "Show dead events").said(largest.error.clone()).affecting(dead))
}

/// A finding of its own if most dead events have one reason: no listener answers their routes.
fn unroutable(snapshot: &Snapshot) -> Option<Finding> {
    let given_up = snapshot.dead.iter().filter(|record| record.last_error.as_deref().is_some_and(is_unroutable));
    let routes: Vec<_> = given_up.map(|record| (&record.aggregate_type, &record.event_type)).collect();
    let different = routes.iter().collect::<HashSet<_>>().len();
    if different < 2 || routes.len() * 2 <= snapshot.dead.len() {
        return None;
    }
    let is_whole = snapshot.stats.dead <= u64::from(SAMPLE);
    let share = if is_whole { format!("{} of them", number(routes.len() as u64)) } else { "most of the newest".to_owned() };
    let sentence = format!(
        "{} events are dead, {share} because no listener answers their {} routes.",
        number(snapshot.stats.dead),
        number(different as u64)
    );
    let to = format!("dead?{}", query(&[("error", NO_LISTENER)]));
    Some(Finding::new(Severity::Fault, sentence, to, "Show dead events").affecting(snapshot.stats.dead))
}

/// Events that wait although their time has come, by the reasons that hosts noted. Events that wait for a sink that is down belong to
/// the finding of that sink.
fn waits(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let sinks: Vec<Vec<SinkStatus>> =
        snapshot.nodes.iter().filter(|node| node.alive && !node.stands_aside()).map(sinks).collect();
    let hosts: Vec<Relays> = sinks.iter().map(|sinks| Relays::of(sinks)).collect();
    let is_of = |wait: &WaitReason, known: &RouteRecord| {
        known.route.aggregate_type.as_str() == wait.aggregate_type && known.route.event_type.as_str() == wait.event_type
    };
    let is_explained_by_sink = |wait: &&WaitReason| {
        names_sink(&wait.reason) && snapshot.routes.iter().any(|known| is_of(wait, known) && HostSink::holds_up(&hosts, known))
    };
    let finding = |wait: &WaitReason| {
        let route = visible(&short(&format!("{}/{}", wait.aggregate_type, wait.event_type), 80));
        let (events, since) = (count(wait.events, "event"), span(now.since(wait.since)));
        let sentence = format!("{events} of {route} {} waiting, the first for {since}:", verb(wait.events, "is", "are"));
        let of_route =
            query(&[("status", "delayed"), ("aggregate_type", &wait.aggregate_type), ("event_type", &wait.event_type)]);
        let finding = Finding::new(Severity::Warning, sentence, format!("events?{of_route}"), "Show events");
        finding.said(wait.reason.clone()).affecting(wait.events)
    };
    snapshot.waits.iter().filter(|wait| !is_explained_by_sink(wait)).take(ONE_BY_ONE).map(finding).collect()
}

/// Hosts that are gone and whose partitions no other host has taken over yet.
fn gone_hosts(snapshot: &Snapshot) -> Option<Finding> {
    let gone: Vec<&NodeRecord> = snapshot.nodes.iter().filter(|node| !node.alive && node.partitions > 0).collect();
    let held = count(gone.iter().map(|node| u64::from(node.partitions)).sum(), "partition");
    let sentence = match gone.as_slice() {
        [] => return None,
        [node] => {
            format!("Host {} is gone and still owns {held}; a live host takes them over within seconds.", visible(&node.label))
        }
        nodes => format!("{} hosts are gone and still own {held}; a live host takes them over within seconds.", nodes.len()),
    };
    Some(Finding::new(Severity::Warning, sentence, "hosts", "Show hosts"))
}

fn paused(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let paused: Vec<&RouteRecord> = snapshot.routes.iter().filter(|known| known.paused_at.is_some()).collect();
    let and_wait = |parked: u64| if parked == 0 { String::new() } else { format!("; {}", waiting(parked)) };
    let to = "routes?state=paused";
    if paused.len() > ONE_BY_ONE {
        let pauses = Pauses::of(&snapshot.routes);
        let held = snapshot.routes.iter().filter(|known| pauses.holding(&known.route).next().is_some());
        let parked: u64 = held.map(|known| known.parked).sum();
        let sentence = format!("{} are paused{}.", count(paused.len() as u64, "route"), and_wait(parked));
        return vec![Finding::new(Severity::Warning, sentence, to, "Show paused routes").affecting(parked)];
    }
    let finding = |route: &RouteRecord| {
        let since = relative_to(route.paused_at?, now);
        let by = route.paused_by.as_deref().map_or_else(String::new, |by| format!(" by {}", visible(by)));
        let name = visible(&route.route.to_string());
        let parked = RouteCounts::of(&route.route, &snapshot.routes).parked;
        let sentence = format!("Route {name} was paused {since}{by}{}.", and_wait(parked));
        let finding = Finding::new(Severity::Warning, sentence, to, "Show paused routes").affecting(parked);
        Some(match &route.pause_reason {
            Some(reason) => finding.said(reason.clone()),
            None => finding,
        })
    };
    paused.into_iter().filter_map(finding).collect()
}

/// Parked events whose route is not paused: no host has a listener for them.
fn unanswered(snapshot: &Snapshot) -> Option<Finding> {
    let pauses = Pauses::of(&snapshot.routes);
    let is_open = |known: &&RouteRecord| known.parked > 0 && pauses.holding(&known.route).next().is_none();
    let open: Vec<&RouteRecord> = snapshot.routes.iter().filter(is_open).collect();
    let events: u64 = open.iter().map(|known| known.parked).sum();
    let listener = match open.as_slice() {
        [] => return None,
        [known] => format!("a listener for {}", visible(&known.route.to_string())),
        more => format!("listeners for {} routes", number(more.len() as u64)),
    };
    let sentence = format!("{} for {listener}.", waiting(events));
    Some(Finding::new(Severity::Warning, sentence, "events?status=parked", "Show parked events").affecting(events))
}

fn behind(snapshot: &Snapshot) -> Option<Finding> {
    let oldest = Duration::try_from_secs_f64(snapshot.stats.oldest_pending_seconds?).ok()?;
    if oldest < LONG_WAIT || !snapshot.nodes.iter().any(|node| node.alive) {
        return None;
    }
    // An event that waits for its receiver or listener does not mean that the hosts are slow.
    let is_explained = |wait: &WaitReason| snapshot.now().since(wait.since) + LONG_WAIT >= oldest;
    if snapshot.waits.iter().any(is_explained) {
        return None;
    }
    // Without a count: many of the waiting events may not be due yet.
    let sentence = format!("The hosts are falling behind: an event that is due has been waiting for {}.", span(oldest));
    let status = if snapshot.stats.new == 0 { "retry" } else { "new" };
    Some(Finding::new(Severity::Warning, sentence, format!("events?status={status}"), "Show waiting events"))
}

#[cfg(test)]
mod tests;
