//! Room for what is read.

use std::time::Duration;

use tokio::time::Instant;

use super::Poller;

/// How long the last room is left while it does not grow.
const MOVES_WITHIN: Duration = Duration::from_millis(100);

/// The last part of the room, where order is kept. An event that finds no place there is set aside in the table, and so is every later
/// one of its aggregate: two writes more for each. So the last part is left while events move, and filled only when they do not: then
/// slow aggregates have it all, and what is behind them in the table may be quick.
#[derive(Debug, Default)]
pub(crate) struct LastRoom {
    reached_at: Option<Instant>,
}

impl LastRoom {
    /// How much of the free room may be filled now, where so much of it is the last.
    fn leave(&mut self, free: Room, last: Room, now: Instant) -> Room {
        if free.events > last.events && free.bytes > last.bytes {
            self.reached_at = None;
            return Room { events: free.events - last.events, bytes: free.bytes - last.bytes };
        }
        let reached_at = *self.reached_at.get_or_insert(now);
        if now.saturating_duration_since(reached_at) < MOVES_WITHIN { Room::default() } else { free }
    }
}

/// Room for events, and for their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Poller {
    /// Room for what is read now.
    pub(super) fn room_to_read(&mut self) -> Room {
        let free = self.room();
        match &self.order {
            Some(order) if !order.is_one_for_all() => {
                let (events, bytes) = order.key_queues().last_room();
                let last = Room { events, bytes };
                self.last_room.leave(free, last, Instant::now())
            }
            _ => free,
        }
    }

    /// Room for events that wait in the queue or in key queues.
    pub(super) fn room(&self) -> Room {
        let ((room, bytes), in_all) = (self.queue.cold_room(), self.queue.free_bytes());
        let (waiting, waiting_bytes) = self.order.as_ref().map_or((0, 0), |order| order.key_queues().waiting());
        if in_all == 0 || (waiting_bytes > 0 && waiting_bytes >= bytes) {
            return Room::default();
        }
        let front = self.front.room();
        let free = Room {
            events: room.saturating_sub(waiting + front.events),
            bytes: (bytes - waiting_bytes).min(in_all).saturating_sub(front.bytes),
        };
        // A single queue moves one by one: it is filled up when half of it is free, not at each step.
        if self.is_one_queue() && (waiting > free.events || waiting_bytes > free.bytes) {
            return Room::default();
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(events: usize, bytes: usize) -> Room {
        Room { events, bytes }
    }

    #[test]
    fn the_last_room_is_left_while_events_move() {
        let (mut last_room, now, last) = (LastRoom::default(), Instant::now(), room(125, 4_000));
        assert_eq!(last_room.leave(room(1_000, 9_000), last, now), room(875, 5_000));
        assert_eq!(last_room.leave(room(125, 9_000), last, now), Room::default());
        assert_eq!(last_room.leave(room(126, 9_000), last, now + MOVES_WITHIN), room(1, 5_000), "they moved");
        assert_eq!(last_room.leave(room(9, 9_000), last, now + MOVES_WITHIN), Room::default());
    }

    #[test]
    fn the_last_room_is_filled_when_none_moves() {
        let (mut last_room, now, last) = (LastRoom::default(), Instant::now(), room(125, 4_000));
        assert_eq!(last_room.leave(room(100, 3_000), last, now), Room::default());
        assert_eq!(last_room.leave(room(90, 3_000), last, now + MOVES_WITHIN), room(90, 3_000));
        assert_eq!(last_room.leave(room(0, 0), last, now + MOVES_WITHIN), Room::default());
    }

    #[test]
    fn where_nothing_waits_there_is_no_last_room() {
        let mut last_room = LastRoom::default();
        assert_eq!(last_room.leave(room(1, 1), Room::default(), Instant::now()), room(1, 1));
    }
}
