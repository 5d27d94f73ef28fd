//! Why an event is called again: it had failed, it had asked for later, or a fault kept its outcome from being stored. There is no
//! other reason.

use std::collections::BTreeMap;

use outbox::EventId;
use outbox::time::micros;

use super::rows::{self, Counted};
use super::written::Transactions;
use super::{Report, Rules};
use crate::history::calls::{Call, Faults};
use crate::history::step::{Ending, Row};

pub(super) fn check(
    transactions: &Transactions<'_>,
    calls: &[Call<'_>],
    faults: &Faults<'_>,
    rules: &Rules,
    table: Option<&[Row]>,
    report: &mut Report,
) {
    let mut by_event: BTreeMap<EventId, Vec<&Call<'_>>> = BTreeMap::new();
    for call in calls {
        by_event.entry(call.delivery.event_id).or_default().push(call);
        if call.end.is_none() && call.killed.is_none() && !faults.excuse(call) {
            report.unended.push((call.delivery.event_id, call.delivery.fence));
        }
    }
    for event in transactions.values().flat_map(|one| one.events) {
        let first = by_event.get(&event.event_id).and_then(|calls| calls.first());
        if first.zip(event.not_before).is_some_and(|(first, due)| first.began < due) {
            report.early.push(event.event_id);
        }
    }
    let counted: BTreeMap<EventId, Counted> =
        by_event.iter().map(|(id, calls)| (*id, check_event(calls, faults, rules, report))).collect();
    for row in table.unwrap_or_default() {
        let calls = by_event.get(&row.event_id).map_or(&[][..], Vec::as_slice);
        rows::check(row, calls, counted.get(&row.event_id).copied().unwrap_or_default(), rules, report);
    }
}

/// Walks through the calls of one event. Returns how often it asked for later, as far as that was stored.
fn check_event(calls: &[&Call<'_>], faults: &Faults<'_>, rules: &Rules, report: &mut Report) -> Counted {
    let id = calls[0].delivery.event_id;
    let mut counted = Counted::default();
    if calls[0].delivery.attempt != 1 {
        report.miscounted.push(id);
    }
    for pair in calls.windows(2) {
        let (before, again) = (pair[0], pair[1]);
        if again.delivery.fence <= before.delivery.fence {
            report.fences.push((id, again.delivery.fence));
            continue;
        }
        // Two at once are reported as that.
        if again.began < before.until() && !faults.slept_through(before) {
            continue;
        }
        let on_time = again.began >= before.due_again(micros(rules.retry));
        match (before.ending(), again.delivery.attempt.checked_sub(before.delivery.attempt)) {
            (Some(Ending::Failed), Some(1)) if on_time => {}
            (Some(Ending::Failed), Some(1)) => report.early.push(id),
            // Cut off by its host, which counts as a failure.
            (None, Some(1)) if before.killed.is_none() => {}
            (Some(Ending::Deferred), Some(0)) if on_time => {
                counted.deferrals += 1;
                counted.uncertain += u32::from(faults.excuse(before));
            }
            (_, Some(0)) if faults.excuse(before) => report.duplicates += 1,
            (Some(Ending::Deferred), Some(0)) => {
                counted.deferrals += 1;
                counted.uncertain += 1;
                report.early.push(id);
            }
            (_, Some(0)) => report.repeated.push(id),
            _ => report.miscounted.push(id),
        }
    }
    counted
}
