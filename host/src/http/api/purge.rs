//! Old finished events away.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use super::super::answer::PurgeReport;
use super::super::auth::Admin;
use super::super::body::Asked;
use super::super::host::Host;
use super::super::openapi::Endpoint;
use super::super::problem::{Kind, Problem};
use super::super::token::Role;
use super::dead::longest;
use crate::event::Status;
use crate::purge::{Purge, PurgeError, PurgeLimits};
use crate::store::{PurgeRequest, Purged};
use crate::units::{count, duration_option};

/// What to delete.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = Purge)]
pub(super) struct Asking {
    /// Finished at least so long ago: `"7d"`. Default: what the host's own purge keeps.
    #[serde(with = "duration_option")]
    #[schema(value_type = Option<String>)]
    older_than: Option<Duration>,
    /// Dead events instead of delivered ones.
    dead: bool,
    /// At most so many.
    #[schema(format = "uint64")]
    limit: Option<u64>,
    /// How many the caller believes that it deletes at most: the `count` of the same request with `dry_run`.
    #[schema(format = "uint64")]
    expected_count: Option<u64>,
    /// Stop after this long, such as `"10s"`; 25 s at most.
    time_limit: Option<String>,
    /// Counts, and deletes nothing.
    dry_run: bool,
    /// Kept by the audit.
    reason: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::post("/v1/purge", "purge", "Delete old finished events", purge)
            .detail(
                "Nothing is deleted where more events match than `expected_count`, or than `limit` if that is less; `dry_run` tells \
                 the count. One request works for at most 25 s; `left` tells what is left, and a repeat goes on.",
            )
            .role(Role::Admin)
            .counts_first()
            .asked::<Asking>(json!({ "older_than": "30d", "expected_count": 1200 }))
            .refuses(&[Kind::CountChanged])
            .answers::<PurgeReport>(StatusCode::OK, "How many are deleted."),
    ]
}

/// `POST /v1/purge`.
pub(super) async fn purge(host: State<Host>, by: Admin, asked: Asked<Asking>) -> Result<Json<PurgeReport>, Problem> {
    let Asking { older_than, dead, limit, expected_count, time_limit, dry_run, reason } = asked.0;
    let time = longest(time_limit.as_deref())?;
    let settings = &host.inside.purge;
    let status = if dead { Status::Dead } else { Status::Done };
    let Some(older_than) = older_than.or(settings.kept(status)) else {
        return Err(Problem::field(
            "older_than",
            "say how old dead events must be, such as 90d: this host keeps them for ever",
        ));
    };
    let place = host.look_place().await?;
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
        let purge = Purge::new(host.store.clone(), settings.clone(), host.metrics.clone());
        let ended = purge.run_for(&by.0.audit(reason), status, older_than, limits, |_| {}).await;
        ended.map_err(|error| match error {
            PurgeError::Store(error) => error.into(),
            PurgeError::Closed => Problem::new(Kind::Stopping, "the host is stopping"),
        })?
    };
    let left = purgeable.count.saturating_sub(purged.count);
    let older_than_seconds = older_than.as_secs_f64();
    Ok(Json(PurgeReport { purged, left, blocking: purgeable.blocking, older_than_seconds, dry_run }))
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
