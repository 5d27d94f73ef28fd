//! Sinks that are down.

use std::cmp::Reverse;

use outbox::node::{DownSink, delivering_sinks, names_sink, sinks as sinks_of};
use outbox::store::{Finding, NodeRecord, RouteRecord, WaitReason};
use outbox::time::Timestamp;
use outbox::why::{Change, Scope, down_sink_severity};

use super::{LISTED, after_change};
use crate::config::Flags;
use crate::output::{argument, count, short, span};

/// The most sinks whose names are listed beside those that have a finding.
const MORE_SINKS: usize = 10;

/// Sinks that delivering hosts find down, faults first, then those with the most waiting events. Hosts that stand aside are a finding of their
/// own. No finding without sinks, or if no delivering host finds a sink down although events wait for one: those events are a finding of their
/// own.
pub(in crate::doctor) fn sinks(
    nodes: &[NodeRecord],
    routes: &[RouteRecord],
    waits: &[WaitReason],
    changes: &[Change],
    flags: &Flags,
    now: Timestamp,
) -> Vec<Finding> {
    let sinks = delivering_sinks(nodes, routes);
    if sinks.is_empty() {
        return Vec::new();
    }
    // One finding for each sink, however many hosts find it down: the wait reasons of each sink's events are not listed.
    let mut down = DownSink::of(&sinks);
    down.sort_by_key(|sink| Reverse((down_sink_severity(sink), sink.waiting)));
    let finding = |sink: &DownSink| {
        let first = sink.hosts.first().map_or("", String::as_str);
        let and_others = match sink.hosts.len().saturating_sub(1) {
            0 => String::new(),
            hosts => format!(" and {}", count(hosts as u64, "other host")),
        };
        let for_longer = sink
            .first_host()
            .map_or_else(String::new, |(host, since)| format!(" (on {} for {})", short(host, 64), span(now.since(since))));
        let what = format!(
            "the sink {} has been down on {}{and_others} for {}{for_longer}, and {} for it: {}",
            short(&sink.name, 64),
            short(first, 64),
            span(now.since(sink.outage.since)),
            match sink.waiting {
                1 => "1 event waits".to_owned(),
                events => format!("{} wait", count(events, "event")),
            },
            short(&sink.outage.reason, 300)
        );
        let test = flags.command(&format!("outbox sinks test {}", argument(&sink.name)));
        let fix = format!("remove the cause; the host tries again by itself, and counts no failure of relayed events\n{test}");
        let what = after_change(what, changes, sink.outage.since, &Scope::of_sink(sink));
        Finding::problem(down_sink_severity(sink), "sinks", what, fix, sink.waiting)
    };
    if down.is_empty() {
        let is_any_awaited = waits.iter().any(|wait| names_sink(&wait.reason));
        return if is_any_awaited { Vec::new() } else { vec![Finding::good("sinks", none_down(nodes))] };
    }
    let mut findings: Vec<Finding> = down.iter().take(LISTED).map(finding).collect();
    if let Some((more, first)) = down.get(LISTED..).and_then(|more| Some((more, more.first()?))) {
        let names = more.iter().map(|one| short(&one.name, 64)).take(MORE_SINKS).collect::<Vec<_>>().join(", ");
        let and_more = if more.len() > MORE_SINKS { format!(", and {} more", more.len() - MORE_SINKS) } else { String::new() };
        let what = format!("also down: {names}{and_more}");
        // Ranked by the first of them. By the sum of all events, it would come before the sinks above.
        let (severity, list) = (down_sink_severity(first), flags.command("outbox sinks list"));
        findings.push(Finding::problem(severity, "sinks", what, list, first.waiting));
    }
    findings
}

/// That no delivering host finds a sink down, and which sinks are down on hosts that stand aside.
fn none_down(nodes: &[NodeRecord]) -> String {
    let down_on = |node: &NodeRecord| {
        let host = short(&node.label, 64);
        let down = sinks_of(node).into_iter().filter(|sink| sink.is_down());
        down.map(|sink| format!("{} (on {host})", short(&sink.name, 64))).collect::<Vec<_>>()
    };
    let aside: Vec<String> = nodes.iter().filter(|node| node.stands_aside()).flat_map(down_on).collect();
    if aside.is_empty() {
        return "no sink is down".to_owned();
    }
    let and_more = if aside.len() > MORE_SINKS { format!(", and {} more", aside.len() - MORE_SINKS) } else { String::new() };
    let listed = aside.into_iter().take(MORE_SINKS).collect::<Vec<_>>().join(", ");
    format!("no host that delivers finds a sink down; down on hosts that stand aside: {listed}{and_more}")
}
