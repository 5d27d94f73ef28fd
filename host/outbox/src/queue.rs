//! Events in flight in this process: queued hot or cold, bounded by count and by bytes, and marked until their outcome is stored.
//!
//! Hot events come straight from a commit, cold ones from the poller. This module knows nothing of databases or listeners.

mod at_work;
mod batch_numbers;
mod bytes_in_flight;
mod call_slot;
mod calls;
mod delivery;
mod in_flight;
mod key_queues;
mod lanes;
mod reserved;
mod room;
mod turn;

use std::num::NonZeroUsize;
use std::sync::Arc;

use calls::{Bounds, CallQueues};
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use at_work::{AtWork, Work};
pub(crate) use batch_numbers::BatchNumbers;
use bytes_in_flight::BytesInFlight;
pub(crate) use bytes_in_flight::CountedBytes;
pub(crate) use call_slot::CallSlot;
pub(crate) use calls::CallAdmission;
pub(crate) use delivery::{Delivery, Via};
pub(crate) use in_flight::{Dropped, InFlight, Mark, NotMarked, Reading};
pub(crate) use key_queues::{KeyAdmission, KeyQueueLimits, KeyQueues};
use lanes::Lanes;
pub(crate) use reserved::Reserved;
pub(crate) use room::Room;
pub(crate) use turn::{Key, Turn, key};

use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::units::ByteSize;

/// The limits of the queue.
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
    /// The capacity for events of this lane while no event is queued.
    fn room(self, via: Via) -> Room {
        let events = match via {
            Via::Hot => self.hot,
            Via::Cold => self.cold,
        };
        Room { events, bytes: self.bytes.as_usize() }
    }
}

/// The hot and the cold queue, drained two to one while both have events.
#[derive(Debug)]
pub(crate) struct Queue {
    limits: QueueLimits,
    state: Mutex<QueueState>,
    /// Notified when an event is pushed.
    filled: Notify,
    /// Notified when an event is taken out, or when capacity becomes free.
    taken: Arc<Notify>,
    /// The bytes of cold events, both queued and held by workers.
    bytes_in_flight: Arc<BytesInFlight>,
    bounds: Bounds,
}

#[derive(Debug, Default)]
struct QueueState {
    lanes: Lanes<Delivery>,
    /// Capacity of the hot lane that is reserved for later events.
    reserved: Room,
    closed: bool,
    /// How many workers wait for an event.
    waiting: usize,
    /// Events that wait for a call slot, or have been given one.
    call_queues: CallQueues,
    /// Whether the last event taken was one that had been given a slot.
    last_had_slot: bool,
}

impl Queue {
    /// An empty queue for the workers of this runtime.
    #[must_use]
    pub(crate) fn new(limits: QueueLimits) -> Self {
        let bounds = Bounds { threads: threads(), shared: usize::MAX };
        let taken = Arc::new(Notify::new());
        let bytes_in_flight = BytesInFlight::new(limits.bytes.as_usize() / 2, taken.clone(), Instant::now());
        Self { limits, state: Mutex::default(), filled: Notify::new(), taken, bytes_in_flight, bounds }
    }

    /// Sets how many workers take events. Listeners whose calls wait for something external leave some workers to other listeners.
    #[must_use]
    pub(crate) fn for_workers(mut self, workers: usize) -> Self {
        self.bounds = Bounds::of(self.bounds.threads, workers);
        self
    }

    /// Pushes events to the end of their lane, in order. Returns the events that exceed the capacity, or all events if the queue is closed.
    pub(crate) fn push(&self, via: Via, deliveries: impl IntoIterator<Item = Delivery>) -> Vec<Delivery> {
        let mut refused = Vec::new();
        let mut state = self.lock();
        let room = self.limits.room(via);
        let mut pushed = 0;
        for delivery in deliveries {
            if !state.closed && state.has_room(via, room) {
                state.lanes.lane_mut(via).push(delivery);
                pushed += 1;
            } else {
                refused.push(delivery);
            }
        }
        self.wake_workers(state, pushed);
        refused
    }

    /// Pushes an event to the end of the cold lane without a check of the capacity: the event was counted when it was claimed. Returns the
    /// event if the queue is closed.
    pub(crate) fn push_counted(&self, delivery: Delivery) -> Option<Delivery> {
        let mut state = self.lock();
        if state.closed {
            return Some(delivery);
        }
        state.lanes.lane_mut(Via::Cold).push(delivery);
        self.wake_workers(state, 1);
        None
    }

    /// Wakes another worker if an event is queued. Called when a worker has to wait during its call.
    pub(crate) fn wake_next(&self) {
        let state = self.lock();
        let wake = state.waiting > 0 && !state.is_empty();
        drop(state);
        if wake {
            self.wake_worker();
        }
    }

    /// Wakes workers for events that were pushed.
    fn wake_workers(&self, state: MutexGuard<'_, QueueState>, pushed: usize) {
        // More workers could not run. A worker that has to wait during its call wakes the next.
        let wake = pushed.min(state.waiting).min(self.bounds.threads);
        drop(state);
        for _ in 0..wake {
            self.wake_worker();
        }
    }

    /// Wakes the worker that began to wait last: its caches are warm, and the other workers stay asleep.
    fn wake_worker(&self) {
        self.filled.notify_last();
    }

    /// Takes the next event, waiting for one; `None` when the queue is closed and empty.
    pub(crate) async fn take(&self) -> Option<Delivery> {
        loop {
            if let Some(delivery) = self.try_take() {
                return Some(delivery);
            }
            // Register for a wake-up before checking again, or an event that is pushed in between is missed.
            let filled = self.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            {
                let mut state = self.lock();
                if !state.is_empty() {
                    continue;
                }
                if state.closed {
                    return None;
                }
                state.waiting += 1;
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

    /// Whether the queue, when empty, has capacity for this many cold events.
    pub(crate) fn holds_cold(&self, events: usize) -> bool {
        self.limits.cold >= events
    }

    /// The free capacity for cold events.
    #[must_use]
    pub(crate) fn cold_room(&self) -> Room {
        self.room(Via::Cold)
    }

    /// How many more bytes of cold events may be in flight. Events that workers hold take up memory too.
    pub(crate) fn free_bytes(&self) -> usize {
        self.limits.bytes.as_usize().saturating_sub(self.bytes_in_flight.count(Instant::now()))
    }

    /// Counts the bytes of one more cold event in flight.
    pub(crate) fn count_bytes(&self, bytes: usize) -> CountedBytes {
        self.bytes_in_flight.add(bytes, Instant::now())
    }

    /// How many more hot events fit now.
    #[must_use]
    pub(crate) fn hot_room(&self) -> usize {
        self.room(Via::Hot).events
    }

    fn room(&self, via: Via) -> Room {
        let state = self.lock();
        let (all, taken) = (self.limits.room(via), state.taken(via, self.limits));
        // A single event larger than the whole capacity is still accepted: otherwise it would never be delivered.
        if state.closed || taken.events >= all.events || (taken.bytes >= all.bytes && taken.events > 0) {
            return Room::default();
        }
        let free = all.without(taken);
        Room { bytes: free.bytes.max(1), ..free }
    }

    /// How many cold events wait for a call slot.
    pub(crate) fn cold_waiting_for_slots(&self) -> usize {
        self.lock().call_queues.waiting(Via::Cold)
    }

    /// Whether the call queue of any listener takes no more cold events. Further ones go back to the table.
    pub(crate) fn one_is_full(&self) -> bool {
        self.lock().call_queues.one_is_full(self.limits)
    }

    /// The slot names of busy listeners. A listener is busy from when its call queue takes no more cold events until half of it is
    /// empty.
    pub(crate) fn busy(&self) -> Vec<Arc<str>> {
        self.lock().call_queues.busy(self.limits)
    }

    /// Waits until one of these busy listeners is no longer busy. Never returns if the list is empty.
    pub(crate) async fn one_is_free(&self, busy: &[Arc<str>]) {
        if busy.is_empty() {
            std::future::pending::<()>().await;
        }
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Register before checking, or a take in between is missed.
            taken.as_mut().enable();
            let still = self.busy();
            if busy.iter().any(|name| !still.contains(name)) {
                return;
            }
            taken.await;
        }
    }

    /// Waits until at least half of the cold lane is free, by number and by bytes, or the queue is closed.
    pub(crate) async fn cold_half_empty(&self) {
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Register before checking, or a take in between is missed.
            taken.as_mut().enable();
            {
                let state = self.lock();
                let (all, used) = (self.limits.room(Via::Cold), state.taken(Via::Cold, self.limits));
                let is_half_empty = used.events == 0 || (used.events <= all.events / 2 && used.bytes <= all.bytes / 2);
                if state.closed || (is_half_empty && self.bytes_in_flight.are_few(Instant::now())) {
                    return;
                }
            }
            taken.await;
        }
    }

    /// How many events are queued or wait for their listeners: hot, cold.
    #[must_use]
    pub(crate) fn depth(&self) -> (usize, usize) {
        let state = self.lock();
        let depth = |via: Via| state.lanes.lane(via).taken().events + state.call_queues.depth(via);
        (depth(Via::Hot), depth(Via::Cold))
    }

    /// Closes the queue: it takes no more events. Queued events can still be taken.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Whether the queue takes no more events.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Takes out the cold events that are queued or wait for a call slot, and that `is_wanted` selects.
    pub(crate) fn take_out(&self, is_wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let mut state = self.lock();
        let mut taken = state.lanes.lane_mut(Via::Cold).take_out(&is_wanted);
        taken.extend(state.call_queues.take_out(&is_wanted));
        drop(state);
        if !taken.is_empty() {
            self.taken.notify_waiters();
        }
        taken
    }

    /// Takes all events that are queued or wait for their listeners.
    #[must_use]
    pub(crate) fn drain(&self) -> Vec<Delivery> {
        let mut drained = self.lock().call_queues.drain();
        drained.extend(std::iter::from_fn(|| self.try_take()));
        drained
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

impl QueueState {
    fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.call_queues.ready.is_empty()
    }

    /// How much of this lane's capacity is taken.
    fn taken(&self, via: Via, limits: QueueLimits) -> Room {
        self.taken_here(via).and(self.call_queues.taken_beyond(via, limits))
    }

    /// The capacity that the events of this lane and its reservations take.
    fn taken_here(&self, via: Via) -> Room {
        let taken = self.lanes.lane(via).taken();
        match via {
            Via::Hot => taken.and(self.reserved),
            Via::Cold => taken,
        }
    }

    /// Whether one more event fits into this capacity of the lane. A single event larger than the whole capacity is still accepted:
    /// otherwise it would never be delivered.
    fn has_room(&self, via: Via, room: Room) -> bool {
        let taken = self.taken_here(via);
        taken.events < room.events && (taken.bytes < room.bytes || taken.events == 0)
    }

    fn reserve(&mut self, bytes: usize) {
        self.reserved = self.reserved.and(Room { events: 1, bytes });
    }

    /// Events that waited for a slot take turns with the others: a listener with many events leaves workers to the other listeners.
    fn take(&mut self) -> Option<Delivery> {
        self.last_had_slot = !self.last_had_slot && !self.call_queues.ready.is_empty();
        if self.last_had_slot {
            return self.call_queues.ready.pop_front();
        }
        self.lanes.pop().or_else(|| self.call_queues.ready.pop_front())
    }
}

/// Counts a worker as waiting until dropped, even if the wait is cancelled.
struct Idle<'a>(&'a Queue);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests;
