//! Dead events: lists, replays, skips and discards them.

mod walk;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use self::walk::{Batches, Walk};
use crate::event::{EventId, Status};
use crate::halving::answers;
use crate::store::{Audit, DeadFilter, Filter, Record, RefusedRows, RowId, Store, StoreError};
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
/// println!("{} events are delivered again", replayed.count);
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

    /// Brings back what matches and is dead by now, oldest first, in batches; what dies again meanwhile is left alone. Steps over events
    /// that the database refuses to change although it changes others. After each batch, `progress` gets the number of events so far.
    ///
    /// # Errors
    /// The database's own; earlier batches stay replayed, and a repeat is safe.
    pub async fn replay_all(
        &self,
        filter: &DeadFilter,
        limits: &ReplayLimits,
        audit: &Audit,
        progress: impl FnMut(u64),
    ) -> Result<Replayed, StoreError> {
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
    ) -> Result<Replayed, StoreError> {
        let now = self.store.now().await?;
        let filter =
            DeadFilter { dead_before: Some(filter.dead_before.map_or(now, |before| before.min(now))), ..filter.clone() };
        let mut walk = Walk::after(0);
        walk.run(limits, &Dead { store: &*self.store, filter: &filter, audit }, goes_on).await?;
        Ok(Replayed { count: walk.count, refused: walk.refused })
    }

    /// Lets events that wait for another attempt be tried now, until `goes_on` returns false: those that failed, no more than
    /// `max_attempts` times, and those whose listener asked for later. In order of their `seq`, those after `after`; each
    /// once, but for one that fails again while its batch is still at work: it may be tried a second time.
    async fn retry_while(
        &self,
        max_attempts: Option<u32>,
        after: u64,
        limits: &ReplayLimits,
        audit: &Audit,
        goes_on: impl FnMut(u64) -> bool,
    ) -> Result<RetriedNow, StoreError> {
        let mut walk = Walk::after(after);
        walk.run(limits, &Waiting { store: &*self.store, max_attempts, audit }, goes_on).await?;
        Ok(RetriedNow { count: walk.count, last: Some(walk.last).filter(|last| *last > after), refused: walk.refused })
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
            return Ok(ReplayedFailed { retried, replayed: Replayed::default() });
        }
        let left = ReplayLimits {
            time: limits.time.map(|limit| limit.saturating_sub(started.elapsed())),
            events: limits.events.map(|most| most.saturating_sub(retried.count)),
            ..*limits
        };
        let was_limited = waiting.events.is_some_and(|most| retried.count >= most);
        if left.time.is_none_or(|time| !time.is_zero()) && !was_limited && !retried.refused.gave_up {
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

/// The batches of a replay of dead events.
struct Dead<'a> {
    store: &'a dyn Store,
    filter: &'a DeadFilter,
    audit: &'a Audit,
}

#[async_trait]
impl Batches for Dead<'_> {
    async fn choose(&self, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        self.store.dead_rows(self.filter, after, limit).await
    }

    async fn change(&self, rows: &[u64]) -> Result<u64, StoreError> {
        self.store.replay_rows(rows, self.filter, self.audit).await
    }

    async fn answers(&self) -> bool {
        answers(self.store).await
    }
}

/// The batches of a retry of events that wait.
struct Waiting<'a> {
    store: &'a dyn Store,
    max_attempts: Option<u32>,
    audit: &'a Audit,
}

#[async_trait]
impl Batches for Waiting<'_> {
    async fn choose(&self, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
        self.store.waiting_rows(self.max_attempts, after, limit).await
    }

    async fn change(&self, rows: &[u64]) -> Result<u64, StoreError> {
        self.store.retry_rows_now(rows, self.max_attempts, self.audit).await
    }

    async fn answers(&self) -> bool {
        answers(self.store).await
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

/// The result of a replay of dead events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// How many are new again.
    pub count: u64,
    /// Events that the database refused to change, although it changed others; they are still dead.
    pub refused: RefusedRows,
}

/// The result of a retry of events that waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetriedNow {
    /// How many are due now.
    pub count: u64,
    /// The `seq` of the last event that was tried; `None` if no event matched.
    pub last: Option<u64>,
    /// Events that the database refused to change, although it changed others; they still wait.
    pub refused: RefusedRows,
}

/// What became of the events that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplayedFailed {
    /// Waited for another attempt, and are due now. Its `last` is `after` of the next call; past every event when none waits
    /// any more.
    pub retried: RetriedNow,
    /// Were dead, and are new again.
    pub replayed: Replayed,
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
