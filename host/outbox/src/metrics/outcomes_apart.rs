//! Outcomes that cannot be stored although others can, as the settler last published them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::{StuckEvents, StuckReason};

/// The outcomes that wait apart from the others.
#[derive(Debug, Default)]
pub(crate) struct OutcomesApart(Mutex<Apart>);

#[derive(Debug, Default)]
struct Apart {
    locked: usize,
    stuck: Vec<StuckEvents>,
}

impl OutcomesApart {
    /// Publishes how many wait for locked rows, however briefly, and the events that are stuck.
    pub(crate) fn set(&self, locked: usize, stuck: Vec<StuckEvents>) {
        *self.lock() = Apart { locked, stuck };
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
        self.lock().stuck.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Apart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
