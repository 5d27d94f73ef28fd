//! Each partition of the table, as this process sees it.

use crate::store::PARTITIONS;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// One for each partition.
#[derive(Debug)]
pub(super) struct Slots(Box<[Slot]>);

#[derive(Debug, Default)]
struct Slot {
    /// The epoch under which it is held; 0 when it is not.
    epoch: AtomicU32,
    /// Whether events are read of it.
    open: AtomicBool,
    /// How many events that were read of it are in flight here.
    in_hand: AtomicU32,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self((0..PARTITIONS).map(|_| Slot::default()).collect())
    }

    fn slot(&self, number: u16) -> &Slot {
        &self.0[usize::from(number)]
    }

    /// Counts an event that was read of a partition under this epoch. False, and nothing is counted, when the partition is not open
    /// under it, or does not exist.
    pub(super) fn enter(&self, number: u16, epoch: u32) -> bool {
        let Some(slot) = self.0.get(usize::from(number)) else { return false };
        // Increment before checking `open`. `set` does the reverse, so that one of the two sees the other.
        slot.in_hand.fetch_add(1, Ordering::SeqCst);
        let is_open = slot.open.load(Ordering::SeqCst) && slot.epoch.load(Ordering::SeqCst) == epoch && epoch > 0;
        if !is_open {
            self.exit(number);
        }
        is_open
    }

    /// Counts an event out.
    pub(super) fn exit(&self, number: u16) {
        self.slot(number).in_hand.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether no event of this partition is in flight here.
    pub(super) fn is_empty(&self, number: u16) -> bool {
        self.slot(number).in_hand.load(Ordering::SeqCst) == 0
    }

    /// The epoch under which a partition is held; 0 when it is not, or does not exist.
    pub(super) fn epoch(&self, number: u16) -> u32 {
        self.0.get(usize::from(number)).map_or(0, |slot| slot.epoch.load(Ordering::SeqCst))
    }

    /// Whether events are read of a partition.
    pub(super) fn is_open(&self, number: u16) -> bool {
        self.slot(number).open.load(Ordering::SeqCst)
    }

    /// Sets the epoch of a partition, and whether events are read of it. Returns what was set before.
    pub(super) fn set(&self, number: u16, epoch: u32, open: bool) -> (u32, bool) {
        let slot = self.slot(number);
        (slot.epoch.swap(epoch, Ordering::SeqCst), slot.open.swap(open, Ordering::SeqCst))
    }

    /// From now on nothing is read of any.
    pub(super) fn close(&self) {
        for slot in &self.0 {
            slot.open.store(false, Ordering::SeqCst);
        }
    }

    /// Forgets the epoch of a partition. Call this only after the database has freed it: otherwise events that were dropped without an
    /// outcome would be read again under the same epoch, unnoticed.
    pub(super) fn forget_epoch(&self, number: u16) {
        self.slot(number).epoch.store(0, Ordering::SeqCst);
    }
}
