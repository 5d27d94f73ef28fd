//! Retries failed events and replays dead ones.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outbox::dead::{FailedEvents, ReplayLimits, ReplayedFailed};
use outbox_event::time::Timestamp;
use outbox_event::units::duration_option;
use outbox_store::{DeadFilter, RefusedRows};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::answer::ReplayReport;
use super::super::auth::Operator;
use super::super::body::Asked;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::peer::CutOff;
use super::super::problem::Problem;
use super::dead::longest;

/// Which events to retry and replay.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Replay {
    /// Leave out events with more failed attempts than this.
    #[schema(format = "uint32", maximum = 4_294_967_295_u64)]
    retry_count_threshold: Option<u32>,
    /// The most events to retry and replay; those that wait for another attempt come first.
    #[schema(format = "uint64")]
    event_limit: Option<u64>,
    /// The most events that wait for another attempt to retry: the `retried_now` that the same request returned with `dry_run`.
    #[schema(format = "uint64")]
    waiting_limit: Option<u64>,
    /// The most dead events to replay: the `replayed` that the same request returned with `dry_run`.
    #[schema(format = "uint64")]
    dead_limit: Option<u64>,
    /// Only events that wait after this one: the `next` of a request that ran out of time.
    #[schema(format = "uint64")]
    after: Option<u64>,
    /// Only events that were dead by then: the `dead_before` of the same request with `dry_run`, or of the one that ran out of
    /// time.
    dead_before: Option<Timestamp>,
    /// Stop after this long, such as `"10s"`; 25 s at most.
    #[serde(with = "duration_option")]
    #[schema(value_type = Option<String>)]
    time_limit: Option<Duration>,
    /// Only count the events; change nothing.
    dry_run: bool,
    /// Recorded in the audit log; needed unless it is a dry run.
    reason: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let example = json!({ "retry_count_threshold": 20, "event_limit": 1_000, "reason": "the mail server answers again" });
    vec![
        Endpoint::post("/v1/replay", "replay", "Retry failed events now and replay dead events", replay)
            .detail(
                "Events that wait for another attempt become due now, and dead events become new again. Each event is taken once: an \
                 event that fails or dies again meanwhile is left alone. One request works for at most 25 s, and ends early when its client \
                 goes away or the host stops; to continue one that ran `out_of_time`, send it again with `after` set to `next`, with \
                 `dead_before`, and with each limit lowered by what was done. To change no more than was counted, send the `dead_before` that \
                 `dry_run` returned, its `retried_now` as `waiting_limit` and its `replayed` as `dead_limit`: events that began to wait \
                 meanwhile may take the places of those that were counted, and a request that is sent twice takes as many again. \
                 `POST /v1/dead/replay` refuses both.",
            )
            .role(Role::Operator)
            .counts_first()
            .asked::<Replay>(example)
            .answers::<ReplayReport>(StatusCode::OK, "How many events were retried and replayed."),
    ]
}

impl Replay {
    fn check(&self) -> Result<(), Problem> {
        // The request takes every dead event, so an empty one is refused.
        if !self.dry_run && self.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
            let detail = "give a reason for replaying all failed events; it is recorded in the audit log";
            return Err(Problem::field("reason", detail));
        }
        if self.dry_run && self.after.is_some() {
            return Err(Problem::field("after", "a dry run counts all events; leave it out"));
        }
        Ok(())
    }
}

/// `POST /v1/replay`: events that wait for another attempt are due now, and dead events are new again.
pub(super) async fn replay(
    host: State<Host>,
    by: Operator,
    cut_off: CutOff,
    asked: Asked<Replay>,
) -> Result<Json<ReplayReport>, Problem> {
    asked.0.check()?;
    let Replay {
        retry_count_threshold,
        event_limit,
        waiting_limit,
        dead_limit,
        after,
        dead_before,
        time_limit,
        dry_run,
        reason,
    } = asked.0;
    let time = longest(time_limit);
    // Counted as the replay takes them: events that die later stay dead.
    let place = host.read_place(Role::Operator).await?;
    let now = host.store.now().await?;
    let dead_before = dead_before.map_or(now, |before| before.min(now));
    let filter = DeadFilter { max_attempts: retry_count_threshold, dead_before: Some(dead_before), ..DeadFilter::default() };
    let most = event_limit.unwrap_or(u64::MAX);
    let all = host.store.count_dead(&DeadFilter::default()).await?;
    let waiting = host.store.count_waiting(retry_count_threshold).await?;
    let wanted = waiting.min(most).min(waiting_limit.unwrap_or(u64::MAX));
    if dry_run {
        let replayed = host.store.count_dead(&filter).await?.min(most - wanted).min(dead_limit.unwrap_or(u64::MAX));
        let (left_waiting, left_dead) = (waiting - wanted, all.saturating_sub(replayed));
        let (retried_now, out_of_time, next) = (wanted, false, after);
        return Ok(Json(ReplayReport {
            retried_now,
            left_waiting,
            replayed,
            left_dead,
            out_of_time,
            next,
            refused_waiting: RefusedRows::default(),
            refused_dead: RefusedRows::default(),
            dead_before,
            dry_run,
        }));
    }
    drop(place);
    let started = Instant::now();
    let audit = by.0.audit(reason);
    let limits = ReplayLimits { time: Some(time), events: event_limit, ..ReplayLimits::default() };
    let failed = FailedEvents {
        max_attempts: retry_count_threshold,
        after: after.unwrap_or(0),
        max_waiting: waiting_limit,
        max_dead: dead_limit,
        dead_before: Some(dead_before),
    };
    let goes_on = |_| !cut_off.is_over();
    let ReplayedFailed { retried, replayed, .. } = host.dead.replay_failed_while(&failed, &limits, &audit, goes_on).await?;
    let (retried_now, replayed, refused_dead) = (retried.count, replayed.count, replayed.refused);
    host.tell_hosts().await;
    let (left_waiting, left_dead) = (waiting.saturating_sub(retried_now), all.saturating_sub(replayed));
    let out_of_time = started.elapsed() >= time || cut_off.is_over();
    let next = retried.last.or(after);
    Ok(Json(ReplayReport {
        retried_now,
        left_waiting,
        replayed,
        left_dead,
        out_of_time,
        next,
        refused_waiting: retried.refused,
        refused_dead,
        dead_before,
        dry_run,
    }))
}
