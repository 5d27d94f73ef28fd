//! The locks and atomics of the queue and the partitions, as `host/outbox/src/sync.rs` names them: every use is a step that the
//! scheduler chooses. Atomics have one order for all threads, whatever ordering is asked for; where the host asks for less than
//! `SeqCst`, this shows nothing.

pub(crate) use shuttle::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) mod atomic {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}
