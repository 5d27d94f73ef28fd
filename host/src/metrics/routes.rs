//! What became of the events of each route.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Counter, Histogram, MetricsConfig};
use crate::event::{Event, Route};
use crate::store::Settlement;
use crate::time::system_clock;

/// The totals of the routes. A route that loses its listener and gets another goes on where it was.
#[derive(Debug)]
pub struct Routes {
    known: Mutex<HashMap<Route, Arc<RouteTotals>>>,
    /// Of the routes that have no totals of their own, and of events that no listener answers.
    other: Arc<RouteTotals>,
    most: usize,
}

/// What became of the events of one route since the host started.
#[derive(Debug)]
pub struct RouteTotals {
    /// Attempts that ended well.
    pub success: Counter,
    /// Attempts that failed and are tried again.
    pub failure: Counter,
    /// Events given up.
    pub dead: Counter,
    /// Attempts whose listener asked for later.
    pub deferred: Counter,
    /// How long attempts took, from the call of the listener to its answer; several events in one call have all of its time.
    pub duration: Histogram,
    /// How long events that ended well took, from when they could be delivered to the end of their last attempt.
    pub lag: Histogram,
}

impl Default for Routes {
    fn default() -> Self {
        Self::new(MetricsConfig::default().max_routes)
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
    /// The name by which the routes without totals of their own are counted, in both halves of the route.
    pub const OTHER: &'static str = "other";

    /// With totals of their own for so many routes, those whose first events come first.
    pub(super) fn new(most: usize) -> Self {
        Self { known: Mutex::default(), other: Arc::default(), most }
    }

    /// The totals of a route: its own while there is room, or those of all others.
    pub(crate) fn of(&self, route: &Route) -> Arc<RouteTotals> {
        let is_other = |name: &str| name == Self::OTHER;
        if is_other(route.aggregate_type.as_str()) && is_other(route.event_type.as_str()) {
            return self.other.clone();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(totals) = known.get(route) {
            return totals.clone();
        }
        if known.len() >= self.most {
            return self.other.clone();
        }
        known.entry(route.clone()).or_default().clone()
    }

    /// The totals of all routes that have none of their own, and of events that no listener answers.
    #[must_use]
    pub fn other(&self) -> &Arc<RouteTotals> {
        &self.other
    }

    /// How long events took, all routes together.
    #[cfg(feature = "http")]
    pub(crate) fn lags(&self) -> super::Lags {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lags = super::Lags::default();
        known.values().chain([&self.other]).for_each(|totals| lags.add(&totals.lag));
        lags
    }

    /// The totals by route, sorted; those of [`other`](Self::other) left out. A relay's route is the pattern that it answers.
    #[must_use]
    pub fn totals(&self) -> Vec<(Route, Arc<RouteTotals>)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals: Vec<_> = known.iter().map(|(route, totals)| (route.clone(), totals.clone())).collect();
        drop(known);
        totals.sort_by(|(one, _), (other, _)| one.cmp(other));
        totals
    }
}

impl RouteTotals {
    /// Counts what became of an event.
    pub(crate) fn count(&self, event: &Event, settlement: &Settlement) {
        if matches!(settlement, Settlement::Done | Settlement::Erased) {
            // Zero when the writer's clock is ahead.
            let lag: Duration = system_clock().now().since(event.available_at());
            self.lag.observe(lag);
        }
        self.count_outcome(settlement);
    }

    /// Counts what became of an event that cannot be read.
    pub(crate) fn count_outcome(&self, settlement: &Settlement) {
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
    fn a_route_that_is_called_like_the_rest_is_part_of_it() {
        let routes = Routes::new(2);

        routes.of(&Route::new("other", "other").unwrap()).dead.increment();

        assert_eq!((routes.totals().len(), routes.other().dead.get()), (0, 1), "or two series would have one name");
    }
}
