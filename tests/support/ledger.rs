//! The history of a test that runs in one process and knows no more than ids.

use outbox::EventId;

use crate::history::{Delivery, Ended, Ending, History, Line, Report, Rules, Step, Written};

/// What writers did, kept beside the database under test: a [`History`] in memory, without aggregates and numbers.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    history: History,
}

impl Ledger {
    /// These were committed.
    pub fn committed(&mut self, ids: impl IntoIterator<Item = EventId>) {
        self.transaction(ids, |transaction| Step::Committed { transaction, sequences: Vec::new() });
    }

    /// These were rolled back.
    pub fn rolled_back(&mut self, ids: impl IntoIterator<Item = EventId>) {
        self.transaction(ids, |transaction| Step::RolledBack { transaction });
    }

    /// Compares with everything that was delivered, in any order.
    pub fn compare(&self, delivered: impl IntoIterator<Item = EventId>) -> Report {
        let mut history = self.history.clone();
        // Nobody knows the claims here: each delivery counts as one of its own.
        history.extend(delivered.into_iter().zip(1..).flat_map(|(event_id, fence)| {
            let (aggregate, sequence, attempt) = (None, 0, 1);
            let began = Step::Began(Delivery { event_id, aggregate, sequence, fence, attempt });
            [line(began), line(Step::Ended(Ended { event_id, fence, ending: Ending::Done, after_ms: None }))]
        }));
        history.check(&Rules::default())
    }

    fn transaction(&mut self, ids: impl IntoIterator<Item = EventId>, end: impl FnOnce(String) -> Step) {
        let name = self.history.lines().len().to_string();
        let written = |(place, event_id)| Written { event_id, aggregate: None, place, not_before: None };
        let events = (0..).zip(ids).map(written).collect();
        self.history.extend([line(Step::Intent { transaction: name.clone(), events }), line(end(name))]);
    }
}

/// A step of this process, at no particular time.
fn line(step: Step) -> Line {
    Line { at: 0, node: String::new(), step }
}
