//! Finds single rows that the database refuses, so that a statement for a fixed list can be repeated without them: claims and renewals.
//! The settler, which must keep each outcome, and a purge, which chooses its rows in SQL, halve by themselves.

use crate::store::StoreError;

/// After this many refused rows the cause is probably not in the rows.
const MOST_REFUSED: usize = 16;

/// Items that a statement is sent for, together at first, and by halves after a failure.
pub(crate) struct Halving<'i, I> {
    parts: Vec<&'i [I]>,
    refused: usize,
}

/// The conclusion from a failed statement.
pub(crate) enum Failure<'i, I> {
    /// One of the items may be refused. The halves are next.
    Halved,
    /// This item is refused. The others are next.
    Refused(&'i I),
    /// No item can be the reason, or too many are refused. The others are not tried.
    OfAll,
}

impl<'i, I> Halving<'i, I> {
    pub(crate) fn new(items: &'i [I]) -> Self {
        Self { parts: vec![items], refused: 0 }
    }

    /// The items of the next statement; at least one.
    pub(crate) fn next_part(&mut self) -> Option<&'i [I]> {
        self.parts.pop().filter(|part| !part.is_empty())
    }

    /// Notes that the statement for this part has failed.
    pub(crate) fn failed(&mut self, part: &'i [I], error: &StoreError) -> Failure<'i, I> {
        if !error.may_concern_rows() || self.refused >= MOST_REFUSED {
            self.parts.clear();
            return Failure::OfAll;
        }
        match part {
            [one] => {
                self.refused += 1;
                Failure::Refused(one)
            }
            _ => {
                let (first, second) = part.split_at(part.len().div_ceil(2));
                self.parts.extend([second, first]);
                Failure::Halved
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;

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
            match halving.failed(part, &refused()) {
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

    #[test]
    fn where_many_are_refused_or_no_item_can_be_the_reason_the_others_are_not_tried() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(halve(&items, |_| true), None);

        let mut halving = Halving::new(&items);
        let part = halving.next_part().expect("all of them");
        let lost = StoreError::Disconnected { action: "test", source: sqlx::Error::RowNotFound };
        assert!(matches!(halving.failed(part, &lost), Failure::OfAll));
        assert!(halving.next_part().is_none());
    }
}
