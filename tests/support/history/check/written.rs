//! Committed means delivered, rolled back means never, and unknown means all or nothing.

use std::collections::{BTreeMap, BTreeSet};

use outbox::{EventId, Status};

use crate::history::calls::Call;
use crate::history::journal::History;
use crate::history::report::Report;
use crate::history::step::{Row, Step, Written};

/// How a transaction ended, as far as its writer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Committed,
    RolledBack,
    Unknown,
}

/// What a writer recorded about one transaction.
#[derive(Debug)]
pub(super) struct Transaction<'a> {
    /// Who wrote it.
    pub(super) writer: &'a str,
    /// The how-manieth line of the record announced it.
    pub(super) line: usize,
    pub(super) events: &'a [Written],
    /// The database's numbers; none when the writer was not told.
    pub(super) sequences: &'a [u64],
    fate: Fate,
}

/// Every transaction, by its name.
pub(super) type Transactions<'a> = BTreeMap<&'a str, Transaction<'a>>;

impl History {
    /// How many events were committed, as far as their writers were told.
    #[must_use]
    pub fn committed(&self) -> usize {
        self.count(Fate::Committed)
    }

    /// How many events were written and rolled back.
    #[must_use]
    pub fn rolled_back(&self) -> usize {
        self.count(Fate::RolledBack)
    }

    /// How many events are in transactions of which nobody knows how they ended.
    #[must_use]
    pub fn unknown(&self) -> usize {
        self.count(Fate::Unknown)
    }

    fn count(&self, fate: Fate) -> usize {
        self.transactions().values().filter(|one| one.fate == fate).map(|one| one.events.len()).sum()
    }

    pub(super) fn transactions(&self) -> Transactions<'_> {
        let mut transactions = BTreeMap::new();
        for (number, line) in self.lines().iter().enumerate() {
            if let Step::Intent { transaction, events } = &line.step {
                let announced = Transaction { writer: &line.node, line: number, events, sequences: &[], fate: Fate::Unknown };
                transactions.insert(transaction.as_str(), announced);
            }
        }
        // Afterwards: the clock of a machine may be set back, and then an end stands before its beginning.
        for line in self.lines() {
            let (transaction, fate, sequences): (_, _, &[u64]) = match &line.step {
                Step::Committed { transaction, sequences } => (transaction, Fate::Committed, sequences),
                Step::RolledBack { transaction } => (transaction, Fate::RolledBack, &[]),
                Step::Unknown { transaction } => (transaction, Fate::Unknown, &[]),
                _ => continue,
            };
            let known = transactions.get_mut(transaction.as_str());
            let known = known.unwrap_or_else(|| panic!("transaction {transaction} ends, but nobody said that it begins"));
            (known.fate, known.sequences) = (fate, sequences);
        }
        transactions
    }

    /// The rows of the table in the end; `None` when nobody looked.
    pub(super) fn table(&self) -> Option<&[Row]> {
        self.lines().iter().rev().find_map(|line| match &line.step {
            Step::Table { rows } => Some(rows.as_slice()),
            _ => None,
        })
    }
}

pub(super) fn check(transactions: &Transactions<'_>, calls: &[Call<'_>], table: Option<&[Row]>, report: &mut Report) {
    let called: BTreeSet<EventId> = calls.iter().map(|call| call.delivery.event_id).collect();
    let rows: BTreeMap<EventId, Status> = table.unwrap_or_default().iter().map(|row| (row.event_id, row.status)).collect();
    let there = |id: &EventId| called.contains(id) || rows.contains_key(id);
    let finished = |id: &EventId| match table {
        Some(_) => matches!(rows.get(id), Some(Status::Done | Status::Dead)),
        None => called.contains(id),
    };
    let mut may_be_there = BTreeSet::new();
    for (name, transaction) in transactions {
        let ids = || transaction.events.iter().map(|event| event.event_id);
        match transaction.fate {
            Fate::RolledBack => continue,
            Fate::Unknown if !ids().any(|id| there(&id)) => continue,
            Fate::Unknown if !ids().all(|id| there(&id)) => report.halves.push((*name).to_owned()),
            Fate::Committed | Fate::Unknown => report.lost.extend(ids().filter(|id| !finished(id))),
        }
        may_be_there.extend(ids());
    }
    let there: BTreeSet<EventId> = called.iter().chain(rows.keys()).copied().collect();
    report.ghosts.extend(there.difference(&may_be_there));
}
