//! Busy listeners: as many events wait for them as may.

use std::sync::Arc;

use super::Intake;
use crate::event::Route;

/// The busy listeners, whose events are left in the table: read, each would go back with a write, again and again, and the events
/// of other listeners would be read after them.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// The names of their call slots.
    slots: Vec<Arc<str>>,
    routes: Vec<Route>,
    /// Whether the last turn left their events out: a read does, a claim takes them.
    left_out: bool,
}

impl Busy {
    /// Their routes; a relay of many routes has none that could be named.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The names of their call slots.
    pub(crate) fn slots(&self) -> &[Arc<str>] {
        &self.slots
    }

    /// Whether the last turn took events only of listeners that are not busy.
    pub(crate) fn are_left_out(&self) -> bool {
        self.left_out
    }

    /// Notes that this turn took no events of these listeners: its read left them out.
    pub(crate) fn were_left_out(&mut self) {
        self.left_out = !self.routes.is_empty();
    }

    /// The routes whose events a read leaves out now.
    pub(crate) fn leave_out(&mut self) -> Vec<Route> {
        self.were_left_out();
        self.routes.clone()
    }
}

impl Intake {
    /// Notes which listeners are busy; at each turn, also when nothing is read: otherwise every later rest would end at once, for a
    /// listener that has long ceased to be busy. Returns whether a listener has ceased to be busy: its events are before the cursor.
    pub(crate) fn note_busy_listeners(&mut self) -> bool {
        // Where order is kept, no event is left out: others would wait for it.
        let slots = if self.order.is_none() { self.queue.busy() } else { Vec::new() };
        let has_ceased = self.busy.slots.iter().any(|before| !slots.contains(before));
        let routes = self.listeners.routes_sharing(&slots);
        self.busy = Busy { slots, routes, left_out: false };
        has_ceased
    }
}
