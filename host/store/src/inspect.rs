//! What people and tools ask of the table.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use outbox_event::{EventId, Route, Status};
use serde::{Deserialize, Serialize};

use super::{Record, StoreError};

/// What people and tools ask of the events.
#[async_trait]
pub trait InspectStore: Send + Sync {
    /// How many events stand where.
    ///
    /// # Errors
    /// The database's own; a number that cannot be had is never shown as 0.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// The same numbers for one look among many, at a cost that has a bound: of each kind at most `most` rows are counted, NEW and
    /// RETRY together, and of those that could be delivered the oldest is looked for among the `most` that were due first. A number
    /// that is `most` may be more.
    async fn sample(&self, most: u32) -> Result<Stats, StoreError>;

    /// The reasons for which hosts gave events back that are not delivered yet, each with its route: of the `most` events that are due
    /// first. The most frequent first, at most [`MOST_WAIT_REASONS`].
    async fn wait_reasons(&self, most: u32) -> Result<Vec<WaitReason>, StoreError>;

    /// Rows by filter, in order of insertion, without payloads; at most `limit`.
    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError>;

    /// The row with this `seq`, without its payload; `None` if there is no such row.
    async fn row_at(&self, sequence: u64) -> Result<Option<Record>, StoreError> {
        let only = Filter { after: sequence.checked_sub(1), before: sequence.checked_add(1), ..Filter::default() };
        Ok(self.list(&only, 1).await?.pop())
    }

    /// One row with its payload; `None` when there is none.
    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError>;
}

/// The most reasons that [`InspectStore::wait_reasons`] returns.
pub const MOST_WAIT_REASONS: u32 = 20;

/// Events of one route that wait for one reason, although their time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitReason {
    /// The aggregate type.
    pub aggregate_type: String,
    /// The event type.
    pub event_type: String,
    /// The reason that a host noted when it gave them back.
    pub reason: String,
    /// How many there are.
    pub events: u64,
    /// The earliest `wait_since` among them.
    pub since: Timestamp,
}

impl WaitReason {
    /// Events that wait; for stores of another kind, and for tests.
    #[must_use]
    pub fn new(route: &Route, reason: impl Into<String>, events: u64, since: Timestamp) -> Self {
        let (aggregate_type, event_type) = (route.aggregate_type.to_string(), route.event_type.to_string());
        Self { aggregate_type, event_type, reason: reason.into(), events, since }
    }
}

/// Which rows to list; `None` and empty mean any.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this state.
    pub status: Option<Status>,
    /// Not claimable for this reason.
    pub set_aside: Option<SetAside>,
    /// Of this event type.
    pub event_type: Option<String>,
    /// Of this aggregate type.
    pub aggregate_type: Option<String>,
    /// Of this aggregate.
    pub aggregate_id: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<String>,
    /// With this header of this value.
    pub header: Option<(String, String)>,
    /// Whose last error holds this text.
    pub error: Option<String>,
    /// That failed no more often than this.
    pub max_attempts: Option<u32>,
    /// Inserted no earlier than this.
    pub created_after: Option<Timestamp>,
    /// Inserted no later than this.
    pub created_before: Option<Timestamp>,
    /// Finished, DONE or DEAD, no earlier than this.
    pub finished_after: Option<Timestamp>,
    /// Finished, DONE or DEAD, no later than this.
    pub finished_before: Option<Timestamp>,
    /// Inserted after this row.
    pub after: Option<u64>,
    /// Inserted before this row.
    pub before: Option<u64>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
}

/// Why an event that is not finished cannot be claimed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAside {
    /// No listener is there for it, or its route is paused.
    Parked,
    /// It waits behind an earlier event of its aggregate.
    Blocked,
    /// Its time has not come: its writer or its listener asked for later, or it waits for another attempt.
    Delayed,
    /// A host holds it, and its lease is not over.
    Claimed,
}

impl SetAside {
    /// The word for it in statements.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Blocked => "blocked",
            Self::Delayed => "delayed",
            Self::Claimed => "in_flight",
        }
    }
}

/// How many events stand where. Counted from the rows at the time of asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct Stats {
    /// Written, not yet tried to an end, parked ones left out.
    pub new: u64,
    /// Failed at least once, waiting for another attempt, parked ones left out.
    pub retry: u64,
    /// Finished.
    pub done: u64,
    /// Given up.
    pub dead: u64,
    /// Waiting for a listener, or for the end of a pause.
    pub parked: u64,
    /// Waiting behind an earlier event of their aggregate; not part of the others.
    pub blocked: u64,
    /// Claimed by some host now; part of `new` and `retry`. What a host has read of its partitions is held without a claim, and
    /// is not counted here.
    pub in_flight: u64,
    /// How long the oldest due event has waited, by cause.
    pub oldest_pending_seconds: OldestPending,
}

/// How many seconds the oldest due event of each cause has waited, counted from when it was written at the earliest; `None` if no due
/// event waits for that cause. Delays that a writer, a listener or a retry policy asked for are not counted. Neither are parked events, nor
/// events behind an earlier one of their aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct OldestPending {
    /// It is due or held by a host, and no host gave it back.
    pub waits_for_host: Option<f64>,
    /// A host gave it back, as its sink is down, the breaker of its listener is open, or its listener is busy.
    pub given_back: Option<f64>,
    /// A host gave it back, as no listener answers its route.
    pub no_listener: Option<f64>,
}

impl OldestPending {
    /// Every cause by its name.
    #[must_use]
    pub const fn by_cause(&self) -> [(&'static str, Option<f64>); 3] {
        [("waits_for_host", self.waits_for_host), ("given_back", self.given_back), ("no_listener", self.no_listener)]
    }

    /// The longest wait and its cause; `None` if no event waits.
    #[must_use]
    pub fn longest(&self) -> Option<(&'static str, Duration)> {
        let ages = self.by_cause().into_iter().filter_map(|(cause, seconds)| {
            let age = Duration::try_from_secs_f64(seconds?).ok()?;
            Some((cause, age))
        });
        ages.max_by_key(|(_, age)| *age)
    }
}
