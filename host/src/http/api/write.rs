//! Writing events.

use std::collections::HashSet;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;

use super::super::auth::Operator;
use super::super::body;
use super::super::host::Host;
use super::super::problem::Problem;
use super::envelopes::Form;
use crate::event::{EventId, TRACEPARENT, TraceParent};
use crate::telemetry::Caller;

/// What became of the events.
#[derive(Serialize)]
pub(super) struct Written {
    /// The ids of all events of the request, in their order.
    ids: Vec<EventId>,
    /// Of a request with one event: its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<EventId>,
    /// Whether nothing was written, because every id was written before.
    duplicate: bool,
    /// Those whose id was written before, or stands twice in the request; they were skipped.
    duplicates: Vec<EventId>,
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
    let ids: Vec<EventId> = envelopes.iter().map(crate::event::Envelope::id).collect();
    let written = if envelopes.is_empty() { Vec::new() } else { host.emit(caller(&parts.headers), envelopes).await? };
    let status = if written.is_empty() { StatusCode::OK } else { StatusCode::CREATED };
    let mut new: HashSet<EventId> = written.iter().copied().collect();
    let duplicates: Vec<EventId> = ids.iter().copied().filter(|id| !new.remove(id)).collect();
    let event_id = form.is_single(&body).then(|| ids.first().copied()).flatten();
    let duplicate = written.is_empty() && !duplicates.is_empty();
    Ok((status, Json(Written { ids, event_id, duplicate, duplicates })))
}

/// In whose trace the request was made. An event that says so itself stays in its own.
fn caller(headers: &HeaderMap) -> Caller {
    let header = headers.get(TRACEPARENT).and_then(|header| header.to_str().ok());
    header.and_then(TraceParent::parse).map_or(Caller::Nobody, Caller::Elsewhere)
}
