//! Deletes old finished rows, in small batches.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::event::{Envelope, OwnerId, Status};
use crate::metrics::Metrics;
use crate::store::{Audit, NewRow, Ownership, PurgeBatch, PurgeRequest, Purged, Store, StoreError};
use crate::time::Timestamp;
use crate::units::{duration, duration_option, too_long};

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
    /// How long DEAD events are kept. Default: until somebody discards them. One that later events of its aggregate wait behind
    /// is kept all the same, until it is replayed, skipped or discarded: deleted, it would let them pass.
    #[serde(with = "duration_option", skip_serializing_if = "Option::is_none")]
    pub dead_retention: Option<Duration>,
    /// How long an event is kept that was due and that no host ever took: for a table that is read by change data capture,
    /// where nobody marks events as done. Only in the mode `writer_only`, and only while no host is alive that delivers from
    /// the table. Default: for ever.
    #[serde(with = "duration_option", skip_serializing_if = "Option::is_none")]
    pub undelivered_retention: Option<Duration>,
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
            undelivered_retention: None,
            interval: Duration::from_secs(3600),
            batch_size: 500,
            emit_event: false,
        }
    }
}

impl PurgeConfig {
    /// How long events of this status are kept; `None` for ever.
    #[must_use]
    pub const fn kept(&self, status: Status) -> Option<Duration> {
        match status {
            Status::Done => Some(self.retention),
            Status::Dead => self.dead_retention,
            Status::New | Status::Retry => None,
        }
    }

    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.interval.is_zero() {
            faults.push(format!("{prefix}.interval is 0; it must be above zero"));
        }
        faults.extend(too_long(format_args!("{prefix}.interval"), self.interval));
        if self.batch_size == 0 {
            faults.push(format!("{prefix}.batch_size is 0; it must be at least 1"));
        }
        faults
    }
}

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
    closed: watch::Sender<bool>,
}

impl Purge {
    /// A purge that has not run yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, config: PurgeConfig, metrics: Arc<Metrics>) -> Self {
        Self { store, config, metrics, closed: watch::Sender::new(false) }
    }

    /// One purge: batches until nothing old is left or a limit is reached. Each batch is its own transaction.
    ///
    /// # Errors
    /// When it was closed, or the database's own; what earlier batches deleted stays deleted, and a repeat is safe.
    pub async fn run_once(&self, limits: PurgeLimits) -> Result<Purged, PurgeError> {
        let mut walk = self.walk(limits);
        let ended = self.everything(&mut walk).await;
        self.ended(walk.purged, ended).await
    }

    async fn everything(&self, walk: &mut Walk) -> Result<(), PurgeError> {
        for status in [Status::Done, Status::Dead] {
            let Some(older_than) = self.config.kept(status) else { continue };
            let finished_before = self.store.now().await?.minus(older_than);
            walk.run(|limit| self.finished(status, finished_before, limit), |_| {}).await?;
        }
        if let Some(older_than) = self.config.undelivered_retention {
            walk.run(|limit| self.counted(self.store.purge_undelivered(older_than, limit)), |_| {}).await?;
        }
        Ok(())
    }

    /// Deletes events of one state that were finished by a time of the database's clock; what crosses it meanwhile is kept.
    /// `progress` is told after each batch what it has been so far.
    ///
    /// # Errors
    /// As [`run_once`](Self::run_once).
    pub async fn run(
        &self,
        status: Status,
        finished_before: Timestamp,
        limits: PurgeLimits,
        progress: impl FnMut(Purged),
    ) -> Result<Purged, PurgeError> {
        let mut walk = self.walk(limits);
        let ended = walk.run(|limit| self.finished(status, finished_before, limit), progress).await;
        self.ended(walk.purged, ended).await
    }

    /// As [`run`](Self::run), for somebody: what was deleted is recorded in the audit log as `purge`, batch by batch, so that a
    /// process that ends in the middle has told all but the last one.
    ///
    /// # Errors
    /// As [`run`](Self::run); also when it could not be noted.
    pub async fn run_for(
        &self,
        audit: &Audit,
        status: Status,
        finished_before: Timestamp,
        limits: PurgeLimits,
        progress: impl FnMut(Purged),
    ) -> Result<Purged, PurgeError> {
        let selector = &serde_json::json!({ "status": status, "finished_before": finished_before });
        let mut walk = self.walk(limits);
        let batch = |limit| -> Batch<'_> {
            Box::pin(async move {
                let purged = self.finished(status, finished_before, limit).await?;
                // A row for each batch: hosts may add to the audit log, and may not change it.
                self.store.note(audit, "purge", selector, purged.count).await?;
                Ok(purged)
            })
        };
        let ended = walk.run(batch, progress).await;
        self.ended(walk.purged, ended).await
    }

    /// No batch begins after this.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Purges at every interval until it is stopped, on one host at a time.
    pub(crate) async fn keep(self: Arc<Self>, owner: OwnerId, mut stopped: watch::Receiver<bool>) {
        let mut blocking = 0;
        loop {
            let turn = match self.is_ours(&owner).await {
                Ok(true) => self.turn(&mut blocking).await,
                Ok(false) => Ok(Purged::default()),
                Err(error) => Err(error.into()),
            };
            match turn {
                Ok(purged) if purged.count > 0 => tracing::info!(events = purged.count, "old finished events are deleted"),
                Ok(_) => {}
                Err(PurgeError::Closed) => return,
                Err(PurgeError::Store(error)) => {
                    self.metrics.db_error(&error);
                    tracing::error!(error = %crate::chain(&error), "old finished events could not be deleted; trying again at the next interval");
                }
            }
            if tokio::time::timeout(self.config.interval, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return;
            }
        }
    }

    /// One purge, and a warning whenever the number of old dead events changes that it may not delete.
    async fn turn(&self, blocking: &mut u64) -> Result<Purged, PurgeError> {
        let purged = self.run_once(PurgeLimits::default()).await?;
        if let Some(older_than) = self.config.dead_retention {
            let finished_before = self.store.now().await?.minus(older_than);
            let request = PurgeRequest { status: Status::Dead, finished_before, limit: u32::MAX };
            let now = self.store.count_purgeable(request).await?.blocking;
            if std::mem::replace(blocking, now) != now && now > 0 {
                tracing::warn!(
                    events = now,
                    "dead events are older than purge.dead_retention and are kept, since later events of their aggregates wait \
                     behind them; replay, skip or discard them"
                );
            }
        }
        Ok(purged)
    }

    /// Two hosts that purge at once only wait for each other: the one that started first does it.
    async fn is_ours(&self, owner: &OwnerId) -> Result<bool, StoreError> {
        let nodes = self.store.nodes().await?;
        Ok(nodes.iter().find(|node| node.alive).is_none_or(|first| first.owner == owner.as_str()))
    }

    fn finished(&self, status: Status, finished_before: Timestamp, limit: u32) -> Batch<'_> {
        self.counted(self.store.purge(PurgeRequest { status, finished_before, limit }))
    }

    fn counted<'a>(&'a self, batch: Batch<'a>) -> Batch<'a> {
        Box::pin(async move { batch.await.inspect(|batch| self.metrics.purged.add(batch.count)) })
    }

    fn walk(&self, limits: PurgeLimits) -> Walk {
        Walk {
            until: limits.time.and_then(|time| Instant::now().checked_add(time)),
            rows: limits.rows,
            batch_size: self.config.batch_size,
            purged: Purged::default(),
            closed: self.closed.subscribe(),
        }
    }

    /// Tells of what was deleted, when that is asked for: also after a purge that did not come to its end.
    async fn ended(&self, purged: Purged, ended: Result<(), PurgeError>) -> Result<Purged, PurgeError> {
        let told = if purged.count > 0 && self.config.emit_event { self.tell(&purged).await } else { Ok(()) };
        ended?;
        told?;
        Ok(purged)
    }

    async fn tell(&self, purged: &Purged) -> Result<(), StoreError> {
        let Ok(envelope) = Envelope::new(PURGE_COMPLETED).json(purged) else {
            return Ok(());
        };
        let ownership = Ownership { owner: OwnerId::generate("purge"), lease: Duration::ZERO };
        self.store.write(&[NewRow { envelope: &envelope, claimed: false }], &ownership).await.map(|_| ())
    }
}

/// A batch on its way. Boxed, as the store hands it out.
type Batch<'a> = BoxFuture<'a, Result<PurgeBatch, StoreError>>;

/// A batch that comes into others' way is halved down to this.
const SMALLEST_BATCH: u32 = 10;
/// The longest rest between two batches.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How far one purge has come, and how far it may go.
struct Walk {
    until: Option<Instant>,
    rows: Option<u64>,
    batch_size: u32,
    purged: Purged,
    closed: watch::Receiver<bool>,
}

impl Walk {
    /// Deletes batch by batch, until one is not full or a limit is reached.
    async fn run<'a>(
        &mut self,
        mut delete: impl FnMut(u32) -> Batch<'a>,
        mut progress: impl FnMut(Purged),
    ) -> Result<(), PurgeError> {
        loop {
            if *self.closed.borrow() {
                return Err(PurgeError::Closed);
            }
            let left = self.rows.map_or(u64::MAX, |rows| rows.saturating_sub(self.purged.count));
            let limit = self.batch_size.min(u32::try_from(left).unwrap_or(u32::MAX));
            let began = Instant::now();
            if limit == 0 || self.until.is_some_and(|until| began >= until) {
                return Ok(());
            }
            match delete(limit).await {
                Ok(batch) => {
                    self.purged.add(batch);
                    progress(self.purged);
                    if batch.count < u64::from(limit) || self.rows.is_some_and(|rows| self.purged.count >= rows) {
                        return Ok(());
                    }
                }
                // A smaller batch holds its locks for a shorter time.
                Err(StoreError::Locked { .. } | StoreError::TimedOut { .. }) if limit > SMALLEST_BATCH => {
                    self.batch_size = (limit / 2).max(SMALLEST_BATCH);
                }
                Err(error) => return Err(error.into()),
            }
            // Between two batches the database belongs to the events: a purge has it for half of the time at most.
            let _ = tokio::time::timeout(rest(began.elapsed()), self.closed.wait_for(|closed| *closed)).await;
        }
    }
}

fn rest(took: Duration) -> Duration {
    took.min(LONGEST_REST)
}

#[cfg(test)]
mod tests;
