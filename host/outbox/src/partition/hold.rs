//! What says that an event which was read is this host's.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use super::Partitions;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Keeps one of this host's partitions for an event in flight: as long as it lives, the partition is not given back.
pub(crate) struct Hold {
    partitions: Arc<Partitions>,
    number: u16,
    epoch: u32,
    /// Whether the partition may be given back though this lives.
    is_given_up: AtomicBool,
}

impl Partitions {
    /// Takes an event in hand that was read of a partition under this epoch. `None` when the partition is no longer open under
    /// it.
    pub(crate) fn hold(self: &Arc<Self>, number: u16, epoch: u32) -> Option<Hold> {
        let is_open = self.slots.enter(number, epoch);
        is_open.then(|| Hold { partitions: self.clone(), number, epoch, is_given_up: AtomicBool::new(false) })
    }
}

impl Hold {
    /// Until when the event is this host's as of now, by this process's own clock; `None` when the partition is not held under the
    /// same epoch any more.
    pub(crate) fn lease_end(&self) -> Option<Instant> {
        // In this order: a beat notes which partitions are lost before it renews the lease.
        let calls_end = self.partitions.calls_end();
        (self.partitions.slots.epoch(self.number) == self.epoch).then_some(calls_end)
    }

    /// Whether a call of the event may begin.
    pub(crate) fn may_begin(&self) -> bool {
        self.partitions.session().may_begin()
    }

    /// Whether the partition is to be given back as soon as nothing of it is in hand.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.partitions.slots.is_open(self.number)
    }

    /// The partition may be given back from now on though this lives: nobody knows when the event is let go.
    pub(crate) fn give_up(&self) {
        if !self.is_given_up.swap(true, Ordering::SeqCst) {
            self.partitions.slots.exit(self.number);
        }
    }

    /// The partition and the epoch.
    pub(crate) fn partition(&self) -> (u16, u32) {
        (self.number, self.epoch)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("number", &self.number).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_up();
    }
}
