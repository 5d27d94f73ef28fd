//! The walk through failed events in the order of their `seq`, a batch at a time. A row that the database refuses to change is found by
//! halving the batch, named, and stepped over.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::ReplayLimits;
use crate::halving::{Halved, Halving};
use crate::store::{RefusedRows, RowId, StoreError};

/// The error of a row whose UPDATE the database accepts without an effect.
const NOTHING_CHANGED: &str =
    "the database accepted the UPDATE and left the row; a trigger, rule or row-level policy of the table may suppress it";

/// Chooses and changes failed events, a batch at a time.
#[async_trait]
pub(super) trait Batches: Send + Sync {
    /// The next rows after this `seq`, in the order of their `seq`.
    async fn choose(&self, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError>;

    /// Changes these rows if they are still as they were chosen. Returns how many the database changed.
    async fn change(&self, rows: &[u64]) -> Result<u64, StoreError>;

    /// Whether the database answers.
    async fn answers(&self) -> bool;
}

/// The progress of one walk.
pub(super) struct Walk {
    /// How many rows were changed.
    pub(super) count: u64,
    /// The `seq` of the last row that was tried; before the first row, that of the start.
    pub(super) last: u64,
    pub(super) refused: RefusedRows,
}

impl Walk {
    pub(super) fn after(seq: u64) -> Self {
        Self { count: 0, last: seq, refused: RefusedRows::default() }
    }

    /// Changes batch by batch, until no more rows match, a limit is reached, or `goes_on` returns false after a batch.
    pub(super) async fn run(
        &mut self,
        limits: &ReplayLimits,
        batches: &dyn Batches,
        mut goes_on: impl FnMut(u64) -> bool,
    ) -> Result<(), StoreError> {
        let started = Instant::now();
        let most = limits.batch_size.min(limits.per_second.unwrap_or(u32::MAX)).max(1);
        loop {
            let left = limits.events.map_or(u64::MAX, |events| events.saturating_sub(self.count));
            let limit = most.min(u32::try_from(left).unwrap_or(u32::MAX));
            let is_over = limits.time.is_some_and(|time| started.elapsed() >= time);
            if limit == 0 || is_over || self.refused.gave_up {
                return Ok(());
            }
            let chosen = batches.choose(self.last, limit).await?;
            if chosen.is_empty() {
                return Ok(());
            }
            let before = self.count;
            self.change(&chosen, batches).await?;
            if !goes_on(self.count) {
                return Ok(());
            }
            let changed = u32::try_from(self.count - before).unwrap_or(limit);
            if let Some(per_second) = limits.per_second.filter(|_| chosen.len() as u64 == u64::from(limit)) {
                tokio::time::sleep(Duration::from_secs(1) * changed / per_second.max(1)).await;
            }
        }
    }

    /// Changes the chosen rows, or at least the first of them. After a lost answer, a row that no longer matches counts as changed: the
    /// statement may have been executed.
    async fn change(&mut self, chosen: &[RowId], batches: &dyn Batches) -> Result<(), StoreError> {
        let mut halving = Halving::new(chosen);
        if self.count > 0 {
            halving.accepted();
        }
        let mut is_answer_lost = false;
        while let Some(part) = halving.next_part() {
            let rows: Vec<u64> = part.iter().map(|row| row.seq).collect();
            match batches.change(&rows).await {
                Ok(count) => {
                    let all = rows.len() as u64;
                    let left = if count < all { self.step_over_unchanged(&rows, batches).await? } else { Left::default() };
                    let most = all.saturating_sub(left.unchanged);
                    let changed = if is_answer_lost { most } else { most.min(count + left.changed) };
                    if changed > 0 {
                        halving.accepted();
                    }
                    self.count += changed;
                    self.last = rows.last().copied().unwrap_or(self.last).max(self.last);
                }
                Err(error) => {
                    is_answer_lost |= matches!(error, StoreError::Disconnected { .. });
                    halving.failed(part, error, batches.answers()).await;
                }
            }
        }
        let Halved { refused, failed } = halving.end();
        for (row, error) in &refused {
            self.refused.add(**row, &crate::chain(error));
            self.last = self.last.max(row.seq);
        }
        match failed {
            // Too many rows of this batch are refused or locked. The rows before them are done, and the next batch begins with the
            // others.
            Some(error) if refused.is_empty() || !is_of_rows(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Names those of these rows that still match after their change, and that a change of one row alone leaves, too. A row may match
    /// because a host has tried its event meanwhile, and failed. Other rows no longer match because another transaction changed them first.
    async fn step_over_unchanged(&mut self, rows: &[u64], batches: &dyn Batches) -> Result<Left, StoreError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(Left::default()) };
        let limit = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let (mut left, mut after) = (Left::default(), first.saturating_sub(1));
        loop {
            let matching = batches.choose(after, limit).await?;
            for row in matching.iter().filter(|row| rows.contains(&row.seq)) {
                let error = match batches.change(&[row.seq]).await {
                    Ok(0) => NOTHING_CHANGED.to_owned(),
                    Ok(_) => {
                        left.changed += 1;
                        continue;
                    }
                    Err(error) if is_of_rows(&error) => crate::chain(&error).to_string(),
                    Err(error) => return Err(error),
                };
                left.unchanged += 1;
                self.refused.add(*row, &error);
            }
            match matching.last() {
                Some(row) if row.seq < *last => after = row.seq,
                _ => return Ok(left),
            }
        }
    }
}

/// The rows that still matched after their change.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// How many of them a change of one row alone changed.
    changed: u64,
    /// How many of them it left.
    unchanged: u64,
}

/// Whether the rows of a statement may be the reason for its error, or the locks of other transactions on them.
fn is_of_rows(error: &StoreError) -> bool {
    error.may_concern_rows() || matches!(error, StoreError::Locked { .. } | StoreError::TimedOut { .. })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// Rows of which the database refuses some, and changes some without an effect.
    struct Rows {
        dead: Mutex<BTreeSet<u64>>,
        refused: fn(u64) -> bool,
        suppressed: fn(u64) -> bool,
        /// Rows of which a first change is undone at once, as by a host that tries the event and fails.
        fails_again: Mutex<BTreeSet<u64>>,
        /// How many answers are lost after the rows were changed.
        lost_answers: Mutex<u64>,
        takes: Duration,
        batches: Mutex<u64>,
    }

    impl Rows {
        fn new(count: u64) -> Self {
            Self {
                dead: Mutex::new((1..=count).collect()),
                refused: |_| false,
                suppressed: |_| false,
                fails_again: Mutex::default(),
                lost_answers: Mutex::default(),
                takes: Duration::ZERO,
                batches: Mutex::new(0),
            }
        }

        fn dead(&self) -> Vec<u64> {
            self.dead.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
        }
    }

    #[async_trait]
    impl Batches for Rows {
        async fn choose(&self, after: u64, limit: u32) -> Result<Vec<RowId>, StoreError> {
            let dead = self.dead().into_iter().filter(|seq| *seq > after).take(limit as usize);
            Ok(dead.map(|seq| RowId { seq, event_id: None }).collect())
        }

        async fn change(&self, rows: &[u64]) -> Result<u64, StoreError> {
            tokio::time::sleep(self.takes).await;
            if rows.iter().any(|seq| (self.refused)(*seq)) {
                return Err(StoreError::Failed { action: "change rows", source: sqlx::Error::Protocol("refused".to_owned()) });
            }
            *self.batches.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
            let changed = rows.iter().filter(|seq| !(self.suppressed)(**seq) && dead.remove(*seq)).count();
            let mut fails_again = self.fails_again.lock().unwrap_or_else(PoisonError::into_inner);
            dead.extend(rows.iter().filter(|seq| fails_again.remove(*seq)));
            let mut lost = self.lost_answers.lock().unwrap_or_else(PoisonError::into_inner);
            if *lost > 0 {
                *lost -= 1;
                let source = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
                return Err(StoreError::Disconnected { action: "change rows", source });
            }
            Ok(changed as u64)
        }

        async fn answers(&self) -> bool {
            true
        }
    }

    async fn walked(rows: &Rows, limits: &ReplayLimits) -> Walk {
        let mut walk = Walk::after(0);
        walk.run(limits, rows, |_| true).await.expect("the database changes some rows");
        walk
    }

    #[tokio::test]
    async fn a_walk_ends_at_its_time_limit_although_there_are_more_rows() {
        let slow = Duration::from_millis(30);
        let rows = Rows { takes: slow, ..Rows::new(1_000) };
        let limits = ReplayLimits { time: Some(slow * 3), ..ReplayLimits::default() };

        let walk = walked(&rows, &limits).await;

        let batches = *rows.batches.lock().expect("no test panics");
        assert!((0..=3).contains(&batches), "{batches} batches of {slow:?} in {:?}", slow * 3);
        assert_eq!(walk.count, batches * 100);
        let limits = ReplayLimits { time: Some(Duration::ZERO), ..limits };
        assert_eq!(walked(&rows, &limits).await.count, 0);
    }

    #[tokio::test]
    async fn refused_and_suppressed_rows_are_named_and_all_others_are_changed() {
        let rows = Rows { refused: |seq| seq % 3 == 0, suppressed: |seq| seq == 7, ..Rows::new(250) };

        let walk = walked(&rows, &ReplayLimits::default()).await;

        let left: Vec<u64> = (1..=250).filter(|seq| seq % 3 == 0 || *seq == 7).collect();
        assert_eq!(rows.dead(), left);
        assert_eq!((walk.count, walk.refused.count), (250 - left.len() as u64, left.len() as u64));
        let named: Vec<u64> = walk.refused.first.iter().map(|row| row.seq).collect();
        assert!(named.contains(&7) && named.iter().all(|seq| left.contains(seq)), "{named:?}");
    }

    #[tokio::test]
    async fn rows_whose_answer_was_lost_count_and_no_more_than_the_limit_are_changed() {
        let rows = Rows { lost_answers: Mutex::new(1), suppressed: |seq| seq == 7, ..Rows::new(250) };
        let limits = ReplayLimits { events: Some(99), ..ReplayLimits::default() };

        let walk = walked(&rows, &limits).await;

        assert_eq!((rows.dead().len(), walk.count, walk.refused.count), (250 - 99, 99, 1));
    }

    #[tokio::test]
    async fn a_row_that_was_changed_and_failed_again_meanwhile_is_not_called_refused() {
        let rows = Rows { suppressed: |seq| seq == 7, fails_again: Mutex::new(BTreeSet::from([3])), ..Rows::new(10) };

        let walk = walked(&rows, &ReplayLimits::default()).await;

        let named: Vec<u64> = walk.refused.first.iter().map(|row| row.seq).collect();
        assert_eq!((rows.dead(), walk.count, named), (vec![7], 9, vec![7]));
    }

    #[tokio::test]
    async fn a_walk_gives_up_after_a_thousand_refused_rows() {
        let rows = Rows { refused: |seq| seq > 10, ..Rows::new(2_000) };

        let walk = walked(&rows, &ReplayLimits::default()).await;

        assert_eq!((walk.count, walk.refused.gave_up), (10, true));
        assert!(walk.refused.count <= RefusedRows::MOST + 16, "{}", walk.refused.count);
    }
}
