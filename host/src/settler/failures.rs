//! Says in the log that attempts failed and that events are dead. An endpoint that is away fails thousands of them, so there is one
//! warning for each route and kind of error in ten seconds, and twenty dead events; the others stand there at the level `debug`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
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

/// The most warnings of one route and kind in a while.
const WARNINGS: u32 = 1;
/// The most dead events of one route and kind that are told of in a while: each has a reader who looks for its id.
const DEAD: u32 = 20;

/// Which failed attempts and dead events were logged lately.
#[derive(Debug)]
pub(crate) struct FailureLog {
    attempts: Mutex<Routes>,
    dead: Mutex<Routes>,
}

#[derive(Debug, Default)]
struct Routes {
    /// The most lines of one route and kind in a while.
    most: u32,
    known: HashMap<Route, Kinds>,
    others: Said,
    unreadable: Said,
    swept: Reminder,
}

#[derive(Debug, Default)]
struct Kinds {
    known: Vec<(Box<str>, Said)>,
    others: Said,
}

/// The lines of one kind lately, and how many more there would have been since.
#[derive(Debug, Default)]
struct Said {
    reminder: Reminder,
    lines: u32,
    untold: u64,
}

/// Where an event died.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Died {
    /// Its listener was called for it.
    AfterCall,
    /// Its listener was not called for it this time.
    Uncalled,
}

impl Default for FailureLog {
    fn default() -> Self {
        let at_most = |most| Mutex::new(Routes { most, ..Routes::default() });
        Self { attempts: at_most(WARNINGS), dead: at_most(DEAD) }
    }
}

impl FailureLog {
    /// Says that an attempt failed and that its event is tried again after this delay.
    pub(super) fn tell(&self, event: &Event, error: &str, after: Duration) {
        let untold = lock(&self.attempts).tells(event.route(), error_kind(error), Instant::now());
        if untold.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (id, route, attempt) = (event.id(), event.route(), event.attempt());
        let (error, next_in_ms) = (keepable(error, MAX_ERROR), u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        match untold {
            Some(untold) => tracing::warn!(
                event.id = %id, route = %route, attempt, error, next_in_ms, left_out = left_out(untold),
                "an attempt failed; the event is tried again"
            ),
            None => tracing::debug!(
                event.id = %id, route = %route, attempt, error, next_in_ms, "an attempt failed; the event is tried again"
            ),
        }
    }

    /// Says that an event is dead.
    pub(crate) fn tell_dead(&self, event: &Event, error: &str, died: Died) {
        let untold = lock(&self.dead).tells(event.route(), error_kind(error), Instant::now());
        if untold.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (id, route, attempt, error) = (event.id(), event.route(), event.attempt(), keepable(error, MAX_ERROR));
        let message = match died {
            Died::AfterCall => "an event is dead",
            Died::Uncalled => "an event is dead before its listener was called",
        };
        match untold {
            Some(untold) => {
                tracing::error!(event.id = %id, route = %route, attempt, error, left_out = left_out(untold), "{message}");
            }
            None => tracing::debug!(event.id = %id, route = %route, attempt, error, "{message}"),
        }
    }

    /// Says that an event is dead of which no more than its number can be read.
    pub(crate) fn tell_unreadable(&self, sequence: u64, error: &str) {
        let error = keepable(error, MAX_ERROR);
        match lock(&self.dead).tells_unreadable(Instant::now()) {
            Some(untold) => tracing::error!(
                event.sequence = sequence,
                error,
                left_out = left_out(untold),
                "an event that cannot be read is dead"
            ),
            None => tracing::debug!(event.sequence = sequence, error, "an event that cannot be read is dead"),
        }
    }
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Routes {
    /// Whether this failure is told of, and then how many of its kind were not since the last one.
    fn tells(&mut self, route: &Route, kind: &str, now: Instant) -> Option<u64> {
        if let Some(kinds) = self.known.get_mut(route) {
            return kinds.tells(kind, self.most, now);
        }
        self.make_room(now);
        if self.known.len() >= MAX_ROUTES {
            return self.others.again(self.most, now);
        }
        self.known.entry(route.clone()).or_default().tells(kind, self.most, now)
    }

    /// The same of an event whose route is not known.
    fn tells_unreadable(&mut self, now: Instant) -> Option<u64> {
        self.unreadable.again(self.most, now)
    }

    /// Forgets what was said long ago, if there is no room; not at every failure, since that looks at everything.
    fn make_room(&mut self, now: Instant) {
        if self.known.len() >= MAX_ROUTES && self.swept.is_due(now) {
            self.known.retain(|_, kinds| kinds.make_room(now));
        }
    }
}

impl Kinds {
    fn tells(&mut self, kind: &str, most: u32, now: Instant) -> Option<u64> {
        if let Some((_, said)) = self.known.iter_mut().find(|(known, _)| **known == *kind) {
            return said.again(most, now);
        }
        if self.known.len() >= MAX_KINDS {
            self.make_room(now);
        }
        if self.known.len() >= MAX_KINDS {
            return self.others.again(most, now);
        }
        let mut said = Said::default();
        let untold = said.again(most, now);
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
    fn again(&mut self, most: u32, now: Instant) -> Option<u64> {
        if self.reminder.is_due(now) {
            self.lines = 0;
        }
        if self.lines >= most {
            self.untold += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

/// A field of the line: how many others of its kind were left out since the last one; none when there were none.
fn left_out(untold: u64) -> Option<u64> {
    (untold > 0).then_some(untold)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    fn warnings() -> Routes {
        Routes { most: WARNINGS, ..Routes::default() }
    }

    #[test]
    fn of_many_dead_events_some_are_told_by_their_ids_and_the_others_by_their_number() {
        let (mut routes, now) = (Routes { most: DEAD, ..Routes::default() }, Instant::now());

        let told = (0..10_000).filter(|_| routes.tells(&route(1), "no total", now) == Some(0)).count();

        assert_eq!(told, 20);
        assert_eq!(routes.tells(&route(2), "no total", now), Some(0), "another route is not kept out of the log");
        assert_eq!(routes.tells(&route(1), "no total", now + EVERY), Some(9_980));
        assert_eq!((0..100).filter(|_| routes.tells_unreadable(now).is_some()).count(), 20);
    }

    fn route(number: usize) -> Route {
        Route::new("Order", format!("Type{number}")).unwrap()
    }

    #[test]
    fn a_route_and_kind_of_error_is_warned_of_once_in_a_while_with_the_number_of_the_others() {
        let (mut routes, now) = (warnings(), Instant::now());

        let said = [0, 1, 9, 10, 11].map(|seconds| routes.tells(&route(1), "[http-500]", now + Duration::from_secs(seconds)));

        assert_eq!(said, [Some(0), None, None, Some(2), None]);
        assert_eq!(routes.tells(&route(1), "fuel", now), Some(0), "another kind");
        assert_eq!(routes.tells(&route(2), "[http-500]", now), Some(0), "another route");
    }

    #[test]
    fn a_listener_that_names_every_failure_otherwise_fills_neither_the_log_nor_the_memory_and_hides_no_other_route() {
        let (mut routes, now) = (warnings(), Instant::now());

        let warned = (0..1_000).filter(|number| routes.tells(&route(1), &format!("order {number}"), now).is_some()).count();

        assert_eq!(warned, MAX_KINDS + 1, "each kind that has room, and the others once");
        assert_eq!(routes.known[&route(1)].known.len(), MAX_KINDS);
        assert_eq!(routes.tells(&route(2), "order 1", now), Some(0));
        assert_eq!(routes.tells(&route(1), "order 1001", now + EVERY), Some(0), "what was said long ago makes room");
    }

    #[test]
    fn the_routes_that_are_told_apart_are_bounded() {
        let (mut routes, now) = (warnings(), Instant::now());

        let warned = (0..2 * MAX_ROUTES).filter(|number| routes.tells(&route(*number), "fuel", now).is_some()).count();

        assert_eq!((warned, routes.known.len()), (MAX_ROUTES + 1, MAX_ROUTES));
        assert_eq!(routes.tells(&route(MAX_ROUTES), "fuel", now + EVERY), Some(0));
        assert_eq!(routes.known.len(), 1, "those of long ago are forgotten");
    }
}
