//! Which events came together.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Numbers the claims of this process, so that a listener can tell which events came together.
#[derive(Debug, Default)]
pub(crate) struct Batches(AtomicU64);

impl Batches {
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
