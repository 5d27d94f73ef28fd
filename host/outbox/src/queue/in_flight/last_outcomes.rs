//! The last outcomes that this host has stored. If a read returns one of their events too early, the database may revert outcomes: a trigger
//! keeps the row or sets it back.

/// The number of outcomes that one shard remembers.
const SLOTS: usize = 512;

/// The last outcomes of one shard. A new outcome replaces another one in its slot.
#[derive(Debug)]
pub(super) struct LastOutcomes(Box<[Slot]>);

/// An empty slot has `seq` 0. A row with that number may be doubtful without an outcome, which costs one more look at it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    sequence: u64,
    /// The highest `claim_seq` with which an unfinished row contradicts the outcome.
    claim_seq: u64,
}

impl Default for LastOutcomes {
    fn default() -> Self {
        Self(vec![Slot::default(); SLOTS].into_boxed_slice())
    }
}

impl LastOutcomes {
    /// Notes that the outcome of an event is stored. `claim_seq` is the highest one with which an unfinished row contradicts it.
    pub(super) fn note(&mut self, sequence: u64, claim_seq: u64) {
        self.0[index(sequence)] = Slot { sequence, claim_seq };
    }

    /// Whether an unfinished row contradicts the last outcome of its event. False if the outcome is not remembered. True for some rows that
    /// were set back by hand, restored, or inserted after a `TRUNCATE`.
    pub(super) fn contradict(&self, sequence: u64, claim_seq: u64) -> bool {
        let last = self.0[index(sequence)];
        last.sequence == sequence && claim_seq <= last.claim_seq
    }
}

fn index(sequence: u64) -> usize {
    usize::try_from(sequence % SLOTS as u64).expect("below 512")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_row_contradicts_an_outcome_by_its_claim_seq() {
        let mut last = LastOutcomes::default();
        assert!(!last.contradict(7, 2), "no outcome is stored");

        last.note(7, 3);

        assert!(last.contradict(7, 2) && last.contradict(7, 3));
        assert!(!last.contradict(7, 4), "the event was claimed or replayed since");
        assert!(!last.contradict(8, 2), "another event");
        assert!(!last.contradict(7 + SLOTS as u64, 2), "another event with the same slot");
    }

    #[test]
    fn a_later_outcome_replaces_an_earlier_one_in_its_slot() {
        let mut last = LastOutcomes::default();
        let other = 7 + SLOTS as u64;

        last.note(7, 3);
        last.note(other, 3);

        assert!(!last.contradict(7, 3) && last.contradict(other, 3));
    }
}
