//! The routes that this host cannot deliver, as its heartbeat last published them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::StalledRoute;

/// The routes that this host cannot deliver, and whether it stands aside for them.
#[derive(Debug, Default)]
pub(crate) struct StallGauge(Mutex<(bool, Vec<StalledRoute>)>);

impl StallGauge {
    pub(crate) fn set(&self, is_aside: bool, stalled: Vec<StalledRoute>) {
        *self.lock() = (is_aside, stalled);
    }

    /// Whether it takes no partitions, since another host can probably deliver more.
    pub(crate) fn is_aside(&self) -> bool {
        self.lock().0
    }

    /// The routes whose events it gives back.
    pub(crate) fn routes(&self) -> Vec<StalledRoute> {
        self.lock().1.clone()
    }

    fn lock(&self) -> MutexGuard<'_, (bool, Vec<StalledRoute>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
