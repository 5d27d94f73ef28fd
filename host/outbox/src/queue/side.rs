//! The hot or the cold side of the queue: its events, and the room that they take.

use std::collections::VecDeque;

use super::{Delivery, Room};

#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Room that is kept for events to come.
    pub(super) reserved: Room,
}

impl Side {
    pub(super) fn push(&mut self, delivery: Delivery) {
        self.bytes += delivery.event.size_bytes();
        self.deliveries.push_back(delivery);
    }

    pub(super) fn pop(&mut self) -> Option<Delivery> {
        let delivery = self.deliveries.pop_front()?;
        self.bytes -= delivery.event.size_bytes();
        Some(delivery)
    }

    pub(super) fn take_out(&mut self, is_wanted: &impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deliveries).into_iter().partition(is_wanted);
        self.deliveries = left.into();
        self.bytes -= taken.iter().map(|delivery| delivery.event.size_bytes()).sum::<usize>();
        taken
    }

    /// How much room is taken here, by events and for events to come.
    pub(super) fn taken(&self) -> Room {
        Room { events: self.deliveries.len() + self.reserved.events, bytes: self.bytes + self.reserved.bytes }
    }

    /// Whether one more event gets in where there is so much room. A single event larger than all of the room still gets in:
    /// otherwise it never would.
    pub(super) fn has_room(&self, room: Room) -> bool {
        let taken = self.taken();
        taken.events < room.events && (taken.bytes < room.bytes || taken.events == 0)
    }

    pub(super) fn reserve(&mut self, bytes: usize) {
        self.reserved.events += 1;
        self.reserved.bytes += bytes;
    }
}
