//! Sinks that are down.

use std::cmp::Reverse;

use outbox::node::{HostSink, live_sinks};
use outbox::store::{Finding, NodeRecord, RouteRecord};
use outbox::time::Timestamp;
use outbox::why::Change;

use super::{LISTED, after_change};
use crate::config::Flags;
use crate::output::{argument, count, short, span};

/// The most sinks whose names are listed beside those that have a finding.
const MORE_SINKS: usize = 10;

/// Sinks that live hosts find down, those with the most waiting events first. Ignores hosts that stand aside, which are a finding
/// of their own. No finding without sinks.
pub(in crate::doctor) fn sinks(
    nodes: &[NodeRecord],
    routes: &[RouteRecord],
    changes: &[Change],
    flags: &Flags,
    now: Timestamp,
) -> Vec<Finding> {
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
        Some(Finding::warning("sinks", after_change(what, changes, outage.since), fix))
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
