//! How many events stand where, once or every two seconds.

use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;

use super::super::auth::Viewer;
use super::super::host::{Host, StreamPlace};
use super::super::params::Params;
use super::super::problem::{Kind, Problem};
use super::super::server::Stopping;
use crate::metrics::Counts;
use crate::outbox::Mode;
use crate::store::Stats;
use crate::time::Timestamp;

/// The rest between two looks.
const EVERY: Duration = Duration::from_secs(2);

/// What followers are told.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    stats: Stats,
    /// What this host does.
    mode: Mode,
    queue_hot: usize,
    queue_cold: usize,
    /// How many events are in the hands of this host.
    in_flight_here: usize,
    /// How many routes have a listener in this host.
    routes_here: usize,
    /// What this host has counted since it started.
    counts: Counts,
}

/// Whoever follows.
struct Follower {
    host: Host,
    _place: StreamPlace,
    /// `None` in a service that has a server of its own.
    stopping: Option<Stopping>,
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

/// `GET /v1/stats`.
pub(super) async fn show(State(host): State<Host>, _: Viewer, params: Params) -> Result<Json<Stats>, Problem> {
    params.finish()?;
    Ok(Json(host.store.stats().await?))
}

/// The time.
#[derive(Serialize)]
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
    params: Params,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    params.finish()?;
    let most = host.config.max_streams;
    let Some(place) = host.stream_place() else {
        return Err(Problem::new(Kind::Busy, format!("{most} clients follow already; ask for /v1/stats instead")));
    };
    let follower = Follower { host, _place: place, stopping: stopping.map(|Extension(stopping)| stopping), later: false };
    let events = unfold(follower, |mut follower| async move {
        if follower.later && follower.rests().await == Rest::Stopped {
            return None;
        }
        follower.later = true;
        Some((Ok(look(follower.host.clone()).await), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// In a task of its own: a follower that goes away must not break a statement off.
async fn look(host: Host) -> Event {
    // Before the task is there: those who come and go again must not leave one each behind.
    let place = host.look_place().await;
    let told = tokio::spawn(async move {
        let _place = place?;
        let stats = host.store.stats().await.map_err(Problem::from)?;
        let (queue_hot, queue_cold) = host.inside.queue_depth();
        Ok::<_, Problem>(Told {
            stats,
            mode: host.inside.mode,
            queue_hot,
            queue_cold,
            in_flight_here: host.inside.in_flight(),
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
