//! Whose turn it is among events that wait behind others, for every database.

use std::collections::HashSet;

use super::Unblocked;

/// Events that others wait behind, each with the first that does.
#[derive(Debug)]
pub(super) struct Firsts {
    waiting: Vec<(u64, u64)>,
    cleared: Vec<u64>,
}

impl Firsts {
    pub(super) fn new(firsts: Vec<(u64, Option<u64>)>) -> Self {
        let mut this = Self { waiting: Vec::new(), cleared: Vec::new() };
        for (blocker, first) in firsts {
            match first {
                Some(first) => this.waiting.push((blocker, first)),
                None => this.cleared.push(blocker),
            }
        }
        this
    }

    /// The first behind each.
    pub(super) fn waiting(&self) -> Vec<u64> {
        self.waiting.iter().map(|(_, first)| *first).collect()
    }

    /// Leaves out those who wait for somebody still: events with the heads of their lines.
    pub(super) fn leave_out(&mut self, heads: &[(u64, u64)]) {
        let wait: HashSet<u64> = heads.iter().map(|(event, _)| *event).collect();
        self.waiting.retain(|(_, first)| !wait.contains(first));
    }

    /// Behind whom the first has nobody to wait for.
    pub(super) fn whose_turn_it_is(&self) -> Vec<u64> {
        self.waiting.iter().map(|(blocker, _)| *blocker).collect()
    }

    /// What came of it: `firsts` are those behind them by now.
    pub(super) fn after(self, firsts: Vec<(u64, Option<u64>)>) -> Unblocked {
        let now = Self::new(firsts);
        let mut cleared = self.cleared;
        cleared.extend(now.cleared);
        cleared.sort_unstable();
        Unblocked { cleared, left: now.waiting.into_iter().map(|(blocker, _)| blocker).collect() }
    }
}
