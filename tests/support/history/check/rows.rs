//! What the table says of an event in the end, against the calls that it had.

use outbox::Status;

use super::{Report, Rules};
use crate::history::calls::Call;
use crate::history::step::{Ending, Row};

/// How often the calls of an event asked for later before another one came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// All of them.
    pub(super) deferrals: u32,
    /// Those of which a fault leaves open whether they were stored.
    pub(super) uncertain: u32,
}

/// Looks at the row of an event, with its calls in the order of their beginnings.
pub(super) fn check(row: &Row, calls: &[&Call<'_>], counted: Counted, rules: &Rules, report: &mut Report) {
    let last_claim = calls.iter().map(|call| call.delivery.claim_seq()).max().unwrap_or_default();
    if row.fence < last_claim {
        report.fences.push((row.event_id, row.fence));
        return;
    }
    // The outcome was written under the claim that the row still names.
    let concluding = calls.iter().rfind(|call| call.delivery.claim_seq() == row.fence);
    let ending = concluding.and_then(|call| call.ending());
    let attempt = concluding.map_or(0, |call| call.delivery.attempt);
    match row.status {
        Status::Done if ending != Some(Ending::Done) => report.unearned.push(row.event_id),
        Status::Dead if !may_be_dead(ending, attempt, calls, rules) => report.killed.push(row.event_id),
        Status::Done | Status::Dead => {
            let Some(attempt) = concluding.map(|call| call.delivery.attempt) else { return };
            let failures = if ending == Some(Ending::Failed) { attempt } else { attempt - 1 };
            let deferrals = counted.deferrals - counted.uncertain..=counted.deferrals;
            if row.attempts != failures || !deferrals.contains(&row.deferrals) {
                report.miscounted.push(row.event_id);
            }
        }
        // Unfinished: lost, which is said elsewhere.
        Status::New | Status::Retry => {}
    }
}

/// By the listener's word, by its last attempt, or because it stopped its hosts.
fn may_be_dead(ending: Option<Ending>, attempt: u32, calls: &[&Call<'_>], rules: &Rules) -> bool {
    let silent = calls.iter().rev().take_while(|call| call.end.is_none()).count();
    let stops_hosts = u32::try_from(silent).is_ok_and(|silent| silent >= rules.max_starts);
    ending == Some(Ending::Dead) || (ending == Some(Ending::Failed) && attempt >= rules.max_attempts) || stops_hosts
}
