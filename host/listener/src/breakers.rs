//! The circuit breakers of one listener. A relay whose pattern covers many routes has one for each route.
//!
//! The writers of events choose their routes. If the routes of a pattern were paused together, a few events that a sink cannot take would
//! keep all others from it.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use super::{Breaker, BreakerConfig, BreakerPause};
use outbox_event::Route;

/// The most routes of a pattern that have a breaker of their own.
const MOST_ROUTES: usize = 1_000;

#[derive(Debug)]
pub(super) enum Breakers {
    One(Breaker),
    ByRoute { config: BreakerConfig, routes: Mutex<HashMap<Route, Arc<Breaker>, foldhash::fast::RandomState>> },
}

impl Breakers {
    /// The breakers of a listener for this route or pattern.
    pub(super) fn new(route: &Route, config: BreakerConfig) -> Self {
        if route.is_pattern() { Self::ByRoute { config, routes: Mutex::default() } } else { Self::One(Breaker::new(config)) }
    }

    /// The breaker for the events of this route.
    pub(super) fn of(&self, route: &Route, now: Instant) -> BreakerOf<'_> {
        let (config, routes) = match self {
            Self::One(breaker) => return BreakerOf::One(breaker),
            Self::ByRoute { config, routes } => (config, routes),
        };
        let mut routes = routes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(breaker) = routes.get(route) {
            return BreakerOf::ByRoute(breaker.clone());
        }
        if routes.len() >= MOST_ROUTES {
            routes.retain(|_, breaker| breaker.is_open(now));
            // If nearly all of them stayed, the next routes would soon scan all of them again.
            if routes.len() > MOST_ROUTES / 2 {
                routes.clear();
            }
        }
        BreakerOf::ByRoute(routes.entry(route.clone()).or_insert_with(|| Arc::new(Breaker::new(*config))).clone())
    }

    /// The open breakers, by route. `own` is the route or pattern of the listener.
    pub(super) fn open(&self, own: &Route) -> Vec<(Route, BreakerPause)> {
        match self {
            Self::One(breaker) => breaker.open().map(|pause| (own.clone(), pause)).into_iter().collect(),
            Self::ByRoute { routes, .. } => {
                let routes = routes.lock().unwrap_or_else(PoisonError::into_inner);
                routes.iter().filter_map(|(route, breaker)| Some((route.clone(), breaker.open()?))).collect()
            }
        }
    }
}

/// A breaker. The breaker of a pattern's route may be forgotten while it is in use.
#[doc(hidden)] // for the host
pub enum BreakerOf<'b> {
    One(&'b Breaker),
    ByRoute(Arc<Breaker>),
}

impl Deref for BreakerOf<'_> {
    type Target = Breaker;

    fn deref(&self) -> &Breaker {
        match self {
            Self::One(breaker) => breaker,
            Self::ByRoute(breaker) => breaker,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(event_type: &str) -> Route {
        Route::new("Order", event_type).expect("valid")
    }

    fn broken(breakers: &Breakers, route: &Route, now: Instant) {
        for _ in 0..10 {
            let _ = breakers.of(route, now).admit(now).expect("closed").record(true, now);
        }
    }

    #[test]
    fn a_route_that_breaks_pauses_no_other_of_its_pattern() {
        let now = Instant::now();
        let breakers = Breakers::new(&route("*"), BreakerConfig::default());
        broken(&breakers, &route("Bad"), now);
        assert!(breakers.of(&route("Bad"), now).is_open(now));
        assert!(!breakers.of(&route("Good"), now).is_open(now));
        let open: Vec<Route> = breakers.open(&route("*")).into_iter().map(|(route, _)| route).collect();
        assert_eq!(open, [route("Bad")]);
    }

    #[test]
    fn the_routes_of_an_exact_listener_share_its_breaker() {
        let now = Instant::now();
        let breakers = Breakers::new(&route("Paid"), BreakerConfig::default());
        broken(&breakers, &route("Paid"), now);
        assert!(breakers.of(&route("Paid"), now).is_open(now));
    }

    #[test]
    fn invented_routes_take_a_bounded_room_and_a_paused_route_stays_paused_among_them() {
        let now = Instant::now();
        let breakers = Breakers::new(&route("*"), BreakerConfig::default());
        let Breakers::ByRoute { routes, .. } = &breakers else { panic!("it is a pattern") };
        let known = || routes.lock().expect("nobody panicked").len();
        broken(&breakers, &route("Bad"), now);
        for number in 0..3 * MOST_ROUTES {
            let _ = breakers.of(&route(&format!("Invented{number}")), now);
            assert!(known() <= MOST_ROUTES);
        }
        assert!(breakers.of(&route("Bad"), now).is_open(now));
        // Each of these routes breaks: other routes are not paused for that, whatever is forgotten.
        for number in 0..3 * MOST_ROUTES {
            broken(&breakers, &route(&format!("Broken{number}")), now);
            assert!(known() <= MOST_ROUTES);
        }
        assert!(!breakers.of(&route("Good"), now).is_open(now));
    }
}
