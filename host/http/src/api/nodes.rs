//! The hosts that work on the table.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outbox_store::NodeRecord;

use super::super::access::token::Role;
use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::params::Params;
use super::super::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/nodes", "list_nodes", "List the hosts that work on the table", list)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .answers_list::<NodeRecord>(StatusCode::OK, "Live hosts, and hosts that have been gone for less than a day."),
    ]
}

/// `GET /v1/nodes`: those that live, and those that were gone for less than a day.
pub(super) async fn list(State(host): State<Host>, _: Viewer, params: Params) -> Result<Json<Vec<NodeRecord>>, Problem> {
    params.finish()?;
    Ok(Json(outbox::node::hosts(&*host.store).await?))
}
