//! A batch on its way into the database. An outcome that the database refuses, or does not store in time, is found by dividing the batch, so
//! that the others are stored.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::completion::{Batch, Completion};
use super::obstacle::Obstacle;
use super::parts::Parts;
use super::trying::{Round, Trying, is_of_others};
use super::{Settler, fenced_off, is_final};
use crate::event::Fence;
use crate::halving::is_held_up;
use crate::store::{Settled, Settlement, StoreError};

/// How long the settler looks at rows after a lost answer. It only counts and logs what they show, and other outcomes wait meanwhile.
const LOOKS_FOR: Duration = Duration::from_secs(1);
/// The reason why an outcome is retried where it is.
const NO_PLACE: &str = "as many outcomes as may wait apart already wait for locked rows or are refused; see `outbox doctor`";

/// The result of storing a part of a batch.
enum Part {
    /// Each outcome is stored, dropped, or set apart.
    Stored,
    /// The database did not store it.
    Failed(StoreError),
    /// Outcomes that cannot be stored are left, and no more may wait apart.
    NoPlace,
    /// A stop must be over.
    GivenUp,
}

impl Settler {
    /// Stores a batch, and concludes each part of it. Outcomes that cannot be stored while others can are added to `apart`: they must
    /// not hold up the others. Returns when nothing is left of the batch.
    pub(super) async fn write(
        &self,
        batch: &mut Batch,
        round: Round,
        follows: &mut Vec<Completion>,
        apart: &mut Vec<Completion>,
    ) {
        let Some(mut trying) = Trying::begin(self, round) else { return self.conclude(batch, None, follows) };
        let mut rest = Parts::beyond(self.batch_size.current(), batch);
        loop {
            let (events, began_at) = (batch.len(), Instant::now());
            let reason = match self.store_part(batch, &rest, round, &mut trying, follows, apart).await {
                Part::Stored => {
                    self.batch_size.note_stored(events, began_at.elapsed());
                    let Some(next) = rest.take_next() else { return trying.stored(events) };
                    trying.stored_part();
                    batch.extend(next.into_iter());
                    continue;
                }
                Part::Failed(error) => {
                    self.metrics.db_error(&error);
                    batch.note_failure(&error);
                    if matches!(error, StoreError::Locked { .. }) && self.set_locked_apart(batch, round, apart).await {
                        continue;
                    }
                    trying.note_failure(&sequences(&batch.settled), &error).await;
                    let may_be_of_rows = trying.may_be_of_rows(&error, events);
                    // Parts that are held up take as long as the whole. A stop does not wait for them.
                    let is_over = is_held_up(&error) && self.must_give_up();
                    if may_be_of_rows && events > 1 && !is_over {
                        if is_held_up(&error) {
                            trying.note_division(events, &error);
                            let part = rest.divide_last(batch);
                            // A lock is one of single rows, and outcomes that wait apart say nothing about the table.
                            if round == Round::First && matches!(error, StoreError::TimedOut { .. }) {
                                self.batch_size.note_held_up(part);
                            }
                        } else {
                            rest.halve_next(batch);
                        }
                        batch.extend(rest.take_next().into_iter().flatten());
                        continue;
                    }
                    if let Some(settled) = batch.settled.first() {
                        trying.note_stall(settled, &error).await;
                    }
                    if may_be_of_rows && events == 1 && self.set_failed_apart(batch, round, &error, follows, apart).await {
                        continue;
                    }
                    crate::chain(&error)
                }
                Part::NoPlace => NO_PLACE.to_owned(),
                Part::GivenUp => {
                    batch.extend(rest.take_all());
                    return self.conclude(batch, None, follows);
                }
            };
            if !trying.may_repeat(events + rest.len(), &reason).await {
                batch.extend(rest.take_all());
                return self.conclude(batch, None, follows);
            }
        }
    }

    /// Stores and concludes what is in the batch. An outcome that changed nothing although its event is still ours is moved to `apart`, or
    /// stays in the batch if there is no place.
    async fn store_part(
        &self,
        batch: &mut Batch,
        rest: &Parts,
        round: Round,
        trying: &mut Trying<'_>,
        follows: &mut Vec<Completion>,
        apart: &mut Vec<Completion>,
    ) -> Part {
        if batch.settled.is_empty() {
            return Part::Stored;
        }
        let stored = match trying.limit(batch.len()) {
            None => self.store.settle(&batch.settled),
            Some(limit) => self.store.settle_within(&batch.settled, limit),
        };
        let mut dropped = match trying.slow.answer(batch, rest, stored).await {
            Ok(dropped) => dropped,
            Err(error) => {
                if is_of_others(&error) {
                    // The database has executed the statement.
                    self.metrics.storing.succeeded(None);
                }
                return Part::Failed(error);
            }
        };
        self.metrics.storing.succeeded(None);
        let unplaced = if dropped > 0 {
            let Some(unchanged) = self.unsettled(batch, trying).await else { return Part::GivenUp };
            dropped = dropped.saturating_sub(u64::try_from(unchanged.len()).unwrap_or(u64::MAX));
            self.set_apart(batch.take(&unchanged), &Obstacle::Unchanged, round, apart)
        } else {
            self.set_reverted_apart(batch, round, apart).await
        };
        let doubtful = (dropped > 0 && batch.may_be_stored()).then(|| batch.settled.clone());
        // Rows do not tell the outcome of this host from that of another.
        self.conclude(batch, Some(dropped), follows);
        let dropped = match doubtful {
            Some(settled) => self.unstored(&settled, dropped).await,
            None => dropped,
        };
        self.metrics.fenced_outcomes.add(dropped);
        fenced_off(dropped);
        let is_whole = unplaced.is_empty();
        batch.extend(unplaced.into_iter());
        if is_whole { Part::Stored } else { Part::NoPlace }
    }

    /// The `seq` of the outcomes that could still be stored; `None` if a stop must be over before the database answers. Asked until it
    /// does: another `settle` would count everything as dropped.
    async fn unsettled(&self, batch: &Batch, trying: &mut Trying<'_>) -> Option<HashSet<u64>> {
        loop {
            match self.store.unsettled(&batch.settled).await {
                Ok(unsettled) => return Some(unsettled.into_iter().collect()),
                Err(error) => {
                    self.metrics.db_error(&error);
                    if !trying.may_repeat(batch.len(), &crate::chain(&error)).await {
                        return None;
                    }
                }
            }
        }
    }

    /// Counts the outcomes that are not stored, at most `most`, from the rows that can be read within a second. Skips outcomes after
    /// which an event is delivered again, because another host may have delivered it already. Skips outcomes whose rows cannot be
    /// read before a stop must end.
    pub(super) async fn unstored(&self, settled: &[Settled], most: u64) -> u64 {
        let mut unstored = 0;
        let started = Instant::now();
        for one in settled.iter().filter(|one| is_final(&one.settlement)) {
            if unstored >= most || started.elapsed() >= LOOKS_FOR || self.must_give_up() {
                break;
            }
            match self.is_stored(one).await {
                Ok(is_stored) => unstored += u64::from(!is_stored),
                Err(error) => {
                    self.metrics.db_error(&error);
                    break;
                }
            }
        }
        unstored
    }

    /// Whether the row shows this outcome: it is held under no claim, and its `claim_seq` has changed once since the delivery.
    async fn is_stored(&self, settled: &Settled) -> Result<bool, StoreError> {
        let Some(row) = self.store.row_at(settled.fence.sequence).await? else {
            return Ok(settled.settlement == Settlement::Erased);
        };
        let stored = Fence::new(row.seq, 0, settled.fence.claim_seq() + 1);
        Ok(row.locked_by.is_none() && Fence::new(row.seq, 0, row.claim_seq) == stored)
    }

    /// Sets the outcomes apart whose rows are locked. Returns whether the batch became smaller.
    async fn set_locked_apart(&self, batch: &mut Batch, round: Round, apart: &mut Vec<Completion>) -> bool {
        let before = batch.len();
        let Ok(locked) = self.locked(batch.settled.iter()).await else { return false };
        let unplaced = self.set_apart(batch.take(&locked), &Obstacle::Locked, round, apart);
        batch.extend(unplaced.into_iter());
        batch.len() < before
    }

    /// Sets the one outcome of a batch apart, unless the table can keep a plain copy. False if there is no place.
    async fn set_failed_apart(
        &self,
        batch: &mut Batch,
        round: Round,
        error: &StoreError,
        follows: &mut Vec<Completion>,
        apart: &mut Vec<Completion>,
    ) -> bool {
        // A copy would wait as long.
        if !is_held_up(error) && self.store_plain(batch).await {
            self.conclude(batch, Some(0), follows);
            return true;
        }
        // A lock that the row does not show: of the whole table, or of what a trigger or a foreign key needs.
        let is_lock = matches!(error, StoreError::Locked { .. });
        let obstacle = if is_lock { Obstacle::Locked } else { Obstacle::Refused(crate::chain(error).into()) };
        let unplaced = self.set_apart(batch.drain().collect(), &obstacle, round, apart);
        batch.extend(unplaced.into_iter());
        batch.settled.is_empty()
    }

    /// Stores the one outcome of a batch in ASCII and without its cost, for a table that cannot keep the original.
    async fn store_plain(&self, batch: &mut Batch) -> bool {
        let [settled] = batch.settled.as_slice() else { return false };
        let Some(plain) = plain(settled) else { return false };
        let stored = self.store.settle(&[plain]).await.inspect_err(|error| batch.note_failure(error));
        stored.is_ok_and(|dropped| dropped == 0)
    }

    /// Whether the database refuses the statement of this outcome even for no row, so that no trigger and no constraint is the reason.
    pub(super) async fn fails_without_rows(&self, settled: &Settled) -> bool {
        match self.store.settle(&[without_row(settled)]).await {
            Ok(_) => {
                self.metrics.storing.succeeded(None);
                false
            }
            Err(error) => !is_of_others(&error),
        }
    }
}

/// The `seq` of the events of these outcomes.
fn sequences(settled: &[Settled]) -> Vec<u64> {
    settled.iter().map(|settled| settled.fence.sequence).collect()
}

/// A copy with ASCII text and without cost; `None` if it would be the same.
fn plain(settled: &Settled) -> Option<Settled> {
    let mut plain = Settled { cost: None, ..settled.clone() };
    let text = match &mut plain.settlement {
        Settlement::Retry { error: text, .. } | Settlement::Dead { error: text, .. } | Settlement::Parked { reason: text } => {
            Some(text)
        }
        Settlement::Released { reason: Some(reason), .. } => Some(reason.to_mut()),
        _ => None,
    };
    if let Some(text) = text.filter(|text| !text.is_ascii()) {
        *text = text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
    }
    (plain != *settled).then_some(plain)
}

/// A copy with the largest `seq` that a row can have. A user may insert a row with the smallest.
fn without_row(settled: &Settled) -> Settled {
    let mut copy = plain(settled).unwrap_or_else(|| settled.clone());
    copy.fence.sequence = u64::MAX >> 1;
    copy
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_plain_copy_is_ascii_and_is_made_only_where_it_differs() {
        let fence = Fence::new(1, 2, 3);
        let retry = |error: &str| Settlement::Retry { after: Duration::ZERO, error: error.to_owned() };

        let copy = plain(&Settled::new(fence, retry("✗ für 1 €"))).expect("it differs");
        assert_eq!(copy, Settled::new(fence, retry("? f?r 1 ?")));
        assert_eq!(plain(&copy), None);
        let released = |reason: &'static str| Settlement::Released { after: Duration::ZERO, reason: Some(reason.into()) };
        let copy = plain(&Settled::new(fence, released("the sink Käufe is down"))).expect("it differs");
        assert_eq!(copy, Settled::new(fence, released("the sink K?ufe is down")));
        assert_eq!(plain(&Settled::new(fence, Settlement::Done)), None);
    }

    #[test]
    fn a_copy_without_a_row_meets_no_row_whose_number_is_zero() {
        let of_zero = Settled::new(Fence::new(0, 2, 3), Settlement::Done);

        assert_ne!(without_row(&of_zero).fence.sequence, 0);
    }
}
