//! Answers of the API to requests that count or change events: written by its handlers, read by the commands of the program.

use outbox_event::EventId;
use outbox_event::time::Timestamp;
use outbox_store::{Purged, RefusedRows};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many events match.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct Counted {
    /// How many events match.
    pub count: u64,
}

/// What became of the events.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct Done {
    /// How many events were changed; in a dry run, how many would be.
    pub count: u64,
    /// How many matching events are still dead, because a limit was reached or the database refused to change them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// In a replay of many events: only events that were dead by this time were replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    pub dead_before: Option<Timestamp>,
    /// Events that the database refused to change, although it changed others. Absent if empty.
    #[serde(default, skip_serializing_if = "RefusedRows::is_empty")]
    #[schema(required = false)]
    pub refused: RefusedRows,
    /// Whether it was a dry run, which changes nothing.
    pub dry_run: bool,
}

/// What became of the events that failed.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct ReplayReport {
    /// How many events that waited for another attempt are due now.
    pub retried_now: u64,
    /// How many events still wait for another attempt.
    pub left_waiting: u64,
    /// How many dead events were set back to new.
    pub replayed: u64,
    /// How many events are still dead.
    pub left_dead: u64,
    /// Whether the time limit was reached before all events were changed.
    pub out_of_time: bool,
    /// The `after` of the next request: the last waiting event that is due now, a number past every event when none waits any
    /// more, or the `after` that was sent; `null` for all.
    pub next: Option<u64>,
    /// Waiting events that the database refused to change, although it changed others. Absent if empty.
    #[serde(default, skip_serializing_if = "RefusedRows::is_empty")]
    #[schema(required = false)]
    pub refused_waiting: RefusedRows,
    /// Dead events that the database refused to change, although it changed others. Absent if empty.
    #[serde(default, skip_serializing_if = "RefusedRows::is_empty")]
    #[schema(required = false)]
    pub refused_dead: RefusedRows,
    /// Only events that were dead by this time were replayed.
    pub dead_before: Timestamp,
    /// Whether it was a dry run, which changes nothing.
    pub dry_run: bool,
}

/// What a purge deleted.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct PurgeReport {
    /// How many events were deleted, when they had finished, and which events the database did not delete.
    #[serde(flatten)]
    pub purged: Purged,
    /// How many more events finished by `finished_before` and were not deleted, because a limit was reached or the
    /// database did not delete them.
    pub left: u64,
    /// How many events finished by `finished_before` and are kept, because later events of their aggregates wait behind them.
    pub blocking: u64,
    /// Only events that finished by this time, by the database's clock, were deleted.
    pub finished_before: Timestamp,
    /// How long ago that is.
    pub older_than_seconds: f64,
    /// Whether it was a dry run, which deletes nothing.
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
    /// Whether a writer hook of this host left events out: they are not written, and a repeat changes nothing. Absent when none
    /// were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub suppressed: bool,
    /// Those that it left out; no field when it left none out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub suppressed_ids: Vec<EventId>,
}
