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
