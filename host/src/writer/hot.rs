//! From a commit straight into the hot queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::bell::Bell;
use crate::event::{Envelope, Event, Fence};
use crate::metrics::Metrics;
use crate::queue::{Batches, Delivery, InFlight, Path, Queue};
use crate::settler::SettlerHandle;
use crate::wake::Wake;

/// What the table holds of a written event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// A row that was inserted already claimed by us, with this `seq`.
    Ours(u64),
    /// A row that anybody may claim.
    Free,
    /// No row: the event is excluded.
    None,
}

/// From a commit straight into the hot queue.
pub(crate) struct HotPath {
    /// `None` where nothing is dispatched hot: ordered and writer-only modes.
    pub(crate) queue: Option<Arc<Queue>>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) wake: Arc<Wake>,
    /// For events that another node may have to take.
    pub(crate) bell: Arc<Bell>,
    pub(crate) batches: Arc<Batches>,
    pub(crate) metrics: Arc<Metrics>,
    /// Where claims go back to; set once the dispatcher runs.
    pub(crate) settler: OnceLock<SettlerHandle>,
    pub(crate) stopped: AtomicBool,
}

impl HotPath {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// How many events would find room in the hot queue now.
    pub(super) fn room(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.hot_room())
    }

    /// Queues committed events, and wakes the poller for those that it must take.
    pub(super) fn enqueue(&self, events: Vec<(Envelope, Row)>, lease_end: Instant) {
        self.metrics.events_written.add(u64::try_from(events.len()).unwrap_or(0));
        let batch = self.batches.next();
        let mut deliveries = Vec::with_capacity(events.len());
        let mut for_the_poller = false;
        for (envelope, row) in events {
            let (sequence, fence) = match row {
                Row::Ours(sequence) => (sequence, Some(Fence { sequence, claim: 1 })),
                Row::None => (0, None),
                Row::Free => {
                    for_the_poller |= !self.note_left(&envelope);
                    continue;
                }
            };
            // A commit that took longer than the lease has lost the claim: the poller takes the row.
            let in_time = lease_end > Instant::now() || fence.is_none();
            match self.in_flight.mark_until(envelope.id(), fence, lease_end).filter(|_| in_time) {
                Some(mark) => {
                    let event = Event::of(envelope).sequence(sequence).fence(1).build();
                    deliveries.push(Delivery::new(Arc::new(event), mark, Path::Hot, batch));
                }
                None => for_the_poller = true,
            }
        }
        let count = deliveries.len();
        let refused = match &self.queue {
            Some(queue) => queue.push(Path::Hot, deliveries),
            None => deliveries,
        };
        self.metrics.hot_enqueued.add(u64::try_from(count - refused.len()).unwrap_or(0));
        if !refused.is_empty() {
            self.drop_hot(refused);
            for_the_poller = true;
        }
        if for_the_poller {
            self.wake.now();
            self.bell.ring();
        }
    }

    /// Counts an event that the hot path leaves alone; true when it is delayed, so that nobody needs to be woken for it.
    fn note_left(&self, envelope: &Envelope) -> bool {
        if envelope.is_delayed() {
            self.metrics.hot_skipped_delayed.increment();
            let now = crate::time::system_clock().now();
            self.wake.within(envelope.available_at().since(now));
            return true;
        }
        if self.queue.is_some() {
            self.warn_full(1);
        }
        false
    }

    fn drop_hot(&self, refused: Vec<Delivery>) {
        let (stored, excluded): (Vec<_>, Vec<_>) = refused.into_iter().partition(|delivery| delivery.fence().is_some());
        for delivery in excluded {
            tracing::error!(
                event.id = %delivery.event.id(), route = %delivery.event.route(),
                "an event that was excluded from the store found no room in the hot queue, and is lost"
            );
        }
        if !stored.is_empty() {
            self.warn_full(stored.len());
            self.give_back(stored.iter().filter_map(Delivery::fence).collect());
        }
    }

    /// Gives claims of rows back that nobody will deliver hot.
    pub(super) fn give_back(&self, fences: Vec<Fence>) {
        if let Some(settler) = self.settler.get() {
            settler.try_give_back(fences);
        }
    }

    /// Warns for the first of every thousand: a flood of writes must not become a flood of lines.
    fn warn_full(&self, count: usize) {
        let before = self.metrics.hot_dropped.get();
        self.metrics.hot_dropped.add(u64::try_from(count).unwrap_or(0));
        if before == 0 || before / 1_000 != self.metrics.hot_dropped.get() / 1_000 {
            tracing::warn!(
                dropped_total = self.metrics.hot_dropped.get(),
                "the hot queue is full: events wait in the table for the poller; nothing is lost"
            );
        }
    }
}
