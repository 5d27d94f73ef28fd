//! Routes whose listener failed so often that its breaker is open.

use outbox::node::{OpenBreakers, RouteBreaker};
use outbox_event::time::Timestamp;
use outbox_event::units::count;

use super::{Finding, ONE_BY_ONE, Severity, waiting};
use crate::pages::known::snapshot::Snapshot;
use crate::pages::words::{short, visible};

/// The open breakers by route, those with the most waiting events first.
pub(super) fn breakers(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let open = OpenBreakers::of(&snapshot.nodes).of_routes(&snapshot.routes, now);
    let and_wait = |events: u64| if events == 0 { String::new() } else { format!("; {}", waiting(events)) };
    let finding =
        |sentence: String, events: u64| Finding::new(Severity::Warning, sentence, "routes", "Show routes").affecting(events);
    if open.len() > ONE_BY_ONE {
        let events: u64 = open.iter().map(|one| one.waiting).sum();
        let routes = count(open.len() as u64, "route");
        return vec![finding(
            format!("Listeners of {routes} failed too often; their breakers are open{}.", and_wait(events)),
            events,
        )];
    }
    let one = |RouteBreaker { route, listener, waiting, state }: &RouteBreaker| {
        let (route, listener) = (visible(&short(&route.to_string(), 80)), visible(&short(listener, 80)));
        finding(format!("Breaker of route {route} ({listener}): {state}{}.", and_wait(*waiting)), *waiting)
    };
    open.iter().map(one).collect()
}
