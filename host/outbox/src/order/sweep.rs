//! Lets events go that wait behind others, where nobody keeps that order any more.

use std::time::Duration;

use tokio::time::Instant;

use super::LOOK_AGAIN;
use super::unblock::{log_refused, unblock_each};
use crate::metrics::Metrics;
use crate::refusals::Refusals;
use crate::store::{PARTITIONS, Store, StoreError, WaitsFor};

/// How often such events are looked for.
const EVERY: Duration = Duration::from_secs(60);
/// Most events that others wait behind, and most of those others behind each, that one batch lets go.
const BLOCKERS: u32 = 20;
const BEHIND_EACH: u32 = 500;

/// Walks over the events that wait behind others, batch by batch, where order by aggregate is not asked for: the mode may have
/// been another one before, and nothing may wait for ever.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// The last blocker of the batch before; 0 between two walks.
    after: u64,
    /// Whether this walk left any behind: queues that are longer than a batch, or rows that somebody has locked.
    left: bool,
    /// When the next walk begins; `None` for the first.
    next: Option<Instant>,
    /// The blockers behind which the database refused to change an event.
    refused: Refusals<u64>,
}

impl Sweep {
    /// Lets one batch go, when it is time. Returns how soon to come again, if that is sooner than the next regular walk.
    pub(crate) async fn step(&mut self, store: &dyn Store, metrics: &Metrics) -> Result<Option<Duration>, StoreError> {
        if self.after == 0 && self.next.is_some_and(|next| Instant::now() < next) {
            return Ok(None);
        }
        let partitions: Vec<u16> = (0..PARTITIONS).collect();
        let blockers = store.blockers(&partitions, self.after, BLOCKERS).await?;
        let blockers: Vec<u64> = blockers.iter().map(|blocker| blocker.sequence).collect();
        let Some(last) = blockers.last() else {
            let rest = if std::mem::take(&mut self.left) { LOOK_AGAIN } else { EVERY };
            (self.after, self.next) = (0, Some(Instant::now() + rest));
            return Ok((rest < EVERY).then_some(rest));
        };
        self.after = *last;
        let resting = self.refused.resting(Instant::now());
        let blockers: Vec<u64> = blockers.iter().copied().filter(|blocker| !resting.contains(blocker)).collect();
        let ended = unblock_each(store, &blockers, WaitsFor::Nothing, BEHIND_EACH).await;
        self.left |= !ended.unblocked.left.is_empty();
        self.refused.accepted(ended.accepted.into_iter());
        for (blocker, error) in &ended.refused {
            metrics.db_error(error);
            if self.refused.refuse(*blocker, Instant::now()) {
                log_refused(*blocker, error);
            }
        }
        ended.failed.map_or(Ok(Some(Duration::ZERO)), Err)
    }
}
