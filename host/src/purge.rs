//! Old finished rows away, in small batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::event::{Envelope, OwnerId, Status};
use crate::metrics::Metrics;
use crate::store::{NewRow, Ownership, PurgeRequest, Purged, Store, StoreError};
use crate::units::{duration, duration_option};

/// The type of the event that tells of a purge, when one is asked for.
pub const PURGE_COMPLETED: &str = "OutboxPurgeCompleted";

/// What is purged, and when. Source: specification 17.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PurgeConfig {
    /// Whether the host purges by itself. Default true.
    pub enabled: bool,
    /// What becomes of an event that is done. Default `keep`.
    pub on_done: OnDone,
    /// How long DONE events are kept. Default 7 days.
    #[serde(with = "duration")]
    pub retention: Duration,
    /// How long DEAD events are kept. Default: until somebody discards them.
    #[serde(with = "duration_option", skip_serializing_if = "Option::is_none")]
    pub dead_retention: Option<Duration>,
    /// Rest between two purges. Default 1 hour; above zero.
    #[serde(with = "duration")]
    pub interval: Duration,
    /// Most rows deleted by one statement. Default 500; at least 1.
    pub batch_size: u32,
    /// Whether a purge that deleted something writes an `OutboxPurgeCompleted` event. Default false.
    pub emit_event: bool,
}

/// What becomes of an event that is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDone {
    /// Its row stays until it is old enough, for people to look at.
    #[default]
    Keep,
    /// Its row is deleted at once.
    Delete,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            on_done: OnDone::Keep,
            retention: Duration::from_secs(7 * 24 * 3600),
            dead_retention: None,
            interval: Duration::from_secs(3600),
            batch_size: 500,
            emit_event: false,
        }
    }
}

impl PurgeConfig {
    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.interval.is_zero() {
            faults.push(format!("{prefix}.interval is 0; it must be above zero"));
        }
        if self.batch_size == 0 {
            faults.push(format!("{prefix}.batch_size is 0; it must be at least 1"));
        }
        faults
    }
}

/// A batch that comes into others' way is halved down to this.
const SMALLEST_BATCH: u32 = 10;

/// How far one purge may go.
#[derive(Clone, Copy, Debug, Default)]
pub struct PurgeLimits {
    /// Longest that it may take; `None` for as long as it takes.
    pub time: Option<Duration>,
    /// Most rows; `None` for all of them.
    pub rows: Option<u64>,
}

/// Why a purge did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// It was stopped for good.
    #[error("the purge is closed; make a new one")]
    Closed,
    /// The database did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Deletes old finished rows.
pub struct Purge {
    store: Arc<dyn Store>,
    config: PurgeConfig,
    metrics: Arc<Metrics>,
    closed: AtomicBool,
}

impl Purge {
    /// A purge that has not run yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, config: PurgeConfig, metrics: Arc<Metrics>) -> Self {
        Self { store, config, metrics, closed: AtomicBool::new(false) }
    }

    /// One purge: batches until nothing old is left or a limit is reached. Each batch is its own transaction.
    ///
    /// # Errors
    /// When it was closed, or the database's own; what earlier batches deleted stays deleted, and a repeat is safe.
    pub async fn run_once(&self, limits: PurgeLimits) -> Result<Purged, PurgeError> {
        let mut purged = self.run(Status::Done, self.config.retention, limits).await?;
        if let Some(retention) = self.config.dead_retention {
            let rows = limits.rows.map(|rows| rows.saturating_sub(purged.count));
            purged.add(self.run(Status::Dead, retention, PurgeLimits { rows, ..limits }).await?);
        }
        if purged.count > 0 && self.config.emit_event {
            self.tell(&purged).await?;
        }
        Ok(purged)
    }

    /// Deletes events of one state that were finished at least so long ago.
    ///
    /// # Errors
    /// As [`run_once`](Self::run_once).
    pub async fn run(&self, status: Status, older_than: Duration, limits: PurgeLimits) -> Result<Purged, PurgeError> {
        let started = Instant::now();
        let mut purged = Purged::default();
        let mut batch_size = self.config.batch_size;
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Err(PurgeError::Closed);
            }
            let left = limits.rows.map_or(u64::MAX, |rows| rows.saturating_sub(purged.count));
            let limit = batch_size.min(u32::try_from(left).unwrap_or(u32::MAX));
            if limit == 0 || limits.time.is_some_and(|time| started.elapsed() >= time) {
                return Ok(purged);
            }
            let batch = match self.store.purge(PurgeRequest { status, older_than, limit }).await {
                Ok(batch) => batch,
                // A smaller batch holds its locks for a shorter time.
                Err(StoreError::Locked { .. } | StoreError::TimedOut { .. }) if limit > SMALLEST_BATCH => {
                    batch_size = (limit / 2).max(SMALLEST_BATCH);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            purged.add(batch);
            self.metrics.purged.add(batch.count);
            if batch.count < u64::from(limit) {
                return Ok(purged);
            }
            // Between two batches the database belongs to the events.
            tokio::task::yield_now().await;
        }
    }

    /// No purge begins after this.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Purges at every interval until it is stopped, on one node at a time.
    pub(crate) async fn keep(self: Arc<Self>, owner: OwnerId, mut stopped: watch::Receiver<bool>) {
        loop {
            let turn = match self.is_ours(&owner).await {
                Ok(true) => self.run_once(PurgeLimits::default()).await,
                Ok(false) => Ok(Purged::default()),
                Err(error) => Err(error.into()),
            };
            match turn {
                Ok(purged) if purged.count > 0 => tracing::info!(events = purged.count, "old finished events are deleted"),
                Ok(_) => {}
                Err(PurgeError::Closed) => return,
                Err(PurgeError::Store(error)) => {
                    self.metrics.db_errors.increment();
                    tracing::error!(error = %crate::chain(&error), "old finished events could not be deleted; trying again at the next interval");
                }
            }
            if tokio::time::timeout(self.config.interval, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return;
            }
        }
    }

    /// Two nodes that purge at once only wait for each other: the one that started first does it.
    async fn is_ours(&self, owner: &OwnerId) -> Result<bool, StoreError> {
        let nodes = self.store.nodes().await?;
        Ok(nodes.iter().find(|node| node.alive).is_none_or(|first| first.owner == owner.as_str()))
    }

    async fn tell(&self, purged: &Purged) -> Result<(), StoreError> {
        let Ok(envelope) = Envelope::new(PURGE_COMPLETED).json(purged) else {
            return Ok(());
        };
        let ownership = Ownership { owner: OwnerId::generate("purge"), lease: Duration::ZERO };
        self.store.write(&[NewRow { envelope: &envelope, claimed: false }], &ownership).await.map(|_| ())
    }
}
