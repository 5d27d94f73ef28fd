//! Counts of events by state: once, or as a stream every two seconds.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use outbox::Mode;
use outbox::metrics::Counts;
use outbox_event::time::Timestamp;
use outbox_store::{Stats, StoreError};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::auth::Viewer;
use super::super::cached::Aged;
use super::super::host::{Host, StreamPlace};
use super::super::openapi::Endpoint;
use super::super::params::Params;
use super::super::peer::{Peer, Stopping};
use super::super::problem::{Kind, Problem};

/// The time between two events of the stream.
const EVERY: Duration = Duration::from_secs(2);

/// How many events are in each state.
#[derive(Serialize, ToSchema)]
#[schema(as = CountedStats)]
struct Counted {
    #[serde(flatten)]
    stats: Stats,
    /// How long ago the events were counted: one count serves all clients for a second, and longer where counting takes long,
    /// so that many clients cannot load the database.
    age_seconds: f64,
}

/// One event of the stream.
#[derive(Serialize, ToSchema)]
#[schema(as = Followed)]
struct Told {
    #[serde(flatten)]
    stats: Stats,
    /// The mode of this host.
    mode: Mode,
    /// Events in the hot queue of this host.
    queue_hot: usize,
    /// Events in its cold queue.
    queue_cold: usize,
    /// How many events this host holds.
    in_flight_here: usize,
    /// How many routes have a listener in this host.
    routes_here: usize,
    /// What this host has counted since it started.
    counts: Counts,
}

/// A client of the stream.
struct Follower {
    host: Host,
    _place: StreamPlace,
    /// `None` in a service that has a server of its own.
    stopping: Option<Stopping>,
    /// The credentials of the client; checked each time, since a token expires and a session ends.
    headers: HeaderMap,
    peer: Option<Peer>,
    later: bool,
}

#[derive(PartialEq, Eq)]
enum Rest {
    Over,
    Stopped,
}

impl Follower {
    async fn rests(&mut self) -> Rest {
        let stopped = async {
            match &mut self.stopping {
                Some(stopping) => stopping.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(EVERY) => Rest::Over,
            () = stopped => Rest::Stopped,
        }
    }
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let example = "event: stats\ndata: {\"new\":0,\"done\":12,\"in_flight_here\":0}\n\n";
    vec![
        Endpoint::get("/v1/stats", "stats", "Count the events", show)
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .answers::<Counted>(StatusCode::OK, "How many events are in each state.")
            .with_age(),
        Endpoint::get("/v1/now", "now", "Get the database time", now)
            .detail("The database clock decides which events are due.")
            .role(Role::Viewer)
            .asks_the_database()
            .checks_its_query()
            .answers::<Now>(StatusCode::OK, "The current time of the database."),
        Endpoint::get("/v1/stream", "follow", "Stream the event counts", follow)
            .detail(
                "Server-sent events, one every two seconds: `stats`, whose data is a `Followed`, or `problem`, whose data has a `code` and \
                 a `detail`, while the database does not answer.",
            )
            .role(Role::Viewer)
            .checks_its_query()
            .refuses(&[Kind::Starting, Kind::Busy])
            .knows::<Told>()
            .answers_text(StatusCode::OK, "The stream; it ends with the host, and when the token or the session does.", "text/event-stream", example),
    ]
}

/// `GET /v1/stats`.
pub(super) async fn show(State(host): State<Host>, _: Viewer, params: Params) -> Result<impl IntoResponse, Problem> {
    params.finish()?;
    let Aged { value, age } = counted(&host).await?;
    Ok(([(header::AGE, age.as_secs())], Json(Counted { stats: value, age_seconds: age.as_secs_f64() })))
}

/// The counts of the table, a second old or, where counting takes long, older.
async fn counted(host: &Host) -> Result<Aged<Stats>, StoreError> {
    host.stats.get(|| host.store.stats()).await
}

/// The time.
#[derive(Serialize, ToSchema)]
pub(super) struct Now {
    now: Timestamp,
}

/// `GET /v1/now`: the time by the database's clock, which decides what is due.
pub(super) async fn now(State(host): State<Host>, _: Viewer, params: Params) -> Result<Json<Now>, Problem> {
    params.finish()?;
    Ok(Json(Now { now: host.store.now().await? }))
}

/// `GET /v1/stream`: server-sent events `stats`, or `problem` while the database does not answer.
pub(super) async fn follow(
    State(host): State<Host>,
    _: Viewer,
    stopping: Option<Extension<Stopping>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    params: Params,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    params.finish()?;
    let most = host.config.max_streams;
    let Some(place) = host.stream_place() else {
        return Err(Problem::new(Kind::Busy, format!("{most} clients follow the stream already; use /v1/stats instead")));
    };
    let stopping = stopping.map(|Extension(stopping)| stopping);
    let peer = peer.map(|Extension(peer)| peer);
    let follower = Follower { host, _place: place, stopping, headers, peer, later: false };
    let events = unfold(follower, |mut follower| async move {
        if follower.later && follower.rests().await == Rest::Stopped {
            return None;
        }
        let viewer = follower.host.access.viewer(&follower.headers, follower.peer.as_ref()).ok()?;
        follower.later = true;
        Some((Ok(look(follower.host.clone(), viewer.role).await), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Reads the counts in a task of its own: a client that goes away must not cancel a statement.
async fn look(host: Host, role: Role) -> Event {
    // Taken before the task is spawned: clients that come and go must not leave a task each behind.
    let place = host.read_place(role).await;
    let told = tokio::spawn(async move {
        let _place = place?;
        let stats = counted(&host).await?.value;
        let (queue_hot, queue_cold) = host.monitor.queue_depth();
        Ok::<_, Problem>(Told {
            stats,
            mode: host.monitor.mode(),
            queue_hot,
            queue_cold,
            in_flight_here: host.monitor.in_flight(),
            routes_here: host.listeners.routes().len(),
            counts: host.metrics.counts(),
        })
    });
    let told = told.await.unwrap_or_else(|_| Err(Problem::internal()));
    let (name, text) = match told {
        Ok(told) => ("stats", serde_json::to_string(&told).expect("numbers are JSON")),
        Err(problem) => ("problem", serde_json::json!({ "code": problem.code(), "detail": problem.detail() }).to_string()),
    };
    Event::default().event(name).data(text)
}
