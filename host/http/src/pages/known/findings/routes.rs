//! Routes that are paused, or have no listener.

use outbox::why::Pauses;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, number, relative_to};
use outbox_store::RouteRecord;

use super::{Finding, ONE_BY_ONE, Severity, waiting};
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

/// Parked events whose route is not paused: no host has a listener for them.
pub(super) fn unanswered(snapshot: &Snapshot) -> Option<Finding> {
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
