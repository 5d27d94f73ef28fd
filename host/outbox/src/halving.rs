//! Finds single rows that the database refuses, so that a statement for a fixed list can be repeated without them: claims, renewals,
//! claims to give back, routes to unpark, events to unblock, failed events to replay.
//! The settler, which must keep each outcome, divides its batches itself (`settler/parts.rs`), and so does a purge, which chooses its rows in
//! SQL.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::{Store, StoreError};

/// After this many refused rows the cause is probably not in the rows. Other rows can wait for the next statement.
const MOST_REFUSED: usize = 16;
/// How many parts a part is split into after a statement that waited for a lock or took too long. Each such failure takes as long as the
/// database's timeout, so there should be few until the item is found.
pub(crate) const PARTS_IF_HELD_UP: usize = 8;
/// The most such failures, and the longest time that they may take together. Otherwise a locked table would hold up the caller.
const MOST_HELD_UP: u32 = 6;
const HELD_UP_FOR: Duration = Duration::from_secs(15);
/// After this many lost connections in a row, a row of the statement may be the reason, if the database answers right after the last loss.
const MOST_LOST: u32 = 3;

/// Items that a statement is sent for, together at first, and by halves after a failure.
pub(crate) struct Halving<'i, I> {
    parts: Vec<&'i [I]>,
    /// Whether the database changed anything for one of the items.
    is_any_accepted: bool,
    refused: Vec<(&'i I, StoreError)>,
    /// After this many refused items, a further failure ends the halving.
    most_refused: usize,
    /// The error that ended the halving before all items were tried.
    failed: Option<StoreError>,
    /// How many statements waited for a lock or took too long.
    held_up: u32,
    losses: Losses,
    /// Whether the statement for the last part failed.
    has_failed: bool,
    began_at: Instant,
}

/// The connections that statements for the same rows lost in a row. A trigger or a pooler may end the connection because of one row.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    in_a_row: u32,
}

/// How the statements for all items ended.
pub(crate) struct Halved<'i, I> {
    /// The items that the database refuses to change, in the order in which they were found: a trigger, a constraint or a policy of the
    /// table does.
    pub(crate) refused: Vec<(&'i I, StoreError)>,
    /// The error of items that were not tried; `None` if all were.
    pub(crate) failed: Option<StoreError>,
}

impl<'i, I> Halving<'i, I> {
    pub(crate) fn new(items: &'i [I]) -> Self {
        Self {
            parts: vec![items],
            is_any_accepted: false,
            refused: Vec::new(),
            most_refused: MOST_REFUSED,
            failed: None,
            held_up: 0,
            losses: Losses::default(),
            has_failed: false,
            began_at: Instant::now(),
        }
    }

    /// Finds up to this many refused items instead of few, because the other items cannot wait.
    pub(crate) fn finding_up_to(self, refused: usize) -> Self {
        Self { most_refused: refused.max(MOST_REFUSED), ..self }
    }

    /// The items of the next statement; at least one. The statement for the previous part succeeded, unless [`failed`](Self::failed) was
    /// called for it.
    pub(crate) fn next_part(&mut self) -> Option<&'i [I]> {
        if !std::mem::take(&mut self.has_failed) {
            self.losses.succeeded();
        }
        self.parts.pop().filter(|part| !part.is_empty())
    }

    /// Notes that the database changed something for an item: the user has the right to change the table, and it is not locked.
    pub(crate) fn accepted(&mut self) {
        self.is_any_accepted = true;
    }

    /// Notes that the statement for this part has failed. If one of its items may be refused, smaller parts are next, or the same part once
    /// more; after a single refused item, the others. If no item can be the reason, or too many are refused, no part is next. `answers`
    /// asks the database something else.
    pub(crate) async fn failed(&mut self, part: &'i [I], error: StoreError, answers: impl Future<Output = bool>) {
        self.has_failed = true;
        let is_held_up = is_held_up(&error);
        self.held_up += u32::from(is_held_up);
        let is_lost_by_rows = self.losses.note(&error, false, answers).await;
        // Most locks are held for a moment, and most connections are lost for another reason.
        let is_repeated = if is_held_up { self.held_up == 1 } else { self.losses.are_few() && !is_silence(&error) };
        let may_be_of_items = match &error {
            StoreError::Disconnected { .. } => is_repeated || is_lost_by_rows,
            _ if is_held_up => self.is_patient(),
            _ => error.may_concern_rows(),
        };
        if !may_be_of_items || self.refused.len() >= self.most_refused {
            self.parts.clear();
            self.failed = Some(error);
        } else if is_repeated {
            self.parts.push(part);
        } else if let [one] = part {
            self.refused.push((one, error));
        } else {
            let count = if is_held_up { PARTS_IF_HELD_UP } else { 2 };
            self.parts.extend(part.chunks(part.len().div_ceil(count)).rev());
        }
    }

    /// Whether an item was refused.
    pub(crate) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The refused items, and the error of those that were not tried.
    pub(crate) fn end(self) -> Halved<'i, I> {
        let Self { mut refused, mut failed, is_any_accepted, .. } = self;
        // If none was accepted, the user may lack the right to change the table, or the table is locked.
        let is_of_items = is_any_accepted || refused.iter().any(|(_, error)| is_of_one_item(error));
        if !is_of_items {
            let first = refused.drain(..).next().map(|(_, error)| error);
            failed = failed.or(first);
        }
        Halved { refused, failed }
    }

    /// Whether another statement may wait for a lock or take too long.
    fn is_patient(&self) -> bool {
        self.held_up <= MOST_HELD_UP && self.began_at.elapsed() < HELD_UP_FOR
    }
}

impl Losses {
    /// Notes a failed statement. Returns whether one of its rows may end the connection: after repeated losses, or `at_once`, the database
    /// answers. Without an answer, the database is not available, and no row is the reason.
    pub(crate) async fn note(&mut self, error: &StoreError, at_once: bool, answers: impl Future<Output = bool>) -> bool {
        if !matches!(error, StoreError::Disconnected { .. }) {
            self.in_a_row = 0;
            return false;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        (at_once || self.in_a_row >= MOST_LOST) && answers.await
    }

    /// Notes a statement that succeeded. Once a row is known to be the reason, its losses still count: statements for other rows succeed
    /// between them.
    pub(crate) fn succeeded(&mut self) {
        if self.are_few() {
            self.in_a_row = 0;
        }
    }

    /// Whether the last statement lost its connection, as one of the first.
    fn are_few(&self) -> bool {
        (1..MOST_LOST).contains(&self.in_a_row)
    }
}

/// Whether the database answers.
pub(crate) async fn answers(store: &dyn Store) -> bool {
    store.now().await.is_ok()
}

/// Whether the server sent no answer in time. A repeated statement would wait as long again.
fn is_silence(error: &StoreError) -> bool {
    let StoreError::Disconnected { source: sqlx::Error::Io(error), .. } = error else { return false };
    error.kind() == std::io::ErrorKind::TimedOut
}

/// Whether a statement waited for a lock for too long, or took too long. A trigger or a foreign key may need a lock for one row alone.
pub(crate) fn is_held_up(error: &StoreError) -> bool {
    matches!(error, StoreError::Locked { .. } | StoreError::TimedOut { .. })
}

/// Whether a refusal of one item says nothing about the others: neither the right to change the table is missing, nor is it locked.
fn is_of_one_item(error: &StoreError) -> bool {
    !matches!(error, StoreError::Forbidden { .. }) && !is_held_up(error)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use rand::RngExt;

    use super::*;

    /// Notes a failure while the database answers.
    fn failed<'i, I>(halving: &mut Halving<'i, I>, part: &'i [I], error: StoreError) {
        failed_while(true, halving, part, error);
    }

    fn failed_while<'i, I>(answers: bool, halving: &mut Halving<'i, I>, part: &'i [I], error: StoreError) {
        let failed = pin!(halving.failed(part, error, std::future::ready(answers)));
        assert_eq!(failed.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(()), "it waits for nothing");
    }

    fn locked() -> StoreError {
        StoreError::Locked { action: "test", source: sqlx::Error::RowNotFound }
    }

    /// The items that were refused alone; `None` if the halving ended before all were tried.
    fn refused_alone(halving: Halving<'_, u32>) -> Option<Vec<u32>> {
        let Halved { refused, failed } = halving.end();
        failed.is_none().then(|| refused.into_iter().map(|(item, _)| *item).collect())
    }

    fn lost(source: sqlx::Error) -> StoreError {
        StoreError::Disconnected { action: "test", source }
    }

    fn refused() -> StoreError {
        StoreError::Failed { action: "test", source: sqlx::Error::RowNotFound }
    }

    /// The items that a statement was accepted for, and those that were refused alone; `None` if the halving ended before.
    fn halve(items: &[u32], bad: impl Fn(u32) -> bool) -> Option<(Vec<u32>, Vec<u32>)> {
        let (mut halving, mut accepted) = (Halving::new(items), Vec::<u32>::new());
        while let Some(part) = halving.next_part() {
            if part.iter().any(|item| bad(*item)) {
                failed(&mut halving, part, refused());
            } else {
                accepted.extend(part);
                halving.accepted();
            }
        }
        Some((accepted, refused_alone(halving)?))
    }

    #[test]
    fn any_few_refused_items_are_found_and_all_others_are_accepted_in_order() {
        let mut chance = rand::rng();
        for _ in 0..500 {
            let items: Vec<u32> = (0..chance.random_range(0..300)).collect();
            let bad: Vec<u32> = (0..chance.random_range(0..=MOST_REFUSED)).map(|_| chance.random_range(0..300)).collect();
            let (accepted, alone) = halve(&items, |item| bad.contains(&item)).expect("they are few");
            let (expected, others): (Vec<u32>, Vec<u32>) = items.iter().partition(|item| bad.contains(item));
            assert_eq!((alone, accepted), (expected, others), "{bad:?} of {}", items.len());
        }
    }

    /// How many statements fail for these items, of which the bad ones wait for a lock; and the items that were found.
    fn halve_locked(items: &[u32], bad: &[u32]) -> (u32, Option<Vec<u32>>) {
        let (mut halving, mut accepted, mut failures) = (Halving::new(items), Vec::<u32>::new(), 0);
        while let Some(part) = halving.next_part() {
            if part.iter().any(|item| bad.contains(item)) {
                failures += 1;
                failed(&mut halving, part, locked());
            } else {
                accepted.extend(part);
                halving.accepted();
            }
        }
        let alone = refused_alone(halving);
        if let Some(alone) = &alone {
            accepted.extend(alone);
            accepted.sort_unstable();
            assert_eq!(accepted, items, "each item is accepted or found");
        }
        (failures, alone)
    }

    #[test]
    fn an_item_that_waits_for_a_lock_is_found_by_few_statements() {
        let items: Vec<u32> = (0..2_000).collect();
        for bad in [0, 777, 1_999] {
            let (failures, alone) = halve_locked(&items, &[bad]);
            assert_eq!(alone, Some(vec![bad]));
            assert!(failures <= MOST_HELD_UP, "{failures}");
        }
        assert_eq!(halve_locked(&[7, 8], &[7]), (3, Some(vec![7])), "the whole is tried twice");
        assert_eq!(halve_locked(&[7], &[7]), (2, None), "the table may be locked");
    }

    #[test]
    fn a_locked_table_is_given_up_after_few_statements() {
        let items: Vec<u32> = (0..2_000).collect();
        assert_eq!(halve_locked(&items, &items), (MOST_HELD_UP + 1, None));
    }

    #[test]
    fn a_lock_that_is_released_after_the_first_failure_leaves_the_items_together() {
        let items: Vec<u32> = (0..100).collect();
        let mut halving = Halving::new(&items);
        let part = halving.next_part().expect("all of them");
        failed(&mut halving, part, locked());
        assert_eq!(halving.next_part(), Some(&items[..]));
        assert_eq!(halving.next_part(), None);
    }

    #[test]
    fn where_many_are_refused_or_no_item_can_be_the_reason_the_others_are_not_tried() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(halve(&items, |_| true), None);

        let silence = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        let full = StoreError::Full { action: "test", source: sqlx::Error::RowNotFound };
        for error in [full, lost(silence())] {
            let mut halving = Halving::new(&items);
            let part = halving.next_part().expect("all of them");
            failed(&mut halving, part, error);
            assert!(halving.next_part().is_none());
            assert!(halving.end().failed.is_some());
        }
    }

    #[test]
    fn many_refused_items_are_found_if_the_others_cannot_wait() {
        let items: Vec<u32> = (0..100).collect();
        let most = 3 * MOST_REFUSED;
        for bad in [most, most + 1] {
            let (mut halving, mut accepted) = (Halving::new(&items).finding_up_to(most), Vec::<u32>::new());
            while let Some(part) = halving.next_part() {
                if (part[0] as usize) < bad {
                    failed(&mut halving, part, refused());
                } else {
                    accepted.extend(part);
                    halving.accepted();
                }
            }
            let Halved { refused, failed } = halving.end();
            let others = if bad > most { 0 } else { items.len() - most };
            assert_eq!((refused.len(), failed.is_some(), accepted.len()), (most, bad > most, others));
        }
    }

    #[test]
    fn an_item_that_ends_each_connection_is_found_if_the_database_answers() {
        const BAD: u32 = 77;
        let items: Vec<u32> = (0..100).collect();
        let (mut halving, mut accepted, mut losses) = (Halving::new(&items), Vec::<u32>::new(), 0);
        while let Some(part) = halving.next_part() {
            if !part.contains(&BAD) {
                accepted.extend(part);
                halving.accepted();
                continue;
            }
            losses += 1;
            assert!(losses > MOST_LOST || part.len() == items.len(), "{losses}");
            failed(&mut halving, part, lost(sqlx::Error::RowNotFound));
        }
        assert_eq!((refused_alone(halving), accepted.len()), (Some(vec![BAD]), 99));
    }

    #[test]
    fn success_between_two_losses_ends_the_row_of_losses() {
        let items: Vec<u32> = (0..4).collect();
        let mut halving = Halving::new(&items);
        let all = halving.next_part().expect("all of them");
        failed(&mut halving, all, refused());
        for _ in 1..MOST_LOST {
            let first = halving.next_part().expect("the first half");
            assert_eq!(first, &items[..2]);
            failed(&mut halving, first, lost(sqlx::Error::RowNotFound));
        }
        assert_eq!(halving.next_part(), Some(&items[..2]));

        let second = halving.next_part().expect("the second half");
        failed(&mut halving, second, lost(sqlx::Error::RowNotFound));

        assert_eq!(halving.next_part(), Some(&items[2..]), "it is tried again as a whole");
    }

    #[test]
    fn no_item_is_the_reason_if_the_database_does_not_answer_after_the_last_loss() {
        let items: Vec<u32> = (0..100).collect();
        let mut halving = Halving::new(&items);
        for number in 1..=MOST_LOST {
            let part = halving.next_part().expect("all of them");
            assert_eq!(part.len(), items.len());
            failed_while(false, &mut halving, part, lost(sqlx::Error::RowNotFound));
            assert_eq!(halving.failed.is_some(), number == MOST_LOST);
        }
        assert!(halving.next_part().is_none());
    }
}
