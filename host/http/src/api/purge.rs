//! Deletes old finished events.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use outbox::purge::{Purge, PurgeError, PurgeLimits};
use outbox_event::Status;
use outbox_event::time::Timestamp;
use outbox_event::units::duration_option;
use outbox_store::{Audit, Purgeable, Purged};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::access::token::Role;
use super::super::answer::PurgeReport;
use super::super::auth::Admin;
use super::super::body::Asked;
use super::super::host::{Confirming, Host};
use super::super::openapi::Endpoint;
use super::super::peer::CutOff;
use super::super::problem::{Kind, Problem};
use super::dead::longest;
use super::expected::Expected;

/// What to delete.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Purge)]
pub(super) struct Asking {
    /// Only events that finished at least this long ago: `"7d"`. Default: the retention of the host's own purge.
    #[serde(with = "duration_option")]
    #[schema(value_type = Option<String>)]
    older_than: Option<Duration>,
    /// Only events that finished by then, instead of `older_than`: the `finished_before` of the same request with `dry_run`.
    finished_before: Option<Timestamp>,
    /// Dead events instead of delivered ones.
    dead: bool,
    /// The most events to delete.
    #[schema(format = "uint64")]
    limit: Option<u64>,
    /// The most events that the caller expects to match: `count` and `left` of the same request with `dry_run`, added up.
    #[schema(format = "uint64")]
    expected_count: Option<u64>,
    /// Stop after this long, such as `"10s"`; 25 s at most.
    #[serde(with = "duration_option")]
    #[schema(value_type = Option<String>)]
    time_limit: Option<Duration>,
    /// Only count the events; delete nothing.
    dry_run: bool,
    /// Recorded in the audit log.
    reason: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/v1/purge", "purge", "Delete old finished events", purge)
            .detail(
                "At most `limit` events are deleted, oldest first. The request is refused if more than `expected_count` events match; if \
                 they are dead events, or `limit` is below `expected_count`, also if fewer match. Send `count` and `left` of the same request with \
                 `dry_run`, added up, and its `finished_before` instead of `older_than`, so that no event that finished later is meant. \
                 One request works for at most 25 s. To continue, send the `left` of the answer as `expected_count`, and `limit` lowered \
                 by its `count`. Two hosts do not wait for each other: send a request to one of them.",
            )
            .role(Role::Admin)
            .counts_first()
            .asked::<Asking>(json!({ "finished_before": "2026-03-01T12:00:00Z", "expected_count": 1200 }))
            .refuses(&[Kind::CountChanged])
            .answers::<PurgeReport>(StatusCode::OK, "How many events were deleted."),
    ]
}

/// `POST /v1/purge`.
pub(super) async fn purge(
    host: State<Host>,
    by: Admin,
    mut cut_off: CutOff,
    asked: Asked<Asking>,
) -> Result<Json<PurgeReport>, Problem> {
    let Asking { older_than, finished_before, dead, limit, expected_count, time_limit, dry_run, reason } = asked.0;
    let time = longest(time_limit);
    let settings = host.handle.purge_config();
    let status = if dead { Status::Dead } else { Status::Done };
    let oldest = Oldest::of(older_than, finished_before, settings.kept(status))?;
    let confirming = if dry_run { None } else { Some(host.confirming(&mut cut_off).await?) };
    let place = host.read_place(Role::Operator).await?;
    let now = host.store.now().await?;
    let finished_before = oldest.by(now);
    let Purgeable { count: matching, blocking } = host.store.count_purgeable(status, finished_before).await?;
    drop(place);
    let wanted = matching.min(limit.unwrap_or(u64::MAX));
    let older_than_seconds = now.since(finished_before).as_secs_f64();
    let report = |purged, left, blocking| PurgeReport { purged, left, blocking, finished_before, older_than_seconds, dry_run };
    if !dry_run {
        // The host purges by itself, too, so fewer matching events do no harm; unless a repeated request would then delete others.
        let is_part = dead || limit.is_some_and(|limit| Some(limit) < expected_count);
        let rule = if is_part { Expected::Exactly } else { Expected::AtMost };
        rule.check(expected_count, matching, &format!("{status} event"))?;
    }
    if dry_run || wanted == 0 {
        return Ok(Json(report(Purged { count: wanted, ..Purged::default() }, matching - wanted, blocking)));
    }
    if cut_off.is_over() {
        return Err(CutOff::problem());
    }
    let limits = PurgeLimits { time: Some(time), rows: Some(wanted) };
    let purge = Arc::new(Purge::new(host.lasting.clone(), settings.clone(), host.metrics.clone()));
    let purged = run(purge, by.0.audit(reason), (status, finished_before), limits, confirming, cut_off).await?;
    // Counted again: another purge may have deleted events meanwhile. If that fails, the answer still says what was deleted.
    let uncounted = Purgeable { count: matching.saturating_sub(purged.count), blocking };
    let left = host.store.count_purgeable(status, finished_before).await.unwrap_or(uncounted);
    Ok(Json(report(purged, left.count, left.blocking)))
}

/// Which events are old enough, by an age or by a time.
enum Oldest {
    Age(Duration),
    Time(Timestamp),
}

impl Oldest {
    /// What the request says, or else the retention of the host.
    fn of(age: Option<Duration>, time: Option<Timestamp>, kept: Option<Duration>) -> Result<Self, Problem> {
        match (age, time) {
            (Some(_), Some(_)) => {
                Err(Problem::field("finished_before", "it cannot be combined with older_than; send only one of them"))
            }
            (None, Some(time)) => Ok(Self::Time(time)),
            (age, None) => age.or(kept).map(Self::Age).ok_or_else(|| {
                Problem::field(
                    "older_than",
                    "give the age of the dead events to delete, such as 90d: this host keeps them forever",
                )
            }),
        }
    }

    /// The time at which an event must have finished; never later than now.
    fn by(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Age(age) => now.minus(*age),
            Self::Time(time) => (*time).min(now),
        }
    }
}

/// Ends a purge after its current batch.
struct Closing(Arc<Purge>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Purges until it is done, the server stops or the client goes away. In a task of its own: a batch that was deleted is in the
/// audit log in each of these cases.
async fn run(
    purge: Arc<Purge>,
    audit: Audit,
    (status, finished_before): (Status, Timestamp),
    limits: PurgeLimits,
    mut confirming: Option<Confirming>,
    mut cut_off: CutOff,
) -> Result<Purged, Problem> {
    let closing = Closing(purge.clone());
    let mut running = tokio::spawn(async move {
        let deleted = |_: &Purged| drop(confirming.take());
        purge.run_for(&audit, status, finished_before, limits, deleted).await
    });
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = cut_off.wait() => {
            drop(closing);
            running.await
        }
    };
    match ended {
        Ok(Ok(purged)) => Ok(purged),
        Ok(Err(PurgeError::Store(error))) => Err(error.into()),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // `PurgeError::Closed`, or the runtime ends.
        Ok(Err(_)) | Err(_) => {
            let detail = "the host is stopping; the audit log shows how many events were deleted. Send the request again when the \
                          host is running.";
            Err(Problem::new(Kind::Stopping, detail))
        }
    }
}
