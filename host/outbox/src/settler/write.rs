//! A batch on its way into the database. An outcome that the database refuses is found by halving the batch, so that the others are
//! stored.

use std::collections::HashSet;

use super::completion::{Batch, Completion};
use super::obstacle::Obstacle;
use super::trying::Trying;
use super::{Settler, fenced_off};
use crate::store::{Settled, Settlement, StoreError};

/// Why an outcome is tried again and again where it is.
const NO_PLACE: &str = "the database refuses the outcomes of many events; `outbox doctor` says which";

impl Settler {
    /// Stores a batch, and concludes each part of it. Outcomes that cannot be stored while others can are added to `apart`: they must
    /// not hold up the others. Returns when nothing is left of the batch.
    pub(super) async fn write(&self, batch: &mut Batch, follows: &mut Vec<Completion>, apart: &mut Vec<Completion>) {
        let Some(mut trying) = Trying::begin(self) else { return self.conclude(batch, None, follows) };
        // The other halves of what was refused; nearly always none.
        let mut rest: Vec<Completion> = Vec::new();
        let mut part = self.batch_size;
        loop {
            let events = batch.len();
            let error = match self.store_part(batch, follows, apart).await {
                Ok(()) if !batch.settled.is_empty() => None,
                Ok(()) => {
                    if rest.is_empty() {
                        trying.stored(events);
                        return;
                    }
                    // Twice as many as went through: one outcome in a batch is found in some twenty statements.
                    part = part.saturating_mul(2);
                    batch.extend(rest.drain(..part.min(rest.len())));
                    continue;
                }
                Err(error) => Some(error),
            };
            if let Some(error) = &error {
                self.metrics.db_error(error);
            }
            if matches!(error, Some(StoreError::Locked { .. })) && self.set_locked_apart(batch, apart).await {
                continue;
            }
            if let Some(error) = error.as_ref().filter(|error| may_be_of_rows(error, &trying)) {
                if events > 1 {
                    part = events.div_ceil(2);
                    let mut second = batch.split_half();
                    second.append(&mut rest);
                    rest = second;
                    continue;
                }
                if batch.settled.iter_mut().any(make_plain) {
                    continue;
                }
                let unplaced = self.set_apart(batch.drain().collect(), &Obstacle::Refused(crate::chain(error)), apart);
                batch.extend(unplaced.into_iter());
                if batch.settled.is_empty() {
                    continue;
                }
            }
            let reason = || error.as_ref().map_or_else(|| NO_PLACE.to_owned(), |error| crate::chain(error));
            if !trying.may_repeat(events + rest.len(), reason).await {
                batch.extend(rest.drain(..));
                return self.conclude(batch, None, follows);
            }
        }
    }

    /// Stores and concludes what is in the batch. Outcomes that changed nothing although their events are still ours are moved to `apart`;
    /// those for which there is no place stay in the batch.
    async fn store_part(
        &self,
        batch: &mut Batch,
        follows: &mut Vec<Completion>,
        apart: &mut Vec<Completion>,
    ) -> Result<(), StoreError> {
        if batch.settled.is_empty() {
            return Ok(());
        }
        let mut dropped = self.store.settle(&batch.settled).await?;
        let mut unplaced = Vec::new();
        if dropped > 0 {
            let unchanged: HashSet<u64> = self.store.unsettled(&batch.settled).await?.into_iter().collect();
            dropped = dropped.saturating_sub(u64::try_from(unchanged.len()).unwrap_or(u64::MAX));
            unplaced = self.set_apart(batch.take(&unchanged), &Obstacle::Unchanged, apart);
        }
        self.metrics.fenced_outcomes.add(dropped);
        fenced_off(dropped);
        self.conclude(batch, Some(dropped), follows);
        batch.extend(unplaced.into_iter());
        Ok(())
    }

    /// Sets the outcomes apart whose rows are locked. Returns whether it could set any apart.
    async fn set_locked_apart(&self, batch: &mut Batch, apart: &mut Vec<Completion>) -> bool {
        let Ok(locked) = self.locked(batch.settled.iter()).await else { return false };
        let before = batch.len();
        let unplaced = self.set_apart(batch.take(&locked), &Obstacle::Locked, apart);
        batch.extend(unplaced.into_iter());
        batch.len() < before
    }
}

/// Whether an error may be due to the rows of a batch, so that other outcomes could be stored: a constraint, a trigger, a policy, a text
/// that the database cannot keep, or a statement that takes too long again and again.
pub(super) fn may_be_of_rows(error: &StoreError, trying: &Trying<'_>) -> bool {
    match error {
        StoreError::TimedOut { .. } => trying.has_failed_twice(),
        StoreError::Forbidden { .. } | StoreError::Failed { .. } => !error.is_transient(),
        _ => false,
    }
}

/// Reduces an outcome to what any database can keep: ASCII, and no cost. False if there is nothing to reduce.
fn make_plain(settled: &mut Settled) -> bool {
    let had_cost = settled.cost.take().is_some();
    let text = match &mut settled.settlement {
        Settlement::Retry { error: text, .. } | Settlement::Dead { error: text, .. } | Settlement::Parked { reason: text } => {
            text
        }
        _ => return had_cost,
    };
    let is_plain = text.is_ascii();
    if !is_plain {
        *text = text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
    }
    had_cost || !is_plain
}
