//! Which events go where, and which of them are held up.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::auth::{Operator, Viewer};
use super::super::body::Asked;
use super::super::cached::Aged;
use super::super::host::Host;
use super::super::openapi::{Endpoint, text};
use super::super::params::{MAX_PAGE, Named, Params};
use super::super::problem::{Kind, Problem};
use super::super::token::Role;
use super::dead::Why;
use crate::event::Route;
use crate::routes::PAUSE_KNOWN_WITHIN;
use crate::store::{BlockedKey, RouteRecord};
use crate::why::{held_by, holding, paused};

/// A route of the list.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedRoute)]
pub(super) struct Listed {
    #[serde(flatten)]
    known: RouteRecord,
    /// The routes and patterns whose pauses hold it, the most exact first.
    held_by: Vec<String>,
}

/// The result of a pause or a resume.
#[derive(Serialize, ToSchema)]
#[schema(as = ChangedRoute)]
pub(super) struct Changed {
    #[serde(flatten)]
    route: Route,
    /// Whether the route is paused now, by itself or by a pattern.
    paused: bool,
    /// False when the route was in that state before.
    changed: bool,
    /// The other patterns whose pauses still hold it.
    held_by: Vec<String>,
    /// How many live hosts have to apply the change.
    hosts: usize,
    /// Within how many seconds they apply it.
    known_within_seconds: u64,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let changed = |endpoint: Endpoint| {
        endpoint
            .detail("`*` stands for any name. Every host applies the change within `known_within_seconds`.")
            .role(Role::Operator)
            .part("aggregate_type", text(), "The aggregate type, at most 64 characters, or `*`.")
            .part("event_type", text(), "The event type, at most 128 characters, or `*`.")
            .asks_the_database()
            .asked::<Why>(json!({ "reason": "the mail server is down" }))
            .refuses(&[Kind::NotFound])
            .answers::<Changed>(StatusCode::OK, "The state of the route after the change.")
    };
    vec![
        Endpoint::get("/v1/routes", "list_routes", "List the routes", list)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .answers_list::<Listed>(StatusCode::OK, "Every route with its event counts and the pauses that hold it.")
            .with_age(),
        Endpoint::get(
            "/v1/routes/blocked",
            "list_blocked",
            "List the aggregates whose events wait behind another event",
            blocked,
        )
        .role(Role::Viewer)
        .asks_the_database()
        .checks_its_query()
        .query(
            "limit",
            json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50 }),
            "The most aggregates to list.",
        )
        .answers_list::<BlockedKey>(StatusCode::OK, "Longest queue first, each with the event that blocks it."),
        changed(Endpoint::post(PAUSE, "pause_route", "Pause a route", pause)),
        changed(Endpoint::post(RESUME, "resume_route", "Resume a route", resume)),
    ]
}

const PAUSE: &str = "/v1/routes/{aggregate_type}/{event_type}/pause";
const RESUME: &str = "/v1/routes/{aggregate_type}/{event_type}/resume";

/// `GET /v1/routes`.
pub(super) async fn list(State(host): State<Host>, _: Viewer, params: Params) -> Result<impl IntoResponse, Problem> {
    params.finish()?;
    let counted = host.routes.get(|| async { host.store.count_routes().await.map(Arc::from) });
    let Aged { value: routes, age } = counted.await?;
    let paused = paused(&routes);
    let listed = routes.iter().map(|known| Listed { known: known.clone(), held_by: held_by(&known.route, &paused) });
    Ok(([(header::AGE, age.as_secs())], Json(listed.collect::<Vec<Listed>>())))
}

/// `GET /v1/routes/blocked`.
pub(super) async fn blocked(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<Json<Vec<BlockedKey>>, Problem> {
    let limit = params.limit();
    params.finish()?;
    Ok(Json(host.store.blocked_keys(limit).await?))
}

/// `POST /v1/routes/{aggregate_type}/{event_type}/pause`; `*` stands for any name.
pub(super) async fn pause(
    State(host): State<Host>,
    by: Operator,
    Named(names): Named<(String, String)>,
    why: Asked<Why>,
) -> Result<Json<Changed>, Problem> {
    let route = route(names)?;
    let changed = host.store.pause(&route, &by.0.audit(why.0.reason)).await?;
    told(&host, route, changed).await
}

/// `POST /v1/routes/{aggregate_type}/{event_type}/resume`.
pub(super) async fn resume(
    State(host): State<Host>,
    by: Operator,
    Named(names): Named<(String, String)>,
    why: Asked<Why>,
) -> Result<Json<Changed>, Problem> {
    let route = route(names)?;
    let known = host.store.routes().await?;
    if !route.is_pattern() && holding(&route, &known).is_empty() && !known.iter().any(|known| known.route == route) {
        return Err(Problem::new(Kind::NotFound, format!("no route is called {route}")));
    }
    let changed = host.store.resume(&route, &by.0.audit(why.0.reason)).await?;
    told(&host, route, changed).await
}

async fn told(host: &Host, route: Route, changed: bool) -> Result<Json<Changed>, Problem> {
    if changed {
        host.tell_hosts().await;
    }
    let held_by = held_by(&route, &host.store.routes().await?);
    let hosts = host.store.nodes().await?.iter().filter(|node| node.alive).count();
    let (paused, known_within_seconds) = (!held_by.is_empty(), PAUSE_KNOWN_WITHIN.as_secs());
    Ok(Json(Changed { route, paused, changed, held_by, hosts, known_within_seconds }))
}

/// A route or a pattern of routes. A `*` within a name would be taken for a letter of it, and match nothing.
fn route((aggregate_type, event_type): (String, String)) -> Result<Route, Problem> {
    for (field, name) in [("aggregate_type", &aggregate_type), ("event_type", &event_type)] {
        if name != Route::ANY && name.contains(Route::ANY) {
            return Err(Problem::field(field, "`*` stands for a whole name; write * alone, or the full name"));
        }
    }
    Route::new(aggregate_type, event_type).map_err(|error| Problem::field("route", error.to_string()))
}
