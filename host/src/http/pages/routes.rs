//! The routes: which have a listener, which are paused, what waits for them.

use maud::{Markup, html};

use super::layout::Frame;
use super::link::query;
use super::look::Look;
use super::served::{self, Served};
use super::words::{visible, when};
use crate::event::Route;
use crate::store::RouteRecord;
use crate::units::number;
use crate::why::{holding, paused};

/// How many events of a route, or of all routes that a pattern covers, stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) waiting: u64,
    pub(super) parked: u64,
    pub(super) blocked: u64,
    pub(super) dead: u64,
}

impl Waiting {
    pub(super) fn of(look: &Look, route: &Route) -> Self {
        let covered = look.routes.iter().filter(|known| route.covers(&known.route));
        covered.fold(Self::default(), |sum, known| Self {
            waiting: sum.waiting + known.waiting,
            parked: sum.parked + known.parked,
            blocked: sum.blocked + known.blocked,
            dead: sum.dead + known.dead,
        })
    }

    /// Those of a route that is no pattern.
    fn alone(known: &RouteRecord) -> Self {
        let RouteRecord { waiting, parked, blocked, dead, .. } = *known;
        Self { waiting, parked, blocked, dead }
    }
}

/// The filter of events that a route, or a pattern, stands for.
pub(super) fn filter(route: &Route) -> String {
    let name = |name: &str| if name == Route::ANY { String::new() } else { name.to_owned() };
    let (aggregate_type, event_type) = (name(route.aggregate_type.as_str()), name(route.event_type.as_str()));
    query(&[("aggregate_type", &aggregate_type), ("event_type", &event_type)])
}

/// `here` are the routes that this host has a listener for.
pub(super) fn page(frame: &Frame, here: &[Route]) -> Markup {
    let Some(look) = &frame.seen.look else { return html! { h1 { "Routes" } } };
    let list = List { paused: paused(&look.routes), plugins: served::of_all(&look.nodes), here };
    html! {
        h1 { "Routes" }
        @if look.routes.is_empty() {
            p { "No routes yet: a route appears with its first listener or its first event." }
        } @else {
            table.rows {
                thead { tr { th scope="col" { "Route" } th scope="col" { "State" } th scope="col" { "Listener" } @for name in ["Waiting", "Parked", "Blocked", "Dead"] { th.number scope="col" { (name) } } th scope="col" { span.unseen { "Actions" } } } }
                tbody { @for known in &look.routes { (row(frame, look, &list, known)) } }
            }
        }
    }
}

/// What every row needs.
struct List<'a> {
    paused: Vec<RouteRecord>,
    plugins: Vec<Served>,
    here: &'a [Route],
}

fn row(frame: &Frame, look: &Look, list: &List<'_>, known: &RouteRecord) -> Markup {
    let now = frame.seen.now();
    let held = holding(&known.route, &list.paused).into_iter().next();
    // A pause is ended where it was begun.
    let (action, title, of) = match held {
        Some(held) => ("resume", "Resume", &held.route),
        None => ("pause", "Pause", &known.route),
    };
    let pair = query(&[("aggregate_type", of.aggregate_type.as_str()), ("event_type", of.event_type.as_str())]);
    let stand = if known.route.is_pattern() { Waiting::of(look, &known.route) } else { Waiting::alone(known) };
    let Waiting { waiting, parked, blocked, dead } = stand;
    html! {
        tr {
            td.first.mono.route { a.row href=(frame.to(&format!("events?{}", filter(&known.route)))) { (visible(&known.route.to_string())) } }
            td {
                (state(known, held))
                @if let Some(held) = held {
                    " " small.quiet {
                        @if held.route != known.route { "with " span.mono { (visible(&held.route.to_string())) } " " }
                        @if let Some(at) = held.paused_at { (when(at, now)) }
                        @if let Some(by) = &held.paused_by { " by " (visible(by)) }
                        @if let Some(why) = &held.pause_reason { ": " (visible(why)) }
                    }
                }
            }
            td.mono.listener { (listener(list, known)) }
            @for (name, class, count) in [("waiting", "", waiting), ("parked", "parked", parked), ("blocked", "blocked", blocked), ("dead", "dead", dead)] {
                @let class = if count == 0 { "zero" } else { class };
                td.number data-name=(name) { span.(class) { (number(count)) } }
            }
            td.tight {
                @if frame.may_act {
                    a href=(frame.to(&format!("routes/{action}?{pair}"))) { (title) @if of != &known.route { " " span.mono { (visible(&of.to_string())) } } }
                }
            }
        }
    }
}

fn listener(list: &List<'_>, known: &RouteRecord) -> Markup {
    let answers = list.plugins.iter().find(|served| served.plugin.routes.contains(&known.route));
    html! {
        @match answers {
            Some(Served { plugin, .. }) => { (visible(&plugin.name)) " " (visible(plugin.version.as_deref().unwrap_or_default())) },
            None if list.here.contains(&known.route) => "native or sink",
            None if known.route.is_pattern() => span.quiet { "a pattern" },
            None => span.quiet { @if known.first_seen_at.is_some() { "none on this host" } @else { "none" } },
        }
    }
}

fn state(known: &RouteRecord, held: Option<&RouteRecord>) -> Markup {
    let (class, shape, word) = if held.is_some() {
        ("parked", "‖", "paused")
    } else if known.first_seen_at.is_some() {
        ("done", "●", "known")
    } else if known.route.is_pattern() {
        ("waiting", "○", "not paused")
    } else {
        ("waiting", "○", "no listener")
    };
    html! { span.state.(class) { span aria-hidden="true" { (shape) } " " (word) } }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http::pages::fake::{frame, route};
    use crate::http::pages::look::Seen;

    #[test]
    fn a_paused_pattern_holds_the_routes_that_it_covers_and_counts_their_events() {
        let known = frame();
        let now = known.seen.now();
        let routes = vec![
            RouteRecord { paused_at: Some(now), pause_reason: Some("the bank is down".to_owned()), ..route("Order", "*") },
            RouteRecord { first_seen_at: Some(now), parked: 3, waiting: 1, ..route("Order", "Paid") },
            RouteRecord { first_seen_at: Some(now), parked: 2, ..route("Order", "Placed") },
            RouteRecord { first_seen_at: Some(now), waiting: 7, ..route("Invoice", "Sent") },
        ];
        let look = Look { routes, ..Look::made_up(now) };
        let of = |aggregate: &str, event: &str| Waiting::of(&look, &Route::new(aggregate, event).unwrap());
        assert_eq!(of("Order", "*"), Waiting { waiting: 1, parked: 5, ..Waiting::default() });
        assert_eq!(of("Order", "Paid"), Waiting { waiting: 1, parked: 3, ..Waiting::default() });

        let text = page(&Frame { seen: Seen { look: Some(Arc::new(look)), gone: None }, ..known }, &[]).into_string();

        let rows: Vec<&str> = text.split("<tr>").skip(2).collect();
        assert_eq!(rows.iter().filter(|row| row.contains("paused")).count(), 3, "{text}");
        assert!(rows[1].contains("with <span class=\"mono\">Order/*</span>") && rows[1].contains("the bank is down"), "{text}");
        assert!(
            rows[1].contains("routes/resume?aggregate_type=Order&amp;event_type=%2A"),
            "it is resumed by its pattern: {text}"
        );
        assert!(rows[0].contains("events?aggregate_type=Order\"") && rows[0].contains(">5<"), "{text}");
        assert!(rows[3].contains("routes/pause?aggregate_type=Invoice&amp;event_type=Sent"), "{text}");
    }
}
