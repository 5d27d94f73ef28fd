//! Which pauses hold a route: its own, and those of patterns that cover it. And why a relay does not take a route.

use std::collections::HashMap;

use crate::deceptive::{argument, shown};
use crate::event::Route;
use crate::store::RouteRecord;
use crate::time::Timestamp;
use crate::units::relative_to;

/// The paused routes and patterns that hold a route, the most exact first. Its events go on when all of them are resumed.
#[must_use]
pub fn holding<'r>(route: &Route, routes: &'r [RouteRecord]) -> Vec<&'r RouteRecord> {
    Pauses::of(routes).holding(route).collect()
}

/// The pauses among many routes, indexed by name. [`holding`] builds the index from all routes at each call, and there may be
/// many: a caller that asks about many routes builds it once.
#[derive(Debug)]
pub struct Pauses<'r>(HashMap<(&'r str, &'r str), &'r RouteRecord>);

impl<'r> Pauses<'r> {
    /// The pauses among these routes and patterns.
    #[must_use]
    pub fn of(routes: &'r [RouteRecord]) -> Self {
        let paused = routes.iter().filter(|known| known.paused_at.is_some());
        Self(paused.map(|known| ((known.route.aggregate_type.as_str(), known.route.event_type.as_str()), known)).collect())
    }

    /// The pauses that hold a route, the most exact first.
    pub fn holding(&self, route: &Route) -> impl Iterator<Item = &'r RouteRecord> {
        let (aggregate, event) = (route.aggregate_type.as_str(), route.event_type.as_str());
        let covering = [(aggregate, event), (aggregate, Route::ANY), (Route::ANY, event), (Route::ANY, Route::ANY)];
        // For a pattern the same pair of names is listed twice.
        let once = (0..covering.len()).filter(move |index| !covering[..*index].contains(&covering[*index]));
        once.filter_map(move |index| self.0.get(&covering[index]).copied())
    }

    /// The names of the routes and patterns whose pauses hold a route, the most exact first.
    #[must_use]
    pub fn names_holding(&self, route: &Route) -> Vec<String> {
        self.holding(route).map(|pause| pause.route.to_string()).collect()
    }
}

/// The routes that a pattern covers, without patterns.
pub fn covered<'r>(pattern: &Route, routes: &'r [RouteRecord]) -> impl Iterator<Item = &'r RouteRecord> {
    routes.iter().filter(move |known| !known.route.is_pattern() && pattern.covers(&known.route))
}

/// The command that ends a pause, as it can be typed.
#[must_use]
pub fn resume_command(route: &Route) -> String {
    format!("outbox route resume {}", argument(&route.to_string()))
}

/// `by anna@shop since … (2 h ago): the mail server moves`.
#[must_use]
pub(super) fn pause_in_full(known: &RouteRecord, now: Timestamp) -> String {
    let since = known.paused_at.map_or_else(String::new, |since| format!(" since {since} ({})", relative_to(since, now)));
    let by = shown(known.paused_by.as_deref().unwrap_or("an unknown user"));
    let why = known.pause_reason.as_deref().map_or_else(String::new, |why| format!(": {}", shown(why)));
    format!("by {by}{since}{why}")
}

/// Why a route that had a listener is not relayed, though the pattern of a relay covers it; `None` where that is not so.
#[must_use]
pub fn passed_over(route: &Route, relays: &[Route]) -> Option<String> {
    let covering = relays.iter().filter(|relay| relay.covers(route)).max_by_key(|relay| relay.exactness())?;
    (covering != route).then(|| {
        let (covering, exact) = (shown(&covering.to_string()).into_owned(), shown(&route.to_string()).into_owned());
        format!("the relay {covering} does not take it, since it had a listener; write [routes.\"{exact}\"] to relay it")
    })
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    #[test]
    fn the_pauses_that_are_looked_up_are_all_that_cover_a_route_and_the_most_exact_comes_first() {
        let paused_at = Some(Timestamp::from_micros(0));
        let names = ["A", "B", Route::ANY];
        let all: Vec<Route> =
            names.iter().flat_map(|one| names.iter().map(move |other| Route::new(one, other).expect("a name"))).collect();
        // Every set of pauses among nine routes and patterns.
        for set in 0_u32..1 << all.len() {
            let is_paused = |index: usize| set >> index & 1 == 1;
            let record = |(index, route): (usize, &Route)| {
                changed!(RouteRecord { paused_at: paused_at.filter(|_| is_paused(index)), ..RouteRecord::new(route.clone()) })
            };
            let routes: Vec<RouteRecord> = all.iter().enumerate().map(record).collect();
            let pauses = Pauses::of(&routes);
            for route in &all {
                let mut covering: Vec<&Route> = all
                    .iter()
                    .enumerate()
                    .filter(|(index, known)| is_paused(*index) && known.covers(route))
                    .map(|(_, known)| known)
                    .collect();
                covering.sort_by_key(|known| Reverse(known.exactness()));
                let found: Vec<&Route> = pauses.holding(route).map(|known| &known.route).collect();
                assert_eq!(found, covering, "{route} in {set:b}");
            }
        }
    }
}
