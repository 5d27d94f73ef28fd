//! The hosts that work on the table.

use axum::Json;
use axum::extract::State;

use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::params::Params;
use super::super::problem::Problem;
use crate::store::NodeRecord;

/// `GET /v1/nodes`: those that live, and those that were gone for less than a day.
pub(super) async fn list(State(host): State<Host>, _: Viewer, params: Params) -> Result<Json<Vec<NodeRecord>>, Problem> {
    params.finish()?;
    Ok(Json(host.store.nodes().await?))
}
