//! Outcomes that the database refuses or is slow to store, as the settler last published them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::{StuckEvents, StuckReason};

/// The outcomes that wait apart from the others.
#[derive(Debug, Default)]
pub(crate) struct OutcomesApart(Mutex<Apart>);

#[derive(Debug, Default)]
struct Apart {
    locked: usize,
    stuck: Vec<StuckEvents>,
    /// The batches that the database is slow to store, by number.
    slow: BTreeMap<u64, StuckEvents>,
    /// The number of the next such batch.
    next: u64,
}

impl OutcomesApart {
    /// Publishes how many wait for locked rows, however briefly, and the events that are stuck.
    pub(crate) fn set(&self, locked: usize, stuck: Vec<StuckEvents>) {
        let mut apart = self.lock();
        (apart.locked, apart.stuck) = (locked, stuck);
    }

    /// Publishes a batch that the database is slow to store, again if it has a number. Returns its number.
    pub(crate) fn set_slow(&self, number: Option<u64>, events: StuckEvents) -> u64 {
        let mut apart = self.lock();
        let number = number.unwrap_or(apart.next);
        apart.next = apart.next.max(number + 1);
        apart.slow.insert(number, events);
        number
    }

    /// Withdraws the batch with this number.
    pub(crate) fn remove_slow(&self, number: u64) {
        self.lock().slow.remove(&number);
    }

    /// How many the database is slow to store.
    pub(crate) fn slow(&self) -> u64 {
        self.lock().slow.values().map(|events| u64::from(events.count)).sum()
    }

    /// How many wait for locked rows.
    pub(crate) fn locked(&self) -> usize {
        self.lock().locked
    }

    /// How many the database refuses.
    pub(crate) fn refused(&self) -> u64 {
        let apart = self.lock();
        apart.stuck.iter().find(|events| events.reason == StuckReason::OutcomeRefused).map_or(0, |events| events.count.into())
    }

    /// The events that are stuck, by reason.
    pub(crate) fn stuck(&self) -> Vec<StuckEvents> {
        let apart = self.lock();
        apart.stuck.iter().chain(apart.slow.values()).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Apart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
