//! The locks and atomics of the queue and the partitions.
//!
//! They are named here so that `tests/interleavings` can compile these modules with others, whose every step it schedules.

pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}
