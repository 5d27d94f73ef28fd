//! Finds single rows that the database refuses, so that a statement for a fixed list can be repeated without them: claims, renewals,
//! routes to unpark, events to unblock.
//! The settler, which must keep each outcome, and a purge, which chooses its rows in SQL, halve by themselves.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::{Store, StoreError};

/// After this many refused rows the cause is probably not in the rows.
const MOST_REFUSED: usize = 16;
/// How many parts a part is split into after a statement that waited for a lock or took too long. Each such failure takes as long as the
/// database's timeout, so there should be few until the item is found.
const PARTS_IF_HELD_UP: usize = 8;
/// The most such failures, and the longest time that they may take together. Otherwise a locked table would hold up the caller.
const MOST_HELD_UP: u32 = 6;
const HELD_UP_FOR: Duration = Duration::from_secs(15);
/// After this many lost connections in a row, a row of the statement may be the reason, if the database answers right after the last loss.
const MOST_LOST: u32 = 3;

/// Items that a statement is sent for, together at first, and by halves after a failure.
pub(crate) struct Halving<'i, I> {
    parts: Vec<&'i [I]>,
    refused: usize,
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

/// The conclusion from a failed statement.
pub(crate) enum Failure<'i, I> {
    /// One of the items may be refused. Smaller parts are next, or the same part once more.
    Halved,
    /// This item is refused. The others are next.
    Refused(&'i I),
    /// No item can be the reason, or too many are refused. The others are not tried.
    OfAll,
}

impl<'i, I> Halving<'i, I> {
    pub(crate) fn new(items: &'i [I]) -> Self {
        let losses = Losses::default();
        Self { parts: vec![items], refused: 0, held_up: 0, losses, has_failed: false, began_at: Instant::now() }
    }

    /// The items of the next statement; at least one. The statement for the previous part succeeded, unless [`failed`](Self::failed) was
    /// called for it.
    pub(crate) fn next_part(&mut self) -> Option<&'i [I]> {
        if !std::mem::take(&mut self.has_failed) {
            self.losses.succeeded();
        }
        self.parts.pop().filter(|part| !part.is_empty())
    }

    /// Notes that the statement for this part has failed. `answers` asks the database something else.
    pub(crate) async fn failed(
        &mut self,
        part: &'i [I],
        error: &StoreError,
        answers: impl Future<Output = bool>,
    ) -> Failure<'i, I> {
        self.has_failed = true;
        let is_held_up = is_held_up(error);
        self.held_up += u32::from(is_held_up);
        let is_lost_by_rows = self.losses.note(error, false, answers).await;
        // Most locks are held for a moment, and most connections are lost for another reason.
        let is_repeated = if is_held_up { self.held_up == 1 } else { self.losses.are_few() && !is_silence(error) };
        let may_be_of_items = match error {
            StoreError::Disconnected { .. } => is_repeated || is_lost_by_rows,
            _ if is_held_up => self.is_patient(),
            _ => error.may_concern_rows(),
        };
        if !may_be_of_items || self.refused >= MOST_REFUSED {
            self.parts.clear();
            return Failure::OfAll;
        }
        if is_repeated {
            self.parts.push(part);
            return Failure::Halved;
        }
        match part {
            [one] => {
                self.refused += 1;
                Failure::Refused(one)
            }
            _ => {
                let count = if is_held_up { PARTS_IF_HELD_UP } else { 2 };
                self.parts.extend(part.chunks(part.len().div_ceil(count)).rev());
                Failure::Halved
            }
        }
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
fn is_held_up(error: &StoreError) -> bool {
    matches!(error, StoreError::Locked { .. } | StoreError::TimedOut { .. })
}

/// Whether a refusal of one item says nothing about the others: neither the right to change the table is missing, nor is it locked.
pub(crate) fn is_of_one_item(error: &StoreError) -> bool {
    !matches!(error, StoreError::Forbidden { .. }) && !is_held_up(error)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use rand::RngExt;

    use super::*;

    /// Notes a failure while the database answers.
    fn failed<'i, I>(halving: &mut Halving<'i, I>, part: &'i [I], error: &StoreError) -> Failure<'i, I> {
        failed_while(true, halving, part, error)
    }

    fn failed_while<'i, I>(answers: bool, halving: &mut Halving<'i, I>, part: &'i [I], error: &StoreError) -> Failure<'i, I> {
        let failed = pin!(halving.failed(part, error, std::future::ready(answers)));
        match failed.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(failure) => failure,
            Poll::Pending => unreachable!("it waits for nothing"),
        }
    }

    fn lost(source: sqlx::Error) -> StoreError {
        StoreError::Disconnected { action: "test", source }
    }

    fn refused() -> StoreError {
        StoreError::Failed { action: "test", source: sqlx::Error::RowNotFound }
    }

    /// The items that a statement was accepted for, and those that were refused alone; `None` if the halving ended before.
    fn halve(items: &[u32], bad: impl Fn(u32) -> bool) -> Option<(Vec<u32>, Vec<u32>)> {
        let (mut halving, mut accepted, mut alone) = (Halving::new(items), Vec::new(), Vec::new());
        while let Some(part) = halving.next_part() {
            if !part.iter().any(|item| bad(*item)) {
                accepted.extend(part);
                continue;
            }
            match failed(&mut halving, part, &refused()) {
                Failure::Halved => {}
                Failure::Refused(item) => alone.push(*item),
                Failure::OfAll => return None,
            }
        }
        Some((accepted, alone))
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
        let locked = StoreError::Locked { action: "test", source: sqlx::Error::RowNotFound };
        let (mut accepted, mut alone): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let (mut halving, mut failures) = (Halving::new(items), 0);
        while let Some(part) = halving.next_part() {
            if !part.iter().any(|item| bad.contains(item)) {
                accepted.extend(part);
                continue;
            }
            failures += 1;
            match failed(&mut halving, part, &locked) {
                Failure::Halved => {}
                Failure::Refused(item) => alone.push(*item),
                Failure::OfAll => return (failures, None),
            }
        }
        accepted.extend(&alone);
        accepted.sort_unstable();
        assert_eq!(accepted, items, "each item is accepted or found");
        (failures, Some(alone))
    }

    #[test]
    fn an_item_that_waits_for_a_lock_is_found_by_few_statements() {
        let items: Vec<u32> = (0..2_000).collect();
        for bad in [0, 777, 1_999] {
            let (failures, alone) = halve_locked(&items, &[bad]);
            assert_eq!(alone, Some(vec![bad]));
            assert!(failures <= MOST_HELD_UP, "{failures}");
        }
        assert_eq!(halve_locked(&[7], &[7]), (2, Some(vec![7])), "it is tried twice");
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
        let locked = StoreError::Locked { action: "test", source: sqlx::Error::RowNotFound };
        assert!(matches!(failed(&mut halving, part, &locked), Failure::Halved));
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
            assert!(matches!(failed(&mut halving, part, &error), Failure::OfAll));
            assert!(halving.next_part().is_none());
        }
    }

    #[test]
    fn an_item_that_ends_each_connection_is_found_if_the_database_answers() {
        const BAD: u32 = 77;
        let items: Vec<u32> = (0..100).collect();
        let (mut halving, mut accepted, mut refused, mut losses) = (Halving::new(&items), Vec::<u32>::new(), Vec::new(), 0);
        while let Some(part) = halving.next_part() {
            if !part.contains(&BAD) {
                accepted.extend(part);
                continue;
            }
            losses += 1;
            match failed(&mut halving, part, &lost(sqlx::Error::RowNotFound)) {
                Failure::Halved => assert!(losses > MOST_LOST || part.len() == items.len()),
                Failure::Refused(item) => refused.push(*item),
                Failure::OfAll => panic!("the database answers"),
            }
        }
        assert_eq!((refused, accepted.len()), (vec![BAD], 99));
    }

    #[test]
    fn success_between_two_losses_ends_the_row_of_losses() {
        let items: Vec<u32> = (0..4).collect();
        let mut halving = Halving::new(&items);
        let all = halving.next_part().expect("all of them");
        failed(&mut halving, all, &refused());
        for _ in 1..MOST_LOST {
            let first = halving.next_part().expect("the first half");
            assert_eq!(first, &items[..2]);
            failed(&mut halving, first, &lost(sqlx::Error::RowNotFound));
        }
        assert_eq!(halving.next_part(), Some(&items[..2]));

        let second = halving.next_part().expect("the second half");
        failed(&mut halving, second, &lost(sqlx::Error::RowNotFound));

        assert_eq!(halving.next_part(), Some(&items[2..]), "it is tried again as a whole");
    }

    #[test]
    fn no_item_is_the_reason_if_the_database_does_not_answer_after_the_last_loss() {
        let items: Vec<u32> = (0..100).collect();
        let mut halving = Halving::new(&items);
        for number in 1..=MOST_LOST {
            let part = halving.next_part().expect("all of them");
            assert_eq!(part.len(), items.len());
            let failure = failed_while(false, &mut halving, part, &lost(sqlx::Error::RowNotFound));
            assert_eq!(matches!(failure, Failure::OfAll), number == MOST_LOST);
        }
        assert!(halving.next_part().is_none());
    }
}
