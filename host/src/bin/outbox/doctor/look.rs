//! What only the program looks at: settings, plugins, other hosts, routes, events. Pure, but for the plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use outbox::listener::error_kind;
use outbox::store::{Finding, NodeRecord, Record, RouteRecord, Stats};
use outbox::time::Timestamp;
use outbox::why::{Pauses, passed_over, resume_command};
use outbox::{Mode, Route};

use crate::config::{Flags, Settings};
use crate::host;
use crate::output::{argument, count, short, span};
use crate::plugin::routes as names;
use crate::plugins::{self, PluginState, PluginStatus};

/// A due event that has waited for so long is a sign that nobody delivers, or too slowly.
const LONG: Duration = Duration::from_secs(5 * 60);

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
pub(super) struct Plugins {
    pub(super) findings: Vec<Finding>,
    /// `None` when that is not known: no directory, or hosts whose listeners are code.
    pub(super) routes: Option<Vec<Route>>,
}

/// Loads every plugin, without serving it.
pub(super) async fn plugins(settings: &Settings) -> Plugins {
    let config = &settings.config;
    let alone = |finding| Plugins { findings: vec![finding], routes: None };
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
        return alone(Finding::fault("plugins", what, fix));
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
            Plugins { findings, routes: Some(routes) }
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

fn of_plugins(dir: &str, found: &[PluginStatus], sections: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (failed, serving): (Vec<_>, Vec<_>) = found.iter().partition(|plugin| plugin.state == PluginState::Failed);
    for plugin in failed {
        let (name, why) = (&plugin.name, plugin.error.as_deref().unwrap_or("it could not be loaded"));
        let fix = format!("when that is fixed: outbox plugin check {}", argument(&plugin.file.to_string_lossy()));
        findings.push(Finding::fault("plugins", format!("{name} cannot serve: {why}"), fix));
    }
    for name in sections.iter().filter(|name| !found.iter().any(|plugin| plugin.name == **name)) {
        let what = format!("the configuration has a section [plugins.{name}], but {dir} holds no {name}.wasm");
        findings.push(Finding::warning(
            "plugins",
            what,
            format!("copy the component to {dir}/{name}.wasm, or delete the section"),
        ));
    }
    if found.is_empty() {
        let what = format!("{dir} holds no plugins, so nobody answers");
        findings.push(Finding::warning("plugins", what, format!("copy a component there as {dir}/NAME.wasm")));
    }
    for plugin in serving {
        let version = plugin.version.as_deref().unwrap_or("without a version");
        let routes = short(&names(&plugin.routes), 100);
        findings.push(Finding::good("plugins", format!("{} {version} answers {routes}", plugin.name)));
    }
    findings
}

/// Where running hosts have their plugins from, if not from this directory: that it is missing here is no fault then.
pub(super) fn served_elsewhere(nodes: &[NodeRecord], dir: &Path, flags: &Flags) -> Option<Finding> {
    if dir.exists() {
        return None;
    }
    let live = nodes.iter().filter(|node| node.alive);
    let served = live.flat_map(outbox::node::plugins);
    let dirs: BTreeSet<String> = served.filter_map(|plugin| Some(argument(&plugin.file.parent()?.to_string_lossy()))).collect();
    let dir_there = dirs.first()?;
    let again = flags.command(&format!("outbox doctor --plugins {dir_there}"));
    let others = dirs.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let what = format!(
        "{} does not exist here, but hosts that run serve plugins from {others}; to look at those: {again}",
        dir.display()
    );
    Some(Finding::good("plugins", what))
}

/// Who else works on the table, and whether they go together.
pub(super) fn nodes(nodes: &[NodeRecord]) -> Vec<Finding> {
    let live: Vec<&NodeRecord> = nodes.iter().filter(|node| node.alive).collect();
    let named = |nodes: &[&NodeRecord]| {
        let names: Vec<String> = nodes.iter().map(|node| format!("{} ({})", node.label, node.mode)).collect();
        names.join(", ")
    };
    if live.is_empty() {
        return vec![Finding::good("nodes", "no host says that it works on this table now")];
    }
    let mut findings = Vec::new();
    if live.len() > 1
        && let Some(alone) = live.iter().find(|node| node.mode == ALONE)
    {
        let what = format!("{} runs as {ALONE}, but others work on the table, too: {}", alone.label, named(&live));
        let fix = "stop all but one, or set mode = \"multi_node\" for all of them; one that was killed is forgotten when its lease ends";
        findings.push(Finding::warning("nodes", what, fix));
    }
    if let Some(ordered) = live.iter().find(|node| IN_ORDER.contains(&node.mode.as_str()))
        && live.iter().any(|node| node.mode != ordered.mode)
    {
        let mode = &ordered.mode;
        let what = format!("{} keeps an order ({mode}) that other hosts do not: {}", ordered.label, named(&live));
        findings.push(Finding::fault("nodes", what, format!("set mode = \"{mode}\" for all of them, or for none")));
    }
    let versions: BTreeSet<&str> = live.iter().map(|node| node.version.as_str()).collect();
    let version = versions.into_iter().collect::<Vec<_>>().join(" and ");
    if findings.is_empty() {
        let many = count(u64::try_from(live.len()).unwrap_or(u64::MAX), "live host");
        findings.push(Finding::good("nodes", format!("{many}, version {version}: {}", named(&live))));
    }
    findings
}

/// What is known of the host that would run here.
#[derive(Default)]
pub(super) struct Here {
    /// What its plugins answer; `None` when that is not known.
    pub(super) answered: Option<Vec<Route>>,
    /// What its relays take: routes and patterns.
    pub(super) relays: Vec<Route>,
    pub(super) plugins_dir: PathBuf,
    pub(super) flags: Flags,
}

/// Routes whose events wait for something that somebody has to do.
pub(super) fn routes(routes: &[RouteRecord], here: &Here, now: Timestamp) -> Vec<Finding> {
    let is_answered = |route: &Route| here.answered.as_ref().is_some_and(|answered| answered.contains(route));
    let mut findings = Vec::new();
    let pauses = Pauses::of(routes);
    for known in routes {
        let (route, parked) = (&known.route, count(known.parked, "event"));
        if let Some(since) = known.paused_at {
            let parked: u64 = routes.iter().filter(|held| route.covers(&held.route)).map(|held| held.parked).sum();
            let by = known.paused_by.as_deref().unwrap_or("an unknown user");
            let why = known.pause_reason.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
            let held = if parked > 0 { format!("; {} held back", count(parked, "event")) } else { String::new() };
            let what = format!("{route} has been paused by {by} for {}{why}{held}", span(now.since(since)));
            findings.push(Finding::warning(
                "routes",
                what,
                format!("when that is over: {}", here.flags.command(&resume_command(route))),
            ));
        } else if pauses.holding(route).next().is_some() {
            // The pattern that holds it is told of.
        } else if known.parked > 0 {
            let fix = if is_answered(route) {
                "a plugin here answers it: start a host with `outbox run`, which lets them go on".to_owned()
            } else {
                let relay = known.first_seen_at.and_then(|_| passed_over(route, &here.relays));
                let relay = relay.map_or_else(String::new, |why| format!("\n{why}"));
                format!("bring back a plugin or listener that answers {route}; see `outbox plugin list`{relay}")
            };
            let never = if known.first_seen_at.is_none() { ", and never had one" } else { "" };
            findings.push(Finding::warning("routes", format!("{route} has {parked} waiting without a listener{never}"), fix));
        } else if known.waiting > 0 && known.first_seen_at.is_none() && !is_answered(route) {
            let what = format!("{route} has {} waiting, and never had a listener", count(known.waiting, "event"));
            let fix = "correct its name where the events are written, or bring a plugin or listener that answers it";
            findings.push(Finding::warning("routes", what, fix));
        }
    }
    if findings.is_empty() {
        let many = count(u64::try_from(routes.len()).unwrap_or(u64::MAX), "route");
        findings.push(Finding::good("routes", format!("{many}, none paused, and no event waits for a listener")));
    }
    findings
}

/// Failed events that wait for another attempt, so many in all, with what the newest of them say. An event that fails stands nowhere
/// else before it is dead.
pub(super) fn retries(waiting: u64, newest: &[Record], flags: &Flags) -> Finding {
    if waiting == 0 {
        return Finding::good("retry", "no failed event waits for another attempt");
    }
    let errors: Vec<&str> = newest.iter().filter_map(|record| record.last_error.as_deref()).collect();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for error in &errors {
        *kinds.entry(error_kind(error)).or_default() += 1;
    }
    let most = kinds.into_iter().max_by_key(|(_, count)| *count).map(|(kind, _)| kind);
    let example = most.and_then(|kind| errors.iter().find(|error| error_kind(error) == kind));
    let said = example.map_or_else(String::new, |error| format!("; most often: {}", short(error, 160)));
    let wait = if waiting == 1 { "waits" } else { "wait" };
    let what = format!("{} failed and {wait} for another attempt{said}", count(waiting, "event"));
    let then = flags.command("outbox event why ID");
    Finding::warning("retry", what, format!("{}\nthen {then}", flags.command("outbox event list --status retry")))
}

/// How the events stand, on the whole.
pub(super) fn events(stats: &Stats, somebody_delivers: bool, flags: &Flags) -> Vec<Finding> {
    let mut findings = Vec::new();
    if stats.dead > 0 {
        let what = format!("{} given up", count(stats.dead, "event"));
        let then =
            [("list", "shows them"), ("replay ID", "delivers one again, --all all of them"), ("discard ID", "deletes one")];
        let fix = then.map(|(words, what)| format!("{}  {what}", flags.command(&format!("outbox dead {words}")))).join("\n");
        findings.push(Finding::warning("dead", what, fix));
    } else {
        findings.push(Finding::good("dead", "no event was given up"));
    }
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
