//! What says that an event which was read is this host's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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
        let slot = self.slots.get(usize::from(number))?;
        // Increment before checking `open`. `update` does the reverse, so that one of the two sees the other.
        slot.in_hand.fetch_add(1, Ordering::SeqCst);
        let hold = Hold { partitions: self.clone(), number, epoch, is_given_up: AtomicBool::new(false) };
        let is_open = slot.open.load(Ordering::SeqCst) && slot.epoch.load(Ordering::SeqCst) == epoch;
        (is_open && epoch > 0).then_some(hold)
    }

    /// When the lease ends, by this process's own clock.
    pub(crate) fn lease_end(&self) -> Instant {
        self.began + Duration::from_micros(self.lease_end.load(Ordering::SeqCst))
    }

    /// Whether a partition is held under this epoch, as far as this process knows: `None` while its lease has ended by its own
    /// clock.
    pub(crate) fn is_held(&self, number: u16, epoch: u32) -> Option<bool> {
        // In this order: a beat notes which partitions are lost before it renews the lease.
        let lease_end = self.lease_end();
        let held = self.slots.get(usize::from(number)).map_or(0, |slot| slot.epoch.load(Ordering::SeqCst));
        if held != epoch {
            return Some(false);
        }
        (lease_end > Instant::now()).then_some(true)
    }
}

impl Hold {
    /// Until when the event is this host's as of now, by this process's own clock; `None` when the partition is not held under the
    /// same epoch any more.
    pub(crate) fn lease_end(&self) -> Option<Instant> {
        // In this order: a beat notes which partitions are lost before it renews the lease.
        let calls_end = self.partitions.calls_end();
        let slot = &self.partitions.slots[usize::from(self.number)];
        (slot.epoch.load(Ordering::SeqCst) == self.epoch).then_some(calls_end)
    }

    /// Whether a call of the event may begin.
    pub(crate) fn may_begin(&self) -> bool {
        self.partitions.may_begin()
    }

    /// Whether the partition is to be given back as soon as nothing of it is in hand.
    pub(crate) fn is_leaving(&self) -> bool {
        !self.partitions.slots[usize::from(self.number)].open.load(Ordering::SeqCst)
    }

    /// The partition may be given back from now on though this lives: nobody knows when the event is let go.
    pub(crate) fn give_up(&self) {
        if !self.is_given_up.swap(true, Ordering::SeqCst) {
            self.partitions.slots[usize::from(self.number)].in_hand.fetch_sub(1, Ordering::SeqCst);
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

#[cfg(test)]
impl Partitions {
    /// All of them, held under this epoch for an hour.
    pub(crate) fn all_held(epoch: u32) -> Arc<Self> {
        let partitions = Self::new(super::Share::Whole, false, 0);
        for slot in &partitions.slots {
            slot.epoch.store(epoch, Ordering::SeqCst);
            slot.open.store(true, Ordering::SeqCst);
        }
        partitions.lease_end.store(3_600_000_000, Ordering::SeqCst);
        Arc::new(partitions)
    }
}
