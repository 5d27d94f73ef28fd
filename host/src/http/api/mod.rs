//! The API, one file a noun. Field names are those of the command line's JSON.

mod audit;
mod cloud_events;
mod dead;
mod envelopes;
mod events;
mod monitor;
mod nodes;
mod plugins;
mod purge;
mod replay;
mod routes;
mod stats;
mod write;

use axum::Router;
use axum::routing::{get, post};

use super::host::Host;

/// Every route of the API.
pub(super) fn routes() -> Router<Host> {
    Router::new()
        .route(super::LIVEZ, get(async || "ok\n"))
        .route(super::READYZ, get(monitor::ready))
        .route(super::METRICS, get(monitor::metrics))
        .route("/v1/events", get(events::list).post(write::write))
        .route("/v1/events/{id}", get(events::show))
        .route("/v1/events/{id}/why", get(events::why))
        .route("/v1/dead", get(dead::list))
        .route("/v1/dead/count", get(dead::count))
        .route("/v1/dead/replay", post(dead::replay_all))
        .route("/v1/dead/{id}", get(dead::show))
        .route("/v1/dead/{id}/replay", post(dead::replay))
        .route("/v1/dead/{id}/skip", post(dead::skip))
        .route("/v1/dead/{id}/discard", post(dead::discard))
        .route("/v1/replay", post(replay::replay))
        .route("/v1/purge", post(purge::purge))
        .route("/v1/plugins", get(plugins::list))
        .route("/v1/routes", get(routes::list))
        .route("/v1/routes/{aggregate_type}/{event_type}/pause", post(routes::pause))
        .route("/v1/routes/{aggregate_type}/{event_type}/resume", post(routes::resume))
        .route("/v1/stats", get(stats::show))
        .route("/v1/now", get(stats::now))
        .route("/v1/stream", get(stats::follow))
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/audit", get(audit::list))
}
