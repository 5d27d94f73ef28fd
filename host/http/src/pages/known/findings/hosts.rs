//! Faults of hosts: no host is alive, they cannot deliver or store, or they are too slow.

use outbox::node::{clock_difference, vanished};
use outbox::why::OldestWait;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, relative_to, span};
use outbox_store::NodeRecord;

use super::{Finding, ONE_BY_ONE, Severity, waiting};
use crate::pages::known::snapshot::Snapshot;
use crate::pages::words::{short, visible};

pub(super) fn no_host(snapshot: &Snapshot) -> Option<Finding> {
    let events = snapshot.stats.new + snapshot.stats.retry + snapshot.stats.blocked;
    if events == 0 || snapshot.nodes.iter().any(|node| node.alive) {
        return None;
    }
    let sentence = format!("Nothing is being delivered: {}, and no host is alive.", waiting(events));
    Some(Finding::new(Severity::Fault, sentence, "hosts", "Show hosts").affecting(u64::MAX))
}

/// Hosts that run although their leases have ended: their processes hold their sessions.
pub(super) fn without_lease(snapshot: &Snapshot) -> Vec<Finding> {
    let finding = |node: &NodeRecord| {
        let sentence = format!(
            "Host {} is running, but its lease has ended: it cannot write its heartbeat, or it is frozen.",
            visible(&node.label)
        );
        Finding::new(Severity::Fault, sentence, "hosts", "Show hosts")
    };
    let ended = snapshot.nodes.iter().filter(|node| node.alive && node.alive_until < snapshot.at);
    ended.take(ONE_BY_ONE).map(finding).collect()
}

/// Hosts that stand aside, since other hosts can deliver what they cannot.
pub(super) fn aside(snapshot: &Snapshot) -> Vec<Finding> {
    let finding = |node: &NodeRecord| {
        let first = node.listeners.stalled.first().filter(|_| node.stands_aside())?;
        let more = node.listeners.stalled.len() - 1;
        let and_more = if more == 0 { String::new() } else { format!(" and {}", count(more as u64, "other route")) };
        let what = short(&visible(&first.to_string()), 100);
        let sentence = format!(
            "Host {} stands aside: it cannot deliver {what}{and_more}. Other hosts take over its events.",
            visible(&node.label)
        );
        Some(Finding::new(Severity::Warning, sentence, "hosts", "Show hosts").said(&*first.reason))
    };
    snapshot.nodes.iter().filter_map(finding).take(ONE_BY_ONE).collect()
}

/// Live hosts whose clocks differ from the database's.
pub(super) fn clocks(snapshot: &Snapshot) -> Vec<Finding> {
    let finding = |node: &NodeRecord| {
        let difference = clock_difference(node)?;
        let sentence = format!(
            "The clock of host {} is {difference} the database's: receivers of its webhooks may refuse their signatures.",
            visible(&node.label)
        );
        Some(Finding::new(Severity::Warning, sentence, "hosts", "Show hosts"))
    };
    snapshot.nodes.iter().filter(|node| node.alive).filter_map(finding).take(ONE_BY_ONE).collect()
}

/// Hosts that are gone and whose partitions no other host has taken over yet.
pub(super) fn gone_hosts(snapshot: &Snapshot) -> Option<Finding> {
    let gone: Vec<&NodeRecord> = snapshot.nodes.iter().filter(|node| !node.alive && node.partitions > 0).collect();
    let held = count(gone.iter().map(|node| u64::from(node.partitions)).sum(), "partition");
    let sentence = match gone.as_slice() {
        [] => return None,
        [node] => {
            format!("Host {} is gone and still owns {held}; a live host takes them over within seconds.", visible(&node.label))
        }
        nodes => format!("{} hosts are gone and still own {held}; a live host takes them over within seconds.", nodes.len()),
    };
    Some(Finding::new(Severity::Warning, sentence, "hosts", "Show hosts"))
}

/// Hosts that vanished without a stop and hold no partitions any more.
pub(super) fn vanished_hosts(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let vanished = vanished(&snapshot.nodes, now, snapshot.lease);
    let vanished: Vec<&NodeRecord> = vanished.into_iter().filter(|node| node.partitions == 0).collect();
    let sentence = match vanished.as_slice() {
        [] => return None,
        [node] => format!(
            "Host {} vanished {} without a stop: it was killed, is frozen, or cannot reach the database.",
            visible(&node.label),
            relative_to(node.alive_until.min(now), now)
        ),
        nodes => {
            let named: Vec<String> = nodes.iter().take(ONE_BY_ONE).map(|node| visible(&node.label)).collect();
            let and_more = if nodes.len() > named.len() { ", …" } else { "" };
            format!(
                "{} hosts vanished without a stop ({}{and_more}): they were killed, are frozen, or cannot reach the database.",
                nodes.len(),
                named.join(", ")
            )
        }
    };
    Some(Finding::new(Severity::Warning, sentence, "hosts", "Show hosts"))
}

pub(super) fn behind(snapshot: &Snapshot) -> Option<Finding> {
    let OldestWait::TooSlow(oldest) = OldestWait::of(&snapshot.stats, &snapshot.nodes, snapshot.now()) else {
        return None;
    };
    // Without a count: many of the waiting events may not be due yet.
    let sentence = format!("The hosts are falling behind: an event that is due has been waiting for {}.", span(oldest));
    let status = if snapshot.stats.new == 0 { "retry" } else { "new" };
    Some(Finding::new(Severity::Warning, sentence, format!("events?status={status}"), "Show waiting events"))
}
