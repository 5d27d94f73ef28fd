//! Outcomes on their way to the store, one by one and as batches.

use std::collections::HashSet;
use std::sync::Arc;

use crate::event::{Event, Fence};
use crate::queue::{Delivery, Mark, Turn};
use crate::store::{Settled, Settlement};

/// An outcome on its way to the store.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) settled: Settled,
    pub(super) kept: Kept,
}

/// What is let go when an outcome is stored.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Keeps the event marked until its outcome is stored; `None` for a claim whose delivery is gone already.
    _mark: Option<Mark>,
    /// Of a dead event for the log, of one that is set aside for its aggregate.
    pub(super) event: Option<Arc<Event>>,
    /// Ends when the outcome is stored.
    pub(super) turn: Option<Box<Turn>>,
}

impl Outgoing {
    /// `None` for an event that was never stored: there is nothing to write.
    pub(super) fn of(delivery: Delivery, settlement: Settlement) -> Option<Self> {
        let Delivery { event, mark, turn, .. } = delivery;
        let fence = mark.fence()?;
        let event = matches!(settlement, Settlement::Dead { .. } | Settlement::Behind { .. }).then_some(event);
        Some(Self { settled: Settled { fence, settlement }, kept: Kept { _mark: Some(mark), event, turn } })
    }

    /// What became of a claim whose delivery is gone, or never was.
    pub(super) fn claim(fence: Fence, settlement: Settlement) -> Self {
        Self { settled: Settled { fence, settlement }, kept: Kept::default() }
    }
}

/// Outcomes that are written together, as the store takes them and with what is let go for each.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) settled: Vec<Settled>,
    pub(super) kept: Vec<Kept>,
}

impl Batch {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { settled: Vec::with_capacity(capacity), kept: Vec::with_capacity(capacity) }
    }

    pub(super) fn extend(&mut self, outgoing: impl Iterator<Item = Outgoing>) {
        for Outgoing { settled, kept } in outgoing {
            self.settled.push(settled);
            self.kept.push(kept);
        }
    }

    /// Takes out those whose `seq` is one of these.
    pub(super) fn take(&mut self, sequences: &HashSet<u64>) -> impl Iterator<Item = Outgoing> {
        let all = self.settled.drain(..).zip(self.kept.drain(..)).map(|(settled, kept)| Outgoing { settled, kept });
        let (taken, left): (Vec<_>, Vec<_>) = all.partition(|one| sequences.contains(&one.settled.fence.sequence));
        self.extend(left.into_iter());
        taken.into_iter()
    }
}
