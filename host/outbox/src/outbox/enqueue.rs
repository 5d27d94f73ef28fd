//! Events that the application claims by itself, into the queues of a running outbox.

use std::sync::Arc;

use tokio::time::Instant;

use super::Outbox;
use crate::poller::HOSTS_GONE;
use crate::queue::{Delivery, Via};
use crate::store::{Claimed, Due, SharedStore};

impl<S: SharedStore> Outbox<S> {
    /// How many more events would find room in the queues: hot, cold. Room that is kept for events of open transactions counts
    /// as taken. 0 while the outbox stops.
    #[must_use]
    pub fn queue_room(&self) -> (usize, usize) {
        (self.inner.queue.hot_room(), self.inner.queue.cold_room().events)
    }

    /// Puts an event into the hot queue that was claimed with [`ClaimStore::claim`](crate::store::ClaimStore::claim) for this
    /// outbox's [`owner`](Self::owner), by a claim that began before `lease_end` minus its lease. From then on it is delivered,
    /// its claim kept and its outcome stored as for any other. What hosts read without a claim would be delivered twice: see there
    /// how they come to claim too.
    ///
    /// `None` when it was taken. Otherwise it is handed back, and stays the caller's to settle: the queue is full, or the
    /// outbox stops; the event cannot be read, or is not due; nobody is known to answer its route; it is in this process's
    /// hands already; hosts were gone while they held it, so that it must be delivered alone; or the mode delivers in order,
    /// which events of somebody else's choosing would break.
    pub fn enqueue_hot(&self, claimed: Claimed, lease_end: Instant) -> Option<Claimed> {
        self.enqueue(Via::Hot, claimed, lease_end)
    }

    /// As [`enqueue_hot`](Self::enqueue_hot), into the cold queue, from which one event is taken for every two hot ones.
    pub fn enqueue_cold(&self, claimed: Claimed, lease_end: Instant) -> Option<Claimed> {
        self.enqueue(Via::Cold, claimed, lease_end)
    }

    fn enqueue(&self, via: Via, claimed: Claimed, lease_end: Instant) -> Option<Claimed> {
        let Claimed {
            event: Ok(event),
            due: Due::Since(_),
            fence,
            deferrals,
            expires_in,
            claims: ..=HOSTS_GONE,
            starts: 0,
            ..
        } = &claimed
        else {
            return Some(claimed);
        };
        // The table was not asked whether another host has a listener for its route, as the poller does.
        if self.inner.hot.queue.is_none() || self.inner.listeners.gives_up_any([event.route()].into_iter()) {
            return Some(claimed);
        }
        let Some(mark) = self.inner.in_flight.mark_until(event.id(), Some(*fence), lease_end) else { return Some(claimed) };
        let delivery = Delivery::new(Arc::new(event.clone()), mark, via, self.inner.hot.batch_numbers.next());
        let delivery = Delivery { deferrals: *deferrals, ..delivery }.expiring(Instant::now(), *expires_in);
        if !self.inner.queue.push(via, [delivery]).is_empty() {
            return Some(claimed);
        }
        match via {
            Via::Hot => self.inner.metrics.hot_enqueued.increment(),
            Via::Cold => self.inner.metrics.cold_enqueued.increment(),
        }
        None
    }
}
