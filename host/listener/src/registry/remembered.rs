//! Which routes had a listener, according to this process and to the table of routes.

use std::collections::BTreeMap;

use outbox_event::Route;

/// The listeners that have answered a route, now or earlier, here or in another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AnsweredBy {
    OnlyRelays,
    OwnListener,
}

type Routes = BTreeMap<Route, AnsweredBy>;

/// Every route that had a listener. Events of such a route are parked, not given up.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// The routes that were answered here and that the table may not have recorded yet.
    here: Routes,
    /// The routes that the table has.
    recorded: Routes,
}

impl Remembered {
    /// Notes that listeners of this process answer these routes.
    pub(super) fn answer(&mut self, routes: impl IntoIterator<Item = Route>, by: AnsweredBy) {
        note(&mut self.here, routes, by);
    }

    /// Replaces the routes that the table has. A route that the table had and has lost is forgotten, unless it is `answered` here.
    pub(super) fn replace_recorded(
        &mut self,
        own: impl IntoIterator<Item = Route>,
        relayed: impl IntoIterator<Item = Route>,
        answered: impl Fn(&Route) -> bool,
    ) {
        let mut recorded = Routes::new();
        note(&mut recorded, relayed, AnsweredBy::OnlyRelays);
        note(&mut recorded, own, AnsweredBy::OwnListener);
        let before = std::mem::replace(&mut self.recorded, recorded);
        let was_recorded = |route: &Route, by: AnsweredBy| {
            let recorded = [&before, &self.recorded];
            recorded.into_iter().any(|routes| routes.get(route).is_some_and(|recorded| *recorded >= by))
        };
        self.here.retain(|route, by| answered(route) || !was_recorded(route, *by));
    }

    /// `None` if the route had no listener.
    pub(super) fn answered_by(&self, route: &Route) -> Option<AnsweredBy> {
        self.here.get(route).max(self.recorded.get(route)).copied()
    }

    /// Whether the route had a listener, or a relay whose pattern covers it.
    pub(super) fn has(&self, route: &Route) -> bool {
        let covers = |known: &Route| known.is_pattern() && known.covers(route);
        self.answered_by(route).is_some() || self.here.keys().chain(self.recorded.keys()).any(covers)
    }
}

fn note(noted: &mut Routes, routes: impl IntoIterator<Item = Route>, by: AnsweredBy) {
    for route in routes {
        let before = noted.entry(route).or_insert(by);
        *before = by.max(*before);
    }
}
