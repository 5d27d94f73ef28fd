//! Events that are stuck at hosts although others are delivered.

use outbox_event::time::Timestamp;
use outbox_event::units::{count, span};
use outbox_store::{NodeRecord, StuckEvents, StuckReason};

use super::{Finding, Severity};
use crate::pages::known::snapshot::Snapshot;
use crate::pages::link::encoded;

/// Outcomes that the database refuses.
pub(super) fn refused(snapshot: &Snapshot) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(&snapshot.nodes, StuckReason::OutcomeRefused)?;
    let sentence = match stuck.count {
        1 => "The database refuses to store the outcome of 1 event; the host retries it:".to_owned(),
        more => format!("The database refuses to store the outcomes of {}; the hosts retry them:", count(more.into(), "event")),
    };
    finding(Severity::Fault, sentence, &stuck)
}

/// Outcomes that wait for a lock for long.
pub(super) fn locked(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(&snapshot.nodes, StuckReason::OutcomeLocked)?;
    let (outcomes, wait) = if stuck.count == 1 { ("outcome", "waits") } else { ("outcomes", "wait") };
    let longest = longest(&stuck, now);
    let sentence =
        format!("The {outcomes} of {} {wait} for a lock of another transaction{longest}:", count(stuck.count.into(), "event"));
    finding(Severity::Warning, sentence, &stuck)
}

/// Outcomes that the database is slow to store.
pub(super) fn slow(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(&snapshot.nodes, StuckReason::OutcomeSlow)?;
    let (outcomes, wait) = if stuck.count == 1 { ("outcome", "waits") } else { ("outcomes", "wait") };
    let longest = longest(&stuck, now);
    let sentence =
        format!("The {outcomes} of {} {wait} for a slow statement of the host{longest}:", count(stuck.count.into(), "event"));
    finding(Severity::Warning, sentence, &stuck)
}

/// Due events that the database does not let hosts claim, or whose payloads it cannot return.
pub(super) fn unclaimed(snapshot: &Snapshot, now: Timestamp) -> Option<Finding> {
    let stuck = NodeRecord::stuck_at_live(&snapshot.nodes, StuckReason::ClaimRefused)?;
    let (events, longest) = (count(stuck.count.into(), "event"), longest(&stuck, now));
    let sentence =
        format!("The database does not let the hosts claim {events}, or cannot return the payload: not delivered{longest}:");
    finding(Severity::Fault, sentence, &stuck)
}

/// `, for 4 min`: how long the oldest has been stuck.
fn longest(stuck: &StuckEvents, now: Timestamp) -> String {
    stuck.longest(now).map_or_else(String::new, |longest| format!(", for {}", span(longest)))
}

/// With the oldest event and its error.
fn finding(severity: Severity, sentence: String, stuck: &StuckEvents) -> Option<Finding> {
    let first = stuck.first.first()?;
    let finding = match first.event_id {
        Some(id) => Finding::new(severity, sentence, format!("events/{}", encoded(id.as_str())), "Show event"),
        None => Finding::new(severity, sentence, "hosts", "Show hosts"),
    };
    Some(finding.said(&first.error).affecting(stuck.count.into()))
}
