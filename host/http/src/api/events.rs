//! Lists events and shows one.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use outbox::why::{Explanation, explain};
use outbox_event::{EventId, Status};
use outbox_store::{Filter, Record, SetAside};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::openapi::{Endpoint, ID_PATTERN, Payload, text};
use super::super::params::{Id, MAX_PAGE, Params};
use super::super::problem::{Kind, Problem};

/// A page ends early when the headers, errors and names of its rows have more bytes than this: a row may have 256 KiB of
/// headers, and a page 200 rows.
const MAX_PAGE_BYTES: usize = 1 << 20;
/// The most rows that are read from the database at once.
const AT_ONCE: u32 = 64;

/// One page of rows, without payloads.
#[derive(Serialize, ToSchema)]
pub(super) struct Page {
    pub(super) events: Vec<Record>,
    /// What to send as `after` for the next page; `null` when this is the last. A page of large rows is shorter than was asked for.
    pub(super) next: Option<u64>,
}

/// A row with its payload.
#[derive(ToSchema)]
#[schema(as = Event)]
#[expect(dead_code, reason = "it stands for what is written by two other types, in the document alone")]
pub(super) struct Shown {
    #[serde(flatten)]
    record: Record,
    #[serde(flatten)]
    payload: Payload,
}

/// A row without its payload, for viewers.
#[derive(Serialize)]
struct Hidden<'r> {
    #[serde(flatten)]
    record: &'r Record,
    payload_hidden: bool,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let statuses =
        json!({ "type": "string", "enum": ["new", "retry", "done", "dead", "parked", "blocked", "delayed", "claimed"] });
    let list = Endpoint::get("/v1/events", "list_events", "List events", list).query(
        "status",
        statuses,
        "Events in this state. `parked` and `blocked` events are set aside, `delayed` events are not due yet, and `claimed` events \
         are claimed by a host now.",
    );
    vec![
        listed(list),
        Endpoint::get("/v1/events/{id}", "show_event", "Show an event", show)
            .role(Role::Viewer)
            .part("id", id_schema(), "The event's id.")
            .asks_the_database()
            .checks_its_query()
            .query("payload", payload_schema(), PAYLOAD)
            .refuses(&[Kind::NotFound])
            .answers::<Shown>(StatusCode::OK, "The event, with its payload for operators and admins."),
        Endpoint::get("/v1/events/{id}/why", "explain_event", "Explain where an event stands", why)
            .role(Role::Viewer)
            .part("id", id_schema(), "The event's id.")
            .asks_the_database()
            .checks_its_query()
            .refuses(&[Kind::NotFound])
            .answers::<Explanation>(StatusCode::OK, "Where the event stands and why, what happens next, and what can be done."),
    ]
}

/// What `payload` does.
pub(super) const PAYLOAD: &str = "`base64`: the payload's bytes as they are, whatever they are.";

pub(super) fn payload_schema() -> Value {
    json!({ "type": "string", "enum": ["base64"] })
}

pub(super) fn id_schema() -> Value {
    json!({ "type": "string", "pattern": ID_PATTERN })
}

/// The parameters and the answer of every list of events.
pub(super) fn listed(endpoint: Endpoint) -> Endpoint {
    filtered(endpoint)
        .detail("Lists have no payloads. To filter by a header `k` with the value `v`, add `header.k=v`; one header filter is allowed.")
        .query("limit", json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50 }), "The most events to list.")
        .query("after", json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }), "The `next` of the previous page.")
        .query("newest_first", json!({ "type": "boolean", "default": false }), "Newest first instead of oldest first.")
        .answers::<Page>(StatusCode::OK, "One page of events.")
}

/// The parameters of every filter of events.
pub(super) fn filtered(endpoint: Endpoint) -> Endpoint {
    endpoint
        .role(Role::Viewer)
        .asks_the_database()
        .checks_its_query()
        .query("type", text(), "Events of this type; also `event_type`.")
        .query("aggregate_type", text(), "Events of this aggregate type.")
        .query("aggregate_id", text(), "Events of this aggregate.")
        .query("tenant", text(), "Events of this tenant; also `tenant_id`.")
        .query("error", text(), "Events whose last error contains this text.")
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
            "claimed" | "in_flight" => filter.set_aside = Some(SetAside::Claimed),
            _ => {
                let hint = "write new, retry, done, dead, parked, blocked, delayed or claimed";
                params.fault("status", format!("it is `{status}`; {hint}"));
            }
        }
    }
    page(&host, filter, params).await
}

/// The filter that every list of events can have, whatever their state.
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
    let from = params.value("after", "write the `next` of the previous page");
    params.finish()?;
    let (after, before) = if newest_first { (None, from) } else { (from, None) };
    let mut filter = Filter { after, before, newest_first, ..filter };
    let (mut events, mut bytes) = (Vec::new(), 0);
    loop {
        // One row more than the page has shows whether there is another page.
        let left = usize::try_from(limit).unwrap_or(usize::MAX) + 1 - events.len();
        let part = u32::try_from(left).unwrap_or(AT_ONCE).min(AT_ONCE);
        let rows = host.store.list(&filter, part).await?;
        let is_last = rows.len() < usize::try_from(part).unwrap_or(usize::MAX);
        for row in rows {
            if bytes > MAX_PAGE_BYTES || events.len() == usize::try_from(limit).unwrap_or(usize::MAX) {
                return Ok(Json(Page { next: events.last().map(|last: &Record| last.seq), events }));
            }
            bytes += size(&row);
            events.push(row);
        }
        if is_last {
            return Ok(Json(Page { events, next: None }));
        }
        let last = events.last().map(|last| last.seq);
        (filter.after, filter.before) = if newest_first { (None, last) } else { (last, None) };
    }
}

/// The bytes of the fields of a row that may be large.
fn size(row: &Record) -> usize {
    let headers: usize = row.headers.iter().map(|(key, value)| key.len() + value.len()).sum();
    let texts = [&row.aggregate_id, &row.tenant_id, &row.last_error, &row.parked];
    headers + texts.into_iter().flatten().map(String::len).sum::<usize>()
}

/// `GET /v1/events/{id}`: one event; its payload only for operators and admins, with `payload=base64` always in base64.
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
    Problem::new(Kind::NotFound, format!("no event has the id {id}; it may already have been discarded or purged"))
}

/// A row as this viewer may see it.
pub(super) fn shown(row: &Record, viewer: &Viewer, form: PayloadForm) -> Response {
    match (viewer.sees_payloads(), form) {
        (false, _) => Json(Hidden { record: row, payload_hidden: true }).into_response(),
        (true, PayloadForm::Readable) => Json(row.whole()).into_response(),
        (true, PayloadForm::Base64) => Json(row.whole_in_base64()).into_response(),
    }
}
