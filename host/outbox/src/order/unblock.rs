//! Unblocks the events behind many others. One that the database refuses to change is found by halving, so that the others are unblocked.

use crate::halving::{Halved, Halving, answers};
use crate::store::{Store, StoreError, Unblocked, WaitsFor};

/// How it ended.
#[derive(Debug)]
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
    let (mut halving, mut unblocked, mut accepted) = (Halving::new(blockers), Unblocked::default(), Vec::<u64>::new());
    while let Some(part) = halving.next_part() {
        match store.unblock(part, waits_for, limit).await {
            Ok(Unblocked { cleared, left }) => {
                halving.accepted();
                unblocked.cleared.extend(cleared);
                unblocked.left.extend(left);
                accepted.extend(part);
            }
            Err(error) => halving.failed(part, error, answers(store)).await,
        }
    }
    let Halved { refused, failed } = halving.end();
    let refused = refused.into_iter().map(|(blocker, error)| (*blocker, error)).collect();
    Ended { unblocked, accepted, refused, failed }
}

/// Logs that the database refuses to change an event behind a blocker.
pub(super) fn log_refused(blocker: u64, error: &StoreError) {
    tracing::error!(
        event.sequence = blocker, error = %crate::chain(error),
        "the database refuses to unblock an event behind this one; retrying after 1 s, later after up to 60 s; others are unblocked"
    );
}
