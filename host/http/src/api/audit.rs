//! The audit log: changes by people, and by hosts themselves.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outbox_event::units::When;
use outbox_store::{AuditFilter, AuditRecord};
use serde_json::json;

use super::super::access::token::Role;
use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::openapi::{Endpoint, text};
use super::super::params::{MAX_PAGE, Params};
use super::super::problem::Problem;
use super::events::id_schema;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/audit", "list_audit", "List changes", list)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .query(
                "limit",
                json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50 }),
                "The most records to list.",
            )
            .query("actor", text(), "Changes by this user, token or host. A host's name finds all of its processes.")
            .query("action", json!({ "type": "string", "enum": AuditFilter::ACTIONS }), "Changes of this kind.")
            .query("event_id", id_schema(), "Changes to this one event.")
            .query("since", text(), "Changes since this time, or since so long ago: `2h`.")
            .query("until", text(), "Changes up to this time, or up to so long ago.")
            .query(
                "before",
                json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
                "The `id` of the last record of the previous page.",
            )
            .answers_list::<AuditRecord>(StatusCode::OK, "Newest first."),
    ]
}

/// `GET /v1/audit`: newest first; `before` is the `id` of the last record of the previous page.
pub(super) async fn list(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Vec<AuditRecord>>, Problem> {
    let limit = params.limit();
    let (actor, action) = (params.text(&["actor"]), params.one_of("action", &AuditFilter::ACTIONS));
    let event_id = params.value("event_id", "write the id of an event");
    let (since, until) = (params.value("since", When::HINT), params.value("until", When::HINT));
    let before = params.value("before", "write the `id` of the last record of the previous page");
    params.finish()?;
    let now = host.store.now().await?;
    let at = |when: Option<When>| when.map(|when| when.from(now));
    let filter = AuditFilter { actor, action, event_id, since: at(since), until: at(until), before, ..AuditFilter::default() };
    Ok(Json(host.store.list_audit(&filter, limit).await?))
}
