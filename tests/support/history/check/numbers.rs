//! One number for one event: the same at every delivery and in the table, and the one that its writer was told.

use std::collections::BTreeMap;

use outbox::EventId;

use super::written::Transactions;
use crate::history::calls::Call;
use crate::history::report::Report;
use crate::history::step::Row;

pub(super) fn check(transactions: &Transactions<'_>, calls: &[Call<'_>], table: Option<&[Row]>, report: &mut Report) {
    let told =
        transactions.values().flat_map(|one| one.events.iter().map(|event| event.event_id).zip(one.sequences.iter().copied()));
    let seen = calls.iter().map(|call| (call.delivery.event_id, call.delivery.sequence));
    let stored = table.unwrap_or_default().iter().map(|row| (row.event_id, row.sequence));
    let mut numbers: BTreeMap<EventId, u64> = BTreeMap::new();
    let mut events: BTreeMap<u64, EventId> = BTreeMap::new();
    // A listener that was not told says 0.
    for (event, number) in told.chain(seen).chain(stored).filter(|(_, number)| *number != 0) {
        if *numbers.entry(event).or_insert(number) != number || *events.entry(number).or_insert(event) != event {
            report.renumbered.push(event);
        }
    }
}
