//! Old finished events away.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::answer::PurgeReport;
use super::super::auth::Admin;
use super::super::body::Asked;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::peer::Stopping;
use super::super::problem::{Kind, Problem};
use super::super::token::Role;
use super::dead::longest;
use crate::event::Status;
use crate::purge::{Purge, PurgeError, PurgeLimits};
use crate::store::{Audit, PurgeRequest, Purged};
use crate::units::{count, duration_option};

/// What to delete.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Purge)]
pub(super) struct Asking {
    /// Only events that finished at least this long ago: `"7d"`. Default: the retention of the host's own purge.
    #[serde(with = "duration_option")]
    #[schema(value_type = Option<String>)]
    older_than: Option<Duration>,
    /// Dead events instead of delivered ones.
    dead: bool,
    /// The most events to delete.
    #[schema(format = "uint64")]
    limit: Option<u64>,
    /// The most events that the caller expects to be deleted: the `count` of the same request with `dry_run`.
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
                "Deletes nothing if more events match than `expected_count`, or than `limit` if that is less; `dry_run` returns the \
                 count. One request works for at most 25 s; `left` says how many events are left; repeat the request to continue.",
            )
            .role(Role::Admin)
            .counts_first()
            .asked::<Asking>(json!({ "older_than": "30d", "expected_count": 1200 }))
            .refuses(&[Kind::CountChanged])
            .answers::<PurgeReport>(StatusCode::OK, "How many events were deleted."),
    ]
}

/// `POST /v1/purge`.
pub(super) async fn purge(
    host: State<Host>,
    by: Admin,
    stopping: Option<Extension<Stopping>>,
    asked: Asked<Asking>,
) -> Result<Json<PurgeReport>, Problem> {
    let Asking { older_than, dead, limit, expected_count, time_limit, dry_run, reason } = asked.0;
    let time = longest(time_limit);
    let settings = &host.inside.purge;
    let status = if dead { Status::Dead } else { Status::Done };
    let Some(older_than) = older_than.or(settings.kept(status)) else {
        return Err(Problem::field(
            "older_than",
            "say how old dead events must be, such as 90d: this host keeps them for ever",
        ));
    };
    let place = host.look_place(Role::Operator).await?;
    let purgeable = host.store.count_purgeable(PurgeRequest { status, older_than, limit: u32::MAX }).await?;
    drop(place);
    let wanted = purgeable.count.min(limit.unwrap_or(u64::MAX));
    if !dry_run {
        check_count(expected_count, wanted, &format!("{status} event"))?;
    }
    let purged = if dry_run || wanted == 0 {
        Purged { count: wanted, ..Purged::default() }
    } else {
        let limits = PurgeLimits { time: Some(time), rows: Some(wanted) };
        let purge = Arc::new(Purge::new(host.store.clone(), settings.clone(), host.metrics.clone()));
        let stopping = stopping.map(|Extension(stopping)| stopping);
        run(purge, by.0.audit(reason), (status, older_than), limits, stopping).await?
    };
    let left = purgeable.count.saturating_sub(purged.count);
    let older_than_seconds = older_than.as_secs_f64();
    Ok(Json(PurgeReport { purged, left, blocking: purgeable.blocking, older_than_seconds, dry_run }))
}

/// Ends a purge after the batch that it is at.
struct Closing(Arc<Purge>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Purges until it is done, the server stops or the client goes away. In a task of its own: a batch that was deleted is in the audit log in
/// each of these cases.
async fn run(
    purge: Arc<Purge>,
    audit: Audit,
    (status, older_than): (Status, Duration),
    limits: PurgeLimits,
    stopping: Option<Stopping>,
) -> Result<Purged, Problem> {
    let closing = Closing(purge.clone());
    let mut running = tokio::spawn(async move { purge.run_for(&audit, status, older_than, limits, |_| {}).await });
    let stops = async {
        match stopping {
            Some(mut stopping) => stopping.wait().await,
            None => std::future::pending().await,
        }
    };
    let ended = tokio::select! {
        ended = &mut running => ended,
        () = stops => {
            drop(closing);
            running.await
        }
    };
    match ended {
        Ok(Ok(purged)) => Ok(purged),
        Ok(Err(PurgeError::Store(error))) => Err(error.into()),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Ok(Err(PurgeError::Closed)) | Err(_) => {
            let detail = "the host is stopping; the audit log tells how many events are deleted, and the same request goes on when \
                          the host runs";
            Err(Problem::new(Kind::Stopping, detail))
        }
    }
}

/// Whether no more is deleted than the caller expects. Fewer are no harm: the host's own purge deletes at the same time.
fn check_count(expected: Option<u64>, wanted: u64, what: &str) -> Result<(), Problem> {
    let Some(expected) = expected else {
        let detail = "say how many events you expect to be deleted; `dry_run` tells";
        return Err(Problem::field("expected_count", detail).counted(wanted));
    };
    if wanted <= expected {
        return Ok(());
    }
    let detail = format!("{} would be deleted, not {expected}; nothing was done", count(wanted, what));
    Err(Problem::new(Kind::CountChanged, detail).counted(wanted))
}
