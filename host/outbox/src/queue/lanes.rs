//! Hot and cold events, each in their order. While there are both, two hot events are taken for each cold one.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::{Delivery, Room, Via};

/// An entry of a lane.
pub(super) trait Queued {
    fn delivery(&self) -> &Delivery;
}

impl Queued for Delivery {
    fn delivery(&self) -> &Delivery {
        self
    }
}

impl Queued for (Instant, Delivery) {
    fn delivery(&self) -> &Delivery {
        &self.1
    }
}

/// The hot and the cold lane.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    hot: Lane<T>,
    cold: Lane<T>,
    /// Counts the events taken while both lanes had some.
    turn: u8,
}

/// Events in their order, and the bytes that they take.
#[derive(Debug)]
pub(super) struct Lane<T> {
    entries: VecDeque<T>,
    bytes: usize,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self { hot: Lane::default(), cold: Lane::default(), turn: 0 }
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }
}

impl<T: Queued> Lanes<T> {
    pub(super) fn lane(&self, via: Via) -> &Lane<T> {
        match via {
            Via::Hot => &self.hot,
            Via::Cold => &self.cold,
        }
    }

    pub(super) fn lane_mut(&mut self, via: Via) -> &mut Lane<T> {
        match via {
            Via::Hot => &mut self.hot,
            Via::Cold => &mut self.cold,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hot.entries.is_empty() && self.cold.entries.is_empty()
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.hot.entries.is_empty() || self.cold.entries.is_empty() {
            return self.hot.pop().or_else(|| self.cold.pop());
        }
        let cold_turn = self.turn == 2;
        self.turn = if cold_turn { 0 } else { self.turn + 1 };
        if cold_turn { self.cold.pop() } else { self.hot.pop() }
    }
}

impl<T: Queued> Lane<T> {
    pub(super) fn push(&mut self, entry: T) {
        self.bytes += entry.delivery().event.size_bytes();
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.delivery().event.size_bytes();
        Some(entry)
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.entries.front()
    }

    /// The capacity that the events take.
    pub(super) fn taken(&self) -> Room {
        Room { events: self.entries.len(), bytes: self.bytes }
    }

    /// Takes out the events that `is_wanted` selects.
    pub(super) fn take_out(&mut self, is_wanted: &impl Fn(&Delivery) -> bool) -> Vec<T> {
        let all = std::mem::take(&mut self.entries).into_iter();
        let (taken, left): (Vec<_>, Vec<_>) = all.partition(|entry| is_wanted(entry.delivery()));
        self.entries = left.into();
        self.bytes -= taken.iter().map(|entry| entry.delivery().event.size_bytes()).sum::<usize>();
        taken
    }
}
