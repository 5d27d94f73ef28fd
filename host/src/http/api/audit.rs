//! What was done by hand.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::json;

use super::super::auth::{Role, Viewer};
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::params::{MAX_PAGE, Params};
use super::super::problem::Problem;
use crate::store::AuditRecord;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/audit", "list_audit", "List what was done by hand", list)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .query("limit", json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50 }), "Most rows.")
            .answers_list::<AuditRecord>(StatusCode::OK, "Newest first."),
    ]
}

/// `GET /v1/audit?limit=`: newest first.
pub(super) async fn list(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Vec<AuditRecord>>, Problem> {
    let limit = params.limit();
    params.finish()?;
    Ok(Json(host.store.audit(limit).await?))
}
