//! What watches a host asks for: whether it can do its work, and what it has counted. Neither asks the database.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use outbox::metrics::CONTENT_TYPE;
use outbox::readiness::UnreadyCode;
use outbox_event::{Route, SinkStatus};
use outbox_store::StalledRoute;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::params::Params;
use super::super::problem::{Kind, Problem};

/// Whether the host can do its work, as a probe is told.
#[derive(Serialize, ToSchema)]
pub(super) struct Ready {
    ready: bool,
    reasons: Vec<Reason>,
    /// Routes that this host cannot deliver at the moment. They do not make it unready. Sent only with a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    stalled: Option<Vec<StalledRoute>>,
    /// Sinks that are down, as this host sees them. They do not make it unready. Sent only with a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    sinks_down: Option<Vec<SinkStatus>>,
}

/// Why the host cannot do its work.
#[derive(Serialize, ToSchema)]
#[schema(as = UnreadyReason)]
struct Reason {
    code: UnreadyCode,
    /// Only for whoever may look: it may name plugins and tell what the database said.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let text = "# TYPE outbox_events_written_total counter\noutbox_events_written_total 1\n";
    vec![
        Endpoint::get(crate::paths::READYZ, "ready", "Whether the host can do its work", ready)
            .detail("A request with a token also gets the reasons in words, the routes that the host cannot deliver, and the sinks that are down.")
            .checks_its_query()
            .refuses(&[Kind::Starting])
            .knows::<Route>()
            .answers::<Ready>(StatusCode::OK, "The host can do its work.")
            .answers::<Ready>(StatusCode::SERVICE_UNAVAILABLE, "The host cannot do its work; the answer says why."),
        Endpoint::get(crate::paths::METRICS, "metrics", "Metrics of the host", metrics)
            .role(Role::Viewer)
            .checks_its_query()
            .refuses(&[Kind::Starting])
            .answers_text(StatusCode::OK, "In the text format of Prometheus.", CONTENT_TYPE, text),
    ]
}

/// `GET /readyz`: 200 or 503, to everybody, since probes carry no token.
pub(super) async fn ready(
    State(host): State<Host>,
    viewer: Option<Viewer>,
    params: Params,
) -> Result<(StatusCode, Json<Ready>), Problem> {
    params.finish()?;
    let readiness = if viewer.is_some() { host.monitor.readiness_with_sinks() } else { host.monitor.readiness() };
    let reasons = readiness
        .reasons()
        .iter()
        .map(|reason| Reason { code: reason.code, message: viewer.is_some().then(|| reason.message.clone()) });
    let status = if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let stalled = viewer.is_some().then(|| readiness.stalled().to_vec());
    let sinks_down = viewer.is_some().then(|| readiness.sinks_down().to_vec());
    Ok((status, Json(Ready { ready: readiness.is_ready(), reasons: reasons.collect(), stalled, sinks_down })))
}

/// `GET /metrics`, in the text format of Prometheus.
pub(super) async fn metrics(
    State(host): State<Host>,
    _: Viewer,
    params: Params,
) -> Result<([(HeaderName, &'static str); 1], String), Problem> {
    params.finish()?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], host.monitor.prometheus()))
}
