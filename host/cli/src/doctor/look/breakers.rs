//! Breakers that are open.

use outbox::node::{OpenBreakers, RouteBreaker};
use outbox::store::{Finding, NodeRecord, RouteRecord, Severity};
use outbox::time::Timestamp;

use super::LISTED;
use crate::config::Flags;
use crate::output::{count, short};

const CHECK: &str = "breakers";

/// The open breakers by route, those with the most waiting events first. No finding if none keeps an event waiting or is within its pause.
pub(in crate::doctor) fn breakers(nodes: &[NodeRecord], routes: &[RouteRecord], flags: &Flags, now: Timestamp) -> Vec<Finding> {
    let open = OpenBreakers::of(nodes).of_routes(routes, now);
    let fix = || {
        let list = flags.command("outbox route list");
        format!("remove the cause of its failures; the host calls it again by itself, for one event after each pause\n{list}")
    };
    let finding = |RouteBreaker { route, listener, waiting, state }: &RouteBreaker| {
        let (route, listener) = (short(&route.to_string(), 80), short(listener, 80));
        let waiting_events = count(*waiting, "waiting event");
        let what = format!("the breaker of {listener} on {route}, which failed too often: {state}; {waiting_events}");
        Finding::problem(Severity::Warning, CHECK, what, fix(), *waiting)
    };
    let mut findings: Vec<Finding> = open.iter().take(LISTED).map(finding).collect();
    if let Some((more, first)) = open.get(LISTED..).and_then(|more| Some((more, more.first()?))) {
        let events: u64 = more.iter().map(|one| one.waiting).sum();
        let what = format!(
            "the breakers of {} are open too, with {}",
            count(more.len() as u64, "more route"),
            count(events, "waiting event")
        );
        // Not their sum, by which this finding would come before those of the routes above.
        findings.push(Finding::problem(Severity::Warning, CHECK, what, flags.command("outbox route list"), first.waiting));
    }
    findings
}
