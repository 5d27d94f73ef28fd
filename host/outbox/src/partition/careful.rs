//! The partitions whose last owner went without giving them back.
//!
//! One of their events may have stopped that host. Until this host has claimed as many events as the last owner can have had in
//! flight, it claims each event before it delivers it, so that every start is counted.
//!
//! No number bounds the events that wait for slow listeners. They may be in front of the event that stopped the last owner, and they
//! probably wait here too. So the events that wait here are not counted.

use crate::store::{HeldPartition, Position};

/// How a careful read ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarefulRead {
    /// How many events were claimed.
    pub(crate) claimed: usize,
    /// How many cold events of this host wait for a call slot now.
    pub(crate) waiting: usize,
    pub(crate) reached: Reached,
}

/// The position at which a careful read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// This event. There may be more behind it.
    Event(Position),
    /// The end, without the events of busy listeners.
    EndWithoutBusy,
    /// The end.
    End,
}

/// Partitions of which each event is claimed before it is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Careful {
    /// Each with the epoch under which this host holds it.
    partitions: Vec<(u16, u32)>,
    /// How many events of abandoned partitions were claimed.
    claimed: usize,
    /// How many events the last owner can have had in flight, without those that waited for a call slot.
    most: usize,
    /// Where the next read begins; `None` for the front.
    after: Option<Position>,
}

impl Careful {
    /// Adds the abandoned ones of these partitions. Their last owner can have had up to `most` events in flight, without those that
    /// waited for a call slot.
    pub(super) fn add_abandoned<'h>(&mut self, held: impl IntoIterator<Item = &'h HeldPartition>, most: usize) {
        let before = self.partitions.len();
        self.partitions.extend(held.into_iter().filter(|held| held.abandoned).map(|held| (held.number, held.epoch)));
        if self.partitions.len() > before {
            (self.claimed, self.most, self.after) = (0, most, None);
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

    /// Notes how a read of `read` ended.
    pub(super) fn note(&mut self, read: &Self, ended: CarefulRead) {
        self.claimed = self.claimed.saturating_add(ended.claimed);
        if ended.reached == Reached::End || self.claimed.saturating_sub(ended.waiting) >= self.most {
            self.partitions.retain(|partition| !read.partitions.contains(partition));
            self.after = None;
        } else if self.partitions == read.partitions {
            self.after = match ended.reached {
                // Behind the events that are locked, or the next read would bring them again.
                Reached::Event(last) => Some(last),
                Reached::EndWithoutBusy | Reached::End => None,
            };
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

    /// A read that claimed this many events, while none wait for a call slot.
    fn ended(claimed: usize, reached: Reached) -> CarefulRead {
        CarefulRead { claimed, waiting: 0, reached }
    }

    #[test]
    fn a_partition_that_was_given_back_is_read_as_usual() {
        assert!(careful(&[HeldPartition { abandoned: false, ..held(7, 2) }]).is_empty());
    }

    #[test]
    fn reads_go_on_behind_events_that_could_not_be_claimed() {
        let mut careful = careful(&[held(7, 2)]);
        careful.note(&careful.clone(), ended(0, Reached::Event(position(5))));
        assert_eq!((careful.numbers(), careful.after()), (vec![7], Some(position(5))));
    }

    #[test]
    fn a_read_of_everything_or_of_as_many_events_as_the_last_owner_had_in_hand_ends_it() {
        for (claimed, reached) in [(1, Reached::End), (100, Reached::Event(position(5)))] {
            let mut careful = careful(&[held(7, 2)]);
            careful.note(&careful.clone(), ended(claimed, reached));
            assert!(careful.is_empty() && careful.after().is_none(), "{claimed} claimed");
        }
    }

    #[test]
    fn events_that_wait_for_slow_listeners_do_not_count() {
        let mut careful = careful(&[held(7, 2)]);
        careful.note(&careful.clone(), CarefulRead { waiting: 5_000, ..ended(5_099, Reached::Event(position(5))) });
        assert_eq!(careful.numbers(), [7], "99 may have been with a listener");
        careful.note(&careful.clone(), CarefulRead { waiting: 5_000, ..ended(1, Reached::Event(position(6))) });
        assert!(careful.is_empty());
    }

    #[test]
    fn a_partition_whose_busy_listener_left_events_in_the_table_is_read_again_from_the_front() {
        let mut careful = careful(&[held(7, 2)]);
        careful.note(&careful.clone(), ended(50, Reached::Event(position(5))));
        careful.note(&careful.clone(), ended(0, Reached::EndWithoutBusy));
        assert_eq!((careful.numbers(), careful.after()), (vec![7], None));
        careful.note(&careful.clone(), ended(50, Reached::EndWithoutBusy));
        assert!(careful.is_empty(), "the last owner had no more events in flight");
    }

    #[test]
    fn a_partition_that_was_abandoned_again_meanwhile_is_read_from_the_front() {
        let mut careful = careful(&[held(7, 2), held(8, 2)]);
        let read = careful.clone();
        careful.retain(|number, _| number == 8);
        careful.add_abandoned(&[held(7, 4)], 100);
        careful.note(&read, ended(1, Reached::Event(position(5))));
        assert_eq!(careful.after(), None);
        careful.note(&read, ended(1, Reached::End));
        assert_eq!(careful.numbers(), [7]);
    }
}
