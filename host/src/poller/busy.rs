//! Listeners that have as many events as they can take, and more in the table.

use std::sync::Arc;

use super::Poller;
use crate::event::Route;

/// Routes whose events are left in the table: read, each would go back with a write, again and again, and those of others would come
/// after them.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    /// The names of the places for which too many wait.
    places: Vec<Arc<str>>,
    routes: Vec<Route>,
}

impl Busy {
    /// Those that a read leaves out; for a relay of many routes that cannot be said.
    pub(super) fn routes(&self) -> &[Route] {
        &self.routes
    }

    pub(super) fn places(&self) -> &[Arc<str>] {
        &self.places
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl Poller {
    /// Looks which listeners are busy. What was left out for one that is so no more stands behind the cursor.
    pub(super) fn look_who_is_busy(&mut self) {
        // Where order is kept, an event that is left out would be waited for.
        let places = if self.order.is_none() { self.queue.crowded() } else { Vec::new() };
        if self.busy.places.iter().any(|before| !places.contains(before)) {
            self.cursor.begin_again();
        }
        let routes = self.listeners.routes_of_places(&places);
        self.busy = Busy { places, routes };
    }
}
