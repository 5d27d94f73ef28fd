//! Where routes stand: what holds them, and how many of their events are where. Pure; API and pages mean the same by a state.

use outbox::why::Pauses;
use outbox_event::Route;
use outbox_store::RouteRecord;

/// What routes are filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteState {
    Parked,
    Dead,
    Blocked,
    Paused,
    Waiting,
    NoListener,
}

impl RouteState {
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
pub(super) struct RouteCounts {
    pub(super) waiting: u64,
    pub(super) parked: u64,
    pub(super) blocked: u64,
    pub(super) dead: u64,
}

impl RouteCounts {
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
    pub(super) events: RouteCounts,
    /// The pauses that hold it, the most exact one first.
    pub(super) held: Vec<&'a RouteRecord>,
    /// Whether any host ever had a listener for it, or a relay whose pattern covers it.
    pub(super) had_listener: bool,
}

impl<'a> Standing<'a> {
    /// One for each route that is known, in their order.
    pub(super) fn all(routes: &'a [RouteRecord]) -> impl Iterator<Item = Self> {
        let pauses = Pauses::of(routes);
        let is_relay = |known: &&RouteRecord| known.route.is_pattern() && known.first_seen_at.is_some();
        let relays: Vec<&Route> = routes.iter().filter(is_relay).map(|known| &known.route).collect();
        routes.iter().map(move |known| Self {
            known,
            had_listener: known.first_seen_at.is_some() || relays.iter().any(|relay| relay.covers(&known.route)),
            events: if known.route.is_pattern() { RouteCounts::of(&known.route, routes) } else { RouteCounts::alone(known) },
            held: pauses.holding(&known.route).collect(),
        })
    }

    pub(super) fn is(&self, state: RouteState) -> bool {
        match state {
            RouteState::Parked => self.events.parked > 0,
            RouteState::Dead => self.events.dead > 0,
            RouteState::Blocked => self.events.blocked > 0,
            RouteState::Paused => !self.held.is_empty(),
            RouteState::Waiting => self.events.waiting > 0,
            // Events that are parked without a pause found no listener on any host.
            RouteState::NoListener => {
                let is_unanswered = !self.had_listener || self.events.parked > 0 && self.held.is_empty();
                is_unanswered && !self.known.route.is_pattern()
            }
        }
    }

    /// Smaller is more urgent.
    pub(super) fn urgency(&self) -> usize {
        RouteState::ALL.iter().take(RouteState::URGENT).position(|state| self.is(*state)).unwrap_or(RouteState::URGENT)
    }
}

#[cfg(test)]
mod tests {
    use outbox_event::time::Timestamp;

    use super::*;

    fn route(aggregate: &str, event: &str) -> RouteRecord {
        let first_seen_at = Some(Timestamp::from_micros(0));
        changed!(RouteRecord { first_seen_at, ..RouteRecord::new(Route::new(aggregate, event).expect("valid")) })
    }

    #[test]
    fn a_pattern_counts_the_events_of_the_routes_that_it_covers() {
        let routes = [
            route("Order", "*"),
            changed!(RouteRecord { parked: 3, waiting: 1, ..route("Order", "Paid") }),
            changed!(RouteRecord { parked: 2, ..route("Order", "Placed") }),
            changed!(RouteRecord { waiting: 7, ..route("Invoice", "Sent") }),
        ];
        let events: Vec<RouteCounts> = Standing::all(&routes).map(|standing| standing.events).collect();
        assert_eq!(events[0], RouteCounts { waiting: 1, parked: 5, ..RouteCounts::default() });
        assert_eq!(events[1], RouteCounts { waiting: 1, parked: 3, ..RouteCounts::default() });
        assert_eq!(events[3], RouteCounts { waiting: 7, ..RouteCounts::default() });
    }

    #[test]
    fn a_route_has_no_listener_when_it_never_had_one_or_its_events_are_parked_without_a_pause() {
        let never = |known: RouteRecord| changed!(RouteRecord { first_seen_at: None, ..known });
        let paused = |known: RouteRecord| changed!(RouteRecord { paused_at: Some(Timestamp::from_micros(0)), ..known });
        let routes = [
            (never(route("A", "Unknown")), true),
            (never(paused(route("B", "UnknownAndPaused"))), true),
            (changed!(RouteRecord { parked: 1, ..route("C", "Parked") }), true),
            (changed!(RouteRecord { parked: 1, ..paused(route("D", "ParkedByItsPause")) }), false),
            (route("E", "Idle"), false),
            (never(paused(route("F", "*"))), false),
            (route("G", "*"), false),
            (never(route("G", "Relayed")), false),
            (changed!(RouteRecord { parked: 1, ..never(route("G", "Parked")) }), true),
            (never(route("F", "Unknown")), true),
        ];
        let known: Vec<RouteRecord> = routes.iter().map(|(known, _)| known.clone()).collect();
        for (standing, (_, wanted)) in Standing::all(&known).zip(&routes) {
            assert_eq!(standing.is(RouteState::NoListener), *wanted, "{}", standing.known.route);
        }
    }
}
