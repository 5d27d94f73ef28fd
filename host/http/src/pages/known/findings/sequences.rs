//! Sequences that are behind their tables.

use outbox_store::LaggingSequence;

use super::{Finding, Severity};
use crate::pages::known::snapshot::Snapshot;
use crate::pages::words::{short, visible};

/// The first sequence that is behind its table: the application cannot write events, and operators cannot change them.
pub(super) fn sequences(snapshot: &Snapshot) -> Option<Finding> {
    let first: &LaggingSequence = snapshot.lagging_sequences.first()?;
    let what = if first.column == "seq" { "New events" } else { "Changes by hand" };
    let sentence = format!("{what} cannot be stored, because a sequence is behind its table:");
    let finding = Finding::new(Severity::Fault, sentence, "hosts", "Show hosts").affecting(u64::MAX);
    // Not cut at the usual length: the fix is at the end.
    let said = format!("{first}; run as the owner of the table: {}", first.fix());
    Some(Finding { said: Some(short(&visible(&said), 600)), ..finding })
}
