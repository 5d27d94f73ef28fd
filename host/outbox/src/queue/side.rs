//! The hot or the cold side of the queue: its events, and the capacity that they take.

use std::collections::VecDeque;

use super::{Delivery, Room};

#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) deliveries: VecDeque<Delivery>,
    bytes: usize,
    /// Capacity that is reserved for later events.
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

    /// The capacity that events and reservations take.
    pub(super) fn taken(&self) -> Room {
        Room { events: self.deliveries.len() + self.reserved.events, bytes: self.bytes + self.reserved.bytes }
    }

    /// Whether one more event fits into this capacity. A single event larger than the whole capacity is still accepted: otherwise it would
    /// never be delivered.
    pub(super) fn has_room(&self, room: Room) -> bool {
        let taken = self.taken();
        taken.events < room.events && (taken.bytes < room.bytes || taken.events == 0)
    }

    pub(super) fn reserve(&mut self, bytes: usize) {
        self.reserved.events += 1;
        self.reserved.bytes += bytes;
    }
}
