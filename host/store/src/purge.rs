//! Old events, deleted.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::Status;
use outbox_event::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::StoreError;

/// Deleting old events.
#[async_trait]
pub trait PurgeStore: Send + Sync {
    /// Deletes finished rows, oldest first, at most `limit`; never one that later events of its aggregate wait behind.
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError>;

    /// How many rows [`purge`](Self::purge) would delete without a limit, and how many it leaves though they are old enough.
    async fn count_purgeable(&self, request: PurgeRequest) -> Result<Purgeable, StoreError>;

    /// Deletes rows that have been due for at least `older_than` and that no host ever took, those that were due first at
    /// first, at most `limit`; none while any node is alive, which is going to deliver them. `first` and `last` of the answer
    /// are the times when they were due.
    async fn purge_undelivered(&self, older_than: Duration, limit: u32) -> Result<PurgeBatch, StoreError>;
}

/// What to purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeRequest {
    /// DONE or DEAD.
    pub status: Status,
    /// Finished no later than this. A time and no age, so that every batch of a purge means the same events.
    pub finished_before: Timestamp,
    /// Most rows.
    pub limit: u32,
}

/// How many rows are old enough to be purged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purgeable {
    /// How many a purge deletes.
    pub count: u64,
    /// How many it leaves: they are dead, and later events of their aggregates wait behind them.
    pub blocking: u64,
}

/// What one batch of a purge deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "utoipa", schema(as = Purged))]
pub struct PurgeBatch {
    /// How many rows.
    pub count: u64,
    /// When the first of them was finished.
    pub first: Option<Timestamp>,
    /// When the last of them was finished.
    pub last: Option<Timestamp>,
}

impl PurgeBatch {
    /// Rows that were finished at these times.
    #[cfg(any(feature = "sqlite", feature = "mysql"))]
    pub(super) fn of(times: &[Timestamp]) -> Self {
        Self { count: times.len() as u64, first: times.iter().min().copied(), last: times.iter().max().copied() }
    }

    /// Adds another batch.
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = [self.last, other.last].into_iter().flatten().max();
    }
}

/// What a purge deleted, all batches together.
pub type Purged = PurgeBatch;
