//! Which of the events in flight wait for which others.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::turn::{Key, Turn, Turns, key};
use super::{Delivery, Room};
use crate::event::{AggregateType, Event};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// The queues of the aggregates that have events in flight; or the one queue of all events.
#[derive(Debug)]
pub(crate) struct KeyQueues {
    limits: KeyQueueLimits,
    state: Mutex<State>,
    /// The key of every event, if all events are in one queue.
    one_for_all: Option<Key>,
}

/// The limits of the key queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyQueueLimits {
    /// Most events, in all of them.
    pub(crate) events: usize,
    /// Most bytes, in all of them.
    pub(crate) bytes: usize,
    /// How many calls run at once: as many queues can be slow.
    pub(crate) workers: usize,
}

/// The most slow queues for which the capacity is divided.
const MAX_SHARING: usize = 8;

#[derive(Debug, Default)]
struct State {
    queues: HashMap<Key, KeyQueue, foldhash::fast::RandomState>,
    /// The `seq` of every event in them.
    held: HashSet<u64, foldhash::fast::RandomState>,
    /// The `seq` of every event that was resolved since the last read began: the result of that read may not show it.
    resolved: HashSet<u64, foldhash::fast::RandomState>,
    /// For each aggregate, the least `seq` of its events that left these queues unresolved since then. The read may name a later event,
    /// which was in flight as well and has been resolved in the meantime.
    unresolved: HashMap<Key, u64, foldhash::fast::RandomState>,
    /// The capacity that waiting events take.
    waiting: Room,
}

/// The events of one aggregate: one is being delivered, and the others wait for it, in order.
#[derive(Debug)]
struct KeyQueue {
    running: u64,
    waiting: VecDeque<Delivery>,
    waiting_bytes: usize,
}

/// The result of admitting an event that was taken from the table.
#[derive(Debug)]
pub(crate) enum KeyAdmission {
    /// It may start.
    Start(Delivery),
    /// It waits for another event in flight here, and is returned by [`KeyQueues::end`].
    Waits,
    /// The given event waits in the table behind the event of this `seq`, the last of its queue in this process. The queue is full, or
    /// events in the table are in between. The given event is the admitted one, or the last of the queue if that made place for the
    /// admitted one.
    Behind(Delivery, u64),
    /// It waits for the event of this `seq`, which is not in flight here. Of its aggregate, at most later events are in flight.
    Elsewhere(Delivery, u64),
}

impl KeyQueues {
    /// One queue of all events, with unlimited capacity.
    pub(crate) fn one_for_all() -> Self {
        let limits = KeyQueueLimits { events: usize::MAX, bytes: usize::MAX, workers: 0 };
        Self { one_for_all: Some((AggregateType::global(), Arc::from(""))), ..Self::new(limits) }
    }

    pub(crate) fn new(limits: KeyQueueLimits) -> Self {
        Self { limits, state: Mutex::default(), one_for_all: None }
    }

    /// The capacity of one queue while no event waits in another.
    pub(crate) fn longest(&self) -> Room {
        Room { events: (self.limits.events / self.share()).max(1), bytes: self.limits.bytes / self.share() }
    }

    /// The headroom: how much of the capacity stays unused while events move. If many queues are about equally long, each gets its share
    /// while this much is left; with less, they would be full although short. If a few queues take the whole capacity, the events of other
    /// aggregates are behind theirs in the table.
    pub(crate) fn headroom(&self) -> Room {
        let Room { events, bytes } = self.longest();
        let (share, queues) = (self.share(), self.lock().queues.len());
        let of_many = share * (self.limits.events / (queues + share) + 2);
        let events = if queues < 2 * share { events } else { events.max(of_many) };
        // A small capacity must not be all headroom.
        Room { events: events.min(self.limits.events / 2), bytes }
    }

    /// A queue may take one part in this many of the capacity that is left, so that slow aggregates always leave capacity for others. Eight
    /// of them leave half of it, and 32 an eighth. With one part for each of hundreds of workers, a queue would take one event at a time.
    /// All others would be given back to the table and read again.
    fn share(&self) -> usize {
        self.limits.workers.min(MAX_SHARING).saturating_mul(2).max(1)
    }

    /// The present capacity of one queue.
    fn most(&self, state: &State) -> Room {
        let events = self.limits.events.saturating_sub(state.waiting.events) / self.share();
        let bytes = self.limits.bytes.saturating_sub(state.waiting.bytes) / self.share();
        // One part of a small capacity is less than one event.
        Room { events: events.max(usize::from(state.waiting.events < self.limits.events / 2)), bytes }
    }

    /// Notes that a read begins, and returns the `seq` of every event in the queues. One read at a time.
    pub(crate) fn asking(&self) -> Vec<u64> {
        let state = &mut *self.lock();
        state.resolved.clear();
        state.unresolved.clear();
        state.held.iter().copied().collect()
    }

    /// The capacity that waiting events take.
    pub(crate) fn waiting(&self) -> Room {
        self.lock().waiting
    }

    /// Adds an event to its queue. `nearest` is the `seq` of the last earlier event that was unresolved when the table was read. Events
    /// must be admitted in the order of their `seq`.
    pub(crate) fn admit(self: &Arc<Self>, mut delivery: Delivery, nearest: Option<u64>) -> KeyAdmission {
        let Some(key) = self.key_of(&delivery.event) else { return KeyAdmission::Start(delivery) };
        let state = &mut *self.lock();
        // An event that was resolved during the read blocks no other.
        let nearest = nearest.filter(|nearest| !state.resolved.contains(nearest));
        let sequence = delivery.event.sequence();
        let most = self.most(state);
        let unresolved = state.unresolved.get(&key).copied().filter(|unresolved| *unresolved < sequence);
        match (state.queues.get_mut(&key), nearest.or(unresolved)) {
            (None, None) => {
                state.held.insert(sequence);
                state.queues.insert(key.clone(), KeyQueue::begun_by(sequence));
                delivery.turn = Some(Box::new(Turn::new(self.clone(), key, sequence)));
                KeyAdmission::Start(delivery)
            }
            (None, Some(nearest)) => KeyAdmission::Elsewhere(delivery, nearest),
            (Some(queue), nearest) => {
                // It became due late, or it was dead and is replayed.
                let is_late = sequence < queue.last();
                let not_held = nearest.filter(|nearest| !state.held.contains(nearest));
                match not_held.or(unresolved) {
                    // The events in flight do not block it.
                    Some(other) if is_late => return KeyAdmission::Elsewhere(delivery, other),
                    Some(_) => return KeyAdmission::Behind(delivery, queue.last()),
                    None => {}
                }
                let has_room = queue.waiting.len() < most.events && queue.waiting_bytes < most.bytes;
                // An event that is blocked behind a later one would be unblocked at once, and read again. So the last event of the queue is
                // blocked instead. If no event waits, this event exceeds the capacity.
                let aside = match (has_room, is_late) {
                    (true, _) => None,
                    (false, true) => queue.waiting.pop_back(),
                    (false, false) => return KeyAdmission::Behind(delivery, queue.last()),
                };
                let bytes = delivery.event.size_bytes();
                let place = queue.waiting.partition_point(|waiting| waiting.event.sequence() < sequence);
                queue.waiting.insert(place, delivery);
                queue.waiting_bytes += bytes;
                state.held.insert(sequence);
                state.waiting.events += 1;
                state.waiting.bytes += bytes;
                let Some(aside) = aside else { return KeyAdmission::Waits };
                let (bytes, sequence) = (aside.event.size_bytes(), aside.event.sequence());
                queue.waiting_bytes -= bytes;
                let last = queue.last();
                state.waiting.events -= 1;
                state.waiting.bytes -= bytes;
                // The read treats it as queued, and returns later events without naming it.
                state.held.remove(&sequence);
                state.note_unresolved(&key, sequence);
                KeyAdmission::Behind(aside, last)
            }
        }
    }

    fn key_of(&self, event: &Event) -> Option<Key> {
        self.one_for_all.clone().or_else(|| key(event))
    }

    /// Whether an event is in one of the queues.
    pub(crate) fn holds(&self, sequence: u64) -> bool {
        self.lock().held.contains(&sequence)
    }

    /// Whether events of an aggregate are in flight that precede the events behind this `blocker`. A blocker that is not in flight, and
    /// precedes the last of them, became due late. So did the events behind it, which take their places in the queue.
    pub(crate) fn comes_before(&self, key: &Key, blocker: u64) -> bool {
        let state = self.lock();
        state.queues.get(key).is_some_and(|queue| queue.last() <= blocker || state.held.contains(&blocker))
    }

    /// Takes out every event that waits here.
    pub(crate) fn drain(&self) -> Vec<Delivery> {
        self.take_out(|_| true)
    }

    /// Takes out the waiting events that are wanted, with every event that waits behind one of them.
    pub(crate) fn take_out(&self, is_wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let state = &mut *self.lock();
        let mut taken = Vec::new();
        for queue in state.queues.values_mut() {
            let Some(first) = queue.waiting.iter().position(&is_wanted) else { continue };
            let before = taken.len();
            taken.extend(queue.waiting.drain(first..));
            let bytes: usize = taken[before..].iter().map(|delivery| delivery.event.size_bytes()).sum();
            queue.waiting_bytes -= bytes;
            state.waiting.bytes -= bytes;
        }
        state.waiting.events -= taken.len();
        for delivery in &taken {
            let sequence = delivery.event.sequence();
            state.held.remove(&sequence);
            if let Some(key) = self.key_of(&delivery.event) {
                state.note_unresolved(&key, sequence);
            }
        }
        taken
    }

    /// Ends a turn once the outcome is stored. `resolved`: whether no event has to wait for this one any more.
    pub(crate) fn end(self: &Arc<Self>, mut turn: Turn, resolved: bool) -> AfterTurn {
        turn.set_ended();
        let mut after = self.leave(turn.key(), turn.sequence(), resolved);
        if let Some(next) = &mut after.next {
            next.turn = Some(Box::new(Turn::new(self.clone(), turn.key().clone(), next.event.sequence())));
        }
        after
    }

    fn leave(&self, key: &Key, sequence: u64, resolved: bool) -> AfterTurn {
        let state = &mut *self.lock();
        state.held.remove(&sequence);
        if !resolved {
            state.note_unresolved(key, sequence);
        }
        let Some(queue) = state.queues.get_mut(key) else {
            return AfterTurn::default();
        };
        if !resolved {
            let behind: Vec<Delivery> = queue.waiting.drain(..).collect();
            state.queues.remove(key);
            for waiting in &behind {
                state.held.remove(&waiting.event.sequence());
                state.note_unresolved(key, waiting.event.sequence());
            }
            state.waiting.events -= behind.len();
            state.waiting.bytes -= behind.iter().map(|waiting| waiting.event.size_bytes()).sum::<usize>();
            return AfterTurn { next: None, behind };
        }
        let next = queue.waiting.pop_front();
        match &next {
            Some(next) => {
                let bytes = next.event.size_bytes();
                queue.running = next.event.sequence();
                queue.waiting_bytes -= bytes;
                state.waiting.events -= 1;
                state.waiting.bytes -= bytes;
            }
            None => {
                state.queues.remove(key);
            }
        }
        state.resolved.insert(sequence);
        AfterTurn { next, behind: Vec::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns for KeyQueues {
    fn abandon(&self, key: &Key, sequence: u64) {
        drop(self.leave(key, sequence, false));
    }
}

/// The events that follow a turn.
#[derive(Debug, Default)]
pub(crate) struct AfterTurn {
    /// The event whose turn comes next.
    pub(crate) next: Option<Delivery>,
    /// The events that may not start, since this one is not resolved.
    pub(crate) behind: Vec<Delivery>,
}

impl State {
    fn note_unresolved(&mut self, key: &Key, sequence: u64) {
        let least = self.unresolved.entry(key.clone()).or_insert(sequence);
        *least = sequence.min(*least);
    }
}

impl KeyQueue {
    fn begun_by(sequence: u64) -> Self {
        Self { running: sequence, waiting: VecDeque::new(), waiting_bytes: 0 }
    }

    fn last(&self) -> u64 {
        self.waiting.back().map_or(self.running, |last| last.event.sequence())
    }
}

#[cfg(test)]
mod tests;
