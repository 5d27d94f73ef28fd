//! Events in this process's hands: queued hot or cold, bounded by count and by bytes, and marked while in flight.
//!
//! Hot events come straight from a commit, cold ones from the poller. This room knows nothing of databases or listeners.

mod at_work;
mod batches;
mod calls;
mod delivery;
mod held;
mod in_flight;
mod key_queues;
mod reserved;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use calls::{Bounds, CallQueues};
use tokio::sync::Notify;

pub(crate) use at_work::{AtWork, Work};
pub(crate) use batches::Batches;
pub(crate) use calls::Admitted;
pub(crate) use calls::CallPlace;
pub(crate) use delivery::{Delivery, Via};
use held::Held;
pub(crate) use held::HeldBytes;
pub(crate) use in_flight::{InFlight, Mark, Reading};
pub(crate) use in_flight::{Left, NotMarked};
pub(crate) use key_queues::Turn;
pub(crate) use key_queues::{Admission, Key, KeyQueueLimits, KeyQueues, key};
pub(crate) use reserved::Reserved;

use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::units::ByteSize;

/// How much may be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Most hot events. Default 1,000.
    pub hot: usize,
    /// Most cold events. Default 1,000.
    pub cold: usize,
    /// Most bytes in each of the two. Default 32 MiB.
    pub bytes: ByteSize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { hot: 1_000, cold: 1_000, bytes: ByteSize::mib(32) }
    }
}

impl QueueLimits {
    fn count(self, via: Via) -> usize {
        match via {
            Via::Hot => self.hot,
            Via::Cold => self.cold,
        }
    }
}

/// The hot and the cold queue, drained two to one while both have events.
#[derive(Debug)]
pub(crate) struct Queue {
    limits: QueueLimits,
    sides: Mutex<Sides>,
    filled: Notify,
    taken: Arc<Notify>,
    /// Of cold events, with their workers too.
    held: Arc<Held>,
    bounds: Bounds,
}

#[derive(Debug, Default)]
struct Sides {
    hot: Side,
    cold: Side,
    /// Counts the events taken while both sides had some.
    turn: u8,
    closed: bool,
    waiting: usize,
    /// Events that wait for a place with their listener, or have been given one.
    call_queues: CallQueues,
    /// Whether the last event taken was one that had been given a place.
    placed: bool,
}

#[derive(Debug, Default)]
struct Side {
    deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Room that is kept for events to come.
    reserved: usize,
    reserved_bytes: usize,
}

impl Side {
    fn push(&mut self, delivery: Delivery) {
        self.bytes += delivery.event.size_bytes();
        self.deliveries.push_back(delivery);
    }

    fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.pop_front()?;
        self.bytes -= delivery.event.size_bytes();
        Some(delivery)
    }

    fn take_out(&mut self, is_wanted: &impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deliveries).into_iter().partition(is_wanted);
        self.deliveries = left.into();
        self.bytes -= taken.iter().map(|delivery| delivery.event.size_bytes()).sum::<usize>();
        taken
    }

    /// A single event larger than all of the room still gets in: otherwise it never would.
    fn has_room(&self, count: usize, bytes: usize) -> bool {
        let taken = self.deliveries.len() + self.reserved;
        taken < count && (self.bytes + self.reserved_bytes < bytes || taken == 0)
    }

    fn reserve(&mut self, bytes: usize) {
        self.reserved += 1;
        self.reserved_bytes += bytes;
    }
}

impl Queue {
    /// An empty queue for the workers of this runtime.
    #[must_use]
    pub(crate) fn new(limits: QueueLimits) -> Self {
        let bounds = Bounds { threads: threads(), shared: usize::MAX };
        let taken = Arc::new(Notify::new());
        let held = Held::new(limits.bytes.as_usize() / 2, taken.clone());
        Self { limits, sides: Mutex::default(), filled: Notify::new(), taken, held, bounds }
    }

    /// So many workers take events from it: listeners that wait for something outside leave some of them to others.
    #[must_use]
    pub(crate) fn for_workers(mut self, workers: usize) -> Self {
        self.bounds = Bounds::of(self.bounds.threads, workers);
        self
    }

    /// Puts events at the end of their side, in order. Those that find no room, or come after the closing, are given back.
    pub(crate) fn push(&self, via: Via, deliveries: impl IntoIterator<Item = Delivery>) -> Vec<Delivery> {
        let mut refused = Vec::new();
        let mut sides = self.lock();
        let closed = sides.closed;
        let (side, count) = match via {
            Via::Hot => (&mut sides.hot, self.limits.hot),
            Via::Cold => (&mut sides.cold, self.limits.cold),
        };
        let mut pushed = 0;
        for delivery in deliveries {
            if !closed && side.has_room(count, self.limits.bytes.as_usize()) {
                side.push(delivery);
                pushed += 1;
            } else {
                refused.push(delivery);
            }
        }
        // More could not run. One that has to wait with its event wakes the next.
        let wake = pushed.min(sides.waiting).min(self.bounds.threads);
        drop(sides);
        for _ in 0..wake {
            self.wake_worker();
        }
        refused
    }

    /// Puts an event at the end of the cold side without asking for room: it was counted when it was claimed. Given back after
    /// the closing.
    pub(crate) fn push_claimed(&self, delivery: Delivery) -> Option<Delivery> {
        let mut sides = self.lock();
        if sides.closed {
            return Some(delivery);
        }
        sides.cold.push(delivery);
        let wake = sides.waiting > 0;
        drop(sides);
        if wake {
            self.wake_worker();
        }
        None
    }

    /// Wakes another worker if there is an event for it: said by one that has to wait with its own.
    pub(crate) fn wake_next(&self) {
        let sides = self.lock();
        let wake = sides.waiting > 0 && !sides.is_empty();
        drop(sides);
        if wake {
            self.wake_worker();
        }
    }

    /// The one that came last: what it keeps for its next event is warm, and the others stay asleep.
    fn wake_worker(&self) {
        self.filled.notify_last();
    }

    /// Takes the next event, waiting for one; `None` when the queue is closed and empty.
    pub(crate) async fn take(&self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.try_take() {
                return Some(delivery);
            }
            // Ask to be woken before looking again, or an event that comes between the two is left lying.
            let filled = self.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            {
                let mut sides = self.lock();
                if !sides.is_empty() {
                    continue;
                }
                if sides.closed {
                    return None;
                }
                sides.waiting += 1;
            }
            let _waiting = Idle(self);
            filled.await;
        }
    }

    /// Takes the next event if there is one.
    pub(crate) fn try_take(&self) -> Option<Delivery> {
        let delivery = self.lock().take();
        if delivery.is_some() {
            self.taken.notify_waiters();
        }
        delivery
    }

    /// Whether so many cold events find room in it when it is empty.
    pub(crate) fn holds_cold(&self, events: usize) -> bool {
        self.limits.cold >= events
    }

    /// How many more cold events, and how many bytes of them, would find room.
    #[must_use]
    pub(crate) fn cold_room(&self) -> (usize, usize) {
        self.room(Via::Cold)
    }

    /// How many more bytes of cold events may be in this process's hands: those with workers take up memory too.
    pub(crate) fn free_bytes(&self) -> usize {
        self.limits.bytes.as_usize().saturating_sub(self.held.bytes())
    }

    /// Counts so many bytes of a cold event as in this process's hands.
    pub(crate) fn hold(&self, bytes: usize) -> HeldBytes {
        self.held.hold(bytes)
    }

    /// How many more hot events would find room now.
    #[must_use]
    pub(crate) fn hot_room(&self) -> usize {
        self.room(Via::Hot).0
    }

    fn room(&self, via: Via) -> (usize, usize) {
        let sides = self.lock();
        let (count, bytes) = sides.load(via, self.limits);
        let (most, most_bytes) = (self.limits.count(via), self.limits.bytes.as_usize());
        // A single event larger than all of the room still gets in: otherwise it never would.
        if sides.closed || count >= most || (bytes >= most_bytes && count > 0) {
            return (0, 0);
        }
        (most - count, most_bytes.saturating_sub(bytes).max(1))
    }

    /// Whether too many events wait for a slow listener, so that further ones go back to the table.
    pub(crate) fn sends_back(&self) -> bool {
        self.lock().call_queues.sends_back(self.limits)
    }

    /// The names of places for which as many events wait as may, and slowly: further ones would go back to the table.
    pub(crate) fn crowded(&self) -> Vec<Arc<str>> {
        self.lock().call_queues.crowded(self.limits)
    }

    /// Waits until one of these that were crowded is so no more.
    pub(crate) async fn thins_out(&self, crowded: &[Arc<str>]) {
        if crowded.is_empty() {
            std::future::pending::<()>().await;
        }
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Registered before looking: a take in between must not be missed.
            taken.as_mut().enable();
            let still = self.crowded();
            if crowded.iter().any(|name| !still.contains(name)) {
                return;
            }
            taken.await;
        }
    }

    /// Waits until at least half of the cold side is free, by number and by bytes, or the queue is closed.
    pub(crate) async fn cold_half_empty(&self) {
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Registered before looking: a take in between must not be missed.
            taken.as_mut().enable();
            {
                let sides = self.lock();
                let (count, bytes) = sides.load(Via::Cold, self.limits);
                let is_half_empty = count == 0 || (count <= self.limits.cold / 2 && bytes <= self.limits.bytes.as_usize() / 2);
                if sides.closed || (is_half_empty && self.held.are_few()) {
                    return;
                }
            }
            taken.await;
        }
    }

    /// How many events are queued or wait for their listeners: hot, cold.
    #[must_use]
    pub(crate) fn depth(&self) -> (usize, usize) {
        let sides = self.lock();
        let call_queues = &sides.call_queues;
        (sides.hot.deliveries.len() + call_queues.depth(Via::Hot), sides.cold.deliveries.len() + call_queues.depth(Via::Cold))
    }

    /// Takes no more events; those queued can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Whether it takes no more events.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Takes out the cold events that are queued or wait for a place with their listener, and for which this holds.
    pub(crate) fn take_out(&self, is_wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let mut sides = self.lock();
        let mut taken = sides.cold.take_out(&is_wanted);
        taken.extend(sides.call_queues.take_out(&is_wanted));
        drop(sides);
        if !taken.is_empty() {
            self.taken.notify_waiters();
        }
        taken
    }

    /// Takes everything that is still queued or waits for its listener.
    #[must_use]
    pub(crate) fn drain(&self) -> Vec<Delivery> {
        let mut drained = self.lock().call_queues.drain();
        drained.extend(std::iter::from_fn(|| self.try_take()));
        drained
    }

    fn lock(&self) -> MutexGuard<'_, Sides> {
        self.sides.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many workers the runtime can run at once, at least two.
fn threads() -> usize {
    let threads = match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.metrics().num_workers(),
        Err(_) => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
    };
    threads.max(2)
}

impl Sides {
    fn is_empty(&self) -> bool {
        self.hot.deliveries.is_empty() && self.cold.deliveries.is_empty() && self.call_queues.ready.is_empty()
    }

    /// How much of the room for events that come this way is used up, by number and by bytes.
    fn load(&self, via: Via, limits: QueueLimits) -> (usize, usize) {
        let side = match via {
            Via::Hot => &self.hot,
            Via::Cold => &self.cold,
        };
        let (count, bytes) = self.call_queues.charged(via, limits);
        (side.deliveries.len() + side.reserved + count, side.bytes + side.reserved_bytes + bytes)
    }

    /// Events that waited for a place take turns with the others: busy listeners leave workers to the rest.
    fn take(&mut self) -> Option<Delivery> {
        self.placed = !self.placed && !self.call_queues.ready.is_empty();
        if self.placed {
            return self.call_queues.ready.pop_front();
        }
        self.take_queued().or_else(|| self.call_queues.ready.pop_front())
    }

    fn take_queued(&mut self) -> Option<Delivery> {
        if self.hot.deliveries.is_empty() || self.cold.deliveries.is_empty() {
            return self.hot.pop().or_else(|| self.cold.pop());
        }
        let cold_turn = self.turn == 2;
        self.turn = if cold_turn { 0 } else { self.turn + 1 };
        if cold_turn { self.cold.pop() } else { self.hot.pop() }
    }
}

/// Counts a waiting worker as long as it waits, also when its wait is cut off.
struct Idle<'a>(&'a Queue);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests;
