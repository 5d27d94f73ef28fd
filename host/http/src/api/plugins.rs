//! The plugins of the hosts that run.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outbox::node::{hosts, plugins};
use outbox_event::PluginStatus;
use outbox_store::NodeRecord;
use serde::Serialize;
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::auth::Viewer;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::params::Params;
use super::super::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/plugins", "list_plugins", "List the plugins of the live hosts", list)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .knows::<outbox_event::Route>()
            .answers_list::<Plugin>(StatusCode::OK, "The plugins, each once for every host that has it."),
    ]
}

/// A plugin of a host.
#[derive(Serialize, ToSchema)]
struct Plugin {
    /// The host that has it.
    host: String,
    #[serde(flatten)]
    plugin: PluginStatus,
}

/// `GET /v1/plugins`: those of this host as they are now, and those that the other live hosts have told of. Each with its `host`.
async fn list(State(host): State<Host>, _: Viewer, params: Params) -> Result<Json<Vec<Plugin>>, Problem> {
    params.finish()?;
    let nodes = hosts(&*host.store).await?;
    let of_node = |node: NodeRecord| {
        let own = node.owner == host.owner.as_str();
        let plugins = if own { host.plugins() } else { plugins(&node) };
        plugins.into_iter().map(move |plugin| Plugin { host: node.label.clone(), plugin })
    };
    Ok(Json(nodes.into_iter().filter(|node| node.alive).flat_map(of_node).collect()))
}
