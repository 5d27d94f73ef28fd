//! The events that wait for one listener, or for those that share its slots.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::Bounds;
use crate::queue::call_slot::{CallSlot, CallSlots, Resumption};
use crate::queue::lanes::Lanes;
use crate::queue::{Delivery, QueueLimits, Room, Via};

/// A call queue is slow if its first event has waited for this long. Its events then take no capacity from other listeners.
pub(super) const SLOW_AFTER: Duration = Duration::from_secs(1);
/// The longest delay of an event that goes back to the table, so that a listener that becomes quick again does not wait for its events.
const LONGEST_PUT_OFF: Duration = Duration::from_secs(60);
/// The mean duration of recent calls may delay an event by at most this many times the wait of the first event.
const MOST_BY_MEAN: u32 = 4;
/// The wait of the first event alone delays an event by at most this: the whole host may have been stopped meanwhile, for example by its
/// database, and its listeners are idle now.
const MOST_BY_WAIT: Duration = Duration::from_secs(5);
/// The longest that one call counts in the mean of a quick listener. Several long calls in a row count more and more.
const LONGEST_OF_QUICK: Duration = Duration::from_millis(10);

/// The slots that some listeners share, and the events that wait for one.
#[derive(Debug)]
pub(super) struct CallQueue {
    /// How many slots are taken.
    pub(super) taken: usize,
    /// How many of these are taken by calls that wait for something external, or to resume after that.
    pub(super) waiting: usize,
    /// The calls that wait to resume, in the order in which their external waits ended.
    resuming: VecDeque<Arc<Resumption>>,
    /// How many slots there are.
    pub(super) calls: usize,
    /// The events that wait for a slot, each with the time when it arrived.
    lanes: Lanes<(Instant, Delivery)>,
    /// How long a slot is taken, as a moving average.
    pub(super) mean: Duration,
    /// The expected turn of the last event that went back to the table.
    turns_end: Instant,
    /// Whether it was full at the last check, and has not been half empty since.
    busy: bool,
}

impl CallQueue {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            taken: 0,
            waiting: 0,
            resuming: VecDeque::new(),
            calls: 0,
            lanes: Lanes::default(),
            mean: Duration::ZERO,
            turns_end: now,
            busy: false,
        }
    }

    /// The capacity that the waiting events of this lane take.
    pub(super) fn queued(&self, via: Via) -> Room {
        self.lanes.lane(via).taken()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Whether this lane has free capacity.
    pub(super) fn has_room(&self, via: Via, limits: QueueLimits) -> bool {
        let (queued, all) = (self.queued(via), limits.room(via));
        queued.events < all.events && queued.bytes < all.bytes
    }

    pub(super) fn is_slow(&self, now: Instant) -> bool {
        self.first_came().is_some_and(|since| now.saturating_duration_since(since) >= SLOW_AFTER)
    }

    /// Whether it takes no more events of this lane: its capacity is used up, and it is slow. A quick one takes them as long as the queue
    /// has capacity.
    pub(super) fn is_full(&self, via: Via, limits: QueueLimits, now: Instant) -> bool {
        !self.has_room(via, limits) && self.is_slow(now)
    }

    /// Whether no more cold events should be read for it: from when it is full until half of it is empty.
    pub(super) fn is_busy(&mut self, limits: QueueLimits, now: Instant) -> bool {
        let (queued, all) = (self.queued(Via::Cold), limits.room(Via::Cold));
        let is_half_empty = queued.events <= all.events / 2 && queued.bytes <= all.bytes / 2;
        self.busy = self.is_full(Via::Cold, limits, now) || (self.busy && self.is_slow(now) && !is_half_empty);
        self.busy
    }

    pub(super) fn push(&mut self, now: Instant, delivery: Delivery) {
        if self.is_empty() {
            // The events that were put off have no others before them now.
            self.turns_end = now;
        }
        self.lanes.lane_mut(delivery.via).push((now, delivery));
    }

    /// Whether one more call may begin when all listeners together have taken this many slots. False if all slots are taken, if as many
    /// calls compute as there are threads, or if the slot is reserved for listeners without a call.
    pub(super) fn has_slot(&self, taken_by_all: usize, bounds: Bounds) -> bool {
        self.taken < self.calls
            && self.taken - self.waiting < bounds.threads
            && (self.taken == 0 || taken_by_all < bounds.shared)
    }

    pub(super) fn slot(&mut self, slots: Weak<dyn CallSlots>, name: &Arc<str>, now: Instant) -> CallSlot {
        self.taken += 1;
        CallSlot::new(slots, name.clone(), now)
    }

    /// Whether one more of the calls that have begun may compute. Events that have a slot but no worker yet do not count. Otherwise calls
    /// that occupy all workers would wait for events that wait for a worker.
    fn may_compute(&self, ready: &VecDeque<Delivery>, name: &Arc<str>, bounds: Bounds) -> bool {
        let computing = self.taken - self.waiting;
        let is_ours = |delivery: &&Delivery| delivery.slot.as_ref().is_some_and(|slot| slot.name == *name);
        computing < bounds.threads || computing - ready.iter().filter(is_ours).count() < bounds.threads
    }

    /// Notes that the wait of a call has ended. `None` if the call may compute at once; otherwise the object that permits it later.
    pub(super) fn ask_to_resume(
        &mut self,
        ready: &VecDeque<Delivery>,
        name: &Arc<str>,
        bounds: Bounds,
        waker: &Waker,
    ) -> Option<Arc<Resumption>> {
        if self.resuming.is_empty() && self.may_compute(ready, name, bounds) {
            self.waiting -= 1;
            return None;
        }
        let resumption = Resumption::new(waker);
        self.resuming.push_back(resumption.clone());
        Some(resumption)
    }

    /// Lets calls whose wait has ended compute again, as many as the limit allows.
    pub(super) fn resume_waiting(&mut self, ready: &VecDeque<Delivery>, name: &Arc<str>, bounds: Bounds) {
        while !self.resuming.is_empty() && self.may_compute(ready, name, bounds) {
            let Some(next) = self.resuming.pop_front() else { return };
            self.waiting -= 1;
            next.grant();
        }
    }

    /// Forgets a call that has ended before it resumed. True if it was still waiting to resume.
    pub(super) fn forget(&mut self, resumption: &Arc<Resumption>) -> bool {
        self.resuming.retain(|other| !Arc::ptr_eq(other, resumption));
        !resumption.is_granted()
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<Delivery> {
        self.lanes.pop().map(|(_, delivery)| delivery)
    }

    /// Takes out the waiting cold events that `is_wanted` selects.
    pub(super) fn take_out(&mut self, is_wanted: &impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let taken = self.lanes.lane_mut(Via::Cold).take_out(is_wanted);
        taken.into_iter().map(|(_, delivery)| delivery).collect()
    }

    /// Counts how long a call took. One call that was held up says little about the others.
    pub(super) fn note_call(&mut self, took: Duration) {
        let most = self.mean * 8 + LONGEST_OF_QUICK;
        self.mean = (self.mean * 7 + took.min(most)) / 8;
    }

    /// How long an event stays in the table if the call queue is full: about until the events before it have been called. If the delay were
    /// shorter, the same events would be read and given back again and again; if longer, the listener might be idle. Whole seconds, so that
    /// one read finds many of these events.
    pub(super) fn put_off(&mut self, now: Instant) -> Duration {
        // A listener that computes has no more calls at once than there are threads.
        let calls = if self.taken > 0 { self.taken.min(self.calls) } else { self.calls };
        let calls = u32::try_from(calls).unwrap_or(u32::MAX).max(1);
        let waiting = self.queued(Via::Hot).events + self.queued(Via::Cold).events;
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX).max(1);
        // About as many events were before the first one as wait now, so its wait is a measure of the queue.
        let waited = self.first_came().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        // The mean also grows after some long calls, which say little about the others; so it is bounded.
        let by_mean = (self.mean / calls).saturating_mul(waiting);
        let here = by_mean.clamp(waited.min(MOST_BY_WAIT), waited * MOST_BY_MEAN).min(LONGEST_PUT_OFF);
        self.turns_end = (self.turns_end.max(now + here) + here / waiting).min(now + LONGEST_PUT_OFF);
        Duration::from_secs(self.turns_end.saturating_duration_since(now).as_secs() + 1)
    }

    /// When the first waiting event arrived.
    fn first_came(&self) -> Option<Instant> {
        let first = |via: Via| self.lanes.lane(via).first().map(|(since, _)| *since);
        [Via::Hot, Via::Cold].into_iter().filter_map(first).min()
    }
}
