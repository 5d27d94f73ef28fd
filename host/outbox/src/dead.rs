//! Dead events: look at them, bring them back, throw them away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::event::{EventId, Status};
use crate::store::{Audit, DeadFilter, Filter, Record, RetriedNow, Store, StoreError};
use crate::time::Timestamp;

/// Past every event, and a number that every reader of JSON keeps.
const LAST_SEQ: u64 = (1 << 53) - 1;

/// What can be done with events that were given up. Errors of the database are returned, never shown as 0.
///
/// ```
/// # use outbox::store::StoreError;
/// # use outbox::{Outbox, SqliteStore};
/// use outbox::dead::ReplayLimits;
/// use outbox::store::{Audit, DeadFilter};
///
/// # async fn replay(outbox: &Outbox<SqliteStore>) -> Result<(), StoreError> {
/// let why = Audit { reason: Some("the mail server is back".to_owned()), ..Audit::by("ada") };
/// let limits = ReplayLimits { per_second: Some(50), ..ReplayLimits::default() };
/// let replayed = outbox.dead().replay_all(&DeadFilter::default(), &limits, &why, |_so_far| {}).await?;
/// println!("{replayed} events are delivered again");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DeadEvents {
    store: Arc<dyn Store>,
}

impl DeadEvents {
    /// Those of this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Dead events that match, oldest first, at most `limit`; only `status` of the filter is ours.
    ///
    /// # Errors
    /// The database's own.
    pub async fn list(&self, filter: Filter, limit: u32) -> Result<Vec<Record>, StoreError> {
        self.store.list(&Filter { status: Some(Status::Dead), ..filter }, limit).await
    }

    /// How many match.
    ///
    /// # Errors
    /// The database's own.
    pub async fn count(&self, filter: &DeadFilter) -> Result<u64, StoreError> {
        self.store.count_dead(filter).await
    }

    /// Brings one back; false when it is not there or not dead.
    ///
    /// # Errors
    /// The database's own.
    pub async fn replay(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        self.store.replay(id, audit).await
    }

    /// Brings back what matches and is dead by now, oldest first, in batches; what dies again meanwhile is left alone.
    /// `progress` is told after each batch how many it has been so far.
    ///
    /// # Errors
    /// The database's own; earlier batches stay replayed, and a repeat is safe.
    pub async fn replay_all(
        &self,
        filter: &DeadFilter,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: impl FnMut(u64),
    ) -> Result<u64, StoreError> {
        self.replay_while(filter, limits, audit, to_the_end(progress)).await
    }

    /// As [`replay_all`](Self::replay_all), until `goes_on` returns false. After each batch it gets the number of events so far.
    ///
    /// # Errors
    /// As [`replay_all`](Self::replay_all).
    pub async fn replay_while(
        &self,
        filter: &DeadFilter,
        limits: &ReplayLimits,
        audit: &Audit,
        goes_on: impl FnMut(u64) -> bool,
    ) -> Result<u64, StoreError> {
        let now = self.store.now().await?;
        let filter =
            DeadFilter { dead_before: Some(filter.dead_before.map_or(now, |before| before.min(now))), ..filter.clone() };
        limits.run(goes_on, |limit| self.store.replay_batch(&filter, limit, audit)).await
    }

    /// Lets events that wait for another attempt be tried now: those that failed, no more than `max_attempts` times, and those
    /// whose listener asked for later. In order of their `seq`, those after `after`; each once, however fast it fails again.
    ///
    /// # Errors
    /// As [`replay_all`](Self::replay_all).
    pub async fn retry_all_now(
        &self,
        max_attempts: Option<u32>,
        after: u64,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: impl FnMut(u64),
    ) -> Result<RetriedNow, StoreError> {
        self.retry_while(max_attempts, after, limits, audit, to_the_end(progress)).await
    }

    async fn retry_while(
        &self,
        max_attempts: Option<u32>,
        after: u64,
        limits: &ReplayLimits,
        audit: &Audit,
        goes_on: impl FnMut(u64) -> bool,
    ) -> Result<RetriedNow, StoreError> {
        let last = &AtomicU64::new(after);
        let batch = |limit: u32| -> BoxFuture<'_, Result<u64, StoreError>> {
            Box::pin(async move {
                let retried = self.store.retry_now(max_attempts, last.load(Ordering::Relaxed), limit, audit).await?;
                last.fetch_max(retried.last.unwrap_or(0), Ordering::Relaxed);
                Ok(retried.count)
            })
        };
        let count = limits.run(goes_on, batch).await?;
        Ok(RetriedNow { count, last: Some(last.load(Ordering::Relaxed)).filter(|last| *last > after) })
    }

    /// Lets everything that failed go again: what waits for another attempt is due now, then what is dead is new. What dies
    /// meanwhile is left alone, so that no event goes through all its attempts again and again. The limits are for both
    /// together.
    ///
    /// # Errors
    /// As [`replay_all`](Self::replay_all).
    pub async fn replay_failed(
        &self,
        failed: &FailedEvents,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: impl FnMut(u64),
    ) -> Result<ReplayedFailed, StoreError> {
        self.replay_failed_while(failed, limits, audit, to_the_end(progress)).await
    }

    /// As [`replay_failed`](Self::replay_failed), until `goes_on` returns false. After each batch it gets the number of events so
    /// far.
    ///
    /// # Errors
    /// As [`replay_failed`](Self::replay_failed).
    pub async fn replay_failed_while(
        &self,
        failed: &FailedEvents,
        limits: &ReplayLimits,
        audit: &Audit,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<ReplayedFailed, StoreError> {
        let started = Instant::now();
        let FailedEvents { max_attempts, after, max_waiting, max_dead, dead_before } = *failed;
        let now = self.store.now().await?;
        let dead_before = dead_before.map_or(now, |before| before.min(now));
        let waiting = ReplayLimits { events: [limits.events, max_waiting].into_iter().flatten().min(), ..*limits };
        let mut ended = false;
        let mut retried = self
            .retry_while(max_attempts, after, &waiting, audit, |so_far| {
                ended = !goes_on(so_far);
                !ended
            })
            .await?;
        if ended {
            return Ok(ReplayedFailed { retried, replayed: 0 });
        }
        let left = ReplayLimits {
            time: limits.time.map(|limit| limit.saturating_sub(started.elapsed())),
            events: limits.events.map(|most| most.saturating_sub(retried.count)),
            ..*limits
        };
        let was_limited = waiting.events.is_some_and(|most| retried.count >= most);
        if left.time.is_none_or(|time| !time.is_zero()) && !was_limited {
            // None waits any more. A dead event that is replayed below and fails again must not count as one that waits when a
            // call goes on.
            retried.last = Some(LAST_SEQ);
        }
        let filter = DeadFilter { max_attempts, dead_before: Some(dead_before), ..DeadFilter::default() };
        let left = ReplayLimits { events: [left.events, max_dead].into_iter().flatten().min(), ..left };
        let replayed = self.replay_while(&filter, &left, audit, |so_far| goes_on(retried.count + so_far)).await?;
        Ok(ReplayedFailed { retried, replayed })
    }

    /// Deletes one; false when it is not there or not dead.
    ///
    /// # Errors
    /// The database's own.
    pub async fn discard(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        self.store.discard(id, None, audit).await
    }

    /// Lets one block the later events of its aggregate no longer; it stays dead. False when it is not there or blocks nothing.
    ///
    /// # Errors
    /// The database's own.
    pub async fn skip(&self, id: EventId, audit: &Audit) -> Result<bool, StoreError> {
        self.store.skip(id, audit).await
    }
}

/// Tells how many it has been so far, and never ends a replay.
fn to_the_end(mut progress: impl FnMut(u64)) -> impl FnMut(u64) -> bool {
    move |so_far| {
        progress(so_far);
        true
    }
}

/// Which of the events that failed go again; by default all that failed by now.
#[derive(Clone, Copy, Debug, Default)]
pub struct FailedEvents {
    /// Only those that failed no more often than this.
    pub max_attempts: Option<u32>,
    /// Of those that wait, only events after this `seq`: the last one that an earlier call let go. 0 for all.
    pub after: u64,
    /// Most of the events that wait; `None` for as many as the limits allow, since more may fail and wait meanwhile.
    pub max_waiting: Option<u64>,
    /// Most of those that are dead; `None` for as many as the limits allow.
    pub max_dead: Option<u64>,
    /// Of those that are dead, only events that were dead by then; `None` and later times mean now.
    pub dead_before: Option<Timestamp>,
}

/// What became of the events that failed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReplayedFailed {
    /// Waited for another attempt, and are due now. Its `last` is `after` of the next call; past every event when none waits
    /// any more.
    pub retried: RetriedNow,
    /// How many were dead, and are new again.
    pub replayed: u64,
}

/// How far and how fast one replay goes.
#[derive(Clone, Copy, Debug)]
pub struct ReplayLimits {
    /// Most events brought back by one statement. Default 100; at least 1.
    pub batch_size: u32,
    /// Most events a second, so that a receiver that has just recovered is not run over; `None` for as fast as it goes.
    pub per_second: Option<u32>,
    /// Longest that it may take; what is left then is left as it is.
    pub time: Option<Duration>,
    /// Most events.
    pub events: Option<u64>,
}

impl Default for ReplayLimits {
    fn default() -> Self {
        Self { batch_size: 100, per_second: None, time: None, events: None }
    }
}

impl ReplayLimits {
    /// Batch by batch, until one is empty, a limit is reached, or `goes_on` says no after one.
    async fn run<'a>(
        &self,
        mut goes_on: impl FnMut(u64) -> bool,
        mut batch: impl FnMut(u32) -> BoxFuture<'a, Result<u64, StoreError>>,
    ) -> Result<u64, StoreError> {
        let started = Instant::now();
        let most = self.batch_size.min(self.per_second.unwrap_or(u32::MAX)).max(1);
        let mut replayed = 0;
        loop {
            let left = self.events.map_or(u64::MAX, |events| events.saturating_sub(replayed));
            let limit = most.min(u32::try_from(left).unwrap_or(u32::MAX));
            if limit == 0 || self.time.is_some_and(|time| started.elapsed() >= time) {
                return Ok(replayed);
            }
            let count = batch(limit).await?;
            // Not when it is short: what somebody else took at the same moment may be missing from it.
            if count == 0 {
                return Ok(replayed);
            }
            replayed += count;
            if !goes_on(replayed) {
                return Ok(replayed);
            }
            if let Some(per_second) = self.per_second.filter(|_| count == u64::from(limit)) {
                tokio::time::sleep(Duration::from_secs(1) * limit / per_second.max(1)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn replayed(limits: &ReplayLimits, takes: Duration) -> (u64, u32) {
        let mut batches = 0;
        let run = limits.run(
            |_| true,
            |limit| {
                batches += 1;
                Box::pin(async move {
                    tokio::time::sleep(takes).await;
                    Ok(u64::from(limit))
                })
            },
        );
        (run.await.expect("the batches are good"), batches)
    }

    #[tokio::test]
    async fn a_replay_ends_at_its_time_limit_though_there_is_more() {
        let slow = Duration::from_millis(30);
        let limits = ReplayLimits { time: Some(slow * 3), ..ReplayLimits::default() };

        let (events, batches) = replayed(&limits, slow).await;

        assert!((0..=3).contains(&batches), "{batches} batches of {slow:?} in {:?}", slow * 3);
        assert_eq!(events, u64::from(batches) * 100);
        assert_eq!(replayed(&ReplayLimits { time: Some(Duration::ZERO), ..limits }, slow).await, (0, 0));
    }
}
