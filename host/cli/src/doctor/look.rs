//! What only the program looks at: settings, plugins, other hosts, routes, events. Pure, but for the plugins.

mod routes;
mod served;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use outbox::listener::{Cause, error_kind, is_unroutable};
use outbox::node::{HostSink, Relays, SinkStatus, live_sinks, names_sink};
use outbox::store::{Finding, NodeRecord, Record, RefusedOutcome, RefusedOutcomes, RouteRecord, Stats, WaitReason};
use outbox::time::Timestamp;
use outbox::wasm::Manifest;
use outbox::{Mode, Route, Status};

use crate::config::{Flags, Settings};
use crate::host;
use crate::output::{argument, count, relative_to, routes as names, short, shown, span};
use crate::plugins::{self, PluginState, PluginStatus};
pub(super) use routes::{Here, routes};
pub(super) use served::served_by_hosts;

/// A due event that has waited for this long is a sign that nobody delivers, or too slowly.
const LONG: Duration = Duration::from_secs(5 * 60);

/// The most refused outcomes that are named one by one.
const LISTED: usize = 3;

/// The most sinks whose names are listed beside those that have a finding.
const MORE_SINKS: usize = 10;

/// The mode in which a host takes the table to be its own.
const ALONE: &str = "single_node";
/// Modes that keep an order, as long as every host on the table runs in the same one.
const IN_ORDER: [&str; 2] = ["ordered", "ordered_by_aggregate"];

/// Whoever gets here has a valid configuration.
pub(super) fn settings(settings: &Settings) -> Vec<Finding> {
    let from = settings.file.as_ref().map_or_else(
        || "defaults, environment and flags are valid; no outbox.toml here".to_owned(),
        |file| format!("{}, environment and flags are valid", file.display()),
    );
    let ignored = settings.layers.warnings().map(|ignored| Finding::warning("configuration", &ignored.what, &ignored.fix));
    std::iter::once(Finding::good("configuration", from)).chain(ignored).collect()
}

/// What was found in the plugins directory, and what its plugins answer.
#[derive(Default)]
pub(super) struct Plugins {
    /// When `none_here`, the first one says so.
    pub(super) findings: Vec<Finding>,
    /// Empty also when that is not known: no directory, or hosts whose listeners are code.
    pub(super) routes: Vec<Route>,
    /// Every manifest that can be read: of the configuration, and beside components.
    pub(super) manifests: BTreeMap<String, Manifest>,
    /// Whether plugins are wanted, and the directory is missing or holds no component.
    pub(super) none_here: bool,
    /// Those that do not load here.
    pub(super) failed: Vec<PluginStatus>,
}

/// Loads every plugin, without serving it.
pub(super) async fn plugins(settings: &Settings) -> Plugins {
    let config = &settings.config;
    let manifests = config.plugins.manifests.clone();
    let alone = |finding| Plugins { findings: vec![finding], manifests: manifests.clone(), ..Plugins::default() };
    if config.mode == Mode::WriterOnly {
        return alone(Finding::good("plugins", "mode is writer_only: this host delivers nothing"));
    }
    if !host::wants_plugins(config) {
        return alone(Finding::good("plugins", "no plugins directory: this host only relays to sinks"));
    }
    let dir = config.plugins.dir.display();
    if !config.plugins.dir.exists() {
        let what = format!("the plugins directory {dir} does not exist, and `outbox run` does not start without it");
        let fix = format!("mkdir -p {}\nor name another directory with plugins.dir", argument(&dir.to_string()));
        return Plugins { none_here: true, ..alone(Finding::fault("plugins", what, fix)) };
    }
    match plugins::inspect(config).await {
        Err(error) => {
            let fix = format!("correct {dir}, or name another directory with plugins.dir");
            alone(Finding::fault("plugins", outbox::chain(&error), fix))
        }
        Ok(found) => {
            let sections = config.plugins.manifests.keys().map(String::as_str).collect();
            let routes = found.iter().flat_map(|plugin| plugin.routes.clone()).collect();
            let mut findings = of_plugins(&dir.to_string(), &found, &sections);
            let stray = |what: String| Finding::warning("plugins", what, format!("rename it, or delete it from {dir}"));
            findings.extend(plugins::strays(&config.plugins.dir).into_iter().map(stray));
            let beside =
                found.iter().filter_map(|plugin| Some((plugin.name.clone(), plugins::manifest(&plugin.name, config)?)));
            let manifests = manifests.into_iter().chain(beside).collect();
            findings.extend(absent(&dir.to_string(), &config.plugins.required, &found));
            let none_here = found.is_empty();
            let failed =
                found.into_iter().filter(|plugin| plugin.state == PluginState::Failed).map(served::with_digest).collect();
            Plugins { findings, routes, manifests, none_here, failed }
        }
    }
}

/// The file of the database, which is made by hand, so that a misspelt name is no new outbox.
pub(super) fn missing_file(file: &Path, settings: &Settings) -> Finding {
    let what = format!("the SQLite file {} does not exist", file.display());
    let fix = format!(
        "outbox migrate up{}\nor correct database.url; the rest of the examination needs the file",
        settings.flags(&["database.url"])
    );
    Finding::fault("connection", what, fix)
}

/// Plugins without which a host is not ready, and which are not there at all.
fn absent(dir: &str, required: &BTreeSet<String>, found: &[PluginStatus]) -> Vec<Finding> {
    let is_absent = |name: &&String| !found.iter().any(|plugin| plugin.name == **name);
    let finding = |name: &String| {
        let what = format!("plugins.required names {name}, but {dir} holds no {name}.wasm, so a host does not become ready");
        let fix = format!("copy the component to {dir}/{name}.wasm, or take {name} out of plugins.required");
        Finding::fault("plugins", what, fix)
    };
    required.iter().filter(is_absent).map(finding).collect()
}

fn of_plugins(dir: &str, found: &[PluginStatus], sections: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if found.is_empty() {
        let is_empty = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
        let holds = if is_empty { "is empty" } else { "holds no plugins" };
        let what = format!("the directory {dir} {holds}, so no plugin answers any route");
        findings.push(Finding::warning("plugins", what, format!("copy a component there as {dir}/NAME.wasm")));
    }
    let (bad, good): (Vec<_>, Vec<_>) =
        found.iter().partition(|plugin| !matches!(plugin.state, PluginState::Loads | PluginState::Serving));
    findings.extend(bad.into_iter().map(cannot_serve));
    for name in sections.iter().filter(|name| !found.iter().any(|plugin| plugin.name == **name)) {
        let what = format!("the configuration has a section [plugins.{name}], but {dir} holds no {name}.wasm");
        findings.push(Finding::warning(
            "plugins",
            what,
            format!("copy the component to {dir}/{name}.wasm, or delete the section"),
        ));
    }
    findings.extend(good.into_iter().map(|plugin| {
        let version = plugin.version.as_deref().unwrap_or("without a version");
        Finding::good("plugins", format!("{} {version} answers {}", plugin.name, short(&names(&plugin.routes), 100)))
    }));
    findings
}

/// A plugin whose file does not load as it is now, whether or not a version that served before still does.
fn cannot_serve(plugin: &PluginStatus) -> Finding {
    let (name, why) = (&plugin.name, plugin.error.as_deref().unwrap_or("it could not be loaded"));
    let fix = format!("when that is fixed: outbox plugin check {}", argument(&plugin.file.to_string_lossy()));
    if plugin.state == PluginState::Failed {
        return Finding::fault("plugins", format!("{name} cannot serve: {why}"), fix);
    }
    let version =
        plugin.version.as_deref().map_or_else(|| "the version before".to_owned(), |version| format!("version {version}"));
    let routes = short(&names(&plugin.routes), 100);
    let what = format!("{name}: its file cannot serve as it is now: {why}; {version}, which served before, answers {routes}");
    Finding::warning("plugins", what, fix)
}

/// Where running hosts have their plugins from, which are no fault then where there are none in this directory.
pub(super) fn served_elsewhere(nodes: &[NodeRecord], dir: &Path, flags: &Flags) -> Option<Finding> {
    let live = nodes.iter().filter(|node| node.alive);
    let served = live.flat_map(outbox::node::plugins);
    let dirs: BTreeSet<String> = served.filter_map(|plugin| Some(argument(&plugin.file.parent()?.to_string_lossy()))).collect();
    let dir_there = dirs.first()?;
    let again = flags.command(&format!("outbox doctor --plugins {dir_there}"));
    let others = dirs.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let lacks = if dir.exists() { "holds no plugins" } else { "does not exist here" };
    let what = format!("{} {lacks}, but hosts that run serve plugins from {others}; to look at those: {again}", dir.display());
    Some(Finding::good("plugins", what))
}

/// Outcomes that the database refuses to hosts although it stores others.
pub(super) fn refused(nodes: &[NodeRecord], flags: &Flags) -> Option<Finding> {
    let refused: Vec<&RefusedOutcomes> = nodes.iter().filter(|node| node.alive).map(|node| &node.refused).collect();
    let events: u64 = refused.iter().map(|refused| u64::from(refused.count)).sum();
    if events == 0 {
        return None;
    }
    let mut named: Vec<&RefusedOutcome> = refused.iter().flat_map(|refused| &refused.first).collect();
    named.sort_by_key(|one| (one.since, one.seq));
    let outcomes = if events == 1 { "outcome" } else { "outcomes" };
    let mut what = format!(
        "the database refuses to store the {outcomes} of {}; the hosts retry, and call no listener again",
        count(events, "event")
    );
    for one in named.iter().take(LISTED) {
        let id = one.event_id.map_or_else(String::new, |id| format!(", {id}"));
        what.push_str(&format!("\nseq {}{id}: {}", one.seq, shown(&one.error)));
    }
    let more = events.saturating_sub(u64::try_from(named.len().min(LISTED)).unwrap_or(0));
    if more > 0 {
        what.push_str(&format!("\nand {more} more"));
    }
    let example = named.iter().find_map(|one| one.event_id);
    let explain = example.map(|id| format!("\n{}", flags.command(&format!("outbox event why {id}")))).unwrap_or_default();
    let fix = format!(
        "find the trigger, constraint or row-level policy of the table that rejects the change, or grant the missing right \
         (`outbox doctor --grants`); the hosts then store the outcomes by themselves, within about a minute. Do not restart them before: \
         their events would be delivered again{explain}"
    );
    Some(Finding::fault("outcomes", what, fix))
}

/// Hosts that stand aside, since other hosts can deliver what they cannot.
pub(super) fn aside(nodes: &[NodeRecord], now: Timestamp) -> Vec<Finding> {
    let finding = |node: &NodeRecord| {
        let first = node.listeners.stalled.first().filter(|_| node.stands_aside())?;
        let mut what = format!("{} stands aside: another host reports fewer stalled routes. It cannot deliver:", node.label);
        for stalled in node.listeners.stalled.iter().take(LISTED) {
            let (route, reason) = (short(&stalled.to_string(), 160), short(&stalled.reason, 300));
            what.push_str(&format!("\n{route}, for {}: {reason}", span(now.since(stalled.since))));
        }
        let remedy = if first.is_all() {
            "compare its connections to the database with those of the other hosts: limits, addresses, proxies, its password, the rights of its user"
        } else {
            "compare that host with the others: its network and names, its files, its credentials"
        };
        let fix = format!("{remedy}; it retries by itself, after 30 s at first and after 10 min at most");
        Some(Finding::warning("nodes", what, fix))
    };
    nodes.iter().filter_map(finding).collect()
}

/// Sinks that live hosts find down, those with the most waiting events first. Ignores hosts that stand aside, which are a finding
/// of their own. No finding without sinks.
pub(super) fn sinks(nodes: &[NodeRecord], routes: &[RouteRecord], flags: &Flags, now: Timestamp) -> Vec<Finding> {
    let of_node = |node: &NodeRecord| if node.stands_aside() { Vec::new() } else { outbox::node::sinks(node) };
    let mut seen = live_sinks(nodes, routes, of_node);
    if seen.is_empty() {
        return Vec::new();
    }
    seen.sort_by_key(|one| Reverse(one.waiting));
    // One finding for each sink, however many hosts find it down: the wait reasons of each sink's events are not listed.
    let mut of_sinks: Vec<(&HostSink, u64)> = Vec::new();
    for one in seen.iter().filter(|one| one.sink.is_down() && one.sink.outage.is_some()) {
        match of_sinks.iter_mut().find(|(first, _)| first.sink.name == one.sink.name) {
            Some((_, other_hosts)) => *other_hosts += 1,
            None => of_sinks.push((one, 0)),
        }
    }
    let finding = |(HostSink { host, sink, waiting }, other_hosts): &(&HostSink, u64)| {
        let outage = sink.outage.as_ref()?;
        let and_others = match other_hosts {
            0 => String::new(),
            hosts => format!(" and {}", count(*hosts, "other host")),
        };
        let what = format!(
            "the sink {} has been down on {}{and_others} for {}, and {} for it: {}",
            short(&sink.name, 64),
            short(host, 64),
            span(now.since(outage.since)),
            match waiting {
                1 => "1 event waits".to_owned(),
                events => format!("{} wait", count(*events, "event")),
            },
            short(&outage.reason, 300)
        );
        let test = flags.command(&format!("outbox sinks test {}", argument(&sink.name)));
        let fix = format!("remove the cause; the host tries again by itself, and counts no failure of relayed events\n{test}");
        Some(Finding::warning("sinks", what, fix))
    };
    if of_sinks.is_empty() {
        return vec![Finding::good("sinks", "no sink is down")];
    }
    let mut findings: Vec<Finding> = of_sinks.iter().filter_map(finding).take(LISTED).collect();
    if let Some(more) = of_sinks.get(LISTED..).filter(|more| !more.is_empty()) {
        let names = more.iter().map(|(one, _)| short(&one.sink.name, 64)).take(MORE_SINKS).collect::<Vec<_>>().join(", ");
        let and_more = if more.len() > MORE_SINKS { format!(", and {} more", more.len() - MORE_SINKS) } else { String::new() };
        let what = format!("also down: {names}{and_more}");
        findings.push(Finding::warning("sinks", what, flags.command("outbox sinks list")));
    }
    findings
}

/// Finished events that purges have not deleted, although they are old enough. `oldest` is the one with the lowest `seq`.
pub(super) fn overdue(status: Status, events: u64, oldest: Option<&Record>, flags: &Flags) -> Finding {
    let (setting, command) = match status {
        Status::Dead => ("purge.dead_retention", "outbox purge --dead"),
        _ => ("purge.retention", "outbox purge"),
    };
    let (is, them) = if events == 1 { ("is", "it") } else { ("are", "them") };
    let oldest = oldest.map_or_else(String::new, |record| format!("; the oldest: seq {}, {}", record.seq, record.event_id));
    let what = format!(
        "{} {is} older than {setting} allows, and two purges have not deleted {them}{oldest}",
        count(events, &format!("{status} event"))
    );
    let fix = format!(
        "{}\nnames each event that the database does not delete, with the reason, and deletes the others\n\
         if no host is running, start one with `outbox run`: a host purges by itself",
        flags.command(command)
    );
    Finding::warning("purge", what, fix)
}

/// The hosts that work on the table, and whether their modes go together. `without_lock` are the owners of leases whose session's lock is free.
pub(super) fn nodes(nodes: &[NodeRecord], without_lock: &[String]) -> Vec<Finding> {
    let (killed, live): (Vec<&NodeRecord>, Vec<&NodeRecord>) =
        nodes.iter().filter(|node| node.alive).partition(|node| without_lock.contains(&node.owner));
    let named = |nodes: &[&NodeRecord]| {
        let names: Vec<String> = nodes.iter().map(|node| format!("{} ({})", node.label, node.mode)).collect();
        names.join(", ")
    };
    let others = |one: &NodeRecord| {
        let others: Vec<&NodeRecord> = live.iter().copied().filter(|node| node.owner != one.owner).collect();
        named(&others)
    };
    let mut findings = Vec::new();
    if live.len() > 1
        && let Some(alone) = live.iter().find(|node| node.mode == ALONE)
    {
        let what = format!("{} runs as {ALONE}, but others work on the table, too: {}", alone.label, others(alone));
        let fix = "stop all but one, or set mode = \"multi_node\" for all of them; one that was killed is forgotten when its lease ends";
        findings.push(Finding::warning("nodes", what, fix));
    }
    if let Some(ordered) = live.iter().find(|node| IN_ORDER.contains(&node.mode.as_str()))
        && live.iter().any(|node| node.mode != ordered.mode)
    {
        let mode = &ordered.mode;
        let what = format!("{} keeps an order ({mode}) that other hosts do not: {}", ordered.label, others(ordered));
        findings.push(Finding::fault("nodes", what, format!("set mode = \"{mode}\" for all of them, or for none")));
    }
    let versions: BTreeSet<&str> = live.iter().map(|node| node.version.as_str()).collect();
    let version = versions.into_iter().collect::<Vec<_>>().join(" and ");
    if findings.is_empty() && !live.is_empty() {
        let many = count(u64::try_from(live.len()).unwrap_or(u64::MAX), "live host");
        findings.push(Finding::good("nodes", format!("{many}, version {version}: {}", named(&live))));
    }
    if !killed.is_empty() {
        let what = format!("a host's lease has not ended, but its session has; was it killed? {}", named(&killed));
        let fix = "if no other host runs, start one: it takes over within about 5 s (`outbox migrate reset` is refused until the lease ends)";
        findings.push(Finding::warning("nodes", what, fix));
    }
    if findings.is_empty() {
        findings.push(Finding::good("nodes", "no host is running"));
    }
    findings
}

/// Events that wait although their time has come, by the reasons that hosts noted. Events that wait for a sink that is down belong to the
/// finding of that sink.
pub(super) fn waits(
    waits: &[WaitReason],
    nodes: &[NodeRecord],
    routes: &[RouteRecord],
    flags: &Flags,
    now: Timestamp,
) -> Vec<Finding> {
    let live = nodes.iter().filter(|node| node.alive && !node.stands_aside());
    let sinks: Vec<Vec<SinkStatus>> = live.map(outbox::node::sinks).collect();
    let hosts: Vec<Relays> = sinks.iter().map(|sinks| Relays::of(sinks)).collect();
    let is_of = |wait: &WaitReason, known: &RouteRecord| {
        known.route.aggregate_type.as_str() == wait.aggregate_type && known.route.event_type.as_str() == wait.event_type
    };
    let is_explained_by_sink = |wait: &&WaitReason| {
        names_sink(&wait.reason) && routes.iter().any(|known| is_of(wait, known) && HostSink::holds_up(&hosts, known))
    };
    let finding = |wait: &WaitReason| {
        let verb = if wait.events == 1 { "waits" } else { "wait" };
        let (events, route) = (count(wait.events, "event"), format!("{}/{}", wait.aggregate_type, wait.event_type));
        let what = format!(
            "{events} of {} {verb}, the oldest has been due for {}: {}",
            short(&route, 160),
            span(now.since(wait.since)),
            short(&wait.reason, 300)
        );
        let list = format!("outbox event list --status delayed --route {}", argument(&route));
        let remedy = if is_unroutable(&wait.reason) {
            "add a plugin, listener or relay for this route, or correct the name where the events are written: after dispatcher.unroutable_grace \
             they are DEAD"
        } else {
            "remove the cause; the host then delivers them by itself, and counts no failure"
        };
        let fix = format!("{remedy}\n{}", flags.command(&list));
        Finding::warning("waiting", what, fix)
    };
    waits.iter().filter(|wait| !is_explained_by_sink(wait)).take(LISTED).map(finding).collect()
}

/// Failed events that wait for another attempt: how many, and what the newest of them say. An event that fails stands nowhere
/// else before it is dead.
pub(super) fn retries(waiting: u64, newest: &[Record], flags: &Flags) -> Finding {
    if waiting == 0 {
        return Finding::good("retry", "no failed event waits for another attempt");
    }
    let error = most_often(newest.iter().filter_map(|record| record.last_error.as_deref()), error_kind);
    let said = error.map_or_else(String::new, |error| format!("; most often: {}", short(error, 160)));
    let is_breakage = error.and_then(|error| Cause::from_code(error_kind(error))).is_some_and(Cause::is_breakage);
    let breaker = if is_breakage {
        "\na listener that keeps breaking is paused by its host for breaker.pause, again and again: its log says `the listener keeps \
         breaking`"
    } else {
        ""
    };
    let wait = if waiting == 1 { "waits" } else { "wait" };
    let what = format!("{} failed and {wait} for another attempt{said}", count(waiting, "event"));
    let then = flags.command("outbox event why ID");
    Finding::warning("retry", what, format!("{}\nthen {then}{breaker}", flags.command("outbox event list --status retry")))
}

/// The first of the texts whose kind is the most frequent one.
fn most_often<'t>(texts: impl Iterator<Item = &'t str>, kind: fn(&str) -> &str) -> Option<&'t str> {
    let mut kinds: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    for text in texts {
        kinds.entry(kind(text)).or_insert((0, text)).0 += 1;
    }
    kinds.into_values().max_by_key(|(times, _)| *times).map(|(_, text)| text)
}

/// Events that were given up: how many, and what the newest of them say. What they say may be over, so that its age is told.
pub(super) fn dead(dead: u64, newest: &[Record], flags: &Flags, now: Timestamp) -> Finding {
    if dead == 0 {
        return Finding::good("dead", "no event was given up");
    }
    let error = most_often(newest.iter().filter_map(|record| record.last_error.as_deref()), error_kind);
    let of_kind = |record: &&Record| record.last_error.as_deref().map(error_kind) == error.map(error_kind);
    let last = newest.iter().filter(of_kind).filter_map(|record| record.done_at).max();
    // Some died after the time was asked for.
    let last = last.map(|last| last.min(now));
    let last = last.map_or_else(String::new, |last| format!("; last {}", relative_to(last, now)));
    let said = error.map_or_else(String::new, |error| format!("; most often: {}{last}", short(error, 160)));
    let before = if error.is_some_and(is_unroutable) {
        "before a replay, add a plugin, listener or relay for their routes, or they are given up again"
    } else {
        "before a replay, see that its cause is gone, or they are given up again"
    };
    let commands =
        [("list", "shows them"), ("replay ID", "delivers one again, --all all of them"), ("discard ID", "deletes one")];
    let commands = commands.map(|(words, what)| format!("{}  {what}", flags.command(&format!("outbox dead {words}"))));
    Finding::warning("dead", format!("{} given up{said}", count(dead, "event")), format!("{before}\n{}", commands.join("\n")))
}

/// How the unfinished events stand, on the whole.
pub(super) fn events(stats: &Stats, somebody_delivers: bool, flags: &Flags) -> Vec<Finding> {
    let mut findings = Vec::new();
    if stats.blocked > 0 {
        let what = format!("{} behind an earlier one of their aggregate", count(stats.blocked, "event"));
        findings.push(Finding::warning(
            "blocked",
            what,
            format!("{}\nthen {}", flags.command("outbox route blocked"), flags.command("outbox event why ID")),
        ));
    } else {
        findings.push(Finding::good("blocked", "no event waits behind another"));
    }
    let oldest = stats.oldest_pending_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let waited = |age| format!("the oldest due event has waited for {}", span(age));
    findings.push(match oldest {
        None => Finding::good("pending", "no event is due"),
        Some(age) if !somebody_delivers => {
            let what = format!("{}, and no host that delivers is running", waited(age));
            Finding::warning("pending", what, "start one with `outbox run`")
        }
        Some(age) if age < LONG => Finding::good("pending", waited(age)),
        Some(age) => {
            let fix = "see what holds it: outbox event list --status new --limit 1, then outbox event why ID; more workers or hosts help when all are busy";
            Finding::warning("pending", waited(age), fix)
        }
    });
    findings
}

#[cfg(test)]
mod tests;
