//! Decides which plugins get the routes they ask for, for all plugins at once.

use std::collections::{BTreeMap, BTreeSet};

use outbox_event::{Owner, Route};
use outbox_listener::RouteConflict;

/// What one plugin answers now, and what it would answer as it has just been loaded.
pub(crate) struct RouteChange<'a> {
    pub(crate) now: &'a [Route],
    /// `None` when it stays as it is.
    pub(crate) wanted: Option<&'a [Route]>,
}

/// The plugins that must stay as they are, each with the route that stands in its way. `foreign` tells who answers a route
/// beside these plugins.
///
/// A plugin gets all that it wants or nothing. Of two that want the same route the one that answers it now gets it, otherwise the
/// first by name. A plugin that stays as it is keeps what it answers now, which may be in the way of the next: so a move of
/// routes among several plugins is made as a whole, or by those who do not depend on the one that cannot.
pub(crate) fn conflicts(
    changes: &BTreeMap<&str, RouteChange<'_>>,
    foreign: impl Fn(&Route) -> Option<Owner>,
) -> BTreeMap<String, RouteConflict> {
    let mut conflicts = BTreeMap::new();
    loop {
        let staying: BTreeMap<&Route, &str> = changes
            .iter()
            .filter(|(name, change)| change.wanted.is_none() || conflicts.contains_key(**name))
            .flat_map(|(name, change)| change.now.iter().map(|route| (route, *name)))
            .collect();
        let holder = |route: &Route| foreign(route).or_else(|| staying.get(route).map(|name| Owner::from(*name)));
        let moving: Vec<(&str, &RouteChange<'_>)> = changes
            .iter()
            .filter(|(name, change)| change.wanted.is_some() && !conflicts.contains_key(**name))
            .map(|(name, change)| (*name, change))
            .collect();
        // One at a time: who is refused here may have been in the way of another.
        let loser = moving.iter().find_map(|(name, change)| taken(name, change, &holder)).or_else(|| contested(&moving));
        let Some(conflict) = loser else { return conflicts };
        conflicts.insert(conflict.newcomer.to_string(), conflict);
    }
}

/// The first wanted route that somebody who stays answers.
fn taken(name: &str, change: &RouteChange<'_>, holder: &impl Fn(&Route) -> Option<Owner>) -> Option<RouteConflict> {
    change
        .wanted
        .into_iter()
        .flatten()
        .find_map(|route| Some(RouteConflict { route: route.clone(), holder: holder(route)?, newcomer: Owner::from(name) }))
}

/// The first route that two of these want, and who of the two gets it.
fn contested(moving: &[(&str, &RouteChange<'_>)]) -> Option<RouteConflict> {
    let mut wanting: BTreeMap<&Route, &str> = BTreeMap::new();
    for (name, change) in moving {
        let own: BTreeSet<&Route> = change.now.iter().collect();
        for route in change.wanted.into_iter().flatten() {
            let Some(first) = wanting.insert(route, name) else { continue };
            let (holder, newcomer) = if own.contains(route) { (*name, first) } else { (first, *name) };
            return Some(RouteConflict { route: route.clone(), holder: Owner::from(holder), newcomer: Owner::from(newcomer) });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(names: &str) -> Vec<Route> {
        names.split_whitespace().map(|name| Route::new("Order", name).unwrap()).collect()
    }

    /// Plugins as `name: now -> wanted`, and who is refused because of whom. Native code answers `Native`.
    fn decided(plugins: &[(&'static str, &str, Option<&str>)]) -> Vec<String> {
        let parsed: Vec<_> = plugins.iter().map(|(name, now, wanted)| (*name, routes(now), wanted.map(routes))).collect();
        let changes =
            parsed.iter().map(|(name, now, wanted)| (*name, RouteChange { now, wanted: wanted.as_deref() })).collect();
        let foreign = |route: &Route| (route.event_type.as_str() == "Native").then_some(Owner::Native);
        let conflicts = conflicts(&changes, foreign);
        conflicts.into_iter().map(|(name, conflict)| format!("{name} by {}", conflict.holder)).collect()
    }

    #[test]
    fn what_is_free_or_given_up_is_given() {
        assert_eq!(decided(&[("a", "", Some("X")), ("b", "Y", None)]), [""; 0]);
        assert_eq!(decided(&[("a", "X Y", Some("X")), ("b", "", Some("Y"))]), [""; 0]);
        assert_eq!(
            decided(&[("a", "X", Some("Y")), ("b", "Y", Some("Z")), ("c", "Z", Some("X"))]),
            [""; 0],
            "all the way round"
        );
    }

    #[test]
    fn whoever_answers_a_route_keeps_it() {
        assert_eq!(decided(&[("a", "", Some("X")), ("b", "X", None)]), ["a by b"]);
        assert_eq!(decided(&[("a", "", Some("X")), ("b", "X", Some("X Y"))]), ["a by b"], "newly loaded or not");
        assert_eq!(decided(&[("a", "", Some("X Native"))]), ["a by native code"]);
        assert_eq!(decided(&[("a", "", Some("X")), ("b", "", Some("X"))]), ["b by a"], "of two newcomers the first by name");
    }

    #[test]
    fn who_is_refused_stands_in_the_way_of_whoever_wanted_its_routes() {
        let circle = [("a", "X", Some("Y")), ("b", "Y", Some("Z Native")), ("c", "Z", Some("X"))];
        assert_eq!(decided(&circle), ["a by b", "b by native code", "c by a"]);
        assert_eq!(
            decided(&[("a", "", Some("X Native")), ("b", "", Some("X"))]),
            ["a by native code"],
            "and no longer of others"
        );
    }
}
