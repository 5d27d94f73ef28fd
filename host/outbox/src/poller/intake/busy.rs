//! Busy listeners: listeners whose call queues are full.

use std::sync::Arc;

use super::Intake;
use crate::event::Route;

/// The busy listeners. A read leaves their events in the table. Otherwise each event would be read and given back again and again, with a
/// write each time. The events of other listeners would be read after them.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// The names of their call slots.
    slots: Vec<Arc<str>>,
    routes: Vec<Route>,
    /// Whether the last turn skipped their events. A read skips them; a claim does not.
    left_out: bool,
}

impl Busy {
    /// Their routes, without the patterns of relays.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The names of their call slots.
    pub(crate) fn slots(&self) -> &[Arc<str>] {
        &self.slots
    }

    /// Whether the last turn took only events of listeners that are not busy.
    pub(crate) fn are_left_out(&self) -> bool {
        self.left_out
    }

    /// Notes that the read of this turn skipped the events of these listeners.
    pub(crate) fn were_left_out(&mut self) {
        self.left_out = !self.routes.is_empty();
    }

    /// The routes whose events the next read must skip.
    pub(crate) fn leave_out(&mut self) -> Vec<Route> {
        self.were_left_out();
        self.routes.clone()
    }
}

impl Intake {
    /// Updates the busy listeners. Called in each turn, even if nothing is read: otherwise a listener that is no longer busy would end
    /// every later rest at once. Returns whether a listener is no longer busy: its events are before the cursor.
    pub(crate) fn note_busy_listeners(&mut self) -> bool {
        // In the ordered modes no event is skipped: others would wait for it.
        let slots = if self.order.is_none() { self.queue.busy() } else { Vec::new() };
        let has_ceased = self.busy.slots.iter().any(|before| !slots.contains(before));
        let routes = self.listeners.routes_sharing(&slots);
        self.busy = Busy { slots, routes, left_out: false };
        has_ceased
    }
}
