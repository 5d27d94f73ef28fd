//! The routes: which have a listener, which are paused, what waits for them.

use maud::{Markup, html};

use super::super::standing::{Counts, Standing, State};
use super::fields::Fields;
use super::layout::Frame;
use super::link::query;
use super::paging::Paging;
use super::served::{self, Served};
use super::wanted::{Wanted, standings};
use super::words::{short, visible, when};
use crate::event::Route;
use crate::store::RouteRecord;
use crate::units::number;

/// The filter of events that a route, or a pattern, stands for.
pub(super) fn filter(route: &Route) -> String {
    let name = |name: &str| if name == Route::ANY { String::new() } else { name.to_owned() };
    let (aggregate_type, event_type) = (name(route.aggregate_type.as_str()), name(route.event_type.as_str()));
    query(&[("aggregate_type", &aggregate_type), ("event_type", &event_type)])
}

/// Rows of a page.
const ROWS: usize = 100;
/// Most characters of a name that a row shows.
const NAME: usize = 80;

/// `here` are the routes that this host has a listener for.
pub(super) fn page(frame: &Frame, here: &[Route], asked: &Fields) -> Markup {
    let Some(look) = &frame.seen.look else { return html! { h1 { "Routes" } } };
    if look.routes.is_empty() {
        return html! { h1 { "Routes" } p { "No routes yet: a route appears with its first listener or its first event." } };
    }
    let wanted = Wanted::of(asked);
    let all = standings(look);
    let found: Vec<&Standing<'_>> = all.iter().filter(|standing| wanted.matches(standing)).collect();
    let paging = Paging::of(asked, ROWS, found.len());
    let plugins = served::of_all(&look.nodes);
    html! {
        h1 { "Routes" }
        (chips(frame, &all, &wanted))
        (form(frame, &wanted))
        @if found.is_empty() { p { "No route matches." } } @else {
            table.rows {
                thead { tr { th scope="col" { "Route" } th scope="col" { "State" } th scope="col" { "Listener" } @for name in ["Waiting", "Parked", "Blocked", "Dead"] { th.number scope="col" { (name) } } th scope="col" { span.unseen { "Actions" } } } }
                tbody { @for standing in paging.slice(&found) { (row(frame, &plugins, here, standing)) } }
            }
            (paging.show(frame, "routes", &wanted.pairs()))
        }
    }
}

/// What moves of the page: how many of all routes are in which state, as links.
pub(super) fn states(frame: &Frame, asked: &Fields) -> Markup {
    let Some(look) = &frame.seen.look else { return html! {} };
    chips(frame, &standings(look), &Wanted::of(asked))
}

fn chips(frame: &Frame, all: &[Standing<'_>], wanted: &Wanted) -> Markup {
    let chip = |state: Option<State>, shown: Markup, count: usize| {
        let pairs = Wanted { state, ..wanted.clone() };
        html! {
            li { a href=(frame.to(&format!("routes?{}", query(&pairs.pairs())))) aria-current=[(wanted.state == state).then_some("true")] {
                (shown) " " span.figure.quiet { (number(count as u64)) }
            } }
        }
    };
    let chips = html! {
        ul.chips {
            (chip(None, html! { "all" }, all.len()))
            @for state in State::ALL {
                @let (class, shape, word) = look_of(state);
                (chip(Some(state), html! { span.state.(class) { span aria-hidden="true" { (shape) } " " (word) } }, all.iter().filter(|standing| standing.is(state)).count()))
            }
        }
    };
    frame.live("states", &chips)
}

/// Colour class, shape and word of a state.
const fn look_of(state: State) -> (&'static str, &'static str, &'static str) {
    match state {
        State::Parked => ("parked", "‖", "with parked events"),
        State::Dead => ("dead", "✕", "with dead events"),
        State::Blocked => ("blocked", "⊘", "with blocked events"),
        State::Paused => ("parked", "‖", "paused"),
        State::Waiting => ("waiting", "○", "with waiting events"),
        State::NoListener => ("retry", "!", "no listener"),
    }
}

fn form(frame: &Frame, wanted: &Wanted) -> Markup {
    html! {
        form.filters action=(frame.to("routes")) {
            @if let Some(state) = wanted.state { input type="hidden" name="state" value=(state.as_str()); }
            label { "Name contains" input name="q" value=(wanted.text) placeholder="Order/" autocomplete="off" spellcheck="false"; }
            button { "Filter" }
            @if *wanted != Wanted::default() { a href=(frame.to("routes")) { "Clear" } }
        }
    }
}

fn row(frame: &Frame, plugins: &[Served], here: &[Route], standing: &Standing<'_>) -> Markup {
    let Standing { known, events: Counts { waiting, parked, blocked, dead }, .. } = *standing;
    let held = standing.held.first();
    let now = frame.seen.now();
    // A pause is ended where it was begun.
    let (action, title, of) = match held {
        Some(held) => ("resume", "Resume", &held.route),
        None => ("pause", "Pause", &known.route),
    };
    let pair = query(&[("aggregate_type", of.aggregate_type.as_str()), ("event_type", of.event_type.as_str())]);
    let name = |route: &Route| visible(&short(&route.to_string(), NAME));
    html! {
        tr {
            td.first.mono.route { a.row href=(frame.to(&format!("events?{}", filter(&known.route)))) { (name(&known.route)) } }
            td {
                (state(standing))
                @if let Some(held) = held {
                    " " small.quiet {
                        @if held.route != known.route { "with " span.mono { (name(&held.route)) } " " }
                        @if let Some(at) = held.paused_at { (when(at, now)) }
                        @if let Some(by) = &held.paused_by { " by " (visible(by)) }
                        @if let Some(why) = &held.pause_reason { ": " (visible(&short(why, 160))) }
                    }
                }
            }
            td.mono.listener { (listener(plugins, here, known)) }
            @for (name, class, count) in [("waiting", "", waiting), ("parked", "parked", parked), ("blocked", "blocked", blocked), ("dead", "dead", dead)] {
                @let class = if count == 0 { "zero" } else { class };
                td.number data-name=(name) { span.(class) { (number(count)) } }
            }
            td.tight {
                @if frame.may_act {
                    a href=(frame.to(&format!("routes/{action}?{pair}"))) { (title) @if of != &known.route { " " span.mono { (name(of)) } } }
                }
            }
        }
    }
}

fn listener(plugins: &[Served], here: &[Route], known: &RouteRecord) -> Markup {
    let answers = plugins.iter().find(|served| served.plugin.routes.contains(&known.route));
    html! {
        @match answers {
            Some(Served { plugin, .. }) => { (visible(&plugin.name)) " " (visible(plugin.version.as_deref().unwrap_or_default())) },
            None if here.contains(&known.route) => "native or sink",
            None if known.route.is_pattern() => span.quiet { "pattern" },
            None => span.quiet { @if known.first_seen_at.is_some() { "none on this host" } @else { "none" } },
        }
    }
}

fn state(standing: &Standing<'_>) -> Markup {
    let (class, shape, word) = if standing.is(State::Paused) {
        look_of(State::Paused)
    } else if standing.is(State::NoListener) {
        look_of(State::NoListener)
    } else if standing.known.route.is_pattern() {
        ("waiting", "○", "not paused")
    } else {
        ("done", "●", "serving")
    };
    html! { span.state.(class) { span aria-hidden="true" { (shape) } " " (word) } }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http::pages::fake::{frame, route};
    use crate::http::pages::look::{Look, Seen};

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
        let text = page(&Frame { seen: Seen { look: Some(Arc::new(look)), gone: None }, ..known }, &[], &Fields::default())
            .into_string();

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

    #[test]
    fn thirty_thousand_routes_take_a_small_page_and_each_of_them_can_be_found() {
        let known = frame();
        let now = known.seen.now();
        let paused = |number: usize| RouteRecord {
            paused_at: Some(now),
            pause_reason: Some("the bank is down ".repeat(60)),
            parked: number as u64,
            waiting: 1_000_000,
            dead: 12_345,
            ..route("BillingAccount", &format!("InvoiceWasSentToCustomer{number:05}"))
        };
        let look = Look { routes: (0..30_000).map(paused).collect(), ..Look::made_up(now) };
        let frame = Frame { seen: Seen { look: Some(Arc::new(look)), gone: None }, ..known };
        let page = |query: &str| {
            let text = frame.document("Routes", page(&frame, &[], &Fields::of_form(query))).into_string();
            assert!(text.len() < 150_000, "{query}: {} bytes", text.len());
            text
        };

        let first = page("");
        assert!(first.contains("1–100 of 30,000") && first.contains("routes?page=2\" rel=\"next\""), "{first}");
        assert!(first.contains("30,000 routes are paused"), "{first}");
        let found = page("q=customer29999");
        assert_eq!((found.matches("class=\"row\"").count(), found.matches("rel=\"next\"").count()), (1, 0), "{found}");
        assert!(found.contains("Customer29999"), "{found}");
        assert!(found.contains("<span class=\"figure quiet\">30,000</span>"), "the counts stay those of all routes: {found}");
        assert!(page("state=paused&page=300").contains("29,901–30,000 of 30,000"));
        assert!(page("state=blocked").contains("No route matches."));

        let hour = Vec::new();
        let overview = crate::http::pages::overview::Overview { frame: &frame, hour, changes: Vec::new() };
        let text = frame.document("Overview", crate::http::pages::overview::page(&overview)).into_string();
        assert!(text.len() < 150_000, "{} bytes", text.len());
    }
}
