//! The sinks of the hosts that run.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use outbox::node::{HostSink, hosts, live_sinks, sinks};
use outbox_event::{Route, SinkOutage, SinkState};
use outbox_store::{NodeRecord, StoreError};

use super::super::access::token::Role;
use super::super::auth::Viewer;
use super::super::cached::Aged;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::params::Params;
use super::super::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get("/v1/sinks", "list_sinks", "List the sinks of the live hosts", list)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .detail(
                "Each host judges by the messages that it sends itself. `waiting` counts the unfinished events of the routes that are \
                 relayed to the sink; it is the same for every host. The list has no pages: its length is the number of configured sinks times \
                 the number of live hosts, and at most 1,000 sinks of each other host are read.",
            )
            .knows::<Route>()
            .knows::<SinkOutage>()
            .knows::<SinkState>()
            .answers_list::<HostSink>(StatusCode::OK, "The sinks, each once for every host that has it.")
            .with_age(),
    ]
}

/// `GET /v1/sinks`: those of this host as they are now, and those in the rows of the other live hosts.
async fn list(State(host): State<Host>, _: Viewer, params: Params) -> Result<impl IntoResponse, Problem> {
    params.finish()?;
    let nodes = hosts(&*host.store).await?;
    let counted = host.routes.get(|| async {
        let routes = host.store.count_routes().await?;
        Ok::<_, StoreError>(Arc::from(routes))
    });
    let Aged { value: routes, age } = counted.await?;
    let of_node = |node: &NodeRecord| if node.owner == host.owner.as_str() { host.monitor.sinks() } else { sinks(node) };
    Ok(([(header::AGE, age.as_secs())], Json(live_sinks(&nodes, &routes, of_node))))
}
