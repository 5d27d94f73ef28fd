//! What changes something: only by POST, with a reason, by whoever may; in front of it a page that says what would be done.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::html;

use super::super::standing::RouteCounts;
use super::dead::{self, Preview};
use super::events::Wanted;
use super::fields::{Fields, Form};
use super::jobs::{Action, Order, listed};
use super::link::encoded;
use super::look::sample;
use super::visit::Visit;
use super::words::{verb, visible};
use crate::event::{EventId, Route};
use crate::routes::PAUSE_KNOWN_WITHIN;
use crate::store::{Filter, StoreError};
use crate::time::Timestamp;
use crate::units::{count, number, span};

fn nothing_here(visit: &Visit) -> Response {
    visit.refused(StatusCode::NOT_FOUND, "Not found", "There is nothing at this address.")
}

/// Something with one event.
pub(super) async fn one(visit: Visit, Path((id, action)): Path<(String, String)>, Form(form): Form) -> Response {
    let (Ok(id), true) = (id.parse::<EventId>(), matches!(action.as_str(), "replay" | "discard" | "skip")) else {
        return nothing_here(&visit);
    };
    if let Err(refused) = visit.may_act() {
        return *refused;
    }
    let audit = match visit.audit(&form) {
        Ok(audit) => audit,
        Err(refused) => return *refused,
    };
    let store = &visit.pages.host.store;
    let done = match action.as_str() {
        "replay" => store.replay(id, &audit).await,
        "skip" => store.skip(id, &audit).await,
        _ => store.discard(id, None, &audit).await,
    };
    match done {
        Ok(true) => {
            visit.pages.host.tell_hosts().await;
            let to = if action == "discard" { "dead".to_owned() } else { format!("events/{}", encoded(id.as_str())) };
            visit.on_to(&format!("{to}?did={action}")).await
        }
        Ok(false) => visit.refused(
            StatusCode::CONFLICT,
            "Nothing was done",
            "The event is no longer dead, or no longer exists: somebody else was faster.",
        ),
        Err(error) => visit.failed(error),
    }
}

/// What would be done to many.
pub(super) async fn preview(visit: Visit, Path(action): Path<String>) -> Response {
    let Some(action) = Action::of(&action) else { return nothing_here(&visit) };
    if let Err(refused) = visit.may_act() {
        return *refused;
    }
    let wanted = visit.asked.wanted();
    let now = match visit.pages.host.store.now().await {
        Ok(now) => now,
        Err(error) => return visit.failed(error),
    };
    show(&visit, action, &wanted, now, None).await
}

async fn show(visit: &Visit, action: Action, wanted: &Wanted, dead_before: Timestamp, fault: Option<String>) -> Response {
    let found = async {
        let store = &visit.pages.host.store;
        let filter = wanted.dead_filter(dead_before);
        let count = store.count_dead(&filter).await?;
        let first = sample(&**store, listed(&filter)).await?;
        let newest = store.list(&Filter { newest_first: true, ..listed(&filter) }, 1).await?.pop();
        Ok::<_, StoreError>(Preview { frame: &visit.frame, action, wanted, count, dead_before, first, newest, fault })
    };
    match found.await {
        Ok(preview) => visit.page(action.word(), dead::preview(&preview)),
        Err(error) => visit.failed(error),
    }
}

/// Begins it, if it is still as many as the page before said.
pub(super) async fn many(visit: Visit, Path(action): Path<String>, Form(form): Form) -> Response {
    let Some(action) = Action::of(&action) else { return nothing_here(&visit) };
    if let Err(refused) = visit.may_act() {
        return *refused;
    }
    let audit = match visit.audit(&form) {
        Ok(audit) => audit,
        Err(refused) => return *refused,
    };
    let wanted = form.wanted();
    let (Some(expected), Some(dead_before)) = (form.number::<u64>("count"), form.number::<Timestamp>("dead_before")) else {
        return visit.refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Nothing was done",
            "The form is incomplete. Start again from the dead events.",
        );
    };
    let per_second = form.number("per_second");
    if per_second.is_none() && !form.text("per_second").is_empty() {
        let sentence = "The speed must be a number of events a second. Start again from the dead events.";
        return visit.refused(StatusCode::UNPROCESSABLE_ENTITY, "Nothing was done", sentence);
    }
    let filter = wanted.dead_filter(dead_before);
    match visit.pages.host.store.count_dead(&filter).await {
        Ok(total) if total == expected => {
            let of = wanted.in_words();
            let order = Order { action, of, total, filter, per_second, audit };
            match visit.pages.jobs.begin(order, visit.pages.host.clone()) {
                Some(id) => visit.on_to(&format!("jobs/{id}")).await,
                None => {
                    let body = html! {
                        h1 { "Nothing was done" }
                        p { "Four replays or discards are already running. Wait until one has ended, or stop one." }
                        (dead::running(&visit.frame, &visit.pages.jobs.running()))
                    };
                    (StatusCode::CONFLICT, visit.page("Nothing was done", body)).into_response()
                }
            }
        }
        Ok(total) => {
            let fault = format!("Nothing was done: you saw {}, and now {} match.", count(expected, "event"), number(total));
            (StatusCode::CONFLICT, show(&visit, action, &wanted, dead_before, Some(fault)).await).into_response()
        }
        Err(error) => visit.failed(error),
    }
}

/// How far it has come.
pub(super) async fn progress(visit: Visit, Path(id): Path<String>) -> Response {
    match id.parse().ok().and_then(|id| Some((id, visit.pages.jobs.get(id)?))) {
        Some((id, job)) => visit.page(job.action.word(), dead::progress(&visit.frame, id, &job)),
        None => {
            visit.refused(StatusCode::NOT_FOUND, "Not found", "This host knows no such job. The audit log shows what was done.")
        }
    }
}

pub(super) async fn stop(visit: Visit, Path(id): Path<String>) -> Response {
    if let Err(refused) = visit.may_act() {
        return *refused;
    }
    let Ok(id) = id.parse::<u64>() else { return nothing_here(&visit) };
    if let Some(job) = visit.pages.jobs.get(id) {
        job.stop();
    }
    visit.on_to(&format!("jobs/{id}")).await
}

fn route_of(fields: &Fields) -> Option<Route> {
    Route::new(fields.text("aggregate_type"), fields.text("event_type")).ok()
}

/// What a pause or its end would do.
pub(super) async fn route_before(visit: Visit, Path(action): Path<String>) -> Response {
    let (Some(route), true) = (route_of(&visit.asked), matches!(action.as_str(), "pause" | "resume")) else {
        return nothing_here(&visit);
    };
    if let Err(refused) = visit.may_act() {
        return *refused;
    }
    let RouteCounts { waiting, parked, .. } =
        visit.frame.seen.look.as_ref().map(|look| RouteCounts::of(&route, &look.routes)).unwrap_or_default();
    let name = visible(&route.to_string());
    let (title, meaning) = if action == "pause" {
        (
            format!("Pause the route {name}"),
            format!(
                "Every host stops calling the listener within {}; calls that have begun are finished. Until somebody resumes the route, its events wait: {} now, and all new ones. No event is lost, and waiting does not count as a failure.",
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
    visit.page(
        word,
        html! {
            h1 { (title) }
            p { (meaning) }
            form.sure method="post" action=(visit.frame.to(&format!("routes/{action}"))) {
                input type="hidden" name="aggregate_type" value=(route.aggregate_type.as_str());
                input type="hidden" name="event_type" value=(route.event_type.as_str());
                label { "Reason, for the audit log" input name="reason" required maxlength="1000" autocomplete="off"; }
                div.row-of { button.primary { (title) } a href=(visit.frame.to("routes")) { "Cancel" } }
            }
        },
    )
}

pub(super) async fn route(visit: Visit, Path(action): Path<String>, Form(form): Form) -> Response {
    let (Some(route), true) = (route_of(&form), matches!(action.as_str(), "pause" | "resume")) else {
        return nothing_here(&visit);
    };
    if let Err(refused) = visit.may_act() {
        return *refused;
    }
    let audit = match visit.audit(&form) {
        Ok(audit) => audit,
        Err(refused) => return *refused,
    };
    let store = &visit.pages.host.store;
    let changed = if action == "pause" { store.pause(&route, &audit).await } else { store.resume(&route, &audit).await };
    match changed {
        Ok(true) => {
            visit.pages.host.tell_hosts().await;
            visit.on_to(&format!("routes?did={action}")).await
        }
        Ok(false) => visit.refused(
            StatusCode::CONFLICT,
            "Nothing was done",
            "The route is already in that state: somebody else was faster.",
        ),
        Err(error) => visit.failed(error),
    }
}
