//! Routes whose events wait for something that somebody has to do. Pure.

use std::path::PathBuf;

use outbox::Route;
use outbox::listener::{awaited, is_unroutable};
use outbox::store::{Finding, Record, RouteRecord, Severity};
use outbox::time::Timestamp;
use outbox::why::{
    MISSPELT, Pauses, first_listener, may_be_misspelt, passed_over, resume_command, unanswered_severity, waits_for_plugin,
};

use super::events::most_often;
use crate::config::Flags;
use crate::output::{count, short, span, visible};
use crate::plugins::PluginStatus;

const CHECK: &str = "routes";
/// Up to this many routes without a listener are findings of their own; more of them are one finding.
const ONE_BY_ONE: usize = 3;

/// What is known of the host that would run here.
#[derive(Default)]
pub(in crate::doctor) struct Here {
    /// What its plugins answer, as far as that is known.
    pub(in crate::doctor) answered: Vec<Route>,
    /// What its relays take: routes and patterns.
    pub(in crate::doctor) relays: Vec<Route>,
    pub(in crate::doctor) plugins_dir: PathBuf,
    /// Whether plugins are wanted, and that directory is missing or holds none.
    pub(in crate::doctor) has_no_plugins: bool,
    /// The plugins that do not load here.
    pub(in crate::doctor) failed: Vec<PluginStatus>,
    pub(in crate::doctor) flags: Flags,
}

impl Here {
    /// Whether a plugin or relay here takes the events of a route. A pattern leaves alone a route that had a listener of its own.
    fn answers(&self, known: &RouteRecord) -> bool {
        let route = &known.route;
        let had_its_own = known.had_own_listener();
        let takes = |relay: &Route| relay == route || !had_its_own && relay.is_pattern() && relay.covers(route);
        self.answered.contains(route) || self.relays.iter().any(takes)
    }
}

/// What keeps the events of these routes waiting. `parked` are the newest parked events.
pub(in crate::doctor) fn routes(routes: &[RouteRecord], parked: &[Record], here: &Here, now: Timestamp) -> Vec<Finding> {
    let pauses = Pauses::of(routes);
    let is_paused = |known: &RouteRecord| known.paused_at.is_some();
    let mut findings: Vec<Finding> =
        routes.iter().filter(|known| is_paused(known)).map(|known| paused(known, routes, parked, here, now)).collect();
    // A route that a paused pattern holds is part of what is told of the pattern.
    let unheld = routes.iter().filter(|known| !is_paused(known) && pauses.holding(&known.route).next().is_none());
    let unanswered: Vec<&RouteRecord> = unheld.filter(|known| is_unanswered(known, routes, here)).collect();
    let reasons = Reasons(parked);
    if unanswered.len() > ONE_BY_ONE {
        findings.push(many_unanswered(&unanswered, routes, &reasons, here));
    } else {
        findings.extend(unanswered.into_iter().map(|known| one_unanswered(known, routes, &reasons, here)));
    }
    if findings.is_empty() {
        let many = count(number(routes.len()), "route");
        findings.push(Finding::good(CHECK, format!("{many}, none paused, and no event waits for a listener")));
    }
    findings
}

/// Whether events of the route wait for a listener: parked without one, or due and no host ever had one, nor a relay for its pattern.
fn is_unanswered(known: &RouteRecord, routes: &[RouteRecord], here: &Here) -> bool {
    known.parked > 0 || (known.waiting > 0 && first_listener(known, routes).is_none() && !here.answers(known))
}

fn paused(known: &RouteRecord, routes: &[RouteRecord], parked: &[Record], here: &Here, now: Timestamp) -> Finding {
    let route = &known.route;
    let all: u64 = routes.iter().filter(|held| route.covers(&held.route)).map(|held| held.parked).sum();
    let is_of = |record: &&Record| Route::new(&record.aggregate_type, &record.event_type).is_ok_and(|of| route.covers(&of));
    let told: Vec<Option<&str>> = parked.iter().filter(is_of).map(|record| record.parked.as_deref()).collect();
    let without = told.iter().filter(|reason| reason.is_some_and(is_unroutable)).count();
    // What the older ones wait for is not known.
    let up_to = if number(told.len()) < all { "up to " } else { "" };
    let held = all.saturating_sub(number(without));
    let by = known.paused_by.as_deref().unwrap_or("an unknown user");
    let since = known.paused_at.map_or_else(String::new, |since| format!(" for {}", span(now.since(since))));
    let why = known.pause_reason.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
    let held = if held > 0 { format!("; {up_to}{} held back", count(held, "event")) } else { String::new() };
    let fix = format!("to resume it: {}", here.flags.command(&resume_command(route)));
    let name = route.to_string();
    let what = format!("{} has been paused by {by}{since}{why}{held}", visible(&name));
    Finding::problem(Severity::Warning, CHECK, what, fix, all)
}

fn one_unanswered(known: &RouteRecord, routes: &[RouteRecord], reasons: &Reasons<'_>, here: &Here) -> Finding {
    let route = &known.route;
    let name = route.to_string();
    let name = visible(&name);
    let never = known.first_seen_at.is_none();
    let and_never = if never { ", and never had one" } else { "" };
    let what = if known.parked > 0 {
        let why = reasons.of(&[known]).map_or_else(String::new, |why| format!(": {why}"));
        format!("{name} has {} waiting without a listener{and_never}{why}", count(known.parked, "event"))
    } else {
        format!("{name} has {} waiting, and never had a listener", count(known.waiting, "event"))
    };
    let fix = if here.answers(known) {
        "a plugin or relay here answers it: start a host with `outbox run`, which delivers them".to_owned()
    } else if never && may_be_of_plugin(known, reasons, here) {
        format!(
            "repair the plugin that does not serve, which may answer it; see `outbox plugin list`\n\
             or add a plugin, listener or relay that answers {name}"
        )
    } else if never {
        let way_out = if reasons.may_be_misspelt(known, routes) {
            format!("\nif that name is a mistake, {MISSPELT}")
        } else {
            String::new()
        };
        format!(
            "correct its name where the events are written, or add a plugin, listener or relay that answers {name}{way_out}"
        )
    } else {
        let relay = passed_over(route, &here.relays).map_or_else(String::new, |why| format!("\n{why}"));
        format!("bring back a plugin, listener or relay that answers {name}; see `outbox plugin list`{relay}")
    };
    let events = waiting(known);
    Finding::problem(unanswered_severity(events), CHECK, what, fix, events)
}

/// Whether a plugin that does not serve may answer the route, here or on the host that parked its events. Its routes are unknown.
fn may_be_of_plugin(known: &RouteRecord, reasons: &Reasons<'_>, here: &Here) -> bool {
    !here.failed.is_empty() || reasons.told(known).any(waits_for_plugin)
}

/// The events of a route without a listener that wait.
fn waiting(known: &RouteRecord) -> u64 {
    if known.parked > 0 { known.parked } else { known.waiting }
}

/// All of them in one finding: those with the most events, and what is to be done for how many of them.
fn many_unanswered(unanswered: &[&RouteRecord], routes: &[RouteRecord], reasons: &Reasons<'_>, here: &Here) -> Finding {
    let events: u64 = unanswered.iter().map(|known| waiting(known)).sum();
    let mut most: Vec<&RouteRecord> = unanswered.to_vec();
    most.sort_by_key(|known| std::cmp::Reverse(waiting(known)));
    let named: Vec<String> = most
        .iter()
        .take(ONE_BY_ONE)
        .map(|known| format!("{} ({})", visible(&known.route.to_string()), waiting(known)))
        .collect();
    let others = count(number(unanswered.len() - ONE_BY_ONE), "other");
    let why = reasons.of(unanswered).map_or_else(String::new, |why| format!("; most often: {why}"));
    let what = format!(
        "{} of {} wait without a listener: {} and {others}{why}",
        count(events, "event"),
        count(number(unanswered.len()), "route"),
        named.join(", ")
    );
    let (answered, others): (Vec<&RouteRecord>, Vec<&RouteRecord>) = unanswered.iter().partition(|known| here.answers(known));
    let (never, before): (Vec<&RouteRecord>, Vec<&RouteRecord>) =
        others.into_iter().partition(|known| known.first_seen_at.is_none());
    let (of_plugins, never): (Vec<&RouteRecord>, Vec<&RouteRecord>) =
        never.into_iter().partition(|known| may_be_of_plugin(known, reasons, here));
    let passed_over = before.iter().find_map(|known| passed_over(&known.route, &here.relays));
    let misspelt = never.iter().any(|known| reasons.may_be_misspelt(known, routes));
    let misspelt = misspelt.then(|| format!("where a name is a mistake, {MISSPELT}"));
    let fixes = [
        (answered.len(), "answered by plugins or relays here: start a host with `outbox run`"),
        (before.len(), "answered before: bring back their plugins, listeners or relays; see `outbox plugin list`"),
        (
            of_plugins.len(),
            "never answered: repair the plugins that do not serve, which may answer them; see `outbox plugin list`",
        ),
        (never.len(), "never answered: correct the names where the events are written, or add plugins, listeners or relays"),
    ];
    let fixes = fixes.into_iter().filter(|(routes, _)| *routes > 0);
    let mut fixes: Vec<String> = fixes.map(|(routes, fix)| format!("{} {fix}", count(number(routes), "route"))).collect();
    fixes.extend(misspelt);
    fixes.extend(passed_over);
    fixes.push(format!("{}  shows them all", here.flags.command("outbox route list")));
    Finding::problem(unanswered_severity(events), CHECK, what, fixes.join("\n"), events)
}

/// Why events wait for a listener, as the hosts saw it that parked them.
struct Reasons<'p>(&'p [Record]);

impl Reasons<'_> {
    /// The most frequent reason among the events of these routes; `None` where nothing more is known than that nobody answers.
    fn of(&self, routes: &[&RouteRecord]) -> Option<String> {
        let all = routes.iter().flat_map(|known| self.told(known));
        let most = most_often(all.map(awaited), |reason| reason)?;
        (!is_unroutable(most)).then(|| short(most, 240))
    }

    /// Whether all that is known of the parked events of a route is that nobody ever answered it.
    fn may_be_misspelt(&self, known: &RouteRecord, routes: &[RouteRecord]) -> bool {
        let mut told = self.told(known).peekable();
        told.peek().is_some() && told.all(|reason| may_be_misspelt(reason, &known.route, routes))
    }

    fn told(&self, known: &RouteRecord) -> impl Iterator<Item = &str> {
        let is_of = |record: &&Record| {
            known.route.aggregate_type.as_str() == record.aggregate_type && known.route.event_type.as_str() == record.event_type
        };
        self.0.iter().filter(is_of).filter_map(|record| record.parked.as_deref())
    }
}

fn number(of: usize) -> u64 {
    u64::try_from(of).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
