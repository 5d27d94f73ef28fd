//! Outcomes that cannot be stored although others can, as the settler last published them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::RefusedOutcomes;

/// The outcomes that wait apart from the others.
#[derive(Debug, Default)]
pub(crate) struct OutcomesApart(Mutex<Apart>);

#[derive(Debug, Default)]
struct Apart {
    locked: usize,
    refused: RefusedOutcomes,
}

impl OutcomesApart {
    /// Publishes how many wait for locked rows, and which are refused.
    pub(crate) fn set(&self, locked: usize, refused: RefusedOutcomes) {
        *self.lock() = Apart { locked, refused };
    }

    /// How many wait for locked rows.
    pub(crate) fn locked(&self) -> usize {
        self.lock().locked
    }

    /// The outcomes that the database refuses.
    pub(crate) fn refused(&self) -> RefusedOutcomes {
        self.lock().refused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Apart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
