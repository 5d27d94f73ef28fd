//! From a commit straight into the hot queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::abandoned::Abandoned;
use crate::event::{Envelope, Event, EventId, Fence, OwnerId};
use crate::metrics::Metrics;
use crate::notifier::Notifier;
use crate::queue::{BatchNumbers, Delivery, InFlight, Queue, Reserved, Via};
use crate::settler::{SettlerHandle, Unused};
use crate::time::system_clock;
use crate::wake::Wake;

/// An event that is in no table has no claim that could end: a year is as good as for ever, and can be added to any time.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3_600);

/// What the table holds of a written event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// Perhaps a row that is claimed by us: its insert has not ended.
    Asked,
    /// A row that was inserted already claimed by us, with this `seq`.
    Ours(u64),
    /// A row without a claim, which the host that has its partition may take.
    Free,
    /// No row: the event is excluded.
    None,
}

/// The claim that rows were inserted with.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) owner: OwnerId,
    /// When it ends; by the database's clock it ends later, never earlier.
    pub(crate) end: Instant,
    /// How long it holds from one renewal to the next.
    pub(crate) length: Duration,
}

/// From a commit straight into the hot queue.
pub(crate) struct HotPath {
    /// `None` where nothing is dispatched hot: ordered and writer-only modes.
    pub(crate) queue: Option<Arc<Queue>>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) wake: Arc<Wake>,
    /// For events that another host may have to take.
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) batch_numbers: Arc<BatchNumbers>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) abandoned: Abandoned,
    /// Where claims go back to; `None` in the mode that never delivers.
    pub(crate) settler: Option<SettlerHandle>,
    pub(crate) stopped: AtomicBool,
}

impl HotPath {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Keeps room in the hot queue for the first of these events, given by their sizes in bytes; for none in a mode without
    /// one.
    pub(super) fn reserve(&self, sizes: impl Iterator<Item = usize>) -> Reserved {
        self.queue.as_ref().map_or_else(Reserved::default, |queue| queue.reserve(sizes))
    }

    /// Whether rows may be inserted already claimed. A host that stands aside leaves them to the others.
    pub(super) fn may_claim(&self) -> bool {
        !self.metrics.stalls.is_aside()
    }

    /// Queues committed events, and wakes the poller for those that it must take.
    pub(super) fn enqueue(&self, events: Vec<(Envelope, Row)>, lease: &Lease, room: Reserved) {
        self.metrics.events_written.add(u64::try_from(events.len()).unwrap_or(0));
        let batch = self.batch_numbers.next();
        let mut deliveries = Vec::with_capacity(events.len());
        let mut for_the_poller = false;
        // Claims are renewed at every third of the lease: one that ends before the next time would be lost while its listener
        // is at work, and the event delivered twice.
        let now = Instant::now();
        let in_time = |end: Instant| end.saturating_duration_since(now) >= lease.length / 2;
        let mut to_give_back = Vec::new();
        for (envelope, row) in events {
            let (sequence, fence, end) = match row {
                Row::Ours(sequence) => (sequence, Some(Fence { sequence, claim: 1 }), lease.end),
                Row::None => (0, None, now + FOR_EVER),
                Row::Free | Row::Asked => {
                    for_the_poller |= !self.note_left(&envelope);
                    continue;
                }
            };
            if fence.is_some() && !in_time(end) {
                to_give_back.push(envelope.id());
                continue;
            }
            match self.in_flight.mark_until(envelope.id(), fence, end) {
                // Looked for after the mark was made, as who abandons it looks for the mark after: one of the two sees the other.
                Some(_) if fence.is_some() && self.abandoned.contains(&envelope.id()) => to_give_back.push(envelope.id()),
                Some(mark) => {
                    // Its writer and this host have one clock.
                    let expires_in = envelope.expires_at().map(|end| end.since(system_clock().now()));
                    let event = Event::of(envelope).sequence(sequence).fence(1).build();
                    deliveries.push(Delivery::new(Arc::new(event), mark, Via::Hot, batch).expiring(now, expires_in));
                }
                None => for_the_poller = true,
            }
        }
        if !to_give_back.is_empty() {
            self.give_back(to_give_back, None, lease, Reserved::default());
            for_the_poller = true;
        }
        let count = deliveries.len();
        let late = match &self.queue {
            Some(queue) => queue.push_reserved(room, deliveries),
            None => deliveries,
        };
        self.metrics.hot_enqueued.add(u64::try_from(count - late.len()).unwrap_or(0));
        if !late.is_empty() {
            self.leave(late, lease);
            for_the_poller = true;
        }
        if for_the_poller {
            self.wake.now();
            self.notifier.notify();
        }
    }

    /// Counts an event that the hot path leaves alone; true when it is delayed, so that the poller need not look now.
    fn note_left(&self, envelope: &Envelope) -> bool {
        if envelope.is_delayed() {
            self.metrics.hot_skipped_delayed.increment();
            let now = system_clock().now();
            self.wake.within(envelope.available_at().since(now));
            // Whoever has its partition learns from the table when it is due.
            self.notifier.notify();
            return true;
        }
        if self.queue.is_some() && self.may_claim() {
            self.warn_full(envelope);
        }
        false
    }

    /// Leaves events alone that were committed after the queue was closed.
    fn leave(&self, late: Vec<Delivery>, lease: &Lease) {
        let (stored, excluded): (Vec<_>, Vec<_>) = late.into_iter().partition(|delivery| delivery.fence().is_some());
        for delivery in excluded {
            tracing::error!(
                event.id = %delivery.event.id(), route = %delivery.event.route(),
                "an event that is excluded from the store was committed while the host stops, and is lost"
            );
        }
        let ids = stored.iter().map(|delivery| delivery.event.id()).collect();
        // Their marks would say that they are in our hands.
        drop(stored);
        self.give_back(ids, None, lease, Reserved::default());
    }

    /// Gives claims of rows back that nobody will deliver hot, as soon as the rows can be seen, and wakes the poller then; also
    /// as soon as `free` can be seen, a row without a claim.
    pub(super) fn give_back(&self, mut ids: Vec<EventId>, free: Option<EventId>, lease: &Lease, room: Reserved) {
        self.abandoned.add(&ids, lease.end);
        // One that is in our hands was there before: this insert has met its own duplicate.
        ids.retain(|id| !self.in_flight.contains(id));
        if let Some(settler) = self.settler.as_ref().filter(|_| !ids.is_empty() || free.is_some()) {
            settler.give_back_unused(Unused { owner: lease.owner.clone(), ids, free, until: lease.end, _room: room });
        }
    }

    /// Warns for the first of every thousand: a flood of writes must not become a flood of lines.
    fn warn_full(&self, envelope: &Envelope) {
        let before = self.metrics.hot_dropped.get();
        self.metrics.hot_dropped.increment();
        if before == 0 || before / 1_000 != self.metrics.hot_dropped.get() / 1_000 {
            tracing::warn!(
                event.id = %envelope.id(), route = %envelope.route(), dropped_total = self.metrics.hot_dropped.get(),
                "the hot queue is full: events wait in the table for the poller; nothing is lost"
            );
        }
    }
}
