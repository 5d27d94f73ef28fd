//! Outcomes that cannot be stored although others can, as the settler last said.

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
    /// Says how many wait for locked rows, and which are refused.
    pub(crate) fn set(&self, locked: usize, refused: RefusedOutcomes) {
        *self.now() = Apart { locked, refused };
    }

    /// How many wait for locked rows.
    pub(crate) fn locked(&self) -> usize {
        self.now().locked
    }

    /// The outcomes that the database refuses.
    pub(crate) fn refused(&self) -> RefusedOutcomes {
        self.now().refused.clone()
    }

    fn now(&self) -> MutexGuard<'_, Apart> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
