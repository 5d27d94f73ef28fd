//! Lists routes and blocked aggregates; pauses and resumes routes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use outbox::PAUSE_KNOWN_WITHIN;
use outbox::node::{HostBreaker, OpenBreakers, hosts};
use outbox::why::{Pauses, holding};
use outbox_event::Route;
use outbox_store::{BlockedKey, RouteRecord, StoreError};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::auth::{Operator, Viewer};
use super::super::body::Asked;
use super::super::cached::Aged;
use super::super::cursor;
use super::super::host::Host;
use super::super::openapi::{Endpoint, text};
use super::super::params::{MAX_PAGE, Named, Params};
use super::super::problem::{Kind, Problem};
use super::super::standing::{RouteState, Standing};
use super::dead::Why;

/// A route of the list.
#[derive(Serialize, ToSchema)]
#[schema(as = ListedRoute)]
pub(super) struct Listed {
    #[serde(flatten)]
    known: RouteRecord,
    /// The routes and patterns whose pauses hold it, the most exact first.
    held_by: Vec<String>,
    /// The open breakers of its listeners: on these hosts its events wait.
    open_breakers: Vec<HostBreaker>,
}

/// One page of routes.
#[derive(Serialize, ToSchema)]
#[schema(as = RoutePage)]
pub(super) struct Page {
    routes: Vec<Listed>,
    /// How many more breakers are open on all hosts: each host names 20 routes.
    more_open_breakers: u64,
    /// What to send as `after` for the next page; `null` when this is the last.
    next: Option<String>,
}

/// Which routes to list; `None` means any.
struct Filter {
    aggregate_type: Option<String>,
    event_type: Option<String>,
    state: Option<RouteState>,
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
            .detail(
                "Sorted by aggregate type, then by event type. Of more than 10,000 routes those that had a listener or are paused, \
                 then those with the most events.",
            )
            .query("type", text(), "Routes of this event type; also `event_type`.")
            .query("aggregate_type", text(), "Routes of this aggregate type.")
            .query(
                "state",
                json!({ "type": "string", "enum": RouteState::ALL.map(RouteState::as_str) }),
                "`paused`: held by a pause, its own or that of a pattern. `no_listener`: no host has ever had a listener for it, \
                 or its events are parked though it is not paused. The others: with events in this state.",
            )
            .query("limit", json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50 }), "The most routes to list.")
            .query("after", text(), "The `next` of the previous page.")
            .answers::<Page>(StatusCode::OK, "One page of routes, each with its event counts, the pauses that hold it and the open breakers of its listeners.")
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
pub(super) async fn list(State(host): State<Host>, _: Viewer, mut params: Params) -> Result<impl IntoResponse, Problem> {
    let limit = usize::try_from(params.limit()).unwrap_or(usize::MAX);
    let filter = Filter::read(&mut params);
    let after = params.text(&["after"]).and_then(|text| {
        let route = cursor::route(&text);
        if route.is_none() {
            params.fault("after", format!("it is `{text}`; write the `next` of the previous page"));
        }
        route
    });
    params.finish()?;
    let breakers = OpenBreakers::of(&hosts(&*host.store).await?);
    let counted = host.routes.get(|| async {
        let routes = host.store.count_routes().await?;
        Ok::<_, StoreError>(Arc::from(routes))
    });
    let Aged { value: routes, age } = counted.await?;
    let is_next = |standing: &Standing<'_>| after.as_ref().is_none_or(|after| standing.known.route > *after);
    let matching = Standing::all(&routes).filter(|standing| is_next(standing) && filter.matches(standing));
    // One route more than the page has shows whether there is another page.
    let mut page: Vec<Standing<'_>> = matching.take(limit + 1).collect();
    let has_more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| has_more).map(|last| cursor::text(&last.known.route));
    let listed = page.into_iter().map(|Standing { known, held, .. }| Listed {
        known: known.clone(),
        held_by: held.into_iter().map(|pause| pause.route.to_string()).collect(),
        open_breakers: breakers.on(&known.route).to_vec(),
    });
    let page = Page { routes: listed.collect(), more_open_breakers: breakers.more(), next };
    Ok(([(header::AGE, age.as_secs())], Json(page)))
}

impl Filter {
    fn read(params: &mut Params) -> Self {
        let state = params.text(&["state"]).and_then(|text| {
            let state = RouteState::named(&text);
            if state.is_none() {
                params.fault("state", format!("it is `{text}`; write {}", RouteState::ALL.map(RouteState::as_str).join(", ")));
            }
            state
        });
        let (event_type, aggregate_type) = (params.text(&["type", "event_type"]), params.text(&["aggregate_type"]));
        Self { aggregate_type, event_type, state }
    }

    fn matches(&self, standing: &Standing<'_>) -> bool {
        let Route { aggregate_type, event_type } = &standing.known.route;
        let is_named = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
        is_named(&self.aggregate_type, aggregate_type.as_str())
            && is_named(&self.event_type, event_type.as_str())
            && self.state.is_none_or(|state| standing.is(state))
    }
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
    answer(&host, route, changed).await
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
    answer(&host, route, changed).await
}

async fn answer(host: &Host, route: Route, changed: bool) -> Result<Json<Changed>, Problem> {
    if changed {
        host.tell_hosts().await;
    }
    let held_by = Pauses::of(&host.store.routes().await?).names_holding(&route);
    let hosts = outbox::node::hosts(&*host.store).await?.iter().filter(|node| node.alive).count();
    let (paused, known_within_seconds) = (!held_by.is_empty(), PAUSE_KNOWN_WITHIN.as_secs());
    Ok(Json(Changed { route, paused, changed, held_by, hosts, known_within_seconds }))
}

/// A route or a pattern of routes. A `*` within a longer name would be an ordinary character, and match nothing.
fn route((aggregate_type, event_type): (String, String)) -> Result<Route, Problem> {
    for (field, name) in [("aggregate_type", &aggregate_type), ("event_type", &event_type)] {
        if name != Route::ANY && name.contains(Route::ANY) {
            return Err(Problem::field(field, "`*` stands for a whole name; write * alone, or the full name"));
        }
    }
    Route::new(aggregate_type, event_type).map_err(|error| Problem::field("route", error.to_string()))
}
