//! Where every route stands, and which of them a page lists: those that need somebody first. Pure.

use super::fields::Fields;
use super::look::Look;
use super::routes::Waiting;
use crate::event::Route;
use crate::store::RouteRecord;
use crate::why::Pauses;

/// What routes are filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Parked,
    Dead,
    Blocked,
    Paused,
    Waiting,
    NoListener,
}

impl State {
    /// The most urgent first: a route stands in the list by the first of the first four that it is in.
    pub(super) const ALL: [Self; 6] = [Self::Parked, Self::Dead, Self::Blocked, Self::Paused, Self::Waiting, Self::NoListener];
    const URGENT: usize = 4;

    /// As it stands in an address.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
            Self::Waiting => "waiting",
            Self::NoListener => "no_listener",
        }
    }
}

/// A route, and where it stands.
#[derive(Debug)]
pub(super) struct Standing<'a> {
    pub(super) known: &'a RouteRecord,
    /// Its events; of a pattern, those of all routes that it covers.
    pub(super) events: Waiting,
    /// The pause that holds it, the most exact one.
    pub(super) held: Option<&'a RouteRecord>,
}

impl Standing<'_> {
    pub(super) fn is(&self, state: State) -> bool {
        match state {
            State::Parked => self.events.parked > 0,
            State::Dead => self.events.dead > 0,
            State::Blocked => self.events.blocked > 0,
            State::Paused => self.held.is_some(),
            State::Waiting => self.events.waiting > 0,
            // Parked without a pause: no live host has a listener.
            State::NoListener => {
                let never_had_one = self.known.first_seen_at.is_none();
                !self.known.route.is_pattern() && self.held.is_none() && (never_had_one || self.events.parked > 0)
            }
        }
    }

    fn urgency(&self) -> usize {
        State::ALL.iter().take(State::URGENT).position(|state| self.is(*state)).unwrap_or(State::URGENT)
    }
}

/// Every route that is known, those that need somebody first, then by name.
pub(super) fn standings(look: &Look) -> Vec<Standing<'_>> {
    let pauses = Pauses::of(&look.routes);
    let stand =
        |known: &RouteRecord| if known.route.is_pattern() { Waiting::of(look, &known.route) } else { Waiting::alone(known) };
    let of = |known| Standing { known, events: stand(known), held: pauses.holding(&known.route) };
    let mut all: Vec<Standing<'_>> = look.routes.iter().map(of).collect();
    all.sort_by(|one, other| one.urgency().cmp(&other.urgency()).then_with(|| one.known.route.cmp(&other.known.route)));
    all
}

/// Which routes are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// A text of the name, in any case; empty for all.
    pub(super) text: String,
    pub(super) state: Option<State>,
}

impl Wanted {
    pub(super) fn of(asked: &Fields) -> Self {
        let state = asked.text("state");
        Self { text: asked.text("q").to_owned(), state: State::ALL.into_iter().find(|known| known.as_str() == state) }
    }

    /// As an address says it.
    pub(super) fn pairs(&self) -> [(&'static str, &str); 2] {
        [("q", &self.text), ("state", self.state.map_or("", State::as_str))]
    }

    pub(super) fn matches(&self, standing: &Standing<'_>) -> bool {
        self.state.is_none_or(|state| standing.is(state)) && self.names(&standing.known.route)
    }

    fn names(&self, route: &Route) -> bool {
        self.text.is_empty() || route.to_string().to_lowercase().contains(&self.text.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::pages::fake::route;
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    fn look() -> Look {
        let seen = |aggregate: &str, event: &str| RouteRecord { first_seen_at: Some(NOW), ..route(aggregate, event) };
        let routes = vec![
            seen("A", "Idle"),
            RouteRecord { waiting: 1, ..seen("B", "Busy") },
            RouteRecord { paused_at: Some(NOW), ..seen("C", "Paused") },
            RouteRecord { blocked: 1, ..seen("D", "Blocked") },
            RouteRecord { dead: 1, waiting: 5, ..seen("E", "Dead") },
            RouteRecord { parked: 1, dead: 9, ..seen("G", "Parked") },
            RouteRecord { parked: 2, ..route("F", "Parked") },
        ];
        Look { routes, ..Look::made_up(NOW) }
    }

    fn names(wanted: &Wanted) -> Vec<String> {
        let look = look();
        let all = standings(&look);
        all.iter().filter(|standing| wanted.matches(standing)).map(|standing| standing.known.route.to_string()).collect()
    }

    #[test]
    fn routes_that_need_somebody_come_first_and_the_others_by_name() {
        let wanted = ["F/Parked", "G/Parked", "E/Dead", "D/Blocked", "C/Paused", "A/Idle", "B/Busy"];
        assert_eq!(names(&Wanted::default()), wanted);
    }

    #[test]
    fn a_filter_leaves_what_is_in_the_state_and_has_the_text_in_its_name() {
        let of = |query: &str| names(&Wanted::of(&Fields::of_form(query)));
        assert_eq!(of("state=dead"), ["G/Parked", "E/Dead"]);
        assert_eq!(of("state=waiting"), ["E/Dead", "B/Busy"]);
        assert_eq!(of("state=no_listener"), ["F/Parked", "G/Parked"], "parked without a pause");
        assert_eq!(of("q=PARK&state=dead"), ["G/Parked"]);
        assert_eq!(of("q=b%2Fbu"), ["B/Busy"]);
        assert_eq!(of("state=nonsense").len(), 7);
        assert!(of("q=%22%3E%3Cscript").is_empty());
    }
}
