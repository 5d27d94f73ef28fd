//! What was done by hand.

use axum::Json;
use axum::extract::State;

use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::params::Params;
use super::super::problem::Problem;
use crate::store::AuditRecord;

/// `GET /v1/audit?limit=`: newest first.
pub(super) async fn list(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Vec<AuditRecord>>, Problem> {
    let limit = params.limit();
    params.finish()?;
    Ok(Json(host.store.audit(limit).await?))
}
