//! Outcomes on their way to the store, one by one and as batches.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::obstacle::Apart;
use crate::event::{Effects, Event, Fence};
use crate::queue::{Delivery, Mark, Turn};
use crate::store::{AttemptCost, Settled, Settlement, StoreError};

/// What is to be written of one delivery: its settlement, and what its listener did beside.
#[derive(Clone, Debug)]
pub(crate) struct Conclusion {
    pub(crate) settlement: Settlement,
    /// `None` for nearly all.
    pub(crate) effects: Option<Box<Effects>>,
    /// What the attempt cost, where that may be kept.
    pub(crate) cost: Option<Box<AttemptCost>>,
    pub(crate) if_not_taken: IfNotTaken,
}

/// What is needed of a delivery when the database does not take its effects.
#[derive(Clone, Debug, Default)]
pub(crate) struct IfNotTaken {
    /// Whether the event has then failed as often as it may.
    pub(crate) is_last: bool,
    /// What the attempt cost, of an outcome with which that is not kept: it may become one with which it is.
    pub(crate) cost: Option<Box<AttemptCost>>,
}

impl From<Settlement> for Conclusion {
    fn from(settlement: Settlement) -> Self {
        Self { settlement, effects: None, cost: None, if_not_taken: IfNotTaken::default() }
    }
}

/// An outcome on its way to the store.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) settled: Settled,
    pub(super) effects: Option<Box<Effects>>,
    pub(super) held: Held,
}

/// What is let go when an outcome is stored.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Keeps the event marked until its outcome is stored; `None` for a claim whose delivery is gone already.
    pub(super) mark: Option<Mark>,
    /// Of an event that is dead, or may be yet, for the log; of one that is set aside for its aggregate. Without payload and headers.
    pub(super) event: Option<Arc<Event>>,
    /// Ends when the outcome is stored.
    pub(super) turn: Option<Box<Turn>>,
    /// What its effects take up until they are stored.
    pub(super) room: Option<OwnedSemaphorePermit>,
    pub(super) if_not_taken: IfNotTaken,
    /// Why it waits apart from the others, if it does.
    pub(super) apart: Option<Box<Apart>>,
    /// Whether the answer to an earlier try was lost: that try may have stored the outcome.
    pub(super) is_answer_lost: bool,
}

impl Held {
    /// Notes that a try to store the outcome failed.
    pub(super) fn note_failure(&mut self, error: &StoreError) {
        self.is_answer_lost |= matches!(error, StoreError::Disconnected { .. });
    }
}

impl Completion {
    /// `None` for an event that was never stored: there is nothing to write.
    pub(super) fn of(delivery: Delivery, conclusion: impl Into<Conclusion>) -> Option<Self> {
        let Delivery { mut event, mark, turn, counted_bytes, .. } = delivery;
        let Conclusion { settlement, effects, cost, if_not_taken } = conclusion.into();
        let fence = mark.fence()?;
        let is_told = matches!(settlement, Settlement::Dead { .. } | Settlement::Behind { .. }) || effects.is_some();
        let event = is_told.then(|| {
            // Outcomes may wait by the thousand, for a database that is slow or for locked rows.
            Arc::make_mut(&mut event).drop_content();
            event
        });
        drop(counted_bytes);
        Some(Self {
            settled: Settled { fence, id: Some(mark.id()), settlement, cost },
            effects,
            held: Held { mark: Some(mark), event, turn, if_not_taken, ..Held::default() },
        })
    }

    /// Whether there is nothing to write: what was read and never started is as it was.
    pub(super) fn writes_nothing(&self) -> bool {
        self.held.mark.as_ref().is_some_and(|mark| writes_nothing(&self.settled.settlement, mark))
    }

    /// What became of a claim whose delivery is gone, or never was.
    pub(super) fn claim(fence: Fence, settlement: Settlement) -> Self {
        Self { settled: Settled::new(fence, settlement), effects: None, held: Held::default() }
    }
}

/// Whether this settlement leaves the row of an event as it is.
pub(super) fn writes_nothing(settlement: &Settlement, mark: &Mark) -> bool {
    mark.is_read() && matches!(settlement, Settlement::Released { after, .. } if after.is_zero())
}

/// Outcomes that are written together, as the store takes them and with what is let go for each.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) settled: Vec<Settled>,
    pub(super) held: Vec<Held>,
}

impl Batch {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { settled: Vec::with_capacity(capacity), held: Vec::with_capacity(capacity) }
    }

    /// Adds outcomes without effects; the others are stored apart.
    pub(super) fn extend(&mut self, completions: impl Iterator<Item = Completion>) {
        for Completion { settled, held, effects: _ } in completions {
            self.settled.push(settled);
            self.held.push(held);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.settled.len()
    }

    /// Notes that a try to store these outcomes failed.
    pub(super) fn note_failure(&mut self, error: &StoreError) {
        self.held.iter_mut().for_each(|held| held.note_failure(error));
    }

    /// Whether an earlier try may have stored one of these outcomes, although its answer was lost.
    pub(super) fn may_be_stored(&self) -> bool {
        self.held.iter().any(|held| held.is_answer_lost)
    }

    /// The outcomes of events whose rows contradicted an earlier outcome.
    pub(super) fn doubtful(&self) -> Vec<Settled> {
        let outcomes = self.settled.iter().zip(&self.held);
        let doubtful = outcomes.filter(|(_, held)| held.mark.as_ref().is_some_and(Mark::is_doubtful));
        doubtful.map(|(settled, _)| settled.clone()).collect()
    }

    /// Takes out those whose `seq` is one of these.
    pub(super) fn take(&mut self, sequences: &HashSet<u64>) -> Vec<Completion> {
        let (taken, left) = self.drain().partition(|one| sequences.contains(&one.settled.fence.sequence));
        self.extend(Vec::into_iter(left));
        taken
    }

    /// Takes out what is beyond this many outcomes.
    pub(super) fn split_off(&mut self, count: usize) -> Vec<Completion> {
        let count = count.min(self.len());
        let settled = self.settled.drain(count..);
        settled.zip(self.held.drain(count..)).map(|(settled, held)| Completion { settled, effects: None, held }).collect()
    }

    /// Takes out all.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Completion> {
        let all = self.settled.drain(..).zip(self.held.drain(..));
        all.map(|(settled, held)| Completion { settled, effects: None, held })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::Envelope;
    use crate::queue::{InFlight, Via};

    #[test]
    fn a_lost_answer_is_remembered_when_a_batch_is_divided() {
        let outcomes = (1..=4).map(|sequence| Completion::claim(Fence::new(sequence, 2, 3), Settlement::Done));
        let mut batch = Batch::with_capacity(4);
        batch.extend(outcomes);
        batch.note_failure(&StoreError::Locked { action: "test", source: sqlx::Error::RowNotFound });
        assert!(!batch.may_be_stored());

        batch.note_failure(&StoreError::Disconnected { action: "test", source: sqlx::Error::RowNotFound });
        let half = batch.split_off(2);
        let apart = batch.take(&HashSet::from([1]));

        assert!(half.iter().chain(&apart).all(|one| one.held.is_answer_lost) && batch.may_be_stored());
    }

    #[test]
    fn the_outcome_of_a_dead_event_keeps_neither_payload_nor_headers() {
        let envelope = Envelope::new("X").header("a", "1").json(&"large").expect("valid");
        let (id, in_flight) = (envelope.id(), Arc::new(InFlight::default()));
        let mark = in_flight.mark(id, Some(Fence::new(1, 2, 3)), Duration::from_secs(30)).expect("new");
        let event = Arc::new(Event::of(envelope).attempt(4).build());
        let delivery = Delivery::new(event.clone(), mark, Via::Cold, 0);

        let dead = Settlement::Dead { error: "no".to_owned(), counted: true, blocks: false };
        let completion = Completion::of(delivery, dead).expect("it is stored");

        let kept = completion.held.event.expect("the log names it");
        assert_eq!((kept.id(), kept.attempt()), (id, 4));
        assert!(kept.payload_bytes().is_empty() && kept.headers().is_empty());
        assert!(!event.payload_bytes().is_empty(), "the listener's copy is whole");
    }
}
