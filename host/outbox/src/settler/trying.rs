//! Retries a batch while the database fails. Only a stop ends the retries: a late outcome is fenced off anyway.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Settler;
use super::slow::SlowBatch;
use crate::halving::Losses;
use crate::partition::LEASES_WITHOUT_CONNECTION;
use crate::store::{Settled, StoreError};

/// The rest after the first failure of the database; doubled up to a second.
const FIRST_REST: Duration = Duration::from_millis(20);

/// The limit of a statement for a part of a batch that was held up, if the part has several outcomes. An outcome alone has the time of any
/// statement.
const LIMIT_OF_PARTS: Duration = Duration::from_secs(5);
/// At a stop, the limit of a statement for a part of a batch, or for an outcome that has waited apart: the others are to be stored before
/// the stop must be over. A whole batch has a quarter of the time left, since the database may be slow for all.
const LIMIT_AT_STOP: Duration = Duration::from_secs(1);

/// Whether outcomes are to be stored for the first time, or have waited apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    First,
    /// They have a place apart. What follows from them gets one too: nothing may stop those that wait.
    Again,
}

/// One batch on its way to the database, again and again until it is stored or a stop must be over.
pub(super) struct Trying<'a> {
    settler: &'a Settler,
    round: Round,
    pub(super) slow: SlowBatch<'a>,
    rest: Duration,
    /// When the batch was first tried, or a part of it was stored last.
    since: Instant,
    failed: bool,
    /// Whether the batch is stored in parts, because a statement for more of it was held up.
    is_divided: bool,
    losses: Losses,
    /// Whether the database answered right after the last loss, so that the rows of the batch may be the reason.
    is_lost_by_rows: bool,
    /// Whether the database refuses the same statement for no row. `None` if it was not asked yet.
    fails_without_rows: Option<bool>,
}

impl<'a> Trying<'a> {
    /// `None` when a stop was given up already: a database that let a whole stop pass is not waited for again.
    pub(super) fn begin(settler: &'a Settler, round: Round) -> Option<Self> {
        let gave_up = settler.gave_up.load(Ordering::Relaxed);
        (!gave_up).then_some(Self {
            settler,
            round,
            slow: SlowBatch::begin(&settler.metrics),
            rest: FIRST_REST,
            since: Instant::now(),
            failed: false,
            is_divided: false,
            losses: Losses::default(),
            is_lost_by_rows: false,
            fails_without_rows: None,
        })
    }

    /// The same for a part of a batch.
    pub(super) fn of_part(self) -> Self {
        Self { is_divided: true, ..self }
    }

    /// The batch is stored.
    pub(super) fn stored(self, events: usize) {
        if self.failed && self.settler.failing.fetch_sub(1, Ordering::Relaxed) == 1 {
            tracing::info!(events, "outcomes are stored again");
        }
    }

    /// A part of the batch is stored.
    pub(super) fn stored_part(&mut self) {
        self.since = Instant::now();
        self.losses.succeeded();
    }

    /// The batch is tried in another way.
    pub(super) fn abandoned(self) {
        if self.failed {
            self.settler.failing.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether an error of a statement for this many events may be due to its rows, so that other outcomes could be stored: a constraint, a
    /// trigger, a policy, a text that the table cannot keep; a lock or a lost connection that comes again and again. A statement that took
    /// too long is not repeated for all its rows: each repetition would take as long.
    pub(super) fn may_be_of_rows(&self, error: &StoreError, events: usize) -> bool {
        let is_repeated = self.round == Round::Again || self.has_failed_twice();
        match error {
            StoreError::TimedOut { .. } => events > 1 || self.is_divided || is_repeated,
            StoreError::Locked { .. } => is_repeated,
            StoreError::Disconnected { .. } => self.is_lost_by_rows,
            error => error.may_concern_rows(),
        }
    }

    /// The limit of a statement for this many events. `None` for that of every statement.
    pub(super) fn limit(&self, events: usize) -> Option<Duration> {
        match *self.settler.give_up_at.borrow() {
            Some(_) if self.is_divided || self.round == Round::Again => Some(LIMIT_AT_STOP),
            Some(at) => Some((at.saturating_duration_since(Instant::now()) / 4).clamp(LIMIT_AT_STOP, LIMIT_OF_PARTS)),
            None => (self.is_divided && events > 1).then_some(LIMIT_OF_PARTS),
        }
    }

    /// Notes that a statement for this many events was held up, and that they are stored in parts. Logs the first division of a batch.
    pub(super) fn note_division(&mut self, events: usize, error: &StoreError) {
        if !std::mem::replace(&mut self.is_divided, true) {
            tracing::warn!(events, error = crate::chain(error), "storing outcomes was held up; storing them in smaller parts");
        }
    }

    /// Notes a failure. After repeated losses of the connection this asks the database something else about the same rows.
    pub(super) async fn note_failure(&mut self, sequences: &[u64], error: &StoreError) {
        let settler = self.settler;
        let answers = async { !settler.must_give_up() && settler.store.locked(sequences).await.is_ok() };
        self.is_lost_by_rows = self.losses.note(error, self.round == Round::Again, answers).await;
    }

    /// Notes that this host cannot store outcomes, if the error is not due to the row of `settled` and other hosts may be able to store
    /// the outcome.
    pub(super) async fn note_stall(&mut self, settled: &Settled, error: &StoreError) {
        let waits_for_long = self.since.elapsed() >= self.settler.lease.saturating_mul(LEASES_WITHOUT_CONNECTION);
        if !is_of_this_host(error, waits_for_long) || self.settler.must_give_up() {
            return;
        }
        if self.may_be_of_rows(error, 1) {
            let fails_without_rows = match self.fails_without_rows {
                Some(known) => known,
                None => self.settler.fails_without_rows(settled).await,
            };
            self.fails_without_rows = Some(fails_without_rows);
            if !fails_without_rows {
                return;
            }
        }
        self.settler.metrics.storing.failed(None, &crate::chain(error), Instant::now());
    }

    fn has_failed_twice(&self) -> bool {
        self.rest > FIRST_REST * 2
    }

    /// The batch was not stored; waits until it is time to try again. False when it is given up: somebody else delivers.
    pub(super) async fn may_repeat(&mut self, events: usize, reason: &str) -> bool {
        let settler = self.settler;
        // Said once, by the first batch that fails and the last that gets through.
        if !std::mem::replace(&mut self.failed, true) && settler.failing.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(events, error = reason, "outcomes could not be stored; trying again");
        }
        if settler.must_give_up() {
            settler.gave_up.store(true, Ordering::Relaxed);
            settler.failing.fetch_sub(1, Ordering::Relaxed);
            tracing::error!(events, "outcomes could not be stored in time; their events are delivered again");
            return false;
        }
        tokio::time::sleep(self.rest).await;
        self.rest = (self.rest * 2).min(Duration::from_secs(1));
        true
    }
}

/// Whether an error may be a fault of this host, so that other hosts could store the outcome. Other hosts meet a full disk, a lock and a
/// slow database, too. If writers hold all connections of the pool, this host stores the outcome as soon as it gets one. If it
/// `waits_for_long`, the pool probably cannot connect.
fn is_of_this_host(error: &StoreError, waits_for_long: bool) -> bool {
    let waits_for_connection = error.is_pool_exhausted() && !waits_for_long;
    !(is_of_others(error) || matches!(error, StoreError::Full { .. }) || waits_for_connection)
}

/// Whether another transaction or a slow database is the reason for an error.
pub(super) fn is_of_others(error: &StoreError) -> bool {
    matches!(error, StoreError::Locked { .. } | StoreError::TimedOut { .. } | StoreError::PartitionsMoved { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_no_fault_of_this_host_and_an_exhausted_pool_is_one_if_it_lasts() {
        let full = StoreError::Full { action: "test", source: sqlx::Error::RowNotFound };
        let exhausted = StoreError::Failed { action: "test", source: sqlx::Error::PoolTimedOut };
        for error in [&full, &exhausted] {
            assert!(!is_of_this_host(error, false), "{error:?}");
            assert!(!is_of_others(error), "the statement did not run");
        }
        assert!(!is_of_this_host(&full, true));
        assert!(is_of_this_host(&exhausted, true), "the pool cannot connect");
        let forbidden = StoreError::Forbidden { action: "test", source: sqlx::Error::RowNotFound };
        assert!(is_of_this_host(&forbidden, false));
    }
}
