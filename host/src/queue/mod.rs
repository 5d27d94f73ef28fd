//! Events in this process's hands: queued hot or cold, bounded by count and by bytes, and marked while in flight.
//!
//! Hot events come straight from a commit, cold ones from the poller. This room knows nothing of databases or listeners.

mod at_work;
mod batches;
mod calls;
mod delivery;
mod in_flight;
mod key_queues;
mod reserved;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use calls::CallQueues;
use tokio::sync::Notify;

pub(crate) use at_work::{AtWork, Work};
pub(crate) use batches::Batches;
pub(crate) use calls::Admitted;
pub use calls::CallPlace;
pub use delivery::{Delivery, Via};
pub use in_flight::{InFlight, Mark};
pub use key_queues::Turn;
pub(crate) use key_queues::{Admission, Key, KeyQueueLimits, KeyQueues, key};
pub(crate) use reserved::Reserved;

use crate::units::ByteSize;

/// How much may be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
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
pub struct Queue {
    limits: QueueLimits,
    sides: Mutex<Sides>,
    filled: Notify,
    taken: Notify,
    /// How many workers can run at once.
    threads: usize,
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
    pub fn new(limits: QueueLimits) -> Self {
        Self { limits, sides: Mutex::default(), filled: Notify::new(), taken: Notify::new(), threads: threads() }
    }

    /// Puts events at the end of their side, in order. Those that find no room, or come after the closing, are given back.
    pub fn push(&self, via: Via, deliveries: impl IntoIterator<Item = Delivery>) -> Vec<Delivery> {
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
        let wake = pushed.min(sides.waiting).min(self.threads);
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
    pub async fn take(&self) -> Option<Delivery> {
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
    pub fn try_take(&self) -> Option<Delivery> {
        let delivery = self.lock().take();
        if delivery.is_some() {
            self.taken.notify_waiters();
        }
        delivery
    }

    /// How many more cold events, and how many bytes of them, would find room.
    #[must_use]
    pub fn cold_room(&self) -> (usize, usize) {
        self.room(Via::Cold)
    }

    /// How many more hot events would find room now.
    #[must_use]
    pub fn hot_room(&self) -> usize {
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

    /// Waits until at least half of the cold side is free, by number and by bytes, or the queue is closed.
    pub async fn cold_half_empty(&self) {
        loop {
            let taken = self.taken.notified();
            tokio::pin!(taken);
            // Registered before looking: a take in between must not be missed.
            taken.as_mut().enable();
            {
                let sides = self.lock();
                let (count, bytes) = sides.load(Via::Cold, self.limits);
                if sides.closed || count == 0 || (count <= self.limits.cold / 2 && bytes <= self.limits.bytes.as_usize() / 2) {
                    return;
                }
            }
            taken.await;
        }
    }

    /// How many events are queued or wait for their listeners: hot, cold.
    #[must_use]
    pub fn depth(&self) -> (usize, usize) {
        let sides = self.lock();
        let call_queues = &sides.call_queues;
        (sides.hot.deliveries.len() + call_queues.depth(Via::Hot), sides.cold.deliveries.len() + call_queues.depth(Via::Cold))
    }

    /// Takes no more events; those queued can still be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_waiters();
        self.taken.notify_waiters();
    }

    /// Takes everything that is still queued or waits for its listener.
    #[must_use]
    pub fn drain(&self) -> Vec<Delivery> {
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
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;
    use crate::event::{Envelope, Event};

    fn deliveries(via: Via, count: usize, payload_bytes: usize) -> Vec<Delivery> {
        let in_flight = Arc::new(InFlight::default());
        (0..count)
            .map(|_| {
                let envelope = Envelope::new("X").bytes("a/b", vec![0; payload_bytes]).expect("valid");
                let mark = in_flight.mark(envelope.id(), None, Duration::from_secs(30)).expect("new");
                Delivery::new(Arc::new(Event::of(envelope).build()), mark, via, 0)
            })
            .collect()
    }

    #[test]
    fn two_hot_events_are_taken_for_each_cold_one_while_both_wait() {
        let queue = Queue::new(QueueLimits::default());
        assert!(queue.push(Via::Hot, deliveries(Via::Hot, 6, 1)).is_empty());
        assert!(queue.push(Via::Cold, deliveries(Via::Cold, 5, 1)).is_empty());
        let order: String = queue.drain().iter().map(|delivery| if delivery.via == Via::Hot { 'h' } else { 'c' }).collect();
        assert_eq!(order, "hhchhchhccc");
    }

    #[test]
    fn what_finds_no_room_is_given_back() {
        let queue = Queue::new(QueueLimits { hot: 2, cold: 2, bytes: ByteSize::kib(10) });
        assert_eq!(queue.push(Via::Hot, deliveries(Via::Hot, 3, 1)).len(), 1, "by count");
        assert_eq!(queue.push(Via::Cold, deliveries(Via::Cold, 2, 20_000)).len(), 1, "by bytes, but never none");
        queue.close();
        assert_eq!(queue.push(Via::Hot, deliveries(Via::Hot, 1, 1)).len(), 1, "after the closing");
    }

    #[test]
    fn half_of_the_cold_side_is_free_only_when_it_is_by_number_and_by_bytes() {
        let queue = Queue::new(QueueLimits { hot: 1, cold: 4, bytes: ByteSize::kib(10) });
        let waits = || queue.cold_half_empty().now_or_never().is_none();
        assert!(!waits(), "empty");
        assert!(queue.push(Via::Cold, deliveries(Via::Cold, 1, 20_000)).is_empty());
        assert!(waits(), "one event with all the bytes");
        queue.try_take();
        assert!(queue.push(Via::Cold, deliveries(Via::Cold, 3, 1)).is_empty());
        assert!(waits(), "three of four");
        queue.try_take();
        assert!(!waits(), "two of four");
    }

    /// Long enough for a machine under load; never reached by a passing test.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn in_time<T>(fact: &str, future: impl Future<Output = T>) -> T {
        tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("expected within {PATIENCE:?}: {fact}"))
    }

    /// Waits until so many workers wait for an event.
    async fn waiting(queue: &Queue, workers: usize) {
        let all_wait = async {
            while queue.lock().waiting != workers {
                tokio::task::yield_now().await;
            }
        };
        in_time(&format!("{workers} workers wait"), all_wait).await;
    }

    #[tokio::test]
    async fn every_waiting_worker_is_woken_by_a_push_and_by_the_closing() {
        let queue = Arc::new(Queue { threads: 4, ..Queue::new(QueueLimits::default()) });
        // Whoever took an event goes on only when all have one: a worker that sleeps on cannot be stood in for by another.
        let all_have_one = Arc::new(tokio::sync::Barrier::new(5));
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (queue, all_have_one) = (queue.clone(), all_have_one.clone());
            workers.spawn(async move {
                while queue.take().await.is_some() {
                    all_have_one.wait().await;
                }
            });
        }

        waiting(&queue, 4).await;
        assert!(queue.push(Via::Hot, deliveries(Via::Hot, 4, 1)).is_empty());
        in_time("four hot events at once wake four workers", all_have_one.wait()).await;
        waiting(&queue, 4).await;
        for delivery in deliveries(Via::Cold, 4, 1) {
            assert!(queue.push(Via::Cold, [delivery]).is_empty());
        }
        in_time("four cold events one by one wake four workers", all_have_one.wait()).await;
        waiting(&queue, 4).await;
        for delivery in deliveries(Via::Cold, 4, 1) {
            assert!(queue.push_claimed(delivery).is_none());
        }
        in_time("four events whose turn has come wake four workers", all_have_one.wait()).await;
        waiting(&queue, 4).await;

        queue.close();

        in_time("the closing ends every worker", workers.join_all()).await;
    }

    #[tokio::test]
    async fn what_is_queued_at_the_closing_is_taken_and_nothing_comes_after_it() {
        let queue = Queue::new(QueueLimits::default());
        assert!(queue.push(Via::Hot, deliveries(Via::Hot, 1, 1)).is_empty());
        assert!(queue.push_claimed(deliveries(Via::Cold, 1, 1).remove(0)).is_none());
        assert_eq!((queue.depth(), queue.hot_room()), ((1, 1), 999));
        assert_eq!(queue.cold_room().0, 999);

        queue.close();

        assert!(queue.push_claimed(deliveries(Via::Cold, 1, 1).remove(0)).is_some(), "given back");
        assert_eq!((queue.cold_room(), queue.hot_room()), ((0, 0), 0));
        for left in [true, true, false] {
            assert_eq!(in_time("an answer", queue.take()).await.is_some(), left);
        }
    }

    #[tokio::test]
    async fn the_wake_up_of_a_worker_that_is_cut_off_goes_to_another() {
        let queue = Arc::new(Queue::new(QueueLimits::default()));
        let take = || {
            let queue = queue.clone();
            tokio::spawn(async move { queue.take().await.is_some() })
        };
        let cut_off = take();
        waiting(&queue, 1).await;
        let other = take();
        waiting(&queue, 2).await;

        // On one thread no worker runs between the two.
        assert!(queue.push(Via::Hot, deliveries(Via::Hot, 1, 1)).is_empty());
        cut_off.abort();

        assert!(in_time("the other one takes the event", other).await.expect("no panic"));
        assert!(cut_off.await.expect_err("it was cut off").is_cancelled());
        waiting(&queue, 0).await;
    }
}
