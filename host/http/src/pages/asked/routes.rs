//! Which routes a page lists, and in which order: those that need a person first. Pure.

use outbox_event::Route;

use super::fields::Fields;
use crate::cursor;
use crate::pages::known::snapshot::Snapshot;
use crate::standing::{RouteState, Standing};

/// Every known route: those that need a person first, then by name.
pub(crate) fn standings(snapshot: &Snapshot) -> Vec<Standing<'_>> {
    let mut all: Vec<Standing<'_>> = Standing::all(&snapshot.routes).collect();
    all.sort_by(|one, other| place(one).cmp(&place(other)));
    all
}

/// Where a route stands in the list.
fn place<'a>(standing: &Standing<'a>) -> (usize, &'a Route) {
    (standing.urgency(), &standing.known.route)
}

/// The number of the first row of the page: the row after `after`, the last of the page before, even if that route has moved.
pub(crate) fn begin(asked: &Fields, all: &[&Standing<'_>]) -> usize {
    let after =
        asked.text("after").split_once('/').and_then(|(urgency, route)| Some((urgency.parse().ok()?, cursor::route(route)?)));
    after.map_or(0, |(urgency, route)| all.partition_point(|standing| place(standing) <= (urgency, &route)))
}

/// The `after` of the page that begins with this row; empty for the first page.
pub(crate) fn end_before(all: &[&Standing<'_>], row: usize) -> String {
    let last = row.checked_sub(1).and_then(|last| all.get(last));
    last.map_or_else(String::new, |last| format!("{}/{}", last.urgency(), cursor::text(&last.known.route)))
}

/// The routes that an address asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedRoutes {
    /// A text of the name, in any case; empty for all.
    pub(crate) text: String,
    pub(crate) state: Option<RouteState>,
}

impl WantedRoutes {
    pub(crate) fn of(asked: &Fields) -> Self {
        Self { text: asked.text("q").to_owned(), state: RouteState::named(asked.text("state")) }
    }

    /// As an address says it.
    pub(crate) fn pairs(&self) -> [(&'static str, &str); 2] {
        [("q", &self.text), ("state", self.state.map_or("", RouteState::as_str))]
    }

    pub(crate) fn matches(&self, standing: &Standing<'_>) -> bool {
        self.state.is_none_or(|state| standing.is(state)) && self.names(&standing.known.route)
    }

    fn names(&self, route: &Route) -> bool {
        self.text.is_empty() || route.to_string().to_lowercase().contains(&self.text.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use outbox_event::time::Timestamp;
    use outbox_store::RouteRecord;

    use super::*;
    use crate::pages::fake::route;

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    fn snapshot() -> Snapshot {
        let seen = |aggregate: &str, event: &str| changed!(RouteRecord { first_seen_at: Some(NOW), ..route(aggregate, event) });
        let routes = vec![
            seen("A", "Idle"),
            changed!(RouteRecord { waiting: 1, ..seen("B", "Busy") }),
            changed!(RouteRecord { paused_at: Some(NOW), ..seen("C", "Paused") }),
            changed!(RouteRecord { blocked: 1, ..seen("D", "Blocked") }),
            changed!(RouteRecord { dead: 1, waiting: 5, ..seen("E", "Dead") }),
            changed!(RouteRecord { parked: 1, dead: 9, ..seen("G", "Parked") }),
            changed!(RouteRecord { parked: 2, ..route("F", "Parked") }),
        ];
        Snapshot { routes, ..Snapshot::made_up(NOW) }
    }

    fn names(wanted: &WantedRoutes) -> Vec<String> {
        let snapshot = snapshot();
        let all = standings(&snapshot);
        all.iter().filter(|standing| wanted.matches(standing)).map(|standing| standing.known.route.to_string()).collect()
    }

    #[test]
    fn routes_that_need_somebody_come_first_and_the_others_by_name() {
        let wanted = ["F/Parked", "G/Parked", "E/Dead", "D/Blocked", "C/Paused", "A/Idle", "B/Busy"];
        assert_eq!(names(&WantedRoutes::default()), wanted);
    }

    #[test]
    fn a_filter_leaves_what_is_in_the_state_and_has_the_text_in_its_name() {
        let of = |query: &str| names(&WantedRoutes::of(&Fields::of_form(query)));
        assert_eq!(of("state=dead"), ["G/Parked", "E/Dead"]);
        assert_eq!(of("state=waiting"), ["E/Dead", "B/Busy"]);
        assert_eq!(of("state=no_listener"), ["F/Parked", "G/Parked"], "parked without a pause");
        assert_eq!(of("q=PARK&state=dead"), ["G/Parked"]);
        assert_eq!(of("q=b%2Fbu"), ["B/Busy"]);
        assert_eq!(of("state=nonsense").len(), 7);
        assert!(of("q=%22%3E%3Cscript").is_empty());
    }
}
