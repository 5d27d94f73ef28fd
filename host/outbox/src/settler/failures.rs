//! Says in the log that attempts failed and that events are dead. An endpoint that is away fails thousands of them, so there is one
//! warning for each route and kind of error in ten seconds, and twenty dead events; the others stand there at the level `debug`, and
//! how many they were is said with the next line of their kind, or by one line of all kinds when no more come.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox_listener::Reminder;
use tokio::time::Instant;

use super::MAX_ERROR;
use crate::event::{Event, Route};
use crate::listener::{error_kind, is_unroutable};
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
/// How often to look for left-out lines that no later line of their kind has counted.
const LOOK_EVERY: Duration = Duration::from_secs(5);

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
    others: LineCount,
    /// All routes without a listener together: a writer can invent any number of them.
    unroutable: Kinds,
    unreadable: LineCount,
    swept: Reminder,
    /// Those of kinds that were forgotten to make room.
    left_out: LeftOut,
}

#[derive(Debug, Default)]
struct Kinds {
    known: Vec<(Box<str>, LineCount)>,
    others: LineCount,
}

/// The lines of one kind lately, and how many more there would have been since.
#[derive(Debug, Default)]
struct LineCount {
    reminder: Reminder,
    written: u32,
    left_out: u64,
}

/// Left-out lines that no later line of their kind has counted, and of how many routes and kinds they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    lines: u64,
    kinds: u64,
}

/// What had been done for an event when it died.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Died {
    /// The settler wrote that it is dead: its listener gave it up, or its route has none.
    Settled,
    /// Its listener was not called for it this time.
    Uncalled,
    /// The same, and its route has no listener.
    Unroutable,
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
        let left_out = lock(&self.attempts).should_log(event.route(), error_kind(error), Instant::now());
        if left_out.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (id, route, attempt) = (event.id(), event.route(), event.attempt());
        let (error, next_in_ms) = (keepable(error, MAX_ERROR), u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        match left_out {
            Some(left_out) => tracing::warn!(
                event.id = %id, route = %route, attempt, error, next_in_ms, left_out = unless_zero(left_out),
                "an attempt failed; the event is tried again"
            ),
            None => tracing::debug!(
                event.id = %id, route = %route, attempt, error, next_in_ms, "an attempt failed; the event is tried again"
            ),
        }
    }

    /// Says that an event is dead.
    pub(crate) fn log_dead_event(&self, event: &Event, error: &str, died: Died) {
        let left_out = {
            let (mut dead, now) = (lock(&self.dead), Instant::now());
            if has_no_listener(died, error) {
                dead.should_log_unroutable(error_kind(error), now)
            } else {
                dead.should_log(event.route(), error_kind(error), now)
            }
        };
        if left_out.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let (id, route, attempt, error) = (event.id(), event.route(), event.attempt(), keepable(error, MAX_ERROR));
        let message = match died {
            _ if is_unroutable(&error) => "an event is dead; its route has no listener",
            Died::Settled => "an event is dead",
            Died::Uncalled | Died::Unroutable => "an event is dead before its listener was called",
        };
        match left_out {
            Some(left_out) => {
                tracing::error!(event.id = %id, route = %route, attempt, error, left_out = unless_zero(left_out), "{message}");
            }
            None => tracing::debug!(event.id = %id, route = %route, attempt, error, "{message}"),
        }
    }

    /// Says that an event is dead of which no more than its number can be read.
    pub(crate) fn log_unreadable(&self, sequence: u64, error: &str) {
        let error = keepable(error, MAX_ERROR);
        match lock(&self.dead).should_log_unreadable(Instant::now()) {
            Some(left_out) => tracing::error!(
                event.sequence = sequence,
                error,
                left_out = unless_zero(left_out),
                "an event that cannot be read is dead"
            ),
            None => tracing::debug!(event.sequence = sequence, error, "an event that cannot be read is dead"),
        }
    }

    /// Logs, every [`LOOK_EVERY`], how many lines were left out of kinds that are quiet now. Never returns.
    pub(super) async fn log_left_out_from_time_to_time(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = Instant::now();
            self.log_left_out(|lines| !lines.reminder.is_fresh(now));
        }
    }

    /// Logs how many lines were left out that no line has counted yet.
    pub(super) fn log_all_left_out(&self) {
        self.log_left_out(|_| true);
    }

    fn log_left_out(&self, is_chosen: impl Fn(&LineCount) -> bool) {
        let attempts = lock(&self.attempts).take_left_out(&is_chosen);
        let dead = lock(&self.dead).take_left_out(&is_chosen);
        if attempts.lines > 0 {
            tracing::warn!(
                left_out = attempts.lines,
                kinds = attempts.kinds,
                "more attempts failed than are logged above the level debug"
            );
        }
        if dead.lines > 0 {
            tracing::error!(
                left_out = dead.lines,
                kinds = dead.kinds,
                "more events died than are logged above the level debug; `outbox dead list` shows them"
            );
        }
    }
}

/// Whether a dead event's route has no listener, whatever it died of: such routes share their lines, since anybody can invent them.
fn has_no_listener(died: Died, error: &str) -> bool {
    matches!(died, Died::Unroutable) || is_unroutable(error)
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Routes {
    /// Whether this failure is told of, and then how many of its kind were not since the last one.
    fn should_log(&mut self, route: &Route, kind: &str, now: Instant) -> Option<u64> {
        if let Some(kinds) = self.known.get_mut(route) {
            return kinds.should_log(kind, self.most, now, &mut self.left_out);
        }
        self.make_room(now);
        if self.known.len() >= MAX_ROUTES {
            return self.others.next_line(self.most, now);
        }
        self.known.entry(route.clone()).or_default().should_log(kind, self.most, now, &mut self.left_out)
    }

    /// The same of an event whose route has no listener.
    fn should_log_unroutable(&mut self, kind: &str, now: Instant) -> Option<u64> {
        self.unroutable.should_log(kind, self.most, now, &mut self.left_out)
    }

    /// The same of an event whose route is not known.
    fn should_log_unreadable(&mut self, now: Instant) -> Option<u64> {
        self.unreadable.next_line(self.most, now)
    }

    /// Forgets what was said long ago, if there is no room; not at every failure, since that looks at everything.
    fn make_room(&mut self, now: Instant) {
        if self.known.len() >= MAX_ROUTES && self.swept.is_due(now) {
            self.known.retain(|_, kinds| kinds.make_room(now, &mut self.left_out));
        }
    }

    /// The lines that were left out of the chosen kinds. From now on they count as told.
    fn take_left_out(&mut self, is_chosen: impl Fn(&LineCount) -> bool) -> LeftOut {
        let mut left_out = std::mem::take(&mut self.left_out);
        let of_kinds = self.known.values_mut().chain([&mut self.unroutable]).flat_map(Kinds::all);
        let lines = of_kinds.chain([&mut self.others, &mut self.unreadable]);
        lines.filter(|lines| is_chosen(lines)).for_each(|lines| left_out.take_from(lines));
        left_out
    }
}

impl Kinds {
    fn should_log(&mut self, kind: &str, most: u32, now: Instant, left_out: &mut LeftOut) -> Option<u64> {
        if let Some((_, lines)) = self.known.iter_mut().find(|(known, _)| **known == *kind) {
            return lines.next_line(most, now);
        }
        if self.known.len() >= MAX_KINDS {
            self.make_room(now, left_out);
        }
        if self.known.len() >= MAX_KINDS {
            return self.others.next_line(most, now);
        }
        let mut lines = LineCount::default();
        let first = lines.next_line(most, now);
        self.known.push((Box::from(kind), lines));
        first
    }

    fn all(&mut self) -> impl Iterator<Item = &mut LineCount> {
        self.known.iter_mut().map(|(_, lines)| lines).chain([&mut self.others])
    }

    /// Forgets the kinds that were last logged long ago, and keeps how many of their lines were left out. False when no kind is left.
    fn make_room(&mut self, now: Instant, left_out: &mut LeftOut) -> bool {
        for (_, mut lines) in self.known.extract_if(.., |(_, lines)| !lines.reminder.is_fresh(now)) {
            left_out.take_from(&mut lines);
        }
        let is_used = !self.known.is_empty() || self.others.reminder.is_fresh(now);
        if !is_used {
            left_out.take_from(&mut self.others);
        }
        is_used
    }
}

impl LineCount {
    /// Whether there is another line, and then how many were left out since the last one.
    fn next_line(&mut self, most: u32, now: Instant) -> Option<u64> {
        if self.reminder.is_due(now) {
            self.written = 0;
        }
        if self.written >= most {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl LeftOut {
    fn take_from(&mut self, lines: &mut LineCount) {
        let left_out = std::mem::take(&mut lines.left_out);
        self.lines += left_out;
        self.kinds += u64::from(left_out > 0);
    }
}

/// A field of the line: how many others of its kind were left out since the last one; none when there were none.
fn unless_zero(left_out: u64) -> Option<u64> {
    (left_out > 0).then_some(left_out)
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

        let told = (0..10_000).filter(|_| routes.should_log(&route(1), "no total", now) == Some(0)).count();

        assert_eq!(told, 20);
        assert_eq!(routes.should_log(&route(2), "no total", now), Some(0), "another route is not kept out of the log");
        assert_eq!(routes.should_log(&route(1), "no total", now + EVERY), Some(9_980));
        assert_eq!((0..100).filter(|_| routes.should_log_unreadable(now).is_some()).count(), 20);
    }

    fn route(number: usize) -> Route {
        Route::new("Order", format!("Type{number}")).unwrap()
    }

    #[test]
    fn a_route_and_kind_of_error_is_warned_of_once_in_a_while_with_the_number_of_the_others() {
        let (mut routes, now) = (warnings(), Instant::now());

        let said =
            [0, 1, 9, 10, 11].map(|seconds| routes.should_log(&route(1), "[http-500]", now + Duration::from_secs(seconds)));

        assert_eq!(said, [Some(0), None, None, Some(2), None]);
        assert_eq!(routes.should_log(&route(1), "fuel", now), Some(0), "another kind");
        assert_eq!(routes.should_log(&route(2), "[http-500]", now), Some(0), "another route");
    }

    #[test]
    fn a_listener_that_names_every_failure_otherwise_fills_neither_the_log_nor_the_memory_and_hides_no_other_route() {
        let (mut routes, now) = (warnings(), Instant::now());

        let warned =
            (0..1_000).filter(|number| routes.should_log(&route(1), &format!("order {number}"), now).is_some()).count();

        assert_eq!(warned, MAX_KINDS + 1, "each kind that has room, and the others once");
        assert_eq!(routes.known[&route(1)].known.len(), MAX_KINDS);
        assert_eq!(routes.should_log(&route(2), "order 1", now), Some(0));
        assert_eq!(routes.should_log(&route(1), "order 1001", now + EVERY), Some(0), "what was said long ago makes room");
    }

    #[test]
    fn the_routes_that_are_told_apart_are_bounded() {
        let (mut routes, now) = (warnings(), Instant::now());

        let warned = (0..2 * MAX_ROUTES).filter(|number| routes.should_log(&route(*number), "fuel", now).is_some()).count();

        assert_eq!((warned, routes.known.len()), (MAX_ROUTES + 1, MAX_ROUTES));
        assert_eq!(routes.should_log(&route(MAX_ROUTES), "fuel", now + EVERY), Some(0));
        assert_eq!(routes.known.len(), 1, "those of long ago are forgotten");
    }

    #[test]
    fn invented_routes_that_nobody_answers_keep_no_other_dead_event_out_of_the_log() {
        let (log, now) = (FailureLog::default(), Instant::now());

        let told =
            (0..2 * MAX_ROUTES).filter(|_| lock(&log.dead).should_log_unroutable("no listener answers", now).is_some()).count();

        assert_eq!((told, lock(&log.dead).known.len()), (20, 0));
        assert_eq!(lock(&log.dead).should_log(&route(1), "no total", now), Some(0));
        assert_eq!(lock(&log.dead).should_log_unroutable("it stopped its host", now), Some(0), "another kind");
        assert_eq!(lock(&log.dead).should_log_unroutable("no listener answers", now + EVERY), Some(2 * MAX_ROUTES as u64 - 20));
    }

    #[test]
    fn whatever_says_that_no_listener_answers_counts_as_unroutable() {
        assert!(has_no_listener(Died::Unroutable, "it expired") && has_no_listener(Died::Settled, "no listener answers A/B"));
        assert!(!has_no_listener(Died::Settled, "no total") && !has_no_listener(Died::Uncalled, "it expired"));
    }

    #[test]
    fn what_was_left_out_is_told_once_when_no_more_of_its_kind_come() {
        let (mut routes, now) = (warnings(), Instant::now());
        for number in [1, 1, 1, 2, 2, 3] {
            routes.should_log(&route(number), "fuel", now);
        }
        routes.should_log_unreadable(now + EVERY);
        routes.should_log_unreadable(now + EVERY);
        let later = now + EVERY;

        let old = |lines: &LineCount| !lines.reminder.is_fresh(later);
        assert_eq!(routes.take_left_out(old), LeftOut { lines: 3, kinds: 2 });
        assert_eq!(routes.take_left_out(old), LeftOut::default(), "once");
        assert_eq!(routes.should_log(&route(1), "fuel", later), Some(0), "they are told already");
        assert_eq!(routes.take_left_out(|_| true), LeftOut { lines: 1, kinds: 1 }, "at the end, whatever was said just now");
    }

    #[test]
    fn what_was_left_out_of_a_route_that_is_forgotten_is_told_all_the_same() {
        let (mut routes, now) = (warnings(), Instant::now());
        for number in 0..MAX_ROUTES {
            for kind in ["fuel", "fuel", "time"] {
                routes.should_log(&route(number), kind, now);
            }
        }

        routes.should_log(&route(MAX_ROUTES), "fuel", now + EVERY);

        assert_eq!(routes.known.len(), 1);
        assert_eq!(routes.take_left_out(|_| false), LeftOut { lines: MAX_ROUTES as u64, kinds: MAX_ROUTES as u64 });
    }
}
