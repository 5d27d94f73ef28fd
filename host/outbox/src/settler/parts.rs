//! The parts of a batch that one statement could not store.

use std::collections::VecDeque;

use super::completion::{Batch, Completion};
use crate::halving::PARTS_IF_HELD_UP;
use crate::store::Settled;

/// The parts that are stored after the current one; nearly always empty.
#[derive(Debug, Default)]
pub(super) struct Parts(VecDeque<Vec<Completion>>);

impl Parts {
    /// Takes what is beyond this many outcomes out of the batch.
    pub(super) fn beyond(count: usize, batch: &mut Batch) -> Self {
        let mut parts = Self::default();
        parts.add_chunks(batch.split_off(count), count);
        parts
    }

    /// The next part.
    pub(super) fn take_next(&mut self) -> Option<Vec<Completion>> {
        self.0.pop_front()
    }

    /// All outcomes, in any order.
    pub(super) fn settled(&self) -> impl Iterator<Item = &Settled> {
        self.0.iter().flatten().map(|one| &one.settled)
    }

    /// How many outcomes there are.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Takes all outcomes.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Completion> {
        std::mem::take(&mut self.0).into_iter().flatten()
    }

    /// Puts both halves of a batch before all other parts: the failure took no time.
    pub(super) fn halve_next(&mut self, batch: &mut Batch) {
        let second = batch.split_off(batch.len().div_ceil(2));
        self.0.push_front(second);
        self.0.push_front(batch.drain().collect());
    }

    /// Puts the parts of a batch that was held up behind all other parts, because another failure takes as long. Returns their size.
    pub(super) fn divide_last(&mut self, batch: &mut Batch) -> usize {
        let count = batch.len().div_ceil(PARTS_IF_HELD_UP).max(1);
        self.add_chunks(batch.drain().collect(), count);
        count
    }

    fn add_chunks(&mut self, mut outcomes: Vec<Completion>, count: usize) {
        while !outcomes.is_empty() {
            let later = outcomes.split_off(count.min(outcomes.len()));
            self.0.push_back(std::mem::replace(&mut outcomes, later));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Fence;
    use crate::store::Settlement;

    const OUTCOMES: u64 = 500;

    /// Divides a batch until each outcome is stored or found alone.
    #[derive(Default)]
    struct Run {
        stored: Vec<u64>,
        found: Vec<u64>,
        /// How many outcomes were stored before each failure.
        failures: Vec<usize>,
        statements: usize,
    }

    impl Run {
        /// A statement for one of the bad rows fails.
        fn of(bad: &[u64], divide: impl Fn(&mut Parts, &mut Batch)) -> Self {
            let mut batch = Batch::with_capacity(0);
            batch.extend((1..=OUTCOMES).map(|sequence| Completion::claim(Fence::new(sequence, 2, 3), Settlement::Done)));
            let (mut parts, mut run) = (Parts::default(), Self::default());
            while batch.len() > 0 {
                run.statements += 1;
                let sequences: Vec<u64> = batch.settled.iter().map(|settled| settled.fence.sequence).collect();
                if !sequences.iter().any(|sequence| bad.contains(sequence)) {
                    run.stored.extend(sequences);
                    batch.drain().for_each(drop);
                } else {
                    run.failures.push(run.stored.len());
                    if batch.len() == 1 {
                        run.found.extend(sequences);
                        batch.drain().for_each(drop);
                    } else {
                        divide(&mut parts, &mut batch);
                    }
                }
                batch.extend(parts.take_next().into_iter().flatten());
            }
            assert_eq!(run.stored.len() + run.found.len(), 500, "no outcome is lost");
            run
        }
    }

    fn divide_last(parts: &mut Parts, batch: &mut Batch) {
        parts.divide_last(batch);
    }

    #[test]
    fn outcomes_beside_a_slow_one_are_stored_before_it_is_found() {
        for bad in [1, 123, OUTCOMES] {
            let run = Run::of(&[bad], divide_last);
            assert_eq!(run.found, [bad]);
            let [0, second, third, last] = run.failures[..] else { panic!("{:?}", run.failures) };
            assert!(second <= 441 && third >= 437 && last >= 492, "{:?}", run.failures);
        }
    }

    #[test]
    fn outcomes_beside_two_slow_ones_are_stored_by_few_failures() {
        let mut run = Run::of(&[7, 444], divide_last);
        run.found.sort_unstable();
        assert_eq!(run.found, [7, 444]);
        assert_eq!(run.failures.len(), 7);
    }

    #[test]
    fn refused_outcome_is_found_by_some_twenty_statements_and_the_order_is_kept() {
        let run = Run::of(&[123], Parts::halve_next);
        assert_eq!(run.found, [123]);
        assert!(run.statements <= 20, "{}", run.statements);
        assert!(run.stored.is_sorted());
    }

    #[test]
    fn a_batch_larger_than_a_statement_is_cut() {
        let mut batch = Batch::with_capacity(0);
        batch.extend((1..=20).map(|sequence| Completion::claim(Fence::new(sequence, 2, 3), Settlement::Done)));
        let mut parts = Parts::beyond(8, &mut batch);

        assert_eq!((batch.len(), parts.len()), (8, 12));
        assert_eq!(parts.take_next().map(|part| part.len()), Some(8));
        assert_eq!(parts.take_all().count(), 4);
        assert!(parts.take_next().is_none());
    }
}
