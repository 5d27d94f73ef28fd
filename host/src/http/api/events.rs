//! Looking at events.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::params::{Id, Params};
use super::super::problem::{Kind, Problem};
use crate::event::{EventId, Status};
use crate::store::{Filter, Record, SetAside};
use crate::why::{Explanation, explain};

/// One page of rows, without payloads.
#[derive(Serialize)]
pub(super) struct Page {
    pub(super) events: Vec<Record>,
    /// What to send as `after` for the next page; `null` when this is the last.
    pub(super) next: Option<u64>,
}

/// A row without its payload, for those who may not see it.
#[derive(Serialize)]
struct Hidden<'r> {
    #[serde(flatten)]
    record: &'r Record,
    payload_hidden: bool,
}

/// `GET /v1/events`: oldest first, or newest first with `newest_first=true`.
pub(super) async fn list(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Page>, Problem> {
    let mut filter = fields(&mut params);
    if let Some(status) = params.text(&["status"]) {
        match status.to_ascii_lowercase().as_str() {
            "new" => filter.status = Some(Status::New),
            "retry" => filter.status = Some(Status::Retry),
            "done" => filter.status = Some(Status::Done),
            "dead" => filter.status = Some(Status::Dead),
            "parked" => filter.set_aside = Some(SetAside::Parked),
            "blocked" => filter.set_aside = Some(SetAside::Blocked),
            "delayed" => filter.set_aside = Some(SetAside::Delayed),
            "in_flight" => filter.set_aside = Some(SetAside::InFlight),
            _ => {
                let hint = "write new, retry, done, dead, parked, blocked, delayed or in_flight";
                params.fault("status", format!("it is `{status}`; {hint}"));
            }
        }
    }
    page(&host, filter, params).await
}

/// What every list of events can be asked for, whatever their state.
pub(super) fn fields(params: &mut Params) -> Filter {
    Filter {
        event_type: params.text(&["type", "event_type"]),
        aggregate_type: params.text(&["aggregate_type"]),
        aggregate_id: params.text(&["aggregate_id"]),
        tenant_id: params.text(&["tenant", "tenant_id"]),
        header: params.named("header."),
        error: params.text(&["error"]),
        ..Filter::default()
    }
}

/// The page that the rest of the parameters asks for.
pub(super) async fn page(host: &Host, filter: Filter, mut params: Params) -> Result<Json<Page>, Problem> {
    let limit = params.limit();
    let newest_first = params.is_set("newest_first");
    let from: Option<u64> = params.value("after", "write the `next` of the page before");
    params.finish()?;
    let (after, before) = if newest_first { (None, from) } else { (from, None) };
    // One more than the page tells whether there is another.
    let filter = Filter { after, before, newest_first, ..filter };
    let mut events = host.store.list(&filter, limit + 1).await?;
    let more = events.len() > usize::try_from(limit).unwrap_or(usize::MAX);
    if more {
        events.pop();
    }
    let next = events.last().filter(|_| more).map(|last| last.seq);
    Ok(Json(Page { events, next }))
}

/// `GET /v1/events/{id}`: whole; the payload only for those who may see it.
/// With `payload=base64` its bytes are told as they are, whatever they are.
pub(super) async fn show(State(host): State<Host>, viewer: Viewer, id: Id, mut params: Params) -> Result<Response, Problem> {
    let form = payload_form(&mut params);
    params.finish()?;
    Ok(shown(&found(&host, id.0).await?, &viewer, form))
}

/// How a payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadForm {
    /// JSON as JSON, other text as text, anything else as base64.
    Readable,
    Base64,
}

pub(super) fn payload_form(params: &mut Params) -> PayloadForm {
    match params.text(&["payload"]).as_deref() {
        None => PayloadForm::Readable,
        Some("base64") => PayloadForm::Base64,
        Some(other) => {
            params.fault("payload", format!("it is `{other}`; write base64, or leave it out"));
            PayloadForm::Readable
        }
    }
}

/// `GET /v1/events/{id}/why`: where it stands and why, what happens next and what can be done.
pub(super) async fn why(State(host): State<Host>, _: Viewer, id: Id, params: Params) -> Result<Json<Explanation>, Problem> {
    params.finish()?;
    let explained = explain(&*host.store, id.0, host.listeners.relays()).await?;
    explained.map(Json).ok_or_else(|| absent(id.0))
}

/// The row of an event.
pub(super) async fn found(host: &Host, id: EventId) -> Result<Record, Problem> {
    let row = host.store.get(id).await?;
    row.ok_or_else(|| absent(id))
}

fn absent(id: EventId) -> Problem {
    Problem::new(Kind::NotFound, format!("no event has the id {id}; it may be discarded or purged already"))
}

/// A row as this viewer may see it.
pub(super) fn shown(row: &Record, viewer: &Viewer, form: PayloadForm) -> Response {
    match (viewer.sees_payloads(), form) {
        (false, _) => Json(Hidden { record: row, payload_hidden: true }).into_response(),
        (true, PayloadForm::Readable) => Json(row.whole()).into_response(),
        (true, PayloadForm::Base64) => Json(row.whole_in_base64()).into_response(),
    }
}
