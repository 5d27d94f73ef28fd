//! The walk of a purge through the table, from the oldest row on. A row that the database does not delete is found by halving the batch,
//! named, and stepped over.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{PurgeError, PurgeLimits};
use crate::store::{PurgeBatch, PurgeRequest, PurgeRow, PurgeTarget, Purged, RefusedRows, RowId, StoreError};

/// A batch that delays others is halved down to this.
const SMALLEST_BATCH: u32 = 10;
/// The longest rest between two batches.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// The error of a row whose DELETE the database accepts without an effect.
const NOTHING_DELETED: &str =
    "the database accepted the DELETE and left the row; a trigger, rule or row-level policy of the table may suppress it";

/// Deletes rows, a batch at a time.
#[async_trait]
pub(super) trait Batches: Send + Sync {
    /// Deletes one batch.
    async fn delete(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError>;

    /// Records how many rows a batch deleted.
    async fn note(&self, count: u64) -> Result<(), StoreError>;

    /// The row that [`delete`](Self::delete) would delete first.
    async fn next(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError>;
}

/// The progress of one purge, and its limits.
pub(super) struct Walk {
    until: Option<Instant>,
    rows: Option<u64>,
    batch_size: u32,
    pub(super) purged: Purged,
    closed: watch::Receiver<bool>,
}

impl Walk {
    /// The time limit counts from here.
    pub(super) fn new(limits: PurgeLimits, batch_size: u32, closed: watch::Receiver<bool>) -> Self {
        let until = limits.time.and_then(|time| Instant::now().checked_add(time));
        Self { until, rows: limits.rows, batch_size, purged: Purged::default(), closed }
    }

    /// Deletes batch by batch, until no more rows match or a limit is reached.
    pub(super) async fn run(
        &mut self,
        target: PurgeTarget,
        batches: &dyn Batches,
        mut progress: impl FnMut(&Purged),
    ) -> Result<(), PurgeError> {
        let mut request = PurgeRequest::first(target, self.batch_size);
        // The most rows of the next batch: halved while the database refuses it, doubled when it is deleted.
        let mut size = self.batch_size;
        loop {
            if *self.closed.borrow() {
                return Err(PurgeError::Closed);
            }
            let left = self.rows.map_or(u64::MAX, |rows| rows.saturating_sub(self.purged.count));
            let limit = size.min(self.batch_size).min(u32::try_from(left).unwrap_or(u32::MAX));
            let began = Instant::now();
            if limit == 0 || self.until.is_some_and(|until| began >= until) {
                return Ok(());
            }
            request.limit = limit;
            match batches.delete(&request).await {
                Ok(batch) => {
                    if batch.count > 0 {
                        batches.note(batch.count).await?;
                    }
                    let is_last = batch.chosen() < u64::from(limit);
                    self.add(&batch, &mut request);
                    progress(&self.purged);
                    if is_last || self.has_ended() {
                        return Ok(());
                    }
                    size = limit.saturating_mul(2);
                }
                // A smaller batch holds its locks for a shorter time.
                Err(StoreError::Locked { .. } | StoreError::TimedOut { .. }) if limit > SMALLEST_BATCH => {
                    self.batch_size = (limit / 2).max(SMALLEST_BATCH);
                }
                Err(error) if error.may_concern_rows() && limit > 1 => size = limit / 2,
                Err(error) if error.may_concern_rows() && !self.is_of_all_rows(&error) => {
                    let Some(row) = batches.next(&request).await? else { return Err(error.into()) };
                    // The next batch is a single row again: rows that the database refuses often follow each other.
                    self.step_over(&row, &crate::chain(&error), &mut request);
                    if self.has_ended() {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.into()),
            }
            // Between two batches the database belongs to the events: a purge has it for half of the time at most.
            let _ = tokio::time::timeout(rest(began.elapsed()), self.closed.wait_for(|closed| *closed)).await;
        }
    }

    fn add(&mut self, batch: &PurgeBatch, request: &mut PurgeRequest) {
        self.purged.add(batch.count, batch.first, batch.last);
        request.from = batch.end().max(request.from);
        for row in &batch.remaining {
            self.step_over(row, NOTHING_DELETED, request);
        }
    }

    fn step_over(&mut self, row: &PurgeRow, error: &str, request: &mut PurgeRequest) {
        self.purged.undeletable.add(RowId { seq: row.seq, event_id: row.event_id }, error);
        request.skip.push(row.seq);
        request.from = Some(row.at).max(request.from);
    }

    /// Whether a refusal is no matter of single rows: the right to delete is missing, and no row could be deleted yet.
    fn is_of_all_rows(&self, error: &StoreError) -> bool {
        let refused = self.purged.undeletable.first.len();
        matches!(error, StoreError::Forbidden { .. }) && self.purged.count == 0 && refused >= RefusedRows::NAMED
    }

    fn has_ended(&self) -> bool {
        self.purged.undeletable.gave_up || self.rows.is_some_and(|rows| self.purged.count >= rows)
    }
}

pub(super) fn rest(took: Duration) -> Duration {
    took.min(LONGEST_REST)
}
