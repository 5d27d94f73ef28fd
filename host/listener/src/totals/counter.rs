//! The atomic that every total is made of.

use std::sync::atomic::{AtomicU64, Ordering};

/// One number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    #[doc(hidden)] // for the host
    pub fn increment(&self) {
        self.add(1);
    }

    /// This many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
