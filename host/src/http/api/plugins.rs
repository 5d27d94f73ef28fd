//! The plugins of the hosts that run.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::Value;

use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::openapi::{Endpoint, Plugin};
use super::super::params::Params;
use super::super::problem::Problem;
use super::super::token::Role;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/plugins", "list_plugins", "List the plugins of the hosts that run", list)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .knows::<crate::event::Route>()
            .answers_list::<Plugin>(StatusCode::OK, "The plugins, each once for every host that has it."),
    ]
}

/// `GET /v1/plugins`: those of this host as they are now, and those that the other live hosts have told of. Each with its `host`.
pub(super) async fn list(State(host): State<Host>, _: Viewer, params: Params) -> Result<Json<Vec<Value>>, Problem> {
    params.finish()?;
    let nodes = host.store.nodes().await?;
    let mut listed = Vec::new();
    for node in nodes.into_iter().filter(|node| node.alive) {
        let own = (node.owner == host.owner.as_str()).then(|| host.plugins_json());
        // What a host of another version has told may read otherwise.
        let told = || serde_json::from_str::<Vec<Value>>(node.plugins.as_deref()?).ok();
        for mut plugin in own.or_else(told).unwrap_or_default() {
            if let Some(fields) = plugin.as_object_mut() {
                fields.insert("host".to_owned(), Value::from(node.label.as_str()));
            }
            listed.push(plugin);
        }
    }
    Ok(Json(listed))
}
