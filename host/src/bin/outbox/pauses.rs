//! Which pauses hold a route: its own, and those of patterns that cover it.

use std::borrow::Cow;
use std::cmp::Reverse;

use outbox::Route;
use outbox::store::RouteRecord;
use outbox::time::Timestamp;

use crate::output::{argument, relative, relative_to, shown};

/// The paused routes and patterns that hold a route, the most exact first. Its events go on when all of them are resumed.
pub(crate) fn holding<'r>(route: &Route, routes: &'r [RouteRecord]) -> Vec<&'r RouteRecord> {
    let mut holding: Vec<&RouteRecord> =
        routes.iter().filter(|known| known.paused_at.is_some() && known.route.covers(route)).collect();
    holding.sort_by_key(|known| Reverse(known.route.exactness()));
    holding
}

/// The routes that a pattern covers, without patterns.
pub(crate) fn covered<'r>(pattern: &Route, routes: &'r [RouteRecord]) -> impl Iterator<Item = &'r RouteRecord> {
    routes.iter().filter(move |known| !known.route.is_pattern() && pattern.covers(&known.route))
}

/// The command that ends a pause, as it can be typed.
pub(crate) fn resume_command(route: &Route) -> String {
    format!("outbox route resume {}", argument(&route.to_string()))
}

/// `2h ago by anna@shop: the mail server moves`; `None` when it is not paused.
pub(crate) fn pause_for_lists(known: &RouteRecord) -> Option<String> {
    let since = relative(known.paused_at?);
    Some(format!("{since} by {}{}", by(known), why(known)))
}

/// `by anna@shop since … (2h ago): the mail server moves`.
pub(crate) fn pause_in_full(known: &RouteRecord, now: Timestamp) -> String {
    let since = known.paused_at.map_or_else(String::new, |since| format!(" since {since} ({})", relative_to(since, now)));
    format!("by {}{since}{}", by(known), why(known))
}

fn by(known: &RouteRecord) -> Cow<'_, str> {
    shown(known.paused_by.as_deref().unwrap_or("an unknown user"))
}

fn why(known: &RouteRecord) -> String {
    known.pause_reason.as_deref().map_or_else(String::new, |why| format!(": {}", shown(why)))
}
