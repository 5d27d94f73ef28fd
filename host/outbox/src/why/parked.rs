//! Why an event was parked, from the reason that the host wrote into the row, in sentences.

use super::Facts;
use super::reason::{never_had_listener, passed_by_relays, waits_for_listener};
use crate::deceptive::shown;
use crate::event::Route;
use crate::listener::{HAD_LISTENER, NO_LISTENER_AT_ALL, NoListener};
use crate::store::{Record, RouteRecord};
use crate::time::Timestamp;
use crate::wording::DID_YOU_MEAN;

/// Why a host parked the event, and what releases it.
pub(super) fn parked(known: &Facts, record: &Record) -> String {
    let route = format!("{}/{}", record.aggregate_type, record.event_type);
    let reason = record.parked.as_deref().unwrap_or_default();
    let why = unanswered(reason, &route)
        .or_else(|| after_pause(reason))
        .unwrap_or_else(|| format!("It is parked. When a host parked it, the reason was: {reason}."));
    let relay = passed_by_relays(known, record).map_or_else(String::new, |why| format!(" Note that {why}."));
    let of = Route::new(record.aggregate_type.as_str(), record.event_type.as_str());
    let misspelt = of.is_ok_and(|of| may_be_misspelt(reason, &of, &known.routes));
    let way_out =
        if misspelt { format!(" No host ever had one: if that name is a mistake, {MISSPELT}.") } else { String::new() };
    let (why, route) = (shown(&why), shown(&route));
    format!("{why} The event is delivered as soon as a host has a listener for {route}.{relay}{way_out}")
}

/// Advice for a due event that waits for a listener, or whose route never had one. Empty for all other events.
pub(super) fn listener_advice(known: &Facts, record: &Record) -> String {
    let route = format!("{}/{}", record.aggregate_type, record.event_type);
    if waits_for_listener(record) {
        let add = format!("Add a plugin, listener or relay for {}", shown(&route));
        format!(" {add}; if that name is a mistake, write the event again under the right name.")
    } else if never_had_listener(known, record) {
        format!(" No host has had a listener for {} yet: add a plugin, listener or relay for it.", shown(&route))
    } else {
        String::new()
    }
}

/// How to get rid of the events of a route that [may be misspelt](may_be_misspelt); follows "if that name is a mistake".
pub const MISSPELT: &str = "a host that serves other routes gives its events up, unless its settings say otherwise: start one with \
                            `outbox run --set dispatcher.unroutable=dead`; then skip or discard them";

/// When a host first had a listener for a route, or a relay whose pattern covers it; `None` if no host had one.
#[must_use]
pub fn first_listener(known: &RouteRecord, routes: &[RouteRecord]) -> Option<Timestamp> {
    let relays = routes.iter().filter(|other| other.route.is_pattern() && other.route.covers(&known.route));
    known.first_seen_at.or_else(|| relays.filter_map(|relay| relay.first_seen_at).min())
}

/// Whether an event of this route is parked only because of its host's settings, or because that host had no listener at all. A
/// route that ever had a listener, or a relay whose pattern covers it, is remembered: hosts park its events whatever their
/// settings are. So does a host with a plugin that does not load.
#[must_use]
pub fn may_be_misspelt(parked: &str, route: &Route, routes: &[RouteRecord]) -> bool {
    let by_settings = NoListener::read(parked).is_some_and(|none| none.awaited.is_none_or(|why| why == NO_LISTENER_AT_ALL));
    let answers = |known: &Route| known == route || known.is_pattern() && known.covers(route);
    by_settings && !routes.iter().any(|known| known.first_seen_at.is_some() && answers(&known.route))
}

/// Whether an event was parked because a plugin of its host may answer the route, but did not serve at that time: it failed to load, for
/// example. Until a plugin is loaded, its routes are unknown.
#[must_use]
pub fn waits_for_plugin(parked: &str) -> bool {
    let awaited = NoListener::read(parked).and_then(|none| none.awaited);
    awaited.is_some_and(|why| why != NO_LISTENER_AT_ALL && !why.starts_with(HAD_LISTENER))
}

fn unanswered(reason: &str, route: &str) -> Option<String> {
    let NoListener { said, awaited } = NoListener::read(reason)?;
    let mut text = format!("It was parked because, at that time, the host that took it had no listener for {route}.");
    let hint = said.strip_prefix(route).and_then(|hint| hint.strip_prefix(" (")?.strip_suffix(')'));
    if let Some((question, names)) = hint.and_then(|hint| hint.strip_suffix('?')?.split_once(DID_YOU_MEAN)) {
        let question = if question.is_empty() { "" } else { " Was the aggregate type left out?" };
        text.push_str(&format!("{question} That host had listeners with similar names: did you mean {names}?"));
    }
    match awaited.map(|awaited| (awaited, awaited.strip_prefix(HAD_LISTENER))) {
        None => {}
        Some((_, Some(here))) => {
            text.push_str(" The route had a listener before, or another host has one.");
            text.extend(here.strip_prefix("; here ").map(|why| format!(" On that host, {why}.")));
        }
        Some((NO_LISTENER_AT_ALL, None)) => text.push_str(" That host had no listener at all."),
        Some((why, None)) => text.push_str(&format!(" On that host, {why}.")),
    }
    Some(text)
}

/// The sentence for an event that was parked by a pause which has ended.
fn after_pause(reason: &str) -> Option<String> {
    let (route, how) = reason.strip_prefix("the route ")?.split_once(" is paused")?;
    Some(format!("It was parked because, at that time, the route {route} was paused{how}. It is no longer paused."))
}
