//! Events that are stuck at hosts although others are delivered.

use outbox::store::{Finding, NodeRecord, Severity, StuckEvents, StuckReason};
use outbox::time::Timestamp;

use super::LISTED;
use crate::config::Flags;
use crate::output::{count, shown, span};

/// Outcomes that the database refuses to hosts although it stores others.
pub(in crate::doctor) fn refused(nodes: &[NodeRecord], flags: &Flags) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(nodes, StuckReason::OutcomeRefused)?;
    let outcomes = if stuck.count == 1 { "outcome" } else { "outcomes" };
    let what = format!(
        "the database refuses to store the {outcomes} of {}; the hosts retry, and call no listener again{}",
        count(stuck.count.into(), "event"),
        named(&stuck)
    );
    let fix = format!(
        "find the trigger, rule, constraint or row-level policy of the table that prevents the change, or grant the missing right \
         (`outbox doctor --grants`); the hosts then store the outcomes by themselves, within about a minute. Do not restart them before: \
         their events would be delivered again{}",
        explain(&stuck, flags)
    );
    Some(Finding::problem(Severity::Fault, "outcomes", what, fix, stuck.count.into()))
}

/// Outcomes that wait for a lock for long.
pub(in crate::doctor) fn locked(nodes: &[NodeRecord], flags: &Flags, now: Timestamp) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(nodes, StuckReason::OutcomeLocked)?;
    let (outcomes, wait) = if stuck.count == 1 { ("outcome", "waits") } else { ("outcomes", "wait") };
    let longest = longest(&stuck, now);
    let what = format!(
        "the {outcomes} of {} {wait} for rows that another transaction has locked{longest}; the listeners have answered{}",
        count(stuck.count.into(), "event"),
        named(&stuck)
    );
    let fix = format!(
        "end that transaction; the hosts then store the outcomes by themselves. PostgreSQL: SELECT pid, query FROM pg_stat_activity ORDER BY \
         xact_start; MySQL and MariaDB: SELECT * FROM information_schema.innodb_trx ORDER BY trx_started{}",
        explain(&stuck, flags)
    );
    Some(Finding::problem(Severity::Warning, "outcomes", what, fix, stuck.count.into()))
}

/// Outcomes that the database is slow to store.
pub(in crate::doctor) fn slow(nodes: &[NodeRecord], flags: &Flags, now: Timestamp) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(nodes, StuckReason::OutcomeSlow)?;
    let (outcomes, wait) = if stuck.count == 1 { ("outcome", "waits") } else { ("outcomes", "wait") };
    let longest = longest(&stuck, now);
    let what = format!(
        "the {outcomes} of {} {wait} for statements that take too long{longest}; the listeners have answered{}",
        count(stuck.count.into(), "event"),
        named(&stuck)
    );
    let fix = format!(
        "find out what slows the database down, for example a trigger of the table. The hosts store the outcomes in \
         smaller parts, and name the slow ones when they find them. Do not restart the hosts before: the events would be delivered again{}",
        explain(&stuck, flags)
    );
    Some(Finding::problem(Severity::Warning, "outcomes", what, fix, stuck.count.into()))
}

/// Due events that the database does not let hosts claim, or whose payloads it cannot return.
pub(in crate::doctor) fn unclaimed(nodes: &[NodeRecord], flags: &Flags, now: Timestamp) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(nodes, StuckReason::ClaimRefused)?;
    let what = format!(
        "the database does not let the hosts claim {}, or cannot return the payload: not delivered{}; other events are delivered{}",
        count(stuck.count.into(), "event"),
        longest(&stuck, now),
        named(&stuck)
    );
    let fix = format!(
        "look for damage of the table, and for a trigger, a constraint or a row-level policy that rejects the change; restore such a row from \
         a backup, or delete it{}",
        explain(&stuck, flags)
    );
    Some(Finding::problem(Severity::Fault, "claims", what, fix, stuck.count.into()))
}

/// `, for 4 min`: how long the oldest has been stuck.
fn longest(stuck: &StuckEvents, now: Timestamp) -> String {
    stuck.longest(now).map_or_else(String::new, |longest| format!(", for {}", span(longest)))
}

/// The oldest events with their errors, a line each.
fn named(stuck: &StuckEvents) -> String {
    let mut lines = String::new();
    for one in stuck.first.iter().take(LISTED) {
        let id = one.event_id.map_or_else(String::new, |id| format!(", {id}"));
        lines.push_str(&format!("\nseq {}{id}: {}", one.seq, shown(&one.error)));
    }
    let more = u64::from(stuck.count).saturating_sub(u64::try_from(stuck.first.len().min(LISTED)).unwrap_or(0));
    if more > 0 {
        lines.push_str(&format!("\nand {more} more"));
    }
    lines
}

/// The command that explains one of them.
fn explain(stuck: &StuckEvents, flags: &Flags) -> String {
    let example = stuck.first.iter().find_map(|one| one.event_id);
    example.map(|id| format!("\n{}", flags.command(&format!("outbox event why {id}")))).unwrap_or_default()
}
