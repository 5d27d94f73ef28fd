//! Handlers that change something: by POST only, with a reason, for operators. For changes of many events and of routes there
//! is a page before, which says what would be done.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use maud::html;
use outbox::PAUSE_KNOWN_WITHIN;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, number, span};
use outbox_event::{EventId, Route};
use outbox_store::{Filter, StoreError};

use super::visit::{Refused, Visit};
use crate::pages::asked::events::WantedEvents;
use crate::pages::asked::fields::{Fields, Form};
use crate::pages::jobs::{Action, Order, listed};
use crate::pages::known::snapshot::sample;
use crate::pages::link::encoded;
use crate::pages::view::dead::{self, Preview};
use crate::pages::words::{verb, visible};
use crate::standing::RouteCounts;

fn nothing_here(visit: &Visit) -> Refused {
    visit.refused(StatusCode::NOT_FOUND, "Not found", "There is nothing at this address.")
}

fn too_late(visit: &Visit, sentence: &str) -> Refused {
    visit.refused(StatusCode::CONFLICT, "Nothing was done", sentence)
}

/// Replays, discards or skips one event.
pub(crate) async fn one(
    visit: Visit,
    Path((id, action)): Path<(String, String)>,
    Form(form): Form,
) -> Result<Response, Refused> {
    let (Ok(id), true) = (id.parse::<EventId>(), matches!(action.as_str(), "replay" | "discard" | "skip")) else {
        return Err(nothing_here(&visit));
    };
    let audit = visit.audit(&form)?;
    let store = &visit.pages.host.store;
    let changed = match action.as_str() {
        "replay" => store.replay(id, &audit),
        "skip" => store.skip(id, &audit),
        _ => store.discard(id, None, &audit),
    };
    if !visit.answer(changed).await? {
        return Err(too_late(&visit, "The event is no longer dead, or no longer exists: it was changed in the meantime."));
    }
    visit.pages.host.tell_hosts().await;
    let to = if action == "discard" { "dead".to_owned() } else { format!("events/{}", encoded(id.as_str())) };
    Ok(visit.on_to(&format!("{to}?did={action}")).await)
}

/// Says what a replay or discard of many events would do.
pub(crate) async fn preview(visit: Visit, Path(action): Path<String>) -> Result<Response, Refused> {
    let Some(action) = Action::of(&action) else { return Err(nothing_here(&visit)) };
    visit.may_act()?;
    let wanted = WantedEvents::of(&visit.asked);
    let now = visit.answer(visit.pages.host.store.now()).await?;
    let preview = visit.answer(look(&visit, action, &wanted, now, None)).await?;
    Ok(visit.page(action.word(), dead::preview(&preview)))
}

async fn look<'a>(
    visit: &'a Visit,
    action: Action,
    wanted: &'a WantedEvents,
    dead_before: Timestamp,
    fault: Option<String>,
) -> Result<Preview<'a>, StoreError> {
    let store = &visit.pages.host.store;
    let filter = wanted.dead_filter(dead_before);
    let count = store.count_dead(&filter).await?;
    let first = sample(&**store, listed(&filter)).await?;
    let newest = store.list(&Filter { newest_first: true, ..listed(&filter) }, 1).await?.pop();
    Ok(Preview { frame: &visit.frame, action, wanted, count, dead_before, first, newest, fault })
}

/// Begins a replay or discard of many events, if it is still as many as the page before said.
pub(crate) async fn many(visit: Visit, Path(action): Path<String>, Form(form): Form) -> Result<Response, Refused> {
    let Some(action) = Action::of(&action) else { return Err(nothing_here(&visit)) };
    let audit = visit.audit(&form)?;
    let wanted = WantedEvents::of(&form);
    let unreadable = |sentence| visit.refused(StatusCode::UNPROCESSABLE_ENTITY, "Nothing was done", sentence);
    let (Some(expected), Some(dead_before)) = (form.number::<u64>("count"), form.number::<Timestamp>("dead_before")) else {
        return Err(unreadable("The form is incomplete. Start again from the dead events."));
    };
    let per_second = form.number("per_second");
    if per_second.is_none() && !form.text("per_second").is_empty() {
        return Err(unreadable("The speed must be a number of events a second. Start again from the dead events."));
    }
    let filter = wanted.dead_filter(dead_before);
    let host = &visit.pages.host;
    let total = visit.answer(host.store.count_dead(&filter)).await?;
    if total != expected {
        let fault = format!("Nothing was done: you saw {}, and now {} match.", count(expected, "event"), number(total));
        let preview = visit.answer(look(&visit, action, &wanted, dead_before, Some(fault))).await?;
        return Err(visit.refused_with(StatusCode::CONFLICT, action.word(), dead::preview(&preview)));
    }
    let order = Order { action, of: wanted.in_words(), total, filter, per_second, audit };
    let Some(id) = visit.pages.jobs.begin(order, host.clone()) else {
        let body = html! {
            h1 { "Nothing was done" }
            p { "Four replays or discards are already running. Wait until one has ended, or stop one." }
            (dead::running(&visit.frame, &visit.pages.jobs.running()))
        };
        return Err(visit.refused_with(StatusCode::CONFLICT, "Nothing was done", body));
    };
    Ok(visit.on_to(&format!("jobs/{id}")).await)
}

/// How far a replay or discard of many events has come.
pub(crate) async fn progress(visit: Visit, Path(id): Path<String>) -> Result<Response, Refused> {
    match id.parse().ok().and_then(|id| Some((id, visit.pages.jobs.get(id)?))) {
        Some((id, job)) => Ok(visit.page(job.action.word(), dead::progress(&visit.frame, id, &job))),
        None => {
            let sentence = "This host knows no such job. The audit log shows what was done.";
            Err(visit.refused(StatusCode::NOT_FOUND, "Not found", sentence))
        }
    }
}

/// Stops a replay or discard of many events.
pub(crate) async fn stop(visit: Visit, Path(id): Path<String>) -> Result<Response, Refused> {
    visit.may_act()?;
    let Ok(id) = id.parse::<u64>() else { return Err(nothing_here(&visit)) };
    if let Some(job) = visit.pages.jobs.get(id) {
        job.stop();
    }
    Ok(visit.on_to(&format!("jobs/{id}")).await)
}

fn route_of(fields: &Fields) -> Option<Route> {
    Route::new(fields.text("aggregate_type"), fields.text("event_type")).ok()
}

/// Says what a pause of a route, or its end, would do.
pub(crate) async fn route_before(visit: Visit, Path(action): Path<String>) -> Result<Response, Refused> {
    let (Some(route), true) = (route_of(&visit.asked), matches!(action.as_str(), "pause" | "resume")) else {
        return Err(nothing_here(&visit));
    };
    visit.may_act()?;
    let RouteCounts { waiting, parked, .. } =
        visit.frame.known.snapshot.as_ref().map(|snapshot| RouteCounts::of(&route, &snapshot.routes)).unwrap_or_default();
    let name = visible(&route.to_string());
    let (title, meaning) = if action == "pause" {
        (
            format!("Pause the route {name}"),
            format!(
                "Every host stops calling the listener within {}; calls that have begun are finished. Until the route is resumed, its events wait: {} now, and all new ones. No event is lost, and waiting does not count as a failure.",
                span(PAUSE_KNOWN_WITHIN),
                count(waiting, "event")
            ),
        )
    } else {
        (
            format!("Resume the route {name}"),
            format!(
                "Hosts deliver its events again within seconds; {} {} waiting now.",
                count(parked, "event"),
                verb(parked, "is", "are")
            ),
        )
    };
    let word = if action == "pause" { "Pause" } else { "Resume" };
    let body = html! {
            h1 { (title) }
            p { (meaning) }
            form.sure method="post" action=(visit.frame.to(&format!("routes/{action}"))) {
                input type="hidden" name="aggregate_type" value=(route.aggregate_type.as_str());
                input type="hidden" name="event_type" value=(route.event_type.as_str());
                label { "Reason, for the audit log" input name="reason" required maxlength="1000" autocomplete="off"; }
                div.row-of { button.primary { (title) } a href=(visit.frame.to("routes")) { "Cancel" } }
            }
    };
    Ok(visit.page(word, body))
}

/// Pauses or resumes a route.
pub(crate) async fn route(visit: Visit, Path(action): Path<String>, Form(form): Form) -> Result<Response, Refused> {
    let (Some(route), true) = (route_of(&form), matches!(action.as_str(), "pause" | "resume")) else {
        return Err(nothing_here(&visit));
    };
    let audit = visit.audit(&form)?;
    let store = &visit.pages.host.store;
    let changed = if action == "pause" { store.pause(&route, &audit) } else { store.resume(&route, &audit) };
    if !visit.answer(changed).await? {
        return Err(too_late(&visit, "The route is already in that state: it was changed in the meantime."));
    }
    visit.pages.host.tell_hosts().await;
    Ok(visit.on_to(&format!("routes?did={action}")).await)
}
