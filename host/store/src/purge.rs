//! Old events, deleted.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use outbox_event::{EventId, Status};
use serde::{Deserialize, Serialize};

use super::{RefusedRows, StoreError};

/// Deleting old events.
#[async_trait]
pub trait PurgeStore: Send + Sync {
    /// Deletes the oldest rows of the request. Skips rows that another transaction has locked, if the database can; their next chance is
    /// the next purge.
    ///
    /// # Errors
    /// The database's own; no row is deleted then.
    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError>;

    /// The row that [`purge`](Self::purge) would delete first; `None` if there is no row.
    async fn next_to_purge(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError>;

    /// The oldest row of this status that finished by this time and that a purge may delete, even if another transaction has locked it.
    /// Locks nothing. `None` if there is no row.
    async fn oldest_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Option<PurgeRow>, StoreError>;

    /// How many rows of this status finished by this time: the number that a purge deletes, and the number that it leaves because later
    /// events wait behind them.
    async fn count_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Purgeable, StoreError>;
}

/// The rows that a purge deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeTarget {
    /// Finished events; never one that later events of its aggregate wait behind.
    Finished {
        /// DONE or DEAD.
        status: Status,
        /// The latest time of their end. Not an age, so that every batch of a purge means the same events.
        finished_before: Timestamp,
    },
    /// Events that no host ever took; no event while any host is alive, because the host will deliver it.
    Undelivered {
        /// The shortest time since they were due and inserted.
        older_than: Duration,
    },
}

impl PurgeTarget {
    /// For errors.
    pub(super) const fn action(self) -> &'static str {
        match self {
            Self::Finished { .. } => "purge finished events",
            Self::Undelivered { .. } => "purge undelivered events",
        }
    }
}

/// One batch of a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeRequest {
    /// The rows.
    pub target: PurgeTarget,
    /// Only rows that finished, or were due, at this time or later: where an earlier batch of the same purge ended. `None` for the first
    /// batch.
    pub from: Option<Timestamp>,
    /// The `seq` of rows that the database did not delete in an earlier batch of the same purge.
    pub skip: Vec<u64>,
    /// Most rows.
    pub limit: u32,
}

impl PurgeRequest {
    /// The first batch.
    #[must_use]
    pub const fn first(target: PurgeTarget, limit: u32) -> Self {
        Self { target, from: None, skip: Vec::new(), limit }
    }
}

/// How many rows are old enough to be purged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purgeable {
    /// How many a purge deletes.
    pub count: u64,
    /// How many it leaves: they are dead, and later events of their aggregates wait behind them.
    pub blocking: u64,
}

/// The result of one batch of a purge. Fewer rows in `count` and `remaining` together than the limit of the request mean that no more
/// rows match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeBatch {
    /// How many rows were deleted.
    pub count: u64,
    /// When the first of them finished, or was due.
    pub first: Option<Timestamp>,
    /// When the last of them finished, or was due.
    pub last: Option<Timestamp>,
    /// Rows that are still there although the database accepted the DELETE, because a trigger or a policy suppressed it.
    pub remaining: Vec<PurgeRow>,
}

/// A row that is old enough to be purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeRow {
    /// Its `seq`.
    pub seq: u64,
    /// Its event; `None` if the ID is not valid.
    pub event_id: Option<EventId>,
    /// When it finished, or was due.
    pub at: Timestamp,
}

impl PurgeBatch {
    /// Rows that finished, or were due, at these times were deleted.
    #[must_use]
    pub fn of(times: &[Timestamp]) -> Self {
        let (first, last) = (times.iter().min().copied(), times.iter().max().copied());
        Self { count: times.len() as u64, first, last, remaining: Vec::new() }
    }

    /// How many rows the batch tried to delete.
    #[must_use]
    pub fn chosen(&self) -> u64 {
        self.count + self.remaining.len() as u64
    }

    /// When the last row that the batch tried to delete finished, or was due.
    #[must_use]
    pub fn end(&self) -> Option<Timestamp> {
        self.remaining.iter().map(|row| row.at).chain(self.last).max()
    }
}

/// The result of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct Purged {
    /// How many rows were deleted.
    pub count: u64,
    /// When the first of them was finished.
    pub first: Option<Timestamp>,
    /// When the last of them was finished.
    pub last: Option<Timestamp>,
    /// Rows that the database did not delete, although it deleted others.
    #[serde(default)]
    pub undeletable: RefusedRows,
}

impl Purged {
    /// Adds rows that were deleted.
    pub fn add(&mut self, count: u64, first: Option<Timestamp>, last: Option<Timestamp>) {
        self.count += count;
        self.first = [self.first, first].into_iter().flatten().min();
        self.last = [self.last, last].into_iter().flatten().max();
    }
}
