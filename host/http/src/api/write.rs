//! Writing events.

use std::collections::HashSet;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use outbox::writer::Emitted;
use outbox_event::{EventId, TRACEPARENT, TraceParent};
use serde_json::json;

use super::super::access::token::Role;
use super::super::answer::Written;
use super::super::auth::Operator;
use super::super::body;
use super::super::host::Host;
use super::super::openapi::{CloudEvent, Endpoint, Envelope};
use super::super::problem::Problem;
use super::envelopes::Form;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let order =
        json!({ "event_type": "OrderPlaced", "aggregate_type": "Order", "aggregate_id": "42", "payload": { "total": 1 } });
    let cloud_event =
        json!({ "specversion": "1.0", "id": "e-1", "source": "/shop", "type": "OrderPlaced", "data": { "total": 1 } });
    let either = |name: &str| {
        let one = json!({ "$ref": format!("#/components/schemas/{name}") });
        json!({ "oneOf": [one, { "type": "array", "items": one }] })
    };
    let about = "One event or an array of events; CloudEvents alone, as a batch, or in the binary mode: then the attributes are \
                 headers `ce-…`, and the body is the data of any type. A UUID or a ULID that a \
                 CloudEvent has as its `id` is the id of the event; any other `id`, which another source may use too, becomes an id \
                 `ce-…` made from `source` and `id`. So a repeat is a duplicate, and the same number from another source is not.";
    let forms = vec![
        ("application/json", either("Envelope"), order),
        ("application/cloudevents+json", json!({ "$ref": "#/components/schemas/CloudEvent" }), cloud_event.clone()),
        (
            "application/cloudevents-batch+json",
            json!({ "type": "array", "items": { "$ref": "#/components/schemas/CloudEvent" } }),
            json!([cloud_event]),
        ),
    ];
    vec![
        Endpoint::post("/v1/events", "write_events", "Write events", write)
            .detail("Either all events are written or none. An event whose id was written before is skipped, so a request can be repeated.")
            .role(Role::Operator)
            .asks_the_database()
            .forms(about.to_owned(), forms)
            .knows::<Envelope>()
            .knows::<CloudEvent>()
            .answers::<Written>(StatusCode::CREATED, "At least one event was written.")
            .answers::<Written>(
                StatusCode::OK,
                "Nothing was written: every id was written before, a writer hook left the events out, or the request had no events.",
            ),
    ]
}

/// `POST /v1/events`: all are written, or none. 201; 200 when there was nothing new.
pub(super) async fn write(
    State(host): State<Host>,
    _: Operator,
    request: Request,
) -> Result<(StatusCode, Json<Written>), Problem> {
    let (parts, body) = request.into_parts();
    let form = Form::of(&parts.headers)?;
    let body = body::whole(&parts.headers, body, host.config.max_body.as_usize(), host.config.body_timeout).await?;
    let envelopes = form.envelopes(&parts.headers, &body, host.config.max_events)?;
    let (trace, single) = (trace(&parts.headers), form.is_single(&body));
    let ids: Vec<EventId> = envelopes.iter().map(outbox_event::Envelope::id).collect();
    let Emitted { written, let_through } = if envelopes.is_empty() {
        Emitted { written: Vec::new(), let_through: Vec::new() }
    } else {
        host.emit(trace, envelopes).await?
    };
    let status = if written.is_empty() { StatusCode::OK } else { StatusCode::CREATED };
    let mut new: HashSet<EventId> = written.into_iter().collect();
    let known: HashSet<EventId> = let_through.into_iter().collect();
    let (rest, suppressed_ids): (Vec<EventId>, Vec<EventId>) = ids.iter().copied().partition(|id| known.contains(id));
    let duplicates: Vec<EventId> = rest.into_iter().filter(|id| !new.remove(id)).collect();
    let event_id = single.then(|| ids.first().copied()).flatten();
    let duplicate = status == StatusCode::OK && !duplicates.is_empty() && suppressed_ids.is_empty();
    let suppressed = !suppressed_ids.is_empty();
    Ok((status, Json(Written { ids, event_id, duplicate, duplicates, suppressed, suppressed_ids })))
}

/// The request's trace context. An event's own `traceparent` takes precedence.
fn trace(headers: &HeaderMap) -> Option<TraceParent> {
    let header = headers.get(TRACEPARENT).and_then(|header| header.to_str().ok());
    header.and_then(TraceParent::parse)
}
