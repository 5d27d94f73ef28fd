//! Unblocks the events behind many others. One that the database refuses to change is found by halving, so that the others are unblocked.

use crate::halving::{Failure, Halving, answers, is_of_one_item};
use crate::store::{Store, StoreError, Unblocked, WaitsFor};

/// How it ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) unblocked: Unblocked,
    /// The blockers for which the statements succeeded.
    pub(super) accepted: Vec<u64>,
    /// The blockers behind which the database refuses to change an event: a trigger, a constraint or a policy of the table.
    pub(super) refused: Vec<(u64, StoreError)>,
    /// The error, if some blockers were not tried.
    pub(super) failed: Option<StoreError>,
}

/// Unblocks events behind these blockers, at most `limit` behind each.
pub(super) async fn unblock_each(store: &dyn Store, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Ended {
    let (mut halving, mut ended) = (Halving::new(blockers), Ended::default());
    while let Some(part) = halving.next_part() {
        let error = match store.unblock(part, waits_for, limit).await {
            Ok(Unblocked { cleared, left }) => {
                ended.unblocked.cleared.extend(cleared);
                ended.unblocked.left.extend(left);
                ended.accepted.extend(part);
                continue;
            }
            Err(error) => error,
        };
        match halving.failed(part, &error, answers(store)).await {
            Failure::Halved => {}
            Failure::Refused(blocker) => ended.refused.push((*blocker, error)),
            Failure::OfAll => ended.failed = Some(error),
        }
    }
    // If none was accepted, the user may lack the right to change the table, or the table is locked.
    let is_of_rows = !ended.accepted.is_empty() || ended.refused.iter().any(|(_, error)| is_of_one_item(error));
    if !is_of_rows {
        let forbidden = ended.refused.drain(..).next().map(|(_, error)| error);
        ended.failed = ended.failed.take().or(forbidden);
    }
    ended
}

/// Logs that the database refuses to change an event behind a blocker.
pub(super) fn log_refused(blocker: u64, error: &StoreError) {
    tracing::error!(
        event.sequence = blocker, error = %crate::chain(error),
        "the database refuses to unblock an event behind this one; retrying after 1 s, later after up to 60 s; others are unblocked"
    );
}
