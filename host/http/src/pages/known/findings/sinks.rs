//! Sinks that are down.

use outbox::node::DownSink;
use outbox::why::{Scope, down_sink_severity};
use outbox_event::time::Timestamp;
use outbox_event::units::count;

use super::{Finding, ONE_BY_ONE, Severity, utc, waiting};
use crate::pages::known::sinks::down;
use crate::pages::known::snapshot::Snapshot;
use crate::pages::words::{short, verb, visible};

/// Sinks that are down, the one with the most waiting events first.
pub(super) fn sinks_down(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let all = down(snapshot);
    if all.len() > ONE_BY_ONE {
        let events: u64 = all.iter().map(|sink| sink.waiting).sum();
        let and_wait = if events == 0 { String::new() } else { format!("; {}", waiting(events)) };
        let sentence = format!("{} sinks are down{and_wait}.", all.len());
        let severity = all.iter().map(down_sink_severity).max().unwrap_or(Severity::Warning);
        return vec![Finding::new(severity, sentence, "sinks", "Show sinks").affecting(events)];
    }
    let finding = |sink: &DownSink| {
        let sentence = format!(
            "Sink {} has been down{} since {}{}{}:",
            visible(&short(&sink.name, 80)),
            on_hosts(sink),
            utc(sink.outage.since, now),
            first_host(sink, now),
            events_of_routes(sink)
        );
        let finding = Finding::new(down_sink_severity(sink), sentence, "sinks", "Show sinks").said(&*sink.outage.reason);
        finding.affecting(sink.waiting).began(sink.outage.since, &Scope::of_sink(sink), snapshot)
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

/// The host that noticed its outage long before the last one did; empty without such a host.
fn first_host(sink: &DownSink, now: Timestamp) -> String {
    sink.first_host()
        .map_or_else(String::new, |(host, since)| format!(", on {} since {}", visible(&short(host, 80)), utc(since, now)))
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
