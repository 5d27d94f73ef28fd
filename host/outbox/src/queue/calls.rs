//! Events whose listener has no free slot wait here, so that no worker waits for them.
//!
//! There are three limits. A listener has a maximum number of concurrent calls. No more of them compute than there are threads. All
//! listeners together leave some workers to listeners without a call, however many calls wait for something external.

mod call_queue;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use call_queue::CallQueue;
use tokio::time::Instant;

use super::call_slot::{CallSlot, CallSlots, Doing, Resumption};
use super::{Delivery, Queue, QueueLimits, QueueState, Room, Via};
use crate::sync::MutexGuard;

/// With fewer workers than this, no worker is reserved for listeners without a call: the others would have hardly any.
const FEW_WORKERS: usize = 4;
/// One in this many workers is reserved for listeners without a call.
const SPARE_PART: usize = 8;

/// The result of a request for a call slot.
#[derive(Debug)]
pub(crate) enum CallAdmission {
    /// The event has a slot.
    Starts(Delivery),
    /// The event waits. A worker takes it again when there is a slot for it.
    Waits,
    /// The call queue is full. The event should be read again after this time.
    Full(Delivery, Duration),
}

/// The call queues of all listeners whose number of calls at once is bounded.
#[derive(Debug, Default)]
pub(super) struct CallQueues {
    queues: HashMap<Arc<str>, CallQueue, foldhash::fast::RandomState>,
    /// Events that have been given a slot.
    pub(super) ready: VecDeque<Delivery>,
    /// How many slots are taken, of all listeners.
    taken: usize,
}

/// The limits that all call queues share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many workers can run at once.
    pub(super) threads: usize,
    /// How many slots may be taken by listeners that have more than one.
    pub(super) shared: usize,
}

impl Bounds {
    /// The limits for this many workers.
    pub(super) fn of(threads: usize, workers: usize) -> Self {
        let spare = if workers < FEW_WORKERS { 0 } else { workers.div_ceil(SPARE_PART) };
        Self { threads, shared: workers - spare }
    }
}

impl Queue {
    /// Gives an event one of the `calls` slots of this name, or lets it wait for one.
    pub(crate) fn admit(self: &Arc<Self>, name: &Arc<str>, calls: usize, mut delivery: Delivery) -> CallAdmission {
        if let Some(slot) = delivery.slot.as_mut().filter(|slot| slot.name == *name) {
            // The call begins now: how long the event waited for a worker says nothing about its listener.
            slot.since = Instant::now();
            return CallAdmission::Starts(delivery);
        }
        // Another listener answered the route when the event got its slot. The drop locks the queue too, so it precedes the lock below.
        delivery.slot = None;
        let slots: Weak<dyn CallSlots> = Arc::downgrade(self) as Weak<Self>;
        let mut state = self.lock();
        let now = Instant::now();
        let call_queues = &mut state.call_queues;
        let call_queue = call_queues.queues.entry(name.clone()).or_insert_with(|| CallQueue::new(now));
        call_queue.calls = calls;
        if call_queue.is_empty() && call_queue.has_slot(call_queues.taken, self.bounds) {
            delivery.slot = Some(call_queue.slot(slots, name, now));
            call_queues.taken += 1;
            return CallAdmission::Starts(delivery);
        }
        if call_queue.is_full(delivery.via, self.limits, now) {
            let after = call_queue.put_off(now);
            return CallAdmission::Full(delivery, after);
        }
        call_queue.push(now, delivery);
        // The number of slots may have grown.
        let wakes = call_queues.hand_over(name, &slots, self.bounds, now) && state.waiting > 0;
        drop(state);
        if wakes {
            self.wake_worker();
        }
        CallAdmission::Waits
    }

    /// After an event was given a slot, wakes a worker that waits for an event, and the tasks that wait for capacity.
    fn wake_for_slot(&self, state: MutexGuard<'_, QueueState>, handed_over: bool) {
        let wakes = handed_over && state.waiting > 0;
        drop(state);
        if wakes {
            self.wake_worker();
        }
        if handed_over {
            self.taken.notify_waiters();
        }
    }
}

impl CallSlots for Queue {
    fn call_waits(&self, slot: &CallSlot) {
        let mut state = self.lock();
        let call_queues = &mut state.call_queues;
        let Some(call_queue) = call_queues.queues.get_mut(&slot.name) else { return };
        call_queue.waiting += 1;
        // Calls that have begun resume first: they occupy workers.
        call_queue.resume_waiting(&call_queues.ready, &slot.name, self.bounds);
        let handed_over = call_queues.hand_over(&slot.name, &slot.slots, self.bounds, Instant::now());
        self.wake_for_slot(state, handed_over);
    }

    fn call_resumes(&self, slot: &CallSlot, waker: &Waker) -> Option<Arc<Resumption>> {
        let mut state = self.lock();
        let CallQueues { queues, ready, .. } = &mut state.call_queues;
        queues.get_mut(&slot.name)?.ask_to_resume(ready, &slot.name, self.bounds, waker)
    }

    fn call_goes_on(&self, slot: &CallSlot, resumption: &Arc<Resumption>) {
        let mut state = self.lock();
        let Some(call_queue) = state.call_queues.queues.get_mut(&slot.name) else { return };
        call_queue.waiting -= usize::from(call_queue.forget(resumption));
    }

    fn leave(&self, slot: &CallSlot) {
        let mut state = self.lock();
        let now = Instant::now();
        let call_queues = &mut state.call_queues;
        let Some(call_queue) = call_queues.queues.get_mut(&slot.name) else { return };
        call_queue.taken -= 1;
        call_queue.waiting -= usize::from(match &slot.doing {
            Doing::Computes => false,
            Doing::Waits => true,
            Doing::Resumes(resumption) => call_queue.forget(resumption),
        });
        call_queue.note_call(now.saturating_duration_since(slot.since));
        call_queue.resume_waiting(&call_queues.ready, &slot.name, self.bounds);
        let all_were_taken = call_queues.taken >= self.bounds.shared;
        call_queues.taken -= 1;
        let handed_over = if all_were_taken {
            call_queues.hand_over_to_fewest(&slot.slots, self.bounds, now)
        } else {
            call_queues.hand_over(&slot.name, &slot.slots, self.bounds, now)
        };
        self.wake_for_slot(state, handed_over);
    }
}

impl CallQueues {
    /// Gives a free slot to the first event that waits for one of this name. False if no event waits, or no slot is free.
    fn hand_over(&mut self, name: &Arc<str>, slots: &Weak<dyn CallSlots>, bounds: Bounds, now: Instant) -> bool {
        let Some(call_queue) = self.queues.get_mut(name) else { return false };
        let free = call_queue.has_slot(self.taken, bounds);
        let Some(mut next) = free.then(|| call_queue.pop()).flatten() else { return false };
        next.slot = Some(call_queue.slot(slots.clone(), name, now));
        self.taken += 1;
        self.ready.push_back(next);
        true
    }

    /// Gives a free slot to the waiting listener with the fewest slots. While there are not enough slots for all, each listener gets its
    /// share over time.
    fn hand_over_to_fewest(&mut self, slots: &Weak<dyn CallSlots>, bounds: Bounds, now: Instant) -> bool {
        let waiting = self.queues.iter().filter(|(_, call_queue)| !call_queue.is_empty());
        let free = waiting.filter(|(_, call_queue)| call_queue.has_slot(self.taken, bounds));
        let Some(name) = free.min_by_key(|(_, call_queue)| call_queue.taken).map(|(name, _)| name.clone()) else {
            return false;
        };
        self.hand_over(&name, slots, bounds, now)
    }

    /// How much of the queue's capacity for this lane is taken by events that wait for call slots. The call queues have a capacity of their
    /// own, as large as the queue's; only events beyond it count. Events of slow call queues do not count, so that events of other
    /// listeners are still accepted.
    pub(super) fn taken_beyond(&self, via: Via, limits: QueueLimits) -> Room {
        if self.queues.is_empty() {
            return Room::default();
        }
        let now = Instant::now();
        let queues = self.queues.values().filter(|call_queue| !call_queue.is_slow(now));
        let waiting = queues.map(|call_queue| call_queue.queued(via)).fold(Room::default(), Room::and);
        waiting.without(limits.room(via))
    }

    /// The slot names of busy listeners: no more cold events should be read for them.
    pub(super) fn busy(&mut self, limits: QueueLimits) -> Vec<Arc<str>> {
        if self.queues.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let busy =
            self.queues.iter_mut().filter_map(|(name, call_queue)| call_queue.is_busy(limits, now).then(|| name.clone()));
        busy.collect()
    }

    /// Whether a call queue takes no more cold events.
    pub(super) fn one_is_full(&self, limits: QueueLimits) -> bool {
        let now = Instant::now();
        self.queues.values().any(|call_queue| call_queue.is_full(Via::Cold, limits, now))
    }

    /// How many events wait for a slot.
    pub(super) fn waiting(&self, via: Via) -> usize {
        self.queues.values().map(|call_queue| call_queue.queued(via).events).sum()
    }

    /// How many events wait or are ready.
    pub(super) fn depth(&self, via: Via) -> usize {
        self.waiting(via) + self.ready.iter().filter(|delivery| delivery.via == via).count()
    }

    /// Takes out the cold events that wait for a slot and that `is_wanted` selects.
    pub(super) fn take_out(&mut self, is_wanted: &impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        self.queues.values_mut().flat_map(|call_queue| call_queue.take_out(is_wanted)).collect()
    }

    /// Takes out everything that waits or is ready.
    pub(super) fn drain(&mut self) -> Vec<Delivery> {
        let mut drained: Vec<Delivery> = self.ready.drain(..).collect();
        for call_queue in self.queues.values_mut() {
            drained.extend(std::iter::from_fn(|| call_queue.pop()));
        }
        drained
    }
}

#[cfg(test)]
mod tests;
