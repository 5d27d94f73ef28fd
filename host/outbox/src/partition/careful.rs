//! The partitions whose last owner went without giving them back.
//!
//! One of their events may have stopped that host. Until this host has claimed as many events as the last owner can have had in
//! flight, it claims each event before it delivers it, so that every start is counted.

use crate::store::{HeldPartition, Position};

/// Partitions of which each event is claimed before it is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Careful {
    /// Each with the epoch under which this host holds it.
    partitions: Vec<(u16, u32)>,
    /// How many more events are claimed before all are read as usual.
    left: usize,
    /// Where the next read begins; `None` for the front.
    after: Option<Position>,
}

impl Careful {
    /// Adds the abandoned ones of these partitions. Their last owner can have had up to `in_hand` events in flight.
    pub(super) fn add_abandoned<'h>(&mut self, held: impl IntoIterator<Item = &'h HeldPartition>, in_hand: usize) {
        let before = self.partitions.len();
        self.partitions.extend(held.into_iter().filter(|held| held.abandoned).map(|held| (held.number, held.epoch)));
        if self.partitions.len() > before {
            (self.left, self.after) = (in_hand, None);
        }
    }

    /// Keeps only the partitions that are still held under the same epoch.
    pub(super) fn retain(&mut self, is_held: impl Fn(u16, u32) -> bool) {
        self.partitions.retain(|(number, epoch)| is_held(*number, *epoch));
    }

    /// Of these partitions, those that are read carefully. `numbers` are in order.
    pub(super) fn among(&self, numbers: &[u16]) -> Self {
        let mut some = self.clone();
        some.partitions.retain(|(number, _)| numbers.binary_search(number).is_ok());
        some
    }

    /// Notes how a read of `read` ended: this many events were claimed, and `reached` is the last event if there may be more.
    pub(super) fn note(&mut self, read: &Self, claimed: usize, reached: Option<Position>) {
        self.left = self.left.saturating_sub(claimed);
        if reached.is_none() || self.left == 0 {
            self.partitions.retain(|partition| !read.partitions.contains(partition));
            self.after = None;
        } else if self.partitions == read.partitions {
            // Behind the events that are locked, or the next read would bring them again.
            self.after = reached;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    pub(crate) fn contains(&self, number: u16) -> bool {
        self.partitions.iter().any(|(careful, _)| *careful == number)
    }

    /// The numbers of the partitions.
    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.partitions.iter().map(|(number, _)| *number).collect()
    }

    /// Where the next read begins; `None` for the front.
    pub(crate) fn after(&self) -> Option<Position> {
        self.after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn held(number: u16, epoch: u32) -> HeldPartition {
        HeldPartition { number, epoch, abandoned: true }
    }

    fn position(sequence: u64) -> Position {
        Position { due_at: Timestamp::from_micros(60_000_000), sequence }
    }

    fn careful(partitions: &[HeldPartition]) -> Careful {
        let mut careful = Careful::default();
        careful.add_abandoned(partitions, 100);
        careful
    }

    #[test]
    fn a_partition_that_was_given_back_is_read_as_usual() {
        assert!(careful(&[HeldPartition { abandoned: false, ..held(7, 2) }]).is_empty());
    }

    #[test]
    fn reads_go_on_behind_events_that_could_not_be_claimed() {
        let mut careful = careful(&[held(7, 2)]);
        careful.note(&careful.clone(), 0, Some(position(5)));
        assert_eq!((careful.numbers(), careful.after()), (vec![7], Some(position(5))));
    }

    #[test]
    fn a_read_of_everything_or_of_as_many_events_as_the_last_owner_had_in_hand_ends_it() {
        for (claimed, reached) in [(1, None), (100, Some(position(5)))] {
            let mut careful = careful(&[held(7, 2)]);
            careful.note(&careful.clone(), claimed, reached);
            assert!(careful.is_empty() && careful.after().is_none(), "{claimed} claimed");
        }
    }

    #[test]
    fn a_partition_that_was_abandoned_again_meanwhile_is_read_from_the_front() {
        let mut careful = careful(&[held(7, 2), held(8, 2)]);
        let read = careful.clone();
        careful.retain(|number, _| number == 8);
        careful.add_abandoned(&[held(7, 4)], 100);
        careful.note(&read, 1, Some(position(5)));
        assert_eq!(careful.after(), None);
        careful.note(&read, 1, None);
        assert_eq!(careful.numbers(), [7]);
    }
}
