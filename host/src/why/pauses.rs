//! Which pauses hold a route: its own, and those of patterns that cover it. And which relays leave a route alone.

use std::cmp::Reverse;

use crate::deceptive::{argument, shown};
use crate::event::Route;
use crate::store::RouteRecord;
use crate::time::Timestamp;
use crate::units::relative_to;

/// The paused routes and patterns that hold a route, the most exact first. Its events go on when all of them are resumed.
#[must_use]
pub fn holding<'r>(route: &Route, routes: &'r [RouteRecord]) -> Vec<&'r RouteRecord> {
    let mut holding: Vec<&RouteRecord> =
        routes.iter().filter(|known| known.paused_at.is_some() && known.route.covers(route)).collect();
    holding.sort_by_key(|known| Reverse(known.route.exactness()));
    holding
}

/// The routes and patterns that are paused: all that [`holding`] needs. Whoever asks for many routes asks these, since writers choose how
/// many routes there are.
#[must_use]
pub fn paused(routes: &[RouteRecord]) -> Vec<RouteRecord> {
    routes.iter().filter(|known| known.paused_at.is_some()).cloned().collect()
}

/// The names of the routes and patterns whose pauses hold a route, the most exact first.
#[must_use]
pub fn held_by(route: &Route, routes: &[RouteRecord]) -> Vec<String> {
    holding(route, routes).into_iter().map(|pause| pause.route.to_string()).collect()
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
pub fn pause_in_full(known: &RouteRecord, now: Timestamp) -> String {
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
