//! Numbers for the batches of events.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Numbers the commits, reads and claims of this process, so that a listener can tell which events belong to one batch.
#[derive(Debug, Default)]
pub(crate) struct BatchNumbers(AtomicU64);

impl BatchNumbers {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
