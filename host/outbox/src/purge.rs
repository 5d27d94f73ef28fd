//! Deletes old finished rows, in small batches.

mod overdue;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rand::RngExt;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use self::overdue::Overdue;
use self::walk::{Batches, Walk};
use crate::event::{Envelope, OwnerId, Status};
use crate::metrics::Metrics;
use crate::store::{
    Audit, NewRow, Ownership, PurgeBatch, PurgeRequest, PurgeRow, PurgeTarget, Purged, RefusedRows, Store, StoreError,
};
use crate::time::Timestamp;
use crate::units::{duration, duration_option, too_long};

/// The type of the event that tells of a purge, when one is asked for.
pub const PURGE_COMPLETED: &str = "OutboxPurgeCompleted";

/// How long the oldest event must not change before a host purges, in milliseconds: longer than the rest between two batches.
const MOMENT_MILLIS: std::ops::Range<u64> = 1_000..3_000;

/// When a host purges, and which events.
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

    /// Events of this status that finished by this time should have been deleted by two purges at least. `None` if the host does not
    /// purge, or keeps them for ever. `now` is the database's time.
    fn overdue_before(&self, status: Status, now: Timestamp) -> Option<Timestamp> {
        let kept = self.kept(status).filter(|_| self.enabled)?;
        Some(now.minus(kept.saturating_add(self.interval.saturating_mul(2))))
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

    /// One purge: batches until nothing old is left or a limit is reached. Each batch is its own transaction. Steps over rows that the
    /// database does not delete although it deletes others, and logs a warning about them; see [`Purged::undeletable`].
    ///
    /// # Errors
    /// When it was closed, or the database's own; what earlier batches deleted stays deleted, and a repeat is safe.
    pub async fn run_once(&self, limits: PurgeLimits) -> Result<Purged, PurgeError> {
        let mut walk = self.walk(limits);
        let ended = self.everything(&mut walk).await;
        log_undeletable(&walk.purged.undeletable);
        self.ended(walk.purged, ended).await
    }

    async fn everything(&self, walk: &mut Walk) -> Result<(), PurgeError> {
        for status in [Status::Done, Status::Dead] {
            let Some(older_than) = self.config.kept(status) else { continue };
            let finished_before = self.store.now().await?.minus(older_than);
            self.walk_through(walk, PurgeTarget::Finished { status, finished_before }).await?;
        }
        if let Some(older_than) = self.config.undelivered_retention {
            self.walk_through(walk, PurgeTarget::Undelivered { older_than }).await?;
        }
        Ok(())
    }

    async fn walk_through(&self, walk: &mut Walk, target: PurgeTarget) -> Result<(), PurgeError> {
        walk.run(target, &Deleting { purge: self, noted: None }, |_| {}).await
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
        progress: impl FnMut(&Purged),
    ) -> Result<Purged, PurgeError> {
        let mut walk = self.walk(limits);
        let target = PurgeTarget::Finished { status, finished_before };
        let ended = walk.run(target, &Deleting { purge: self, noted: None }, progress).await;
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
        progress: impl FnMut(&Purged),
    ) -> Result<Purged, PurgeError> {
        let selector = &serde_json::json!({ "status": status, "finished_before": finished_before });
        let mut walk = self.walk(limits);
        let target = PurgeTarget::Finished { status, finished_before };
        let ended = walk.run(target, &Deleting { purge: self, noted: Some((audit, selector)) }, progress).await;
        self.ended(walk.purged, ended).await
    }

    /// No batch begins after this.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Purges at every interval until it is stopped, unless another host is purging then.
    pub(crate) async fn keep(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut blocking = 0;
        loop {
            let turn = match self.is_purged_elsewhere(&mut stopped).await {
                Ok(false) => self.turn(&mut blocking).await,
                Ok(true) => Ok(Purged::default()),
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
            let now = self.store.count_purgeable(Status::Dead, finished_before).await?.blocking;
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

    /// Whether another process is deleting old events: the oldest of them changes within a moment, or a stop has begun. Two hosts that
    /// purge at once do no harm, and take twice as much of the database's time.
    async fn is_purged_elsewhere(&self, stopped: &mut watch::Receiver<bool>) -> Result<bool, StoreError> {
        let finished_before = self.store.now().await?.minus(self.config.retention);
        let oldest = || self.store.oldest_purgeable(Status::Done, finished_before);
        let Some(before) = oldest().await? else { return Ok(false) };
        // Of hosts that begin at the same time, the one with the shortest wait purges.
        let moment = Duration::from_millis(rand::rng().random_range(MOMENT_MILLIS));
        if tokio::time::timeout(moment, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
            return Ok(true);
        }
        Ok(oldest().await?.is_none_or(|row| row.seq != before.seq))
    }

    fn walk(&self, limits: PurgeLimits) -> Walk {
        Walk::new(limits, self.config.batch_size, self.closed.subscribe())
    }

    /// Tells of what was deleted, when that is asked for: also after a purge that did not come to its end.
    async fn ended(&self, purged: Purged, ended: Result<(), PurgeError>) -> Result<Purged, PurgeError> {
        self.metrics.purge_undeletable.add(purged.undeletable.count);
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

/// Deletes batches by the store.
struct Deleting<'a> {
    purge: &'a Purge,
    /// Where each batch is recorded: a process that ends in the middle has recorded all batches but the last. `None` for the host's own
    /// purge.
    noted: Option<(&'a Audit, &'a serde_json::Value)>,
}

#[async_trait]
impl Batches for Deleting<'_> {
    async fn delete(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        self.purge.store.purge(request).await.inspect(|batch| self.purge.metrics.purged.add(batch.count))
    }

    async fn note(&self, count: u64) -> Result<(), StoreError> {
        let Some((audit, selector)) = self.noted else { return Ok(()) };
        // A row for each batch: hosts may add to the audit log, and may not change it.
        self.purge.store.note(audit, "purge", selector, count).await
    }

    async fn next(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
        self.purge.store.next_to_purge(request).await
    }
}

/// One warning for each purge that could not delete some rows: their number, and the oldest of them.
fn log_undeletable(undeletable: &RefusedRows) {
    let Some(oldest) = undeletable.first.first() else { return };
    tracing::warn!(
        events = undeletable.count,
        gave_up = undeletable.gave_up,
        seq = oldest.seq,
        event.id = oldest.event_id.map(|id| id.to_string()).as_deref(),
        error = oldest.error.as_str(),
        "the database does not delete some old events; see `outbox doctor`"
    );
}

#[cfg(test)]
mod tests;
