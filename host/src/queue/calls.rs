//! Events whose listener has no free place wait here, so that no worker waits for them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::{Duration, Instant};

use super::{Delivery, Queue, QueueLimits, Sides, Via};

/// A call queue whose first event has waited for so long is a slow one: its events take no room from others any more.
const SLOW: Duration = Duration::from_secs(1);
/// The longest that an event goes back to the table for, so that a listener that is quick again does not wait for its events.
const LONGEST: Duration = Duration::from_secs(60);

/// Says that an event may be with its listener now. The next event of the call queue gets the place when this is dropped.
#[derive(Debug)]
pub struct CallPlace {
    queue: Weak<Queue>,
    name: Arc<str>,
    since: Instant,
    /// Whether the call waits for something outside the host, so that another one may compute.
    waits: bool,
}

impl CallPlace {
    /// Says whether the call waits for something, such as a response, or computes. Of one listener only a few calls compute at
    /// a time, however many wait: a listener that computes for long leaves the threads to others.
    pub(crate) fn set_waits(&mut self, waits: bool) {
        if waits != self.waits {
            self.waits = waits;
            if let Some(queue) = self.queue.upgrade() {
                queue.call_waits(self);
            }
        }
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.leave(self);
        }
    }
}

/// What becomes of an event that asks for a place.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// It has one.
    Starts(Delivery),
    /// It waits; a worker takes it again when there is a place for it.
    Waits,
    /// As many events wait as may, and slowly: it should come again when its turn may have come.
    Full(Delivery, Duration),
}

/// The call queues of all listeners whose number of calls at once is bounded.
#[derive(Debug, Default)]
pub(super) struct CallQueues {
    queues: HashMap<Arc<str>, CallQueue, foldhash::fast::RandomState>,
    /// Events that have been given a place.
    pub(super) ready: VecDeque<Delivery>,
}

/// The places that some listeners share, and the events that wait for one.
#[derive(Debug)]
struct CallQueue {
    taken: usize,
    /// How many of them are taken by calls that wait for something outside.
    waiting: usize,
    calls: usize,
    hot: CallSide,
    cold: CallSide,
    /// Counts the events given a place while both sides had some.
    turn: u8,
    /// How long a place is taken, on average of the latest.
    mean: Duration,
    /// When a place was last left.
    left_at: Instant,
    /// When the turn of the last event comes that went back to the table.
    turns_end: Instant,
}

#[derive(Debug, Default)]
struct CallSide {
    deliveries: VecDeque<(Instant, Delivery)>,
    bytes: usize,
}

impl Queue {
    /// Gives an event one of the `calls` places that go by this name, or lets it wait for one.
    pub(crate) fn admit(self: &Arc<Self>, name: &Arc<str>, calls: usize, mut delivery: Delivery) -> Admitted {
        if delivery.place.as_ref().is_some_and(|place| place.name == *name) {
            return Admitted::Starts(delivery);
        }
        // Somebody else answered its route when it was given this one. It takes the lock, too.
        delivery.place = None;
        let mut sides = self.lock();
        let now = Instant::now();
        let CallQueues { queues, ready } = &mut sides.call_queues;
        let call_queue = queues.entry(name.clone()).or_insert_with(|| CallQueue::new(now));
        call_queue.calls = calls;
        if call_queue.has_place(self.threads) && call_queue.is_empty() {
            delivery.place = Some(call_queue.place(Arc::downgrade(self), name, now));
            return Admitted::Starts(delivery);
        }
        if call_queue.is_full(delivery.via, self.limits) && call_queue.is_slow(now) {
            let after = call_queue.put_off(now);
            return Admitted::Full(delivery, after);
        }
        call_queue.push(now, delivery);
        // There may be more places than there were.
        let wakes = call_queue.hand_over(ready, name, &Arc::downgrade(self), self.threads, now) && sides.waiting > 0;
        drop(sides);
        if wakes {
            self.wake_worker();
        }
        Admitted::Waits
    }

    /// Takes note of a call that begins or ends to wait, which may give its turn to compute to another.
    fn call_waits(&self, place: &CallPlace) {
        let mut sides = self.lock();
        let CallQueues { queues, ready } = &mut sides.call_queues;
        let Some(call_queue) = queues.get_mut(&place.name) else { return };
        if !place.waits {
            call_queue.waiting -= 1;
            return;
        }
        call_queue.waiting += 1;
        let handed_over = call_queue.hand_over(ready, &place.name, &place.queue, self.threads, Instant::now());
        self.told_of_place(sides, handed_over);
    }

    /// Wakes whoever waits for an event or for room, after an event was handed a place.
    fn told_of_place(&self, sides: MutexGuard<'_, Sides>, handed_over: bool) {
        let wakes = handed_over && sides.waiting > 0;
        drop(sides);
        if wakes {
            self.wake_worker();
        }
        if handed_over {
            self.taken.notify_waiters();
        }
    }

    /// Hands a place to the next event that waits for it.
    fn leave(&self, place: &CallPlace) {
        let mut sides = self.lock();
        let now = Instant::now();
        let CallQueues { queues, ready } = &mut sides.call_queues;
        let Some(call_queue) = queues.get_mut(&place.name) else { return };
        call_queue.taken -= 1;
        call_queue.waiting -= usize::from(place.waits);
        call_queue.mean = (call_queue.mean * 7 + now.saturating_duration_since(place.since)) / 8;
        call_queue.left_at = now;
        let handed_over = call_queue.hand_over(ready, &place.name, &place.queue, self.threads, now);
        self.told_of_place(sides, handed_over);
    }
}

impl CallQueues {
    /// How much of the room for these events is used up here, by number and by bytes. Each call queue has room of its own, as
    /// much as the queue has; slow ones use no more, so that others still get in.
    pub(super) fn charged(&self, via: Via, limits: QueueLimits) -> (usize, usize) {
        if self.queues.is_empty() {
            return (0, 0);
        }
        let now = Instant::now();
        let queues = self.queues.values().filter(|call_queue| !call_queue.is_slow(now)).map(|call_queue| call_queue.side(via));
        let (count, bytes) = queues.fold((0, 0), |(count, bytes), side| (count + side.deliveries.len(), bytes + side.bytes));
        (count.saturating_sub(limits.count(via)), bytes.saturating_sub(limits.bytes.as_usize()))
    }

    /// Whether events go back to the table, since too many wait for a slow listener.
    pub(super) fn sends_back(&self, limits: QueueLimits) -> bool {
        let now = Instant::now();
        self.queues.values().any(|call_queue| call_queue.is_full(Via::Cold, limits) && call_queue.is_slow(now))
    }

    /// How many events wait or are ready.
    pub(super) fn depth(&self, via: Via) -> usize {
        let waiting: usize = self.queues.values().map(|call_queue| call_queue.side(via).deliveries.len()).sum();
        waiting + self.ready.iter().filter(|delivery| delivery.via == via).count()
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

impl CallQueue {
    fn new(now: Instant) -> Self {
        let (hot, cold) = (CallSide::default(), CallSide::default());
        Self { taken: 0, waiting: 0, calls: 0, hot, cold, turn: 0, mean: Duration::ZERO, left_at: now, turns_end: now }
    }

    fn side(&self, via: Via) -> &CallSide {
        match via {
            Via::Hot => &self.hot,
            Via::Cold => &self.cold,
        }
    }

    fn is_empty(&self) -> bool {
        self.hot.deliveries.is_empty() && self.cold.deliveries.is_empty()
    }

    fn is_full(&self, via: Via, limits: QueueLimits) -> bool {
        let side = self.side(via);
        side.deliveries.len() >= limits.count(via) || side.bytes >= limits.bytes.as_usize()
    }

    fn is_slow(&self, now: Instant) -> bool {
        let first = |side: &CallSide| side.deliveries.front().map(|(since, _)| *since);
        let since = first(&self.hot).into_iter().chain(first(&self.cold)).min();
        since.is_some_and(|since| now.saturating_duration_since(since) >= SLOW)
    }

    fn push(&mut self, now: Instant, delivery: Delivery) {
        let side = match delivery.via {
            Via::Hot => &mut self.hot,
            Via::Cold => &mut self.cold,
        };
        side.bytes += delivery.event.size_bytes();
        side.deliveries.push_back((now, delivery));
    }

    /// Gives a free place to the first event that waits for it. False when none does, or no place is free.
    fn hand_over(
        &mut self,
        ready: &mut VecDeque<Delivery>,
        name: &Arc<str>,
        queue: &Weak<Queue>,
        threads: usize,
        now: Instant,
    ) -> bool {
        let Some(mut next) = self.has_place(threads).then(|| self.pop()).flatten() else { return false };
        next.place = Some(self.place(queue.clone(), name, now));
        ready.push_back(next);
        true
    }

    /// Whether one more call may begin: not more than may be under way, nor more that compute than there are threads.
    fn has_place(&self, threads: usize) -> bool {
        self.taken < self.calls && self.taken - self.waiting < threads
    }

    fn place(&mut self, queue: Weak<Queue>, name: &Arc<str>, now: Instant) -> CallPlace {
        self.taken += 1;
        CallPlace { queue, name: name.clone(), since: now, waits: false }
    }

    /// Two hot ones for each cold one while both wait, as everywhere.
    fn pop(&mut self) -> Option<Delivery> {
        if self.hot.deliveries.is_empty() || self.cold.deliveries.is_empty() {
            return self.hot.pop().or_else(|| self.cold.pop());
        }
        let cold_turn = self.turn == 2;
        self.turn = if cold_turn { 0 } else { self.turn + 1 };
        if cold_turn { self.cold.pop() } else { self.hot.pop() }
    }

    /// How long the next event stays in the table: about until those before it have had their turns. Were it less, the same
    /// events would be claimed and sent back again and again. Whole seconds, so that they come back many at a time.
    fn put_off(&mut self, now: Instant) -> Duration {
        let calls = u32::try_from(self.calls).unwrap_or(u32::MAX).max(1);
        let turn = (self.mean / calls).max(now.saturating_duration_since(self.left_at));
        let waiting = u32::try_from(self.hot.deliveries.len() + self.cold.deliveries.len()).unwrap_or(u32::MAX);
        let here = turn.saturating_mul(waiting).min(LONGEST);
        self.turns_end = (self.turns_end.max(now + here) + turn.min(LONGEST)).min(now + LONGEST);
        Duration::from_secs(self.turns_end.saturating_duration_since(now).as_secs() + 1)
    }
}

impl CallSide {
    fn pop(&mut self) -> Option<Delivery> {
        let (_, delivery) = self.deliveries.pop_front()?;
        self.bytes -= delivery.event.size_bytes();
        Some(delivery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Envelope, Event, Fence};
    use crate::queue::InFlight;

    fn delivery(in_flight: &Arc<InFlight>, via: Via, sequence: u64) -> Delivery {
        let envelope = Envelope::new("X").json(&1).expect("valid");
        let fence = Some(Fence { sequence, claim: 1 });
        let mark = in_flight.mark(envelope.id(), fence, Duration::from_secs(30)).expect("new");
        Delivery::new(Arc::new(Event::of(envelope).sequence(sequence).build()), mark, via, 0)
    }

    struct Room {
        queue: Arc<Queue>,
        in_flight: Arc<InFlight>,
        name: Arc<str>,
    }

    impl Room {
        fn new() -> Self {
            let in_flight = Arc::default();
            Self { queue: Arc::new(Queue::new(QueueLimits::default())), in_flight, name: "slow".into() }
        }

        fn admit(&self, via: Via, sequence: u64) -> Option<Delivery> {
            match self.queue.admit(&self.name, 1, delivery(&self.in_flight, via, sequence)) {
                Admitted::Starts(delivery) => Some(delivery),
                Admitted::Waits => None,
                Admitted::Full(..) => panic!("there is room"),
            }
        }
    }

    fn sequence(delivery: Option<Delivery>) -> Option<u64> {
        delivery.map(|delivery| delivery.event.sequence())
    }

    #[test]
    fn an_event_without_a_place_waits_for_the_one_that_is_left() {
        let room = Room::new();
        let first = room.admit(Via::Cold, 1).expect("the place is free");
        assert!(room.admit(Via::Cold, 2).is_none());
        assert!(room.queue.try_take().is_none(), "no worker meets it before");
        assert_eq!(room.queue.depth(), (0, 1));
        drop(first);
        let second = room.queue.try_take().expect("it has the place now");
        assert_eq!(second.event.sequence(), 2);
        let again = room.queue.admit(&room.name, 1, second);
        assert!(matches!(again, Admitted::Starts(_)), "and keeps it");
    }

    #[test]
    fn a_call_that_waits_lets_another_compute_and_one_that_computes_does_not() {
        let queue = Arc::new(Queue { threads: 2, ..Queue::new(QueueLimits::default()) });
        let room = Room { queue, ..Room::new() };
        let admit = |sequence| match room.queue.admit(&room.name, 100, delivery(&room.in_flight, Via::Cold, sequence)) {
            Admitted::Starts(delivery) => Some(delivery),
            Admitted::Waits => None,
            Admitted::Full(..) => panic!("there is room"),
        };
        let mut first = admit(1).expect("a thread is free");
        let mut second = admit(2).expect("and another");
        assert!(admit(3).is_none(), "both threads are taken");
        assert!(room.queue.try_take().is_none());
        let waits = |delivery: &mut Delivery, waits| delivery.place.as_mut().expect("admitted").set_waits(waits);
        waits(&mut first, true);
        let third = room.queue.try_take().expect("the first waits for something outside");
        assert_eq!(third.event.sequence(), 3);
        waits(&mut first, false);
        assert!(admit(4).is_none(), "three compute now");
        drop(third);
        assert!(room.queue.try_take().is_none(), "still two");
        waits(&mut second, true);
        drop(second);
        assert_eq!(sequence(room.queue.try_take()), Some(4), "a call that ends while it waits is counted once");
    }

    #[test]
    fn a_place_of_another_listener_goes_to_the_next_that_waits_there() {
        let room = Room::new();
        let first = room.admit(Via::Cold, 1).expect("the place is free");
        assert!(room.admit(Via::Cold, 2).is_none());
        // Its route was given to somebody else meanwhile.
        let moved = room.queue.admit(&"other".into(), 1, first);
        assert!(matches!(moved, Admitted::Starts(_)));
        assert_eq!(sequence(room.queue.try_take()), Some(2));
    }

    #[test]
    fn events_that_waited_take_turns_with_the_others_and_hot_ones_go_before_cold_ones() {
        let room = Room::new();
        let mut at_work = room.admit(Via::Cold, 1);
        for (via, sequence) in [(Via::Cold, 2), (Via::Cold, 3), (Via::Hot, 4), (Via::Hot, 5), (Via::Hot, 6)] {
            assert!(room.admit(via, sequence).is_none());
        }
        let others = (100..110).map(|sequence| delivery(&room.in_flight, Via::Cold, sequence));
        assert!(room.queue.push(Via::Cold, others).is_empty());
        let mut taken = Vec::new();
        for _ in 0..10 {
            // The call ends, and its place is given on.
            drop(at_work.take());
            let next = room.queue.try_take().expect("there are more");
            taken.push(next.event.sequence());
            at_work = next.place.is_some().then_some(next);
        }
        assert_eq!(taken, [4, 100, 5, 101, 2, 102, 6, 103, 3, 104]);
    }

    #[test]
    fn a_queue_that_is_drained_gives_up_what_waits_for_places_too() {
        let room = Room::new();
        let at_work = room.admit(Via::Cold, 1);
        (2..5).for_each(|sequence| assert!(room.admit(Via::Hot, sequence).is_none()));
        assert_eq!(room.queue.drain().len(), 3);
        drop(at_work);
        assert!(room.queue.try_take().is_none());
        assert!(room.admit(Via::Cold, 9).is_some(), "the place is free again");
    }

    #[test]
    fn events_that_wait_use_room_of_the_queue_only_beyond_their_own() {
        let limits = QueueLimits { hot: 2, cold: 2, ..QueueLimits::default() };
        let queue = Arc::new(Queue::new(limits));
        let room = Room { queue, ..Room::new() };
        let _at_work = room.admit(Via::Cold, 1);
        let mut rooms = Vec::new();
        for sequence in 2..6 {
            assert!(room.admit(Via::Cold, sequence).is_none());
            rooms.push(room.queue.cold_room().0);
        }
        assert_eq!((rooms, room.queue.hot_room()), (vec![2, 2, 1, 0], 2));
    }

    #[test]
    fn a_slow_line_takes_no_more_than_its_own_room_and_leaves_that_of_the_queue() {
        let (limits, in_flight) = (QueueLimits { hot: 2, cold: 2, ..QueueLimits::default() }, Arc::default());
        let start = Instant::now();
        let mut call_queue = CallQueue::new(start);
        (1..=3).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
        assert!(call_queue.is_full(Via::Cold, limits) && !call_queue.is_full(Via::Hot, limits));
        assert!(!call_queue.is_slow(start + SLOW / 2), "nobody has waited for long");
        assert!(call_queue.is_slow(start + SLOW));
    }

    #[test]
    fn events_that_go_back_come_again_when_their_turns_may_have_come() {
        let in_flight = Arc::default();
        let start = Instant::now();
        let mut call_queue = CallQueue::new(start);
        (1..=10).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
        (call_queue.calls, call_queue.mean) = (2, Duration::from_secs(4));
        let seconds = |call_queue: &mut CallQueue| call_queue.put_off(start).as_secs();
        assert_eq!(
            [seconds(&mut call_queue), seconds(&mut call_queue), seconds(&mut call_queue)],
            [23, 25, 27],
            "ten turns of 2 s, and one more each"
        );
        (0..100).for_each(|_| assert!(seconds(&mut call_queue) <= 61));
        assert_eq!(seconds(&mut call_queue), 61, "and never much later than in a minute");
    }
}
