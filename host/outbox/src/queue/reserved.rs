//! Reserved capacity in the hot queue, for events whose transaction is still open.
//!
//! Without it, open transactions would claim rows for the same free capacity. The events beyond the capacity would have to be given back to
//! the table, row by row.

use std::sync::Arc;

use super::{Delivery, Queue, QueueState, Room, Via};

/// Capacity in the hot queue, reserved until it is used or dropped.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    /// `None` if nothing is reserved.
    queue: Option<Arc<Queue>>,
    room: Room,
}

impl Reserved {
    /// How many events the reservation holds.
    pub(crate) fn events(&self) -> usize {
        self.room.events
    }

    fn give_up(&mut self, state: &mut QueueState) {
        if self.queue.take().is_some() {
            state.reserved = state.reserved.without(self.room);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.clone() {
            self.give_up(&mut queue.lock());
        }
    }
}

impl Queue {
    /// Reserves capacity for the first of these events, given by their sizes in bytes, as far as capacity is free.
    pub(crate) fn reserve(self: &Arc<Self>, sizes: impl Iterator<Item = usize>) -> Reserved {
        let mut reserved = Room::default();
        let mut state = self.lock();
        if !state.closed {
            let room = self.limits.room(Via::Hot).without(state.call_queues.taken_beyond(Via::Hot, self.limits));
            for bytes in sizes {
                if !state.has_room(Via::Hot, room) {
                    break;
                }
                state.reserve(bytes);
                reserved = Room { events: reserved.events + 1, bytes: reserved.bytes + bytes };
            }
        }
        drop(state);
        Reserved { queue: Some(self.clone()), room: reserved }
    }

    /// Reserves capacity for an event that was in the queue and returns to it, even if no capacity is free: fewer other events are accepted
    /// meanwhile.
    pub(crate) fn reserve_again(self: &Arc<Self>, bytes: usize) -> Reserved {
        self.lock().reserve(bytes);
        Reserved { queue: Some(self.clone()), room: Room { events: 1, bytes } }
    }

    /// Pushes events with reserved capacity to the end of the hot lane, in order, and frees the rest of the reservation. Returns the events
    /// if the queue is closed.
    pub(crate) fn push_reserved(&self, mut reserved: Reserved, deliveries: Vec<Delivery>) -> Vec<Delivery> {
        let mut state = self.lock();
        reserved.give_up(&mut state);
        if state.closed {
            return deliveries;
        }
        let pushed = deliveries.len();
        for delivery in deliveries {
            state.lanes.lane_mut(Via::Hot).push(delivery);
        }
        self.wake_workers(state, pushed);
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::{Envelope, Event};
    use crate::queue::{InFlight, QueueLimits};
    use crate::units::ByteSize;

    fn queue(hot: usize, bytes: ByteSize) -> Arc<Queue> {
        Arc::new(Queue::new(QueueLimits { hot, cold: 1, bytes }))
    }

    fn delivery() -> Delivery {
        let envelope = Envelope::new("X").json(&1).expect("valid");
        let in_flight = Arc::new(InFlight::default());
        let mark = in_flight.mark(envelope.id(), None, Duration::from_secs(30)).expect("new");
        Delivery::new(Arc::new(Event::of(envelope).build()), mark, Via::Hot, 0)
    }

    #[test]
    fn room_is_kept_once_and_comes_back_when_it_is_dropped() {
        let queue = queue(10, ByteSize::mib(1));
        let first = queue.reserve([1; 6].into_iter());
        let second = queue.reserve([1; 6].into_iter());

        assert_eq!((first.events(), second.events(), queue.hot_room()), (6, 4, 0));
        assert_eq!(queue.push(Via::Hot, [delivery()]).len(), 1, "what is kept is not there for others");
        drop(first);
        assert_eq!((queue.hot_room(), queue.reserve([1; 9].into_iter()).events()), (6, 6));
    }

    #[test]
    fn kept_room_is_taken_by_the_events_that_it_was_kept_for() {
        let queue = queue(2, ByteSize::mib(1));
        let reserved = queue.reserve([1; 2].into_iter());

        assert!(queue.push_reserved(reserved, vec![delivery()]).is_empty());

        assert_eq!((queue.depth().0, queue.hot_room()), (1, 1), "one used, one given up");
        let again = queue.reserve_again(1);
        queue.close();
        assert_eq!(queue.push_reserved(again, vec![delivery()]).len(), 1, "not after the closing");
    }

    #[test]
    fn bytes_are_kept_as_well_but_never_none() {
        let queue = queue(10, ByteSize(100));
        assert_eq!(queue.reserve([1_000; 3].into_iter()).events(), 1, "alone, however large");
        assert_eq!(queue.reserve([60; 3].into_iter()).events(), 2);
        let waiting = queue.reserve_again(1_000);
        assert_eq!((queue.hot_room(), queue.reserve([1].into_iter()).events()), (0, 0));
        drop(waiting);
        assert_eq!(queue.hot_room(), 10);
    }
}
