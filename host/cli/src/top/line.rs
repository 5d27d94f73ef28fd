//! One sample of `outbox top` as a JSON line, for scripts.

use outbox::node::{HostBreaker, OpenBreakers};
use outbox::store::RouteRecord;
use outbox::why::Pauses;
use serde::Serialize;

use super::sample::{Rates, Sample};

/// The most routes in one line. A line is printed at each refresh, and a table may have thousands of routes.
const MOST_ROUTES: usize = 100;

/// The values of one sample.
#[derive(Serialize)]
pub(super) struct Line<'s> {
    #[serde(flatten)]
    sample: &'s Sample,
    #[serde(flatten)]
    rates: Rates,
    /// The first [`MOST_ROUTES`] routes, in the same order as on the screen.
    routes: Vec<RouteInLine<'s>>,
    /// How many routes the line leaves out.
    more_routes: usize,
}

/// A route, with the same fields as in `outbox route list`.
#[derive(Serialize)]
struct RouteInLine<'s> {
    #[serde(flatten)]
    route: &'s RouteRecord,
    /// The paused routes and patterns that match this route, most specific first.
    held_by: Vec<String>,
    open_breakers: &'s [HostBreaker],
}

impl<'s> Line<'s> {
    pub(super) fn new(sample: &'s Sample, rates: Rates, breakers: &'s OpenBreakers) -> Self {
        let pauses = Pauses::of(&sample.routes);
        let first = sample.busiest_routes().into_iter().take(MOST_ROUTES);
        let routes = first.map(|known| RouteInLine {
            route: known,
            held_by: pauses.names_holding(&known.route),
            open_breakers: breakers.on(&known.route),
        });
        Self { sample, rates, routes: routes.collect(), more_routes: sample.routes.len().saturating_sub(MOST_ROUTES) }
    }
}

#[cfg(test)]
mod tests {
    use outbox::Route;
    use outbox::store::Stats;
    use outbox::time::Timestamp;

    use super::*;

    #[test]
    fn line_has_the_busiest_routes_and_counts_the_routes_that_it_leaves_out() {
        let at = Timestamp::from_micros(1_795_249_980_000_000);
        let route = |number: usize| {
            let mut route = RouteRecord::new(Route::new("Order", format!("Event{number}")).unwrap());
            route.waiting = u64::try_from(number).unwrap();
            route
        };
        let mut pause = RouteRecord::new(Route::new("Order", Route::ANY).unwrap());
        pause.paused_at = Some(at);
        let routes = (0..MOST_ROUTES + 20).map(route).chain([pause]).collect();
        let sample = Sample { at, seq: None, stats: Stats::default(), routes, nodes: Vec::new(), sinks: Vec::new() };

        let line = serde_json::to_value(Line::new(&sample, Rates::default(), &OpenBreakers::of(&[]))).unwrap();

        let listed = line["routes"].as_array().unwrap();
        assert_eq!((listed.len(), line["more_routes"].as_u64()), (MOST_ROUTES, Some(21)));
        let waiting: Vec<u64> = listed.iter().map(|route| route["waiting"].as_u64().unwrap()).collect();
        assert!(waiting[0] == 119 && waiting.is_sorted_by(|one, next| one > next), "{waiting:?}");
        assert_eq!(listed[0]["event_type"], "Event119");
        assert_eq!(listed[0]["held_by"], serde_json::json!(["Order/*"]));
        assert_eq!(listed[0]["open_breakers"], serde_json::json!([]));
    }
}
