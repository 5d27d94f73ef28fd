//! The free capacity for the events of a read.

use std::time::Duration;

use tokio::time::Instant;

use super::Intake;
use crate::queue::Room;

/// How long the headroom stays unused after the free capacity has shrunk to it.
const HEADROOM_LEFT_FOR: Duration = Duration::from_millis(100);

/// The last part of the capacity, in order by aggregate. If a key queue is full, its next event is blocked in the table, and so is every
/// later event of the aggregate. Each costs two more writes. So the headroom stays unused while events move. It is filled only when no
/// event moves: then slow aggregates have filled the rest, and events of quick ones may be behind theirs in the table.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    /// When the free capacity shrank to the headroom.
    reached_at: Option<Instant>,
}

impl Headroom {
    /// How much of the free capacity may be filled now, with this headroom.
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
    /// The free capacity for the events of the next read. `reserved` is the capacity for a read in progress.
    pub(crate) fn room_to_read(&mut self, reserved: Room) -> Room {
        let free = self.room(reserved);
        match &self.order {
            Some(order) if !order.is_one_for_all() => self.headroom.leave(free, order.key_queues().headroom(), Instant::now()),
            _ => free,
        }
    }

    /// The free capacity for events that wait in the queue or in key queues. `reserved` is the capacity for a read in progress.
    pub(crate) fn room(&self, reserved: Room) -> Room {
        let waiting = self.order.as_ref().map_or_else(Room::default, |order| order.key_queues().waiting());
        let free = free_room(self.queue.cold_room(), self.queue.free_bytes(), waiting.and(reserved));
        // A single queue advances one event at a time: it is refilled when half of it is free, not at each step.
        if self.is_one_queue() && (waiting.events > free.events || waiting.bytes > free.bytes) {
            return Room::default();
        }
        free
    }
}

/// The capacity that may be filled: that of the queue without `taken`, which the queue does not count, and at most `free_bytes`.
fn free_room(queue: Room, free_bytes: usize, taken: Room) -> Room {
    let left = queue.without(taken);
    let bytes = left.bytes.min(free_bytes);
    // A read with a limit of 0 bytes would return nothing, as if no event were due.
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
