//! The routes: which have a listener, which are paused, how many events wait.

use maud::{Markup, html};
use outbox::node::DownSink;
use outbox_event::Route;
use outbox_event::time::Timestamp;
use outbox_event::units::{number, span};
use outbox_store::left_out;

use super::paging::Paging;
use crate::pages::asked::fields::Fields;
use crate::pages::asked::routes::{WantedRoutes, begin, end_before, standings};
use crate::pages::document::Frame;
use crate::pages::known::listeners::{RouteListener, RouteListeners};
use crate::pages::link::query;
use crate::pages::words::{short, visible, when};
use crate::standing::{RouteCounts, RouteState, Standing};

/// The filter of events that a route, or a pattern, stands for.
pub(crate) fn filter(route: &Route) -> String {
    let name = |name: &str| if name == Route::ANY { String::new() } else { name.to_owned() };
    let (aggregate_type, event_type) = (name(route.aggregate_type.as_str()), name(route.event_type.as_str()));
    query(&[("aggregate_type", &aggregate_type), ("event_type", &event_type)])
}

/// Rows of a page.
const ROWS: usize = 100;
/// Most characters of a name that a row shows.
const NAME: usize = 80;

pub(crate) fn page(frame: &Frame, answers: &RouteListeners<'_>, asked: &Fields) -> Markup {
    let Some(snapshot) = &frame.known.snapshot else { return html! { h1 { "Routes" } } };
    if snapshot.routes.is_empty() {
        return html! { h1 { "Routes" } p { "No routes yet: a route appears with its first listener or its first event." } };
    }
    let wanted = WantedRoutes::of(asked);
    let all = standings(snapshot);
    let found: Vec<&Standing<'_>> = all
        .iter()
        .filter(|standing| wanted.matches(standing) && wanted.state.is_none_or(|state| counts(state, standing)))
        .collect();
    // Pages are found by name and urgency, not by number: a route whose state changes must not push another off its page.
    let paging = Paging::from(begin(asked, &found), ROWS, found.len());
    html! {
        h1 { "Routes" }
        (chips(frame, &all, &wanted))
        (form(frame, &wanted))
        @if found.is_empty() { p { "No route matches." } } @else {
            table.rows {
                thead { tr { th scope="col" { "Route" } th scope="col" { "State" } th scope="col" { "Listener" } @for name in ["Waiting", "Parked", "Blocked", "Dead"] { th.number scope="col" { (name) } } th scope="col" { span.unseen { "Actions" } } } }
                tbody { @for standing in paging.slice(&found) { (row(frame, answers, standing)) } }
            }
            @if let Some(more) = answers.more_open_breakers() { p.quiet { (more) "." } }
            @if let Some(left_out) = left_out(&snapshot.routes) { p.quiet { (left_out) } }
            (paging.show_by(frame, "routes", &wanted.pairs(), |from| ("after", end_before(&found, from))))
        }
    }
}

/// The part of the page that is updated: how many routes are in each state, as links.
pub(crate) fn states(frame: &Frame, asked: &Fields) -> Markup {
    let Some(snapshot) = &frame.known.snapshot else { return html! {} };
    chips(frame, &standings(snapshot), &WantedRoutes::of(asked))
}

fn chips(frame: &Frame, all: &[Standing<'_>], wanted: &WantedRoutes) -> Markup {
    let chip = |state: Option<RouteState>, shown: Markup, count: usize| {
        let pairs = WantedRoutes { state, ..wanted.clone() };
        html! {
            li { a href=(frame.to(&format!("routes?{}", query(&pairs.pairs())))) aria-current=[(wanted.state == state).then_some("true")] {
                (shown) " " span.figure.quiet { (number(count as u64)) }
            } }
        }
    };
    let chips = html! {
        ul.chips {
            (chip(None, html! { "all" }, all.len()))
            @for state in RouteState::ALL {
                @let (class, shape, word) = badge(state);
                (chip(Some(state), html! { span.state.(class) { span aria-hidden="true" { (shape) } " " (word) } }, all.iter().filter(|standing| counts(state, standing)).count()))
            }
        }
    };
    frame.live("states", &chips)
}

/// Whether the route counts as one in this state. A pattern counts only as paused: its events are those of its routes.
fn counts(state: RouteState, standing: &Standing<'_>) -> bool {
    standing.is(state) && (state == RouteState::Paused || !standing.known.route.is_pattern())
}

/// The colour class, the symbol and the word for a state.
const fn badge(state: RouteState) -> (&'static str, &'static str, &'static str) {
    match state {
        RouteState::Parked => ("parked", "‖", "with parked events"),
        RouteState::Dead => ("dead", "✕", "with dead events"),
        RouteState::Blocked => ("blocked", "⊘", "with blocked events"),
        RouteState::Paused => ("parked", "‖", "paused"),
        RouteState::Waiting => ("waiting", "○", "with waiting events"),
        RouteState::NoListener => ("retry", "!", "no listener"),
    }
}

fn form(frame: &Frame, wanted: &WantedRoutes) -> Markup {
    html! {
        form.filters action=(frame.to("routes")) {
            @if let Some(state) = wanted.state { input type="hidden" name="state" value=(state.as_str()); }
            label { "Name contains" input name="q" value=(wanted.text) placeholder="Order/" autocomplete="off" spellcheck="false"; }
            button { "Filter" }
            @if *wanted != WantedRoutes::default() { a href=(frame.to("routes")) { "Clear" } }
        }
    }
}

fn row(frame: &Frame, answers: &RouteListeners<'_>, standing: &Standing<'_>) -> Markup {
    let Standing { known, events: RouteCounts { waiting, parked, blocked, dead }, .. } = *standing;
    let held = standing.held.first();
    let answer = answers.to(&known.route);
    let now = frame.known.now();
    let breaker = answers.open_breaker(&known.route, now).or_else(|| {
        answers.may_have_open_breaker(&known.route).then(|| "open on routes of its plugin that no host names".to_owned())
    });
    // A pause is ended on the route or pattern that was paused.
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
                (state(standing, &answer, breaker.is_some()))
                @if let Some(held) = held {
                    " " small.quiet {
                        @if held.route != known.route { "with " span.mono { (name(&held.route)) } " " }
                        @if let Some(at) = held.paused_at { (when(at, now)) }
                        @if let Some(by) = &held.paused_by { " by " (visible(by)) }
                        @if let Some(why) = &held.pause_reason { ": " (visible(&short(why, 160))) }
                    }
                } @else if let RouteListener::DownSink(_, sink) = &answer {
                    " " (outage(sink, now))
                } @else if let Some(open) = &breaker {
                    " " small.quiet { (open) }
                }
            }
            td.listener { (listener(standing, &answer)) }
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

/// Since when a sink is down on all hosts that find it down, and how many these are if other hosts reach it.
fn outage(sink: &DownSink, now: Timestamp) -> Markup {
    let since = sink.outage.since;
    html! {
        small.quiet {
            "for " span title=(since) { (span(now.since(since))) }
            @if sink.other_hosts > 0 {
                " on " (number(sink.hosts.len() as u64)) " of " (number((sink.hosts.len() + sink.other_hosts) as u64)) " hosts"
            }
        }
    }
}

fn listener(standing: &Standing<'_>, answer: &RouteListener<'_>) -> Markup {
    let quiet = |text: &str| html! { span.quiet { (text) } };
    match answer {
        RouteListener::Plugin(plugin) => {
            html! { span.mono { (visible(&plugin.name)) " " (visible(plugin.version.as_deref().unwrap_or_default())) } }
        }
        RouteListener::Own(owner) | RouteListener::DownSink(owner, _) => html! { (visible(&owner.to_string())) },
        _ if standing.known.route.is_pattern() => quiet("pattern"),
        _ if !standing.had_listener => quiet("none"),
        RouteListener::Unknown => quiet("none here; another host may have one"),
        RouteListener::Missing => quiet("no live host has a listener"),
    }
}

fn state(standing: &Standing<'_>, answer: &RouteListener<'_>, has_open_breaker: bool) -> Markup {
    let (class, shape, word) = match answer {
        _ if standing.is(RouteState::Paused) => badge(RouteState::Paused),
        RouteListener::DownSink(..) => ("dead", "✕", "sink down"),
        _ if has_open_breaker => ("parked", "‖", "breaker"),
        RouteListener::Plugin(_) | RouteListener::Own(_) => ("done", "●", "serving"),
        _ if standing.is(RouteState::NoListener) => badge(RouteState::NoListener),
        _ if standing.known.route.is_pattern() => ("waiting", "○", "not paused"),
        RouteListener::Unknown => ("waiting", "○", "unknown"),
        // Waiting events are parked, or become dead, as soon as a host takes them.
        RouteListener::Missing if standing.events.waiting > 0 => badge(RouteState::NoListener),
        RouteListener::Missing => ("waiting", "○", "idle"),
    };
    html! { span.state.(class) { span aria-hidden="true" { (shape) } " " (word) } }
}

#[cfg(test)]
mod tests;
