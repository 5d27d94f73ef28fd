//! Says in the log that attempts failed. An endpoint that is away fails thousands of them, so there is one warning for each
//! route and kind of error in ten seconds; the other failures stand there at the level `debug`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::MAX_ERROR;
use crate::event::{Event, Route};
use crate::listener::error_kind;
use crate::reminder::Reminder;
use crate::text::keepable;

/// The most routes that are told apart. The failures of all others count as of one kind.
const MAX_ROUTES: usize = 1_024;
/// The most kinds of errors that are told apart for one route: a listener may write a number into each. The others count as one
/// kind, and no route keeps another's failures out of the log.
const MAX_KINDS: usize = 8;

/// Which failed attempts were logged lately.
#[derive(Debug, Default)]
pub(super) struct FailureLog(Mutex<Routes>);

#[derive(Debug, Default)]
struct Routes {
    known: HashMap<Route, Kinds>,
    others: Said,
    swept: Reminder,
}

#[derive(Debug, Default)]
struct Kinds {
    known: Vec<(Box<str>, Said)>,
    others: Said,
}

/// A warning, and how many more failures it would have told of since.
#[derive(Debug, Default)]
struct Said {
    reminder: Reminder,
    untold: u64,
}

/// How many failures of the same kind were not told of as warnings.
struct Untold(u64);

impl FailureLog {
    /// Says that an attempt failed and that its event is tried again after this delay.
    pub(super) fn tell(&self, event: &Event, error: &str, after: Duration) {
        let untold = {
            let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            routes.warn(event.route(), error_kind(error), Instant::now())
        };
        if untold.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (id, route, attempt) = (event.id(), event.route(), event.attempt());
        let (error, next_in_ms) = (keepable(error, MAX_ERROR), u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        match untold.map(Untold) {
            Some(untold) => tracing::warn!(
                event.id = %id, route = %route, attempt, error, next_in_ms, "an attempt failed; the event is tried again{untold}"
            ),
            None => tracing::debug!(
                event.id = %id, route = %route, attempt, error, next_in_ms, "an attempt failed; the event is tried again"
            ),
        }
    }
}

impl Routes {
    /// Whether this failure is worth a warning, and then how many of its kind were worth none since the last one.
    fn warn(&mut self, route: &Route, kind: &str, now: Instant) -> Option<u64> {
        if let Some(kinds) = self.known.get_mut(route) {
            return kinds.warn(kind, now);
        }
        self.make_room(now);
        if self.known.len() >= MAX_ROUTES {
            return self.others.again(now);
        }
        self.known.entry(route.clone()).or_default().warn(kind, now)
    }

    /// Forgets what was said long ago, if there is no room; not at every failure, since that looks at everything.
    fn make_room(&mut self, now: Instant) {
        if self.known.len() >= MAX_ROUTES && self.swept.is_due(now) {
            self.known.retain(|_, kinds| kinds.make_room(now));
        }
    }
}

impl Kinds {
    fn warn(&mut self, kind: &str, now: Instant) -> Option<u64> {
        if let Some((_, said)) = self.known.iter_mut().find(|(known, _)| **known == *kind) {
            return said.again(now);
        }
        if self.known.len() >= MAX_KINDS {
            self.make_room(now);
        }
        if self.known.len() >= MAX_KINDS {
            return self.others.again(now);
        }
        let mut said = Said::default();
        let untold = said.again(now);
        self.known.push((Box::from(kind), said));
        untold
    }

    /// Forgets what was said long ago. False when nothing is left.
    fn make_room(&mut self, now: Instant) -> bool {
        self.known.retain(|(_, said)| said.reminder.is_fresh(now));
        !self.known.is_empty() || self.others.reminder.is_fresh(now)
    }
}

impl Said {
    fn again(&mut self, now: Instant) -> Option<u64> {
        if self.reminder.is_due(now) {
            return Some(std::mem::take(&mut self.untold));
        }
        self.untold += 1;
        None
    }
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str("; so was 1 other since the last warning of this kind"),
            more => write!(f, "; so were {more} others since the last warning of this kind"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn route(number: usize) -> Route {
        Route::new("Order", format!("Type{number}")).unwrap()
    }

    #[test]
    fn a_route_and_kind_of_error_is_warned_of_once_in_a_while_with_the_number_of_the_others() {
        let (mut routes, now) = (Routes::default(), Instant::now());

        let said = [0, 1, 9, 10, 11].map(|seconds| routes.warn(&route(1), "[http-500]", now + Duration::from_secs(seconds)));

        assert_eq!(said, [Some(0), None, None, Some(2), None]);
        assert_eq!(routes.warn(&route(1), "fuel", now), Some(0), "another kind");
        assert_eq!(routes.warn(&route(2), "[http-500]", now), Some(0), "another route");
    }

    #[test]
    fn a_listener_that_names_every_failure_otherwise_fills_neither_the_log_nor_the_memory_and_hides_no_other_route() {
        let (mut routes, now) = (Routes::default(), Instant::now());

        let warned = (0..1_000).filter(|number| routes.warn(&route(1), &format!("order {number}"), now).is_some()).count();

        assert_eq!(warned, MAX_KINDS + 1, "each kind that has room, and the others once");
        assert_eq!(routes.known[&route(1)].known.len(), MAX_KINDS);
        assert_eq!(routes.warn(&route(2), "order 1", now), Some(0));
        assert_eq!(routes.warn(&route(1), "order 1001", now + EVERY), Some(0), "what was said long ago makes room");
    }

    #[test]
    fn the_routes_that_are_told_apart_are_bounded() {
        let (mut routes, now) = (Routes::default(), Instant::now());

        let warned = (0..2 * MAX_ROUTES).filter(|number| routes.warn(&route(*number), "fuel", now).is_some()).count();

        assert_eq!((warned, routes.known.len()), (MAX_ROUTES + 1, MAX_ROUTES));
        assert_eq!(routes.warn(&route(MAX_ROUTES), "fuel", now + EVERY), Some(0));
        assert_eq!(routes.known.len(), 1, "those of long ago are forgotten");
    }
}
