//! Pages that only show.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::answers::Answers;
use super::copy::Table;
use super::event::{OneEvent, Payload};
use super::events::{Events, ROWS, as_id};
use super::hosts::Own;
use super::link::{encoded, query};
use super::overview::Overview;
use super::visit::Visit;
use super::words::visible;
use super::{audit as audit_page, dead as dead_page, event as event_page, events as events_page, hosts as hosts_page};
use super::{overview as overview_page, plugins as plugins_page, routes as routes_page, served};
use crate::event::{EventId, Status};
use crate::store::{AuditFilter, DeadFilter, Filter};
use crate::why::{Explanation, Facts};

pub(super) async fn overview(visit: Visit) -> Response {
    let changes = if visit.frame.seen.gone.is_some() {
        Vec::new()
    } else {
        visit.pages.host.store.audit(overview_page::READ).await.unwrap_or_default()
    };
    let hour = visit.pages.history.hour(crate::time::Clock::now(&*crate::time::system_clock()));
    visit.page("Overview", overview_page::page(&Overview { frame: &visit.frame, hour, changes }))
}

pub(super) async fn events(visit: Visit) -> Response {
    let wanted = visit.asked.wanted();
    let faults = wanted.faults();
    if !faults.is_empty() {
        let body = events_page::unreadable(&visit.frame, &wanted, &faults);
        return (StatusCode::UNPROCESSABLE_ENTITY, visit.page("Events", body)).into_response();
    }
    if visit.wants_parts() {
        return visit.page("Events", events_page::states(&visit.frame, &wanted));
    }
    match visit.pages.host.store.list(&wanted.filter(visit.frame.seen.now()), ROWS + 1).await {
        Ok(rows) => visit.page("Events", events_page::page(&Events::of(&visit.frame, &wanted, rows))),
        Err(error) => visit.failed(error),
    }
}

/// To the event of an id; to the events of an aggregate, a route or a type otherwise. Types are looked for among the routes that are
/// known, since no index has them.
pub(super) async fn search(visit: Visit) -> Response {
    let text = visit.asked.text("q").to_owned();
    if text.is_empty() {
        return visit.over_to("events");
    }
    if let Some(id) = as_id(&text)
        && let Ok(Some(_)) = visit.pages.host.store.get(id).await
    {
        return visit.over_to(&format!("events/{}", encoded(&text)));
    }
    let known = visit.frame.seen.look.as_ref().map_or(&[][..], |look| &look.routes);
    let is = |of: fn(&crate::event::Route) -> String| known.iter().any(|known| of(&known.route) == text);
    let pairs = if let Some((aggregate_type, event_type)) = text.split_once('/').filter(|_| is(|route| route.to_string())) {
        query(&[("aggregate_type", aggregate_type), ("event_type", event_type)])
    } else if is(|route| route.event_type.as_str().to_owned()) {
        query(&[("event_type", &text)])
    } else if is(|route| route.aggregate_type.as_str().to_owned()) {
        query(&[("aggregate_type", &text)])
    } else {
        query(&[("aggregate_id", &text)])
    };
    visit.over_to(&format!("events?{pairs}"))
}

pub(super) async fn event(visit: Visit, Path(id): Path<String>) -> Response {
    let store = &visit.pages.host.store;
    let gone = || {
        visit.refused(
            StatusCode::NOT_FOUND,
            "No such event",
            "It may have been discarded or purged. The audit log lists every discard and purge by hand.",
        )
    };
    let Ok(id) = id.parse::<EventId>() else { return gone() };
    let record = match store.get(id).await {
        Ok(Some(record)) => record,
        Ok(None) => return gone(),
        Err(error) => return visit.failed(error),
    };
    let why = match Facts::gather(&**store, record.clone(), visit.pages.host.listeners.relays()).await {
        Ok(facts) => Explanation::of(&facts),
        Err(error) => return visit.failed(error),
    };
    let payload = match (visit.viewer.sees_payloads(), visit.asked.text("payload")) {
        (false, _) => Payload::Forbidden,
        (true, "show") => match store.table_in_full().await {
            Ok(name) => Payload::Asked(Table { kind: store.kind(), name }),
            Err(error) => return visit.failed(error),
        },
        (true, _) => Payload::Hidden,
    };
    let event = OneEvent { frame: &visit.frame, record: &record, why: &why, payload };
    let body = if visit.wants_parts() { event_page::moving(&event) } else { event_page::page(&event) };
    visit.page(&visible(&format!("{}/{}", record.aggregate_type, record.event_type)), body)
}

pub(super) async fn dead(visit: Visit) -> Response {
    let mut wanted = visit.asked.wanted();
    (wanted.status, wanted.header, wanted.since, wanted.until) = Default::default();
    let faults = wanted.faults();
    if !faults.is_empty() {
        return visit.refused(StatusCode::UNPROCESSABLE_ENTITY, "Dead events", &faults.join(" "));
    }
    if visit.wants_parts() {
        return visit.page("Dead", maud::html! {});
    }
    let store = &visit.pages.host.store;
    let rows = store.list(&Filter { status: Some(Status::Dead), ..wanted.filter(visit.frame.seen.now()) }, ROWS + 1).await;
    let matching = match (&visit.frame.seen.look, wanted.is_narrow()) {
        (Some(look), false) => Ok(look.stats.dead),
        _ => {
            let now = visit.frame.seen.now();
            store.count_dead(&DeadFilter { dead_before: None, ..wanted.dead_filter(now) }).await
        }
    };
    match (rows, matching) {
        (Ok(rows), Ok(matching)) => {
            let jobs = visit.pages.jobs.running();
            visit.page("Dead", dead_page::page(&Events::of(&visit.frame, &wanted, rows), matching, &jobs))
        }
        (Err(error), _) | (_, Err(error)) => visit.failed(error),
    }
}

pub(super) async fn routes(visit: Visit) -> Response {
    if visit.wants_parts() {
        return visit.page("Routes", routes_page::states(&visit.frame, &visit.asked));
    }
    let host = &visit.pages.host;
    let nodes = visit.frame.seen.look.as_ref().map_or(&[][..], |look| &look.nodes);
    let answers = Answers::of(nodes, host.owner.as_str(), &host.plugins(), &host.listeners);
    visit.page("Routes", routes_page::page(&visit.frame, &answers, &visit.asked))
}

pub(super) async fn plugins(visit: Visit) -> Response {
    if visit.wants_parts() {
        return visit.page("Plugins", maud::html! {});
    }
    let host = &visit.pages.host;
    let nodes = visit.frame.seen.look.as_ref().map_or(&[][..], |look| &look.nodes);
    let plugins = served::with_own(nodes, host.owner.as_str(), &host.plugins());
    visit.page("Plugins", plugins_page::page(&visit.frame, &plugins, &host.metrics.calls.counts(), &visit.asked))
}

pub(super) async fn hosts(visit: Visit) -> Response {
    let host = &visit.pages.host;
    let counts = host.metrics.counts();
    let own = Own {
        owner: host.owner.as_str().to_owned(),
        queued: host.inside.queue_depth(),
        in_flight: host.inside.in_flight(),
        fenced: counts.fenced_outcomes,
        leases_lost: counts.leases_lost,
        db_errors: counts.db_errors,
    };
    let body = if visit.wants_parts() {
        hosts_page::this_host(&visit.frame, &own)
    } else {
        hosts_page::page(&visit.frame, &own, &visit.asked)
    };
    visit.page("Hosts", body)
}

pub(super) async fn audit(visit: Visit) -> Response {
    if visit.wants_parts() {
        return visit.page("Audit log", maud::html! {});
    }
    let filter = audit_page::filter(&visit.asked);
    if filter.action.as_deref().is_some_and(|action| !AuditFilter::ACTIONS.contains(&action)) {
        let body = audit_page::no_such_change(&visit.frame, &filter);
        return (StatusCode::UNPROCESSABLE_ENTITY, visit.page("Audit log", body)).into_response();
    }
    match visit.pages.host.store.list_audit(&filter, audit_page::READ).await {
        Ok(records) => visit.page("Audit log", audit_page::page(&visit.frame, &filter, &records)),
        Err(error) => visit.failed(error),
    }
}
