//! Everything that failed goes again.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::super::auth::{Operator, Role};
use super::super::body::Asked;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::problem::Problem;
use super::dead::longest;
use crate::dead::ReplayLimits;
use crate::store::DeadFilter;

/// How many of the events that wait for another attempt one request lets go: by one statement, so that none of them goes twice.
const RETRIED_AT_ONCE: u32 = 1_000;

/// What to let go again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Replay {
    /// Leave alone what failed more often than this.
    #[schema(format = "uint32", maximum = 4_294_967_295_u64)]
    retry_count_threshold: Option<u32>,
    /// At most so many, those that wait first.
    #[schema(format = "uint64")]
    event_limit: Option<u64>,
    /// Stop after this long, such as `"10s"`; 25 s at most.
    time_limit: Option<String>,
    /// Counts, and changes nothing.
    dry_run: bool,
    /// Kept by the audit; needed unless it is a dry run.
    reason: Option<String>,
}

/// What became of the events that failed.
#[derive(Serialize, ToSchema)]
#[schema(as = ReplayReport)]
pub(super) struct Report {
    /// How many of those that waited for another attempt are due now.
    retried_now: u64,
    /// How many wait still: one request lets at most 1,000 go at once, each once.
    left_waiting: u64,
    /// How many dead events are new again.
    replayed: u64,
    /// How many are dead still.
    left_dead: u64,
    /// Whether the time was over before all had gone; the same request goes on.
    out_of_time: bool,
    /// Whether nothing was done.
    dry_run: bool,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let example = json!({ "retry_count_threshold": 20, "event_limit": 1_000, "reason": "the mail server answers again" });
    vec![
        Endpoint::post("/v1/replay", "replay", "Let everything that failed go again", replay)
            .detail(
                "What waits for another attempt is due now, and what is dead is new again. One request lets at most 1,000 events go that \
                 wait, each once, brings back nothing that dies meanwhile, and works for at most 25 s; a repeat goes on.",
            )
            .role(Role::Operator)
            .asks_the_database()
            .asked::<Replay>(example)
            .answers::<Report>(StatusCode::OK, "How many go again."),
    ]
}

/// `POST /v1/replay`: what waits for another attempt is due now, and what is dead is new again.
pub(super) async fn replay(host: State<Host>, by: Operator, asked: Asked<Replay>) -> Result<Json<Report>, Problem> {
    let Replay { retry_count_threshold, event_limit, time_limit, dry_run, reason } = asked.0;
    let time = longest(time_limit.as_deref())?;
    // It takes every dead event: never by a request that says nothing.
    if !dry_run && reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return Err(Problem::field("reason", "say why everything that failed goes again; the audit keeps it"));
    }
    // What dies from here on stays dead: else this request could push one event through all its attempts, again and again.
    let now = host.store.now().await?;
    let filter = DeadFilter { max_attempts: retry_count_threshold, dead_before: Some(now), ..DeadFilter::default() };
    let most = event_limit.unwrap_or(u64::MAX);
    let all = host.dead.count(&DeadFilter::default()).await?;
    let waiting = host.store.count_waiting(retry_count_threshold).await?;
    let wanted = waiting.min(most).min(u64::from(RETRIED_AT_ONCE));
    if dry_run {
        let replayed = host.dead.count(&filter).await?.min(most - wanted);
        let (left_waiting, left_dead) = (waiting - wanted, all.saturating_sub(replayed));
        return Ok(Json(Report { retried_now: wanted, left_waiting, replayed, left_dead, out_of_time: false, dry_run }));
    }
    let started = Instant::now();
    let audit = by.0.audit(reason);
    let at_once =
        ReplayLimits { batch_size: RETRIED_AT_ONCE, time: Some(time), events: Some(wanted), ..ReplayLimits::default() };
    let retried_now = host.dead.retry_all_now(retry_count_threshold, &at_once, &audit, |_| {}).await?;
    let time_left = Some(time.saturating_sub(started.elapsed()));
    let limits = ReplayLimits { time: time_left, events: Some(most.saturating_sub(retried_now)), ..ReplayLimits::default() };
    let replayed = host.dead.replay_all(&filter, &limits, &audit, |_| {}).await?;
    host.tell_hosts().await;
    let (left_waiting, left_dead) = (waiting.saturating_sub(retried_now), all.saturating_sub(replayed));
    let out_of_time = started.elapsed() >= time;
    Ok(Json(Report { retried_now, left_waiting, replayed, left_dead, out_of_time, dry_run }))
}
