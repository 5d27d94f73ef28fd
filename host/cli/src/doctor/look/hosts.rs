//! The hosts that work on the table: their modes, those that are missing, and what they cannot deliver.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::store::{Finding, NodeRecord};
use outbox::time::Timestamp;

use super::LISTED;
use crate::output::{count, relative_to, short, span};

/// The mode in which a host takes the table to be its own.
const ALONE: &str = "single_node";

/// Modes that keep an order, as long as every host on the table runs in the same one.
const IN_ORDER: [&str; 2] = ["ordered", "ordered_by_aggregate"];

/// The hosts that work on the table, and whether their modes go together. `without_lock` are the owners of leases whose session's lock
/// is free.
pub(in crate::doctor) fn nodes(nodes: &[NodeRecord], without_lock: &[String]) -> Vec<Finding> {
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
        let what = format!("{} runs as {ALONE}, but other hosts work on the table, too: {}", alone.label, others(alone));
        let fix = "stop all but one, or set mode = \"multi_node\" for all of them; one that was killed is forgotten when its lease ends";
        findings.push(Finding::warning("nodes", what, fix));
    }
    if let Some(ordered) = live.iter().find(|node| IN_ORDER.contains(&node.mode.as_str()))
        && live.iter().any(|node| node.mode != ordered.mode)
    {
        let mode = &ordered.mode;
        let what = format!("{} keeps an order ({mode}) that other hosts do not keep: {}", ordered.label, others(ordered));
        findings.push(Finding::fault("nodes", what, format!("set mode = \"{mode}\" for all of them, or for no host")));
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

/// Hosts that vanished without a stop. One whose lease has not ended is among the [`nodes`].
pub(in crate::doctor) fn vanished(nodes: &[NodeRecord], now: Timestamp, lease: Duration) -> Option<Finding> {
    let vanished = outbox::node::vanished(nodes, now, lease);
    if vanished.is_empty() {
        return None;
    }
    let one = |node: &&NodeRecord| {
        let ago = relative_to(node.alive_until.min(now), now);
        format!("{} vanished {ago} without a stop: it was killed, is frozen, or cannot reach the database", node.label)
    };
    let mut what: Vec<String> = vanished.iter().take(LISTED).map(one).collect();
    if vanished.len() > LISTED {
        what.push(format!("and {} more", vanished.len() - LISTED));
    }
    let fix = "check its process, its log and its connection to the database, and start it again; this warning ends 15 min \
               after it vanished";
    Some(Finding::warning("nodes", what.join("\n"), fix))
}

/// Live hosts whose leases have ended: their processes hold the locks of their sessions.
pub(in crate::doctor) fn without_lease(nodes: &[NodeRecord], now: Timestamp) -> Option<Finding> {
    let without: Vec<&NodeRecord> = nodes.iter().filter(|node| node.alive && node.alive_until <= now).collect();
    if without.is_empty() {
        return None;
    }
    let one = |node: &&NodeRecord| {
        let ended = relative_to(node.alive_until, now);
        format!("{} is running, but its lease ended {ended}: it cannot write its heartbeat, or it is frozen", node.label)
    };
    let mut what: Vec<String> = without.iter().take(LISTED).map(one).collect();
    if without.len() > LISTED {
        what.push(format!("and {} more", without.len() - LISTED));
    }
    let fix = "look for a program that keeps the database locked, and for free space on its disk; the host then continues by itself. \
               A restart of the host, or another host, delivers its events in flight again";
    Some(Finding::fault("nodes", what.join("\n"), fix))
}

/// Live hosts whose clocks differ from the database's.
pub(in crate::doctor) fn clocks(nodes: &[NodeRecord]) -> Option<Finding> {
    let live = nodes.iter().filter(|node| node.alive);
    let one = |node: &NodeRecord| {
        let difference = outbox::node::clock_difference(node)?;
        Some(format!("the clock of {} is {difference} the database's", node.label))
    };
    let mut what: Vec<String> = live.filter_map(one).collect();
    if what.is_empty() {
        return None;
    }
    let more = what.len().saturating_sub(LISTED);
    what.truncate(LISTED);
    if more > 0 {
        what.push(format!("and {more} more"));
    }
    let fix = "let NTP set the clock of each named host (timedatectl set-ntp true): receivers may refuse webhook signatures with a wrong \
               time, and `available_at` and `expires_at` of events written there are wrong";
    Some(Finding::warning("clock", what.join("\n"), fix))
}

/// Hosts that stand aside, since other hosts can deliver what they cannot.
pub(in crate::doctor) fn aside(nodes: &[NodeRecord], now: Timestamp) -> Vec<Finding> {
    let finding = |node: &NodeRecord| {
        let first = node.listeners.stalled.first().filter(|_| node.stands_aside())?;
        let mut what = format!("{} stands aside: another host can probably deliver more. It cannot deliver:", node.label);
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
