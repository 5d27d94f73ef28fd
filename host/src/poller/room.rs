//! Room for the events that are read.

use std::time::Duration;

use tokio::time::Instant;

use super::Poller;
use crate::queue::Room;

/// How long the headroom is left while the free room does not grow beyond it.
const HEADROOM_LEFT_FOR: Duration = Duration::from_millis(100);

/// The last part of the room, where order by aggregate is kept. An event that finds no place in its key queue is set aside in the
/// table, and so is every later event of its aggregate, with two more writes for each. So the headroom is left while events move,
/// and filled only when they do not: then slow aggregates have taken the rest, and events of quick ones may stand behind theirs in
/// the table.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    /// When the free room came to be no more than the headroom.
    reached_at: Option<Instant>,
}

impl Headroom {
    /// How much of the free room may be filled now, where the headroom is so large.
    fn leave(&mut self, free: Room, headroom: Room, now: Instant) -> Room {
        if free.events > headroom.events && free.bytes > headroom.bytes {
            self.reached_at = None;
            return free.without(headroom);
        }
        let reached_at = *self.reached_at.get_or_insert(now);
        if now.saturating_duration_since(reached_at) < HEADROOM_LEFT_FOR { Room::default() } else { free }
    }
}

impl Poller {
    /// Room for the events that are read now.
    pub(super) fn room_to_read(&mut self) -> Room {
        let free = self.room();
        match &self.order {
            Some(order) if !order.is_one_for_all() => self.headroom.leave(free, order.key_queues().headroom(), Instant::now()),
            _ => free,
        }
    }

    /// Room for events that wait in the queue or in key queues.
    pub(super) fn room(&self) -> Room {
        let (room, in_all) = (self.queue.cold_room(), self.queue.free_bytes());
        let waiting = self.order.as_ref().map_or_else(Room::default, |order| order.key_queues().waiting());
        if in_all == 0 || (waiting.bytes > 0 && waiting.bytes >= room.bytes) {
            return Room::default();
        }
        let left = room.without(waiting).without(self.front.room());
        let free = Room { bytes: left.bytes.min(in_all), ..left };
        // A read without room for a byte would bring nothing, and look like one that brought all.
        if free.bytes == 0 {
            return Room::default();
        }
        // A single queue moves one by one: it is filled up when half of it is free, not at each step.
        if self.is_one_queue() && (waiting.events > free.events || waiting.bytes > free.bytes) {
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
    fn the_headroom_is_left_while_events_move() {
        let (mut headroom, now, size) = (Headroom::default(), Instant::now(), room(125, 4_000));
        assert_eq!(headroom.leave(room(1_000, 9_000), size, now), room(875, 5_000));
        assert_eq!(headroom.leave(room(125, 9_000), size, now), Room::default());
        assert_eq!(headroom.leave(room(126, 9_000), size, now + HEADROOM_LEFT_FOR), room(1, 5_000), "they moved");
        assert_eq!(headroom.leave(room(9, 9_000), size, now + HEADROOM_LEFT_FOR), Room::default());
    }

    #[test]
    fn the_headroom_is_filled_when_no_event_moves() {
        let (mut headroom, now, size) = (Headroom::default(), Instant::now(), room(125, 4_000));
        assert_eq!(headroom.leave(room(100, 3_000), size, now), Room::default());
        assert_eq!(headroom.leave(room(90, 3_000), size, now + HEADROOM_LEFT_FOR), room(90, 3_000));
        assert_eq!(headroom.leave(room(0, 0), size, now + HEADROOM_LEFT_FOR), Room::default());
    }

    #[test]
    fn where_nothing_waits_there_is_no_headroom() {
        let mut headroom = Headroom::default();
        assert_eq!(headroom.leave(room(1, 1), Room::default(), Instant::now()), room(1, 1));
    }
}
