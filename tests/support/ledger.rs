//! Compares what was written with what was delivered.

use std::collections::{BTreeMap, BTreeSet};

use outbox::EventId;

/// What writers did, kept beside the database under test.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    committed: BTreeSet<EventId>,
    rolled_back: BTreeSet<EventId>,
}

/// What the comparison came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Committed, never delivered.
    pub lost: Vec<EventId>,
    /// Delivered, though they were rolled back or never written.
    pub ghosts: Vec<EventId>,
    /// Deliveries beyond the first of each event.
    pub duplicates: usize,
}

impl Ledger {
    /// These were committed.
    pub fn committed(&mut self, ids: impl IntoIterator<Item = EventId>) {
        self.committed.extend(ids);
    }

    /// These were rolled back.
    pub fn rolled_back(&mut self, ids: impl IntoIterator<Item = EventId>) {
        self.rolled_back.extend(ids);
    }

    /// Compares with everything that was delivered, in any order.
    pub fn compare(&self, delivered: impl IntoIterator<Item = EventId>) -> Report {
        let mut times: BTreeMap<EventId, usize> = BTreeMap::new();
        for id in delivered {
            *times.entry(id).or_default() += 1;
        }
        Report {
            lost: self.committed.iter().filter(|id| !times.contains_key(id)).copied().collect(),
            ghosts: times.keys().filter(|id| self.rolled_back.contains(id) || !self.committed.contains(id)).copied().collect(),
            duplicates: times.values().map(|count| count - 1).sum(),
        }
    }
}
