//! What was done by hand.

use axum::Json;
use axum::extract::State;

use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::params::{Params, When};
use super::super::problem::Problem;
use crate::store::{AuditFilter, AuditRecord};

/// `GET /v1/audit`: newest first; `before` is the `id` of the last notice of the page before.
pub(super) async fn list(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Vec<AuditRecord>>, Problem> {
    let limit = params.limit();
    let (actor, action) = (params.text(&["actor"]), params.text(&["action"]));
    let event_id = params.value("event_id", "write the id of an event");
    let (since, until) = (params.value("since", When::HINT), params.value("until", When::HINT));
    let before = params.value("before", "write the `id` of the last notice of the page before");
    params.finish()?;
    let now = host.store.now().await?;
    let at = |when: Option<When>| when.map(|when| when.from(now));
    let filter = AuditFilter { actor, action, event_id, since: at(since), until: at(until), before };
    Ok(Json(host.store.list_audit(&filter, limit).await?))
}
