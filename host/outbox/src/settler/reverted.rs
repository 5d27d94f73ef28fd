//! Outcomes that the database reports as stored although their events stay unfinished: a trigger keeps the row or sets it back.
//!
//! The host notices that when the event is read again. It delivers the event once more, because the row may have been changed by hand or
//! its outcome lost in a failover. It looks at the row as soon as the second outcome is stored.

use std::collections::HashSet;

use super::completion::{Batch, Completion};
use super::obstacle::Obstacle;
use super::trying::Round;
use super::{Settler, is_final};
use crate::event::Fence;
use crate::store::Settled;

impl Settler {
    /// Sets apart the outcomes that the database has reverted. It must have reported each outcome of the batch as stored: otherwise the
    /// claim of another host may have raised a `claim_seq`. Returns the outcomes for which there is no place.
    pub(super) async fn set_reverted_apart(
        &self,
        batch: &mut Batch,
        round: Round,
        apart: &mut Vec<Completion>,
    ) -> Vec<Completion> {
        let doubtful = batch.doubtful();
        if doubtful.is_empty() {
            return Vec::new();
        }
        let kept = self.unfinished(&doubtful).await;
        let finished: Vec<Settled> = doubtful.iter().filter(|one| is_final(&one.settlement)).map(under_next_fence).collect();
        let set_back = self.unfinished(&finished).await;
        let mut reverted = batch.take(&kept);
        for mut one in batch.take(&set_back) {
            one.settled = under_next_fence(&one.settled);
            reverted.push(one);
        }
        self.set_apart(reverted, &Obstacle::Unchanged, round, apart)
    }

    /// The `seq` of the outcomes that could be stored again. Empty if the database does not answer: then the events are read and delivered
    /// again.
    async fn unfinished(&self, settled: &[Settled]) -> HashSet<u64> {
        if settled.is_empty() {
            return HashSet::new();
        }
        let unsettled = self.store.unsettled(settled).await.inspect_err(|error| self.metrics.db_error(error));
        unsettled.unwrap_or_default().into_iter().collect()
    }
}

/// The same outcome, for a row that was set back after its `claim_seq` was raised.
fn under_next_fence(settled: &Settled) -> Settled {
    let fence = settled.fence;
    Settled { fence: Fence::new(fence.sequence, fence.epoch(), fence.claim_seq() + 1), ..settled.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Settlement;

    #[test]
    fn the_next_fence_has_the_same_row_and_epoch() {
        let next = |claim_seq| under_next_fence(&Settled::new(Fence::new(7, 3, claim_seq), Settlement::Done)).fence;

        assert_eq!(next(1), Fence::new(7, 3, 2));
        assert_eq!(next(0xffff_ffff), Fence::new(7, 3, 0), "the number begins again");
    }
}
