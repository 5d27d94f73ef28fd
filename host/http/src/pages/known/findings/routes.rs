//! Routes that are paused, or have no listener.

use std::cmp::Reverse;

use outbox::why::{Pauses, unanswered_severity};
use outbox_event::time::Timestamp;
use outbox_event::units::{count, number, relative_to};
use outbox_store::RouteRecord;

use super::{Finding, ONE_BY_ONE, Severity, utc, waiting};
use crate::pages::known::plugins::{self, LivePlugin};
use crate::pages::known::snapshot::Snapshot;
use crate::pages::words::visible;
use crate::standing::RouteCounts;

pub(super) fn paused(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
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

/// The most routes without a listener for which the version of a plugin that dropped them is looked for: those with the most events.
const LOOKED_AT: usize = 20;

/// Parked events whose route is not paused: no host has a listener for them.
pub(super) fn unanswered(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let pauses = Pauses::of(&snapshot.routes);
    let is_open = |known: &&RouteRecord| known.parked > 0 && pauses.holding(&known.route).next().is_none();
    let mut open: Vec<&RouteRecord> = snapshot.routes.iter().filter(is_open).collect();
    open.sort_by_key(|known| Reverse(known.parked));
    let events: u64 = open.iter().map(|known| known.parked).sum();
    let listener = match open.as_slice() {
        [] => return None,
        [known] => format!("a listener for {}", visible(&known.route.to_string())),
        more => format!("listeners for {} routes", number(more.len() as u64)),
    };
    let plugins = plugins::of_all(&snapshot.nodes);
    let dropped = open.iter().take(LOOKED_AT).find_map(|known| dropped(&plugins, known, now));
    let sentence = format!("{} for {listener}{}.", waiting(events), dropped.unwrap_or_default());
    Some(Finding::new(unanswered_severity(events), sentence, "events?status=parked", "Show parked events").affecting(events))
}

/// `; plugin shop 1.1.0 no longer answers Order/Paid, which 1.0.0 did, since 14:02:00 UTC`: the version of a plugin that dropped the
/// route. `None` if no host reports one.
fn dropped(plugins: &[LivePlugin], known: &RouteRecord, now: Timestamp) -> Option<String> {
    let by = |LivePlugin { plugin, .. }: &LivePlugin| {
        let swaps = &plugin.details.swaps;
        let position = swaps.iter().position(|swap| swap.dropped.contains(&known.route))?;
        let (swap, earlier) = (&swaps[position], &swaps[position + 1..]);
        let version = swap.version.as_deref().map_or_else(String::new, |version| format!(" {}", visible(version)));
        let before = earlier.iter().find_map(|swap| swap.version.as_deref());
        let before = before.map_or_else(String::new, |before| format!(", which {} did", visible(before)));
        let (name, route) = (visible(&plugin.name), visible(&known.route.to_string()));
        Some(format!("; plugin {name}{version} no longer answers {route}{before}, since {}", utc(swap.at, now)))
    };
    plugins.iter().filter(|served| !served.plugin.routes.contains(&known.route)).find_map(by)
}
