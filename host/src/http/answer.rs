//! What the API answers to those who write and change: written by its handlers, read by the commands that ask a host.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::event::EventId;
use crate::store::Purged;
use crate::time::Timestamp;

/// How many match.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct Counted {
    /// How many.
    pub count: u64,
}

/// What became of the events.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct Done {
    /// How many it was done to; of a dry run, how many it would have been.
    pub count: u64,
    /// How many match and are dead still, because a limit was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// Of a replay of many: by when the events must have died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub dead_before: Option<Timestamp>,
    /// Whether nothing was done.
    pub dry_run: bool,
}

/// What became of the events that failed.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct ReplayReport {
    /// How many of those that waited for another attempt are due now.
    pub retried_now: u64,
    /// How many wait still.
    pub left_waiting: u64,
    /// How many dead events are new again.
    pub replayed: u64,
    /// How many are dead still.
    pub left_dead: u64,
    /// Whether the time was over before all had gone.
    pub out_of_time: bool,
    /// The `after` to go on with: the last event that waited and goes now, or a number past every event when none waits any more, or else what
    /// was sent; `null` for all.
    pub next: Option<u64>,
    /// By when the dead events must have died.
    pub dead_before: Timestamp,
    /// Whether nothing was done.
    pub dry_run: bool,
}

/// What was deleted.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct PurgeReport {
    /// How many, and when they were finished.
    #[serde(flatten)]
    pub purged: Purged,
    /// How many finished by `finished_before` and are there still, because a limit was reached.
    pub left: u64,
    /// How many finished by `finished_before` and are kept, because later events of their aggregates wait behind them.
    pub blocking: u64,
    /// By when, by the database's clock, the events must have finished.
    pub finished_before: Timestamp,
    /// How long ago that is.
    pub older_than_seconds: f64,
    /// Whether nothing was deleted.
    pub dry_run: bool,
}

/// What became of the events.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
pub struct Written {
    /// The ids that the events of the request are kept under, in their order. That of a CloudEvent whose `id` is no UUID
    /// and no ULID is made from `source` and `id`, and starts with `ce-`.
    pub ids: Vec<EventId>,
    /// Of a request with one event: its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// Whether nothing was written, because every id was written before.
    pub duplicate: bool,
    /// Those whose id was written before, or stands twice in the request; they were skipped.
    pub duplicates: Vec<EventId>,
    /// Whether a writer hook of this host left events out: they are not written, and a repeat changes nothing. No field when it left none out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub suppressed: bool,
    /// Those that it left out; no field when it left none out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub suppressed_ids: Vec<EventId>,
}
