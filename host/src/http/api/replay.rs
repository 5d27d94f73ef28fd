//! Everything that failed goes again.

use std::time::Instant;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::super::auth::Operator;
use super::super::body::Asked;
use super::super::host::Host;
use super::super::problem::Problem;
use super::dead::longest;
use crate::dead::ReplayLimits;
use crate::store::DeadFilter;

/// What to let go again.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Replay {
    /// Leave alone what failed more often than this.
    retry_count_threshold: Option<u32>,
    /// At most so many, those that wait first.
    event_limit: Option<u64>,
    /// Stop after this long, such as `"10s"`; 25 s at most.
    time_limit: Option<String>,
    dry_run: bool,
    reason: Option<String>,
}

/// What became of the events that failed.
#[derive(Serialize)]
pub(super) struct Report {
    retried_now: u64,
    replayed: u64,
    left_dead: u64,
    /// Whether the time was over before all had gone; the same request goes on.
    out_of_time: bool,
    dry_run: bool,
}

/// `POST /v1/replay`: what waits for another attempt is due now, and what is dead is new again.
pub(super) async fn replay(host: State<Host>, by: Operator, asked: Asked<Replay>) -> Result<Json<Report>, Problem> {
    let Replay { retry_count_threshold, event_limit, time_limit, dry_run, reason } = asked.0;
    let time = longest(time_limit.as_deref())?;
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
        let left_dead = all.saturating_sub(replayed);
        return Ok(Json(Report { retried_now, replayed, left_dead, out_of_time: false, dry_run }));
    }
    let started = Instant::now();
    let limits = |gone: u64| ReplayLimits {
        time: Some(time.saturating_sub(started.elapsed())),
        events: event_limit.map(|most| most.saturating_sub(gone)),
        ..ReplayLimits::default()
    };
    let audit = by.0.audit(reason);
    let retried_now = host.dead.retry_all_now(retry_count_threshold, &limits(0), &audit, |_| {}).await?;
    let replayed = host.dead.replay_all(&filter, &limits(retried_now), &audit, |_| {}).await?;
    host.tell_hosts().await;
    let (left_dead, out_of_time) = (all.saturating_sub(replayed), started.elapsed() >= time);
    Ok(Json(Report { retried_now, replayed, left_dead, out_of_time, dry_run }))
}
