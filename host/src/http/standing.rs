//! Where routes stand: what holds them, and how many of their events are where. Pure; API and pages mean the same by a state.

use crate::event::Route;
use crate::store::RouteRecord;
use crate::why::Pauses;

/// What routes are filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Parked,
    Dead,
    Blocked,
    Paused,
    Waiting,
    NoListener,
}

impl State {
    /// The most urgent first.
    pub(super) const ALL: [Self; 6] = [Self::Parked, Self::Dead, Self::Blocked, Self::Paused, Self::Waiting, Self::NoListener];
    /// How many of [`ALL`](Self::ALL) need somebody.
    const URGENT: usize = 4;

    /// As it stands in an address.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
            Self::Waiting => "waiting",
            Self::NoListener => "no_listener",
        }
    }

    /// The state that an address names.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// How many events of a route, or of all routes that a pattern covers, stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) waiting: u64,
    pub(super) parked: u64,
    pub(super) blocked: u64,
    pub(super) dead: u64,
}

impl Counts {
    pub(super) fn of(route: &Route, routes: &[RouteRecord]) -> Self {
        let covered = routes.iter().filter(|known| route.covers(&known.route));
        covered.fold(Self::default(), |sum, known| Self {
            waiting: sum.waiting + known.waiting,
            parked: sum.parked + known.parked,
            blocked: sum.blocked + known.blocked,
            dead: sum.dead + known.dead,
        })
    }

    /// Those of a route that is no pattern.
    fn alone(known: &RouteRecord) -> Self {
        let RouteRecord { waiting, parked, blocked, dead, .. } = *known;
        Self { waiting, parked, blocked, dead }
    }
}

/// A route, and where it stands.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    pub(super) known: &'a RouteRecord,
    /// Its events; of a pattern, those of all routes that it covers.
    pub(super) events: Counts,
    /// The pauses that hold it, the most exact one first.
    pub(super) held: Vec<&'a RouteRecord>,
}

impl<'a> Standing<'a> {
    /// One for each route that is known, in their order.
    pub(super) fn all(routes: &'a [RouteRecord]) -> impl Iterator<Item = Self> {
        let pauses = Pauses::of(routes);
        routes.iter().map(move |known| Self {
            known,
            events: if known.route.is_pattern() { Counts::of(&known.route, routes) } else { Counts::alone(known) },
            held: pauses.holding(&known.route).collect(),
        })
    }

    pub(super) fn is(&self, state: State) -> bool {
        match state {
            State::Parked => self.events.parked > 0,
            State::Dead => self.events.dead > 0,
            State::Blocked => self.events.blocked > 0,
            State::Paused => !self.held.is_empty(),
            State::Waiting => self.events.waiting > 0,
            // Events that are parked without a pause found no listener on any host.
            State::NoListener => {
                let never_had_one = self.known.first_seen_at.is_none();
                !self.known.route.is_pattern() && (never_had_one || self.events.parked > 0 && self.held.is_empty())
            }
        }
    }

    /// Smaller is more urgent.
    pub(super) fn urgency(&self) -> usize {
        State::ALL.iter().take(State::URGENT).position(|state| self.is(*state)).unwrap_or(State::URGENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn route(aggregate: &str, event: &str) -> RouteRecord {
        let first_seen_at = Some(Timestamp::from_micros(0));
        RouteRecord { first_seen_at, ..RouteRecord::new(Route::new(aggregate, event).expect("valid")) }
    }

    #[test]
    fn a_pattern_counts_the_events_of_the_routes_that_it_covers() {
        let routes = [
            route("Order", "*"),
            RouteRecord { parked: 3, waiting: 1, ..route("Order", "Paid") },
            RouteRecord { parked: 2, ..route("Order", "Placed") },
            RouteRecord { waiting: 7, ..route("Invoice", "Sent") },
        ];
        let events: Vec<Counts> = Standing::all(&routes).map(|standing| standing.events).collect();
        assert_eq!(events[0], Counts { waiting: 1, parked: 5, ..Counts::default() });
        assert_eq!(events[1], Counts { waiting: 1, parked: 3, ..Counts::default() });
        assert_eq!(events[3], Counts { waiting: 7, ..Counts::default() });
    }

    #[test]
    fn a_route_has_no_listener_when_it_never_had_one_or_its_events_are_parked_without_a_pause() {
        let never = |known: RouteRecord| RouteRecord { first_seen_at: None, ..known };
        let paused = |known: RouteRecord| RouteRecord { paused_at: Some(Timestamp::from_micros(0)), ..known };
        let routes = [
            (never(route("A", "Unknown")), true),
            (never(paused(route("B", "UnknownAndPaused"))), true),
            (RouteRecord { parked: 1, ..route("C", "Parked") }, true),
            (RouteRecord { parked: 1, ..paused(route("D", "ParkedByItsPause")) }, false),
            (route("E", "Idle"), false),
            (never(paused(route("F", "*"))), false),
        ];
        let known: Vec<RouteRecord> = routes.iter().map(|(known, _)| known.clone()).collect();
        for (standing, (_, wanted)) in Standing::all(&known).zip(&routes) {
            assert_eq!(standing.is(State::NoListener), *wanted, "{}", standing.known.route);
        }
    }
}
