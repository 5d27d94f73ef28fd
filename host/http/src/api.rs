//! The API, one file a noun. Field names are those of the command line's JSON.

mod audit;
mod cloud_events;
mod dead;
mod envelopes;
mod events;
mod expected;
mod fault;
mod monitor;
mod nodes;
mod plugins;
mod purge;
mod replay;
mod routes;
mod sinks;
mod stats;
mod write;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

use super::access::token::Role;
use super::auth::Viewer;
use super::host::Host;
use super::openapi::{Endpoint, document};
use super::params::Params;
use super::problem::Problem;

/// Every route of the API.
pub(super) fn routes() -> Router<Host> {
    endpoints().into_iter().fold(Router::new(), |router, endpoint| router.route(endpoint.path, endpoint.handler))
}

/// The table that the router and the document are both made from.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let live = Endpoint::get(super::paths::LIVEZ, "live", "Whether the process answers", async || "ok\n");
    let describe = Endpoint::get(super::paths::OPENAPI, "describe", "This document", openapi)
        .role(Role::Viewer)
        .checks_its_query()
        .answers_any(StatusCode::OK, "The OpenAPI document of this host.");
    let tables = [
        vec![live.answers_text(StatusCode::OK, "The process answers.", "text/plain; charset=utf-8", "ok\n"), describe],
        monitor::endpoints(),
        write::endpoints(),
        events::endpoints(),
        dead::endpoints(),
        replay::endpoints(),
        purge::endpoints(),
        plugins::endpoints(),
        sinks::endpoints(),
        routes::endpoints(),
        stats::endpoints(),
        nodes::endpoints(),
        audit::endpoints(),
    ];
    tables.into_iter().flatten().collect()
}

/// `GET /openapi.json`.
async fn openapi(State(host): State<Host>, _: Viewer, params: Params) -> Result<impl IntoResponse, Problem> {
    params.finish()?;
    let document = host.document.get_or_init(|| document(endpoints(), &host.config)).clone();
    Ok(([(header::CONTENT_TYPE, "application/json")], document))
}
