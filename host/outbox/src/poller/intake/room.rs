//! Room for the events that are read.

use std::time::Duration;

use tokio::time::Instant;

use super::Intake;
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

impl Intake {
    /// Room for the events that are read now. `reserved` is the room for a read that is under way.
    pub(crate) fn room_to_read(&mut self, reserved: Room) -> Room {
        let free = self.room(reserved);
        match &self.order {
            Some(order) if !order.is_one_for_all() => self.headroom.leave(free, order.key_queues().headroom(), Instant::now()),
            _ => free,
        }
    }

    /// Room for events that wait in the queue or in key queues. `reserved` is the room for a read that is under way.
    pub(crate) fn room(&self, reserved: Room) -> Room {
        let waiting = self.order.as_ref().map_or_else(Room::default, |order| order.key_queues().waiting());
        let free = free_room(self.queue.cold_room(), self.queue.free_bytes(), waiting.and(reserved));
        // A single queue moves one by one: it is filled up when half of it is free, not at each step.
        if self.is_one_queue() && (waiting.events > free.events || waiting.bytes > free.bytes) {
            return Room::default();
        }
        free
    }
}

/// What may be filled of the queue's room, where so many bytes are free in all and so much is taken by what the queue does not know of.
fn free_room(queue: Room, free_bytes: usize, taken: Room) -> Room {
    let left = queue.without(taken);
    let bytes = left.bytes.min(free_bytes);
    // A read without room for a byte would bring nothing, and look like one that brought all.
    if bytes == 0 { Room::default() } else { Room { bytes, ..left } }
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
    fn what_waits_elsewhere_or_is_being_read_takes_its_part_of_the_room() {
        let taken = room(20, 1_000).and(room(25, 2_000));
        assert_eq!(free_room(room(100, 9_000), 9_000, taken), room(55, 6_000));
        assert_eq!(free_room(room(100, 9_000), 500, taken), room(55, 500), "hot events take bytes too");
        assert_eq!(free_room(room(40, 9_000), 9_000, taken).events, 0);
    }

    #[test]
    fn room_without_a_byte_is_no_room() {
        assert_eq!(free_room(room(100, 0), 9_000, Room::default()), Room::default());
        assert_eq!(free_room(room(100, 9_000), 0, Room::default()), Room::default());
        assert_eq!(free_room(room(100, 3_000), 9_000, room(1, 3_000)), Room::default());
    }

    #[test]
    fn where_nothing_waits_there_is_no_headroom() {
        let mut headroom = Headroom::default();
        assert_eq!(headroom.leave(room(1, 1), Room::default(), Instant::now()), room(1, 1));
    }
}
