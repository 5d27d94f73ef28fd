//! Handlers of pages that change nothing.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use outbox::why::{Explanation, Facts};
use outbox_event::{EventId, Status};
use outbox_store::{AuditFilter, DeadFilter, Filter};

use super::visit::{Refused, Visit};
use crate::pages::asked::events::WantedEvents;
use crate::pages::known::listeners::RouteListeners;
use crate::pages::known::plugins::with_own;
use crate::pages::known::sinks;
use crate::pages::link::{encoded, query};
use crate::pages::view;
use crate::pages::view::copy::Table;
use crate::pages::view::event::{OneEvent, Payload};
use crate::pages::view::events::{Events, ROWS};
use crate::pages::view::hosts::Own;
use crate::pages::view::overview::Overview;
use crate::pages::words::visible;

pub(crate) async fn overview(visit: Visit) -> Response {
    let in_hand = visit.pages.host.monitor.in_flight();
    let now = outbox_event::time::Clock::now(&*outbox_event::time::system_clock());
    let hour = visit.pages.history.hour(now, visit.frame.known.latest_count());
    visit.page("Overview", view::overview::page(&Overview { frame: &visit.frame, hour, in_hand }))
}

pub(crate) async fn events(visit: Visit) -> Result<Response, Refused> {
    let wanted = WantedEvents::of(&visit.asked);
    let faults = wanted.faults();
    if !faults.is_empty() {
        let body = view::events::unreadable(&visit.frame, &wanted, &faults);
        return Err(visit.refused_with(StatusCode::UNPROCESSABLE_ENTITY, "Events", body));
    }
    if visit.wants_parts() {
        return Ok(visit.page("Events", view::events::states(&visit.frame, &wanted)));
    }
    let filter = wanted.filter(visit.frame.known.now());
    let rows = visit.answer(visit.pages.host.store.list(&filter, ROWS + 1)).await?;
    Ok(visit.page("Events", view::events::page(&Events::of(&visit.frame, &wanted, rows))))
}

/// Redirects to the event of an id, or else to the events of a route, a type or an aggregate. Types are searched among the
/// known routes, since no index has them.
pub(crate) async fn search(visit: Visit) -> Result<Response, Refused> {
    let text = visit.asked.text("q").to_owned();
    if text.is_empty() {
        return Ok(visit.over_to("events"));
    }
    if let Ok(id) = text.parse::<EventId>()
        && visit.answer(visit.pages.host.store.get(id)).await?.is_some()
    {
        return Ok(visit.over_to(&format!("events/{}", encoded(&text))));
    }
    let known = visit.frame.known.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.routes);
    let is = |of: fn(&outbox_event::Route) -> String| known.iter().any(|known| of(&known.route) == text);
    let pairs = if let Some((aggregate_type, event_type)) = text.split_once('/').filter(|_| is(|route| route.to_string())) {
        query(&[("aggregate_type", aggregate_type), ("event_type", event_type)])
    } else if is(|route| route.event_type.as_str().to_owned()) {
        query(&[("event_type", &text)])
    } else if is(|route| route.aggregate_type.as_str().to_owned()) {
        query(&[("aggregate_type", &text)])
    } else {
        query(&[("aggregate_id", &text)])
    };
    Ok(visit.over_to(&format!("events?{pairs}")))
}

pub(crate) async fn event(visit: Visit, Path(id): Path<String>) -> Result<Response, Refused> {
    let store = &visit.pages.host.store;
    let gone = || {
        visit.refused(
            StatusCode::NOT_FOUND,
            "No such event",
            "It may have been discarded or purged. The audit log lists every discard and purge by hand.",
        )
    };
    let id = id.parse::<EventId>().map_err(|_| gone())?;
    let record = visit.answer(store.get(id)).await?.ok_or_else(gone)?;
    let facts = visit.answer(Facts::gather(&**store, record.clone(), visit.pages.host.listeners.relays())).await?;
    let why = Explanation::of(&facts);
    let payload = match (visit.viewer.sees_payloads(), visit.asked.text("payload")) {
        (false, _) => Payload::Forbidden,
        (true, "show") => Payload::Asked(Table { kind: store.kind(), name: visit.answer(store.table_in_full()).await? }),
        (true, _) => Payload::Hidden,
    };
    let event = OneEvent { frame: &visit.frame, record: &record, why: &why, payload };
    let body = if visit.wants_parts() { view::event::moving(&event) } else { view::event::page(&event) };
    Ok(visit.page(&visible(&format!("{}/{}", record.aggregate_type, record.event_type)), body))
}

pub(crate) async fn dead(visit: Visit) -> Result<Response, Refused> {
    let mut wanted = WantedEvents::of(&visit.asked);
    (wanted.status, wanted.header, wanted.since, wanted.until) = Default::default();
    let faults = wanted.faults();
    if !faults.is_empty() {
        return Err(visit.refused(StatusCode::UNPROCESSABLE_ENTITY, "Dead events", &faults.join(" ")));
    }
    if visit.wants_parts() {
        return Ok(visit.page("Dead", maud::html! {}));
    }
    let (store, now) = (&visit.pages.host.store, visit.frame.known.now());
    let filter = Filter { status: Some(Status::Dead), ..wanted.filter(now) };
    let rows = visit.answer(store.list(&filter, ROWS + 1)).await?;
    let matching = match (&visit.frame.known.snapshot, wanted.is_narrow()) {
        (Some(snapshot), false) => snapshot.stats.dead,
        _ => visit.answer(store.count_dead(&DeadFilter { dead_before: None, ..wanted.dead_filter(now) })).await?,
    };
    let jobs = visit.pages.jobs.running();
    Ok(visit.page("Dead", view::dead::page(&Events::of(&visit.frame, &wanted, rows), matching, &jobs)))
}

pub(crate) async fn routes(visit: Visit) -> Response {
    if visit.wants_parts() {
        return visit.page("Routes", view::routes::states(&visit.frame, &visit.asked));
    }
    let host = &visit.pages.host;
    let nodes = visit.frame.known.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.nodes);
    let down = visit.frame.known.snapshot.as_deref().map(sinks::down).unwrap_or_default();
    let answers = RouteListeners::of(nodes, host.owner.as_str(), &host.plugins(), &host.listeners).with_down(down);
    visit.page("Routes", view::routes::page(&visit.frame, &answers, &visit.asked))
}

pub(crate) async fn plugins(visit: Visit) -> Response {
    if visit.wants_parts() {
        return visit.page("Plugins", maud::html! {});
    }
    let host = &visit.pages.host;
    let nodes = visit.frame.known.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.nodes);
    let plugins = with_own(nodes, host.owner.as_str(), &host.plugins());
    visit.page("Plugins", view::plugins::page(&visit.frame, &plugins, &host.metrics.calls.counts(), &visit.asked))
}

pub(crate) async fn sinks(visit: Visit) -> Response {
    if visit.wants_parts() {
        return visit.page("Sinks", maud::html! {});
    }
    let host = &visit.pages.host;
    let snapshot = visit.frame.known.snapshot.as_ref();
    let sinks = snapshot.map(|snapshot| sinks::with_own(snapshot, host.owner.as_str(), &host.monitor.sinks()));
    visit.page("Sinks", view::sinks::page(&visit.frame, &sinks.unwrap_or_default(), &visit.asked))
}

pub(crate) async fn hosts(visit: Visit) -> Response {
    let host = &visit.pages.host;
    let counts = host.metrics.counts();
    let own = Own {
        owner: host.owner.as_str().to_owned(),
        queued: host.monitor.queue_depth(),
        in_flight: host.monitor.in_flight(),
        fenced: counts.fenced_outcomes,
        leases_lost: counts.leases_lost,
        db_errors: counts.db_errors,
    };
    let body = if visit.wants_parts() {
        view::hosts::this_host(&visit.frame, &own)
    } else {
        view::hosts::page(&visit.frame, &own, &visit.asked)
    };
    visit.page("Hosts", body)
}

pub(crate) async fn audit(visit: Visit) -> Result<Response, Refused> {
    if visit.wants_parts() {
        return Ok(visit.page("Audit log", maud::html! {}));
    }
    let filter = view::audit::filter(&visit.asked);
    if filter.action.as_deref().is_some_and(|action| !AuditFilter::ACTIONS.contains(&action)) {
        let body = view::audit::no_such_change(&visit.frame, &filter);
        return Err(visit.refused_with(StatusCode::UNPROCESSABLE_ENTITY, "Audit log", body));
    }
    let records = visit.answer(visit.pages.host.store.list_audit(&filter, view::audit::READ)).await?;
    Ok(visit.page("Audit log", view::audit::page(&visit.frame, &filter, &records)))
}
