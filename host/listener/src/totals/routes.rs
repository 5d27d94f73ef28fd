//! The results of the events of each route.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outbox_event::time::system_clock;
use outbox_event::{Event, Route, Settlement};

use super::{Counter, Histogram};

/// The totals of the routes. A route keeps its totals when it gets another listener.
#[derive(Debug)]
pub struct Routes {
    known: Mutex<HashMap<Route, Known>>,
    /// The totals of the routes without separate totals, and of events that no listener answers.
    other: Arc<RouteTotals>,
    most: usize,
}

/// A route that has separate totals.
#[derive(Debug, Default)]
struct Known {
    totals: Arc<RouteTotals>,
    /// Whether it had an event. If not, a route that has one may take its place.
    is_used: bool,
}

/// The results of the events of one route since the host started.
#[derive(Debug)]
pub struct RouteTotals {
    /// Attempts that succeeded.
    pub success: Counter,
    /// Attempts that failed and are tried again.
    pub failure: Counter,
    /// Events given up.
    pub dead: Counter,
    /// Attempts that the listener deferred.
    pub deferred: Counter,
    /// The durations of attempts, from the call of the listener to its answer. Each event of a call for several events counts the whole
    /// call.
    pub duration: Histogram,
    /// The lags of successful events: from when they could be delivered to the end of their last attempt.
    pub lag: Histogram,
}

impl Default for Routes {
    fn default() -> Self {
        Self::new(Self::DEFAULT_MOST)
    }
}

impl Default for RouteTotals {
    fn default() -> Self {
        Self {
            success: Counter::default(),
            failure: Counter::default(),
            dead: Counter::default(),
            deferred: Counter::default(),
            duration: Histogram::of_attempts(),
            lag: Histogram::of_lags(),
        }
    }
}

impl Routes {
    /// The name under which the routes without separate totals are counted, in both halves of the route.
    pub const OTHER: &'static str = "other";

    /// How many routes have separate totals by default.
    #[doc(hidden)] // for the host
    pub const DEFAULT_MOST: usize = 100;

    /// Keeps separate totals for this many routes: the first that have events.
    #[doc(hidden)] // for the host
    pub fn new(most: usize) -> Self {
        Self { known: Mutex::default(), other: Arc::default(), most }
    }

    /// Shows the totals of a route, all 0, from its registration on: Prometheus sees no increase in a counter that begins at 1. Does
    /// nothing if the capacity is used up. A route that has events takes precedence over one without.
    #[doc(hidden)] // for the host
    pub fn announce(&self, route: &Route) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_other(route) && known.len() < self.most && !known.contains_key(route) {
            known.insert(route.clone(), Known::default());
        }
    }

    /// The totals of a route that has an event: separate ones while there is capacity, or else those of all other routes.
    #[doc(hidden)] // for the host
    pub fn of(&self, route: &Route) -> Arc<RouteTotals> {
        if is_other(route) {
            return self.other.clone();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.most && !known.contains_key(route) {
            let unused = known.iter().find(|(_, known)| !known.is_used).map(|(route, _)| route.clone());
            let Some(unused) = unused else { return self.other.clone() };
            known.remove(&unused);
        }
        let known = known.entry(route.clone()).or_default();
        known.is_used = true;
        known.totals.clone()
    }

    /// One of the totals, of all routes together.
    #[doc(hidden)] // for the host
    pub fn sum(&self, counter: fn(&RouteTotals) -> &Counter) -> u64 {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|known| &known.totals).chain([&self.other]).map(|totals| counter(totals).get()).sum()
    }

    /// The totals of the routes without separate totals, and of events that no listener answers.
    #[must_use]
    pub fn other(&self) -> &Arc<RouteTotals> {
        &self.other
    }

    /// The lags of all routes together.
    #[doc(hidden)] // for the host
    pub fn lags(&self) -> super::Lags {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lags = super::Lags::default();
        known.values().map(|known| &known.totals).chain([&self.other]).for_each(|totals| lags.add(&totals.lag));
        lags
    }

    /// The separate totals by route, sorted. A relay's route is the pattern that it answers.
    #[must_use]
    pub fn totals(&self) -> Vec<(Route, Arc<RouteTotals>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals: Vec<_> = known.iter().map(|(route, known)| (route.clone(), known.totals.clone())).collect();
        drop(known);
        totals.sort_by(|(one, _), (other, _)| one.cmp(other));
        totals
    }
}

/// Whether a route has the name of the other routes: two series would have one name.
fn is_other(route: &Route) -> bool {
    route.aggregate_type.as_str() == Routes::OTHER && route.event_type.as_str() == Routes::OTHER
}

impl RouteTotals {
    /// Counts the settlement of an event, and its lag if it is done.
    #[doc(hidden)] // for the host
    pub fn count(&self, event: &Event, settlement: &Settlement) {
        if matches!(settlement, Settlement::Done | Settlement::Erased) {
            // Zero when the writer's clock is ahead.
            let lag: Duration = system_clock().now().since(event.available_at());
            self.lag.observe(lag);
        }
        self.count_outcome(settlement);
    }

    /// Counts the settlement of an event without its lag.
    #[doc(hidden)] // for the host
    pub fn count_outcome(&self, settlement: &Settlement) {
        match settlement {
            Settlement::Done | Settlement::Erased => self.success.increment(),
            Settlement::Retry { .. } => self.failure.increment(),
            Settlement::Dead { .. } => self.dead.increment(),
            Settlement::Deferred { .. } => self.deferred.increment(),
            Settlement::Parked { .. } | Settlement::Released { .. } | Settlement::Behind { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(number: usize) -> Route {
        Route::new("Order", format!("Event{number}")).unwrap()
    }

    #[test]
    fn the_first_routes_have_totals_of_their_own_and_the_rest_share_theirs() {
        let routes = Routes::new(2);

        for number in 0..5 {
            routes.of(&route(number)).success.increment();
        }
        routes.of(&route(1)).success.increment();

        let own: Vec<(Route, u64)> = routes.totals().into_iter().map(|(route, totals)| (route, totals.success.get())).collect();
        assert_eq!(own, [(route(0), 1), (route(1), 2)]);
        assert_eq!(routes.other().success.get(), 3);
    }

    #[test]
    fn a_route_is_shown_from_its_registration_on_until_its_place_is_needed_by_one_with_events() {
        let routes = Routes::new(2);
        let shown = || routes.totals().into_iter().map(|(route, _)| route).collect::<Vec<_>>();
        for number in 0..3 {
            routes.announce(&route(number));
        }
        assert_eq!(shown(), [route(0), route(1)]);

        for number in [1, 7, 8] {
            routes.of(&route(number)).success.increment();
        }
        routes.announce(&route(9));

        assert_eq!(shown(), [route(1), route(7)], "those whose events came first");
        assert_eq!((routes.other().success.get(), routes.sum(|totals| &totals.success)), (1, 3));
    }

    #[test]
    fn a_route_that_is_called_like_the_rest_is_part_of_it() {
        let routes = Routes::new(2);

        routes.of(&Route::new("other", "other").unwrap()).dead.increment();

        assert_eq!((routes.totals().len(), routes.other().dead.get()), (0, 1), "or two series would have one name");
    }
}
