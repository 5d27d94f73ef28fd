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
    /// Whether the last turn left their events out: a claim takes them.
    left_out: bool,
}

impl Busy {
    /// Their routes; a relay of many routes has none that could be named.
    pub(super) fn routes(&self) -> &[Route] {
        &self.routes
    }

    pub(super) fn places(&self) -> &[Arc<str>] {
        &self.places
    }

    /// Whether what the last turn took goes to listeners that have room for it.
    pub(super) fn are_left_out(&self) -> bool {
        self.left_out
    }

    /// Notes that what was taken by this turn goes to listeners that have room for it: a read left out the others.
    pub(super) fn were_left_out(&mut self) {
        self.left_out = !self.routes.is_empty();
    }

    /// Those that a read leaves out now.
    pub(super) fn leave_out(&mut self) -> Vec<Route> {
        self.were_left_out();
        self.routes.clone()
    }
}

impl Poller {
    /// Looks which listeners are busy: at each turn, or a poller that reads no more would take the end of a crowd for news for ever. What
    /// was left out for one that is so no more stands behind the cursor.
    pub(super) fn look_who_is_busy(&mut self) {
        // Where order is kept, an event that is left out would be waited for.
        let places = if self.order.is_none() { self.queue.crowded() } else { Vec::new() };
        if self.busy.places.iter().any(|before| !places.contains(before)) {
            self.cursor.begin_again();
        }
        let routes = self.listeners.routes_of_places(&places);
        self.busy = Busy { places, routes, left_out: false };
    }
}
