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
use super::dead::LONGEST;
use crate::dead::ReplayLimits;
use crate::store::DeadFilter;

/// What to let go again.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Replay {
    /// Leave alone what failed more often than this.
    retry_count_threshold: Option<u32>,
    /// At most so many, those that wait first.
    event_limit: Option<u64>,
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
    /// How many dead events are new again.
    replayed: u64,
    /// How many are dead still.
    left_dead: u64,
    /// Whether nothing was done.
    dry_run: bool,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let example = json!({ "retry_count_threshold": 20, "event_limit": 1_000, "reason": "the mail server answers again" });
    vec![
        Endpoint::post("/v1/replay", "replay", "Let everything that failed go again", replay)
            .detail("What waits for another attempt is due now, and what is dead is new again.")
            .role(Role::Operator)
            .asks_the_database()
            .asked::<Replay>(example)
            .answers::<Report>(StatusCode::OK, "How many go again."),
    ]
}

/// `POST /v1/replay`: what waits for another attempt is due now, and what is dead is new again.
pub(super) async fn replay(host: State<Host>, by: Operator, asked: Asked<Replay>) -> Result<Json<Report>, Problem> {
    let Replay { retry_count_threshold, event_limit, dry_run, reason } = asked.0;
    // It takes every dead event: never by a request that says nothing.
    if !dry_run && reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
        return Err(Problem::field("reason", "say why everything that failed goes again; the audit keeps it"));
    }
    let filter = DeadFilter { max_attempts: retry_count_threshold, ..DeadFilter::default() };
    let all = host.dead.count(&DeadFilter::default()).await?;
    if dry_run {
        let most = event_limit.unwrap_or(u64::MAX);
        let retried_now = host.store.count_waiting(retry_count_threshold).await?.min(most);
        let replayed = host.dead.count(&filter).await?.min(most - retried_now);
        return Ok(Json(Report { retried_now, replayed, left_dead: all.saturating_sub(replayed), dry_run }));
    }
    let started = Instant::now();
    let limits = |gone: u64| ReplayLimits {
        time: Some(LONGEST.saturating_sub(started.elapsed())),
        events: event_limit.map(|most| most.saturating_sub(gone)),
        ..ReplayLimits::default()
    };
    let audit = by.0.audit(reason);
    let retried_now = host.dead.retry_all_now(retry_count_threshold, &limits(0), &audit, |_| {}).await?;
    let replayed = host.dead.replay_all(&filter, &limits(retried_now), &audit, |_| {}).await?;
    host.tell_hosts().await;
    Ok(Json(Report { retried_now, replayed, left_dead: all.saturating_sub(replayed), dry_run }))
}
