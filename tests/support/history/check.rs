//! What a history proves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use outbox::EventId;

use super::journal::History;
use super::step::{Aggregate, Delivery, Ending, Step, Written};

/// In which order the events of one aggregate must be delivered. Delayed events are left out, and so are events without an
/// aggregate. The order is that of the database's numbers, and writers must have kept to it: one aggregate is written by one
/// writer, or by several that lock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In any.
    Any,
    /// The first deliveries come in order. Once a later event was delivered, an earlier one that had come to its end is not
    /// delivered again; one that had failed may be (`stop_on_first_failure` is off).
    FailuresMayBeOvertaken,
    /// Once a later event was delivered, an earlier one is not delivered any more, neither for the first time nor again.
    Strict,
}

/// What must never be. All lists are empty when all is well; duplicates are a matter of how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Committed, never delivered.
    pub lost: Vec<EventId>,
    /// Delivered, though they were rolled back or never written.
    pub ghosts: Vec<EventId>,
    /// Transactions of unknown result of which a part was delivered and a part was not.
    pub halves: Vec<String>,
    /// Events with two numbers, or with the number of another one.
    pub renumbered: Vec<EventId>,
    /// Delivered twice under one claim: the event and its fence.
    pub claimed_twice: Vec<(EventId, u64)>,
    /// Delivered after a later event of their aggregate.
    pub reordered: Vec<Reordered>,
    /// Deliveries of events that had come to their end, or whose attempt had been recorded as failed: what a fault may cost.
    pub duplicates: usize,
}

/// Two events of one aggregate in the wrong order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reordered {
    /// Delivered first.
    pub later: u64,
    /// Delivered after it, though its number is smaller.
    pub earlier: u64,
    /// What both happened to.
    pub aggregate: Aggregate,
}

impl Report {
    /// This report without its duplicates: equal to the default one when nothing is wrong.
    #[must_use]
    pub fn without_duplicates(mut self) -> Self {
        self.duplicates = 0;
        self
    }
}

/// The figures, and the first of each fault.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, name: &str, faults: &[T]) -> fmt::Result {
            write!(f, "{} {name}", faults.len())?;
            faults.first().map_or(Ok(()), |first| write!(f, " (first: {first:?})"))?;
            f.write_str(", ")
        }
        list(f, "lost", &self.lost)?;
        list(f, "delivered after a rollback or never written", &self.ghosts)?;
        list(f, "transactions delivered in part", &self.halves)?;
        list(f, "renumbered", &self.renumbered)?;
        list(f, "claimed twice", &self.claimed_twice)?;
        list(f, "out of order", &self.reordered)?;
        write!(f, "{} duplicates", self.duplicates)
    }
}

/// How a transaction ended, as far as its writer was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Committed,
    RolledBack,
    Unknown,
}

/// What a writer recorded about one transaction.
struct Transaction<'a> {
    events: &'a [Written],
    sequences: &'a [u64],
    fate: Fate,
}

impl History {
    /// Compares what was written with what was delivered.
    #[must_use]
    pub fn check(&self, order: Order) -> Report {
        let (transactions, deliveries) = (self.transactions(), self.deliveries());
        let mut report = Report::default();
        check_fates(&transactions, &deliveries, &mut report);
        check_numbers(&transactions, &deliveries, &mut report);
        check_repeats(&deliveries, &mut report);
        if order != Order::Any {
            let delayed = transactions.values().flat_map(|one| one.events).filter(|event| event.delayed);
            check_order(&deliveries, &delayed.map(|event| event.event_id).collect(), order, &mut report);
        }
        report
    }

    /// Every delivery, in the order of time.
    #[must_use]
    pub fn deliveries(&self) -> Vec<&Delivery> {
        let delivered = self.lines().iter().filter_map(|line| match &line.step {
            Step::Delivered(delivery) => Some(delivery),
            Step::Intent { .. } | Step::Committed { .. } | Step::RolledBack { .. } | Step::Unknown { .. } => None,
        });
        delivered.collect()
    }

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

    fn count(&self, fate: Fate) -> usize {
        self.transactions().values().filter(|one| one.fate == fate).map(|one| one.events.len()).sum()
    }

    fn transactions(&self) -> BTreeMap<&str, Transaction<'_>> {
        let mut transactions: BTreeMap<&str, Transaction<'_>> = BTreeMap::new();
        for line in self.lines() {
            if let Step::Intent { transaction, events } = &line.step {
                transactions.insert(transaction, Transaction { events, sequences: &[], fate: Fate::Unknown });
            }
        }
        // Afterwards: the clock of a machine may be set back, and then an end stands before its beginning.
        for line in self.lines() {
            let (transaction, fate, sequences): (_, _, &[u64]) = match &line.step {
                Step::Committed { transaction, sequences } => (transaction, Fate::Committed, sequences),
                Step::RolledBack { transaction } => (transaction, Fate::RolledBack, &[]),
                Step::Unknown { transaction } => (transaction, Fate::Unknown, &[]),
                Step::Intent { .. } | Step::Delivered(_) => continue,
            };
            let known = transactions.get_mut(transaction.as_str());
            let known = known.unwrap_or_else(|| panic!("transaction {transaction} ends, but nobody said that it begins"));
            (known.fate, known.sequences) = (fate, sequences);
        }
        transactions
    }
}

/// Committed means delivered, rolled back means never, and unknown means all or nothing.
fn check_fates(transactions: &BTreeMap<&str, Transaction<'_>>, deliveries: &[&Delivery], report: &mut Report) {
    let delivered: BTreeSet<EventId> = deliveries.iter().map(|delivery| delivery.event_id).collect();
    let mut may_be_delivered = BTreeSet::new();
    for (name, transaction) in transactions {
        let ids = || transaction.events.iter().map(|event| event.event_id);
        match transaction.fate {
            Fate::Committed => report.lost.extend(ids().filter(|id| !delivered.contains(id))),
            Fate::RolledBack => continue,
            Fate::Unknown => {
                let came = ids().filter(|id| delivered.contains(id)).count();
                if came != 0 && came != transaction.events.len() {
                    report.halves.push((*name).to_owned());
                }
            }
        }
        may_be_delivered.extend(ids());
    }
    report.ghosts.extend(delivered.difference(&may_be_delivered));
}

/// One number for one event, the same at every delivery, and the one that its writer was told.
fn check_numbers(transactions: &BTreeMap<&str, Transaction<'_>>, deliveries: &[&Delivery], report: &mut Report) {
    let told =
        transactions.values().flat_map(|one| one.events.iter().map(|event| event.event_id).zip(one.sequences.iter().copied()));
    let seen = deliveries.iter().map(|delivery| (delivery.event_id, delivery.sequence));
    let mut numbers: BTreeMap<EventId, u64> = BTreeMap::new();
    let mut events: BTreeMap<u64, EventId> = BTreeMap::new();
    for (event, number) in told.chain(seen).filter(|(_, number)| *number != 0) {
        if *numbers.entry(event).or_insert(number) != number || *events.entry(number).or_insert(event) != event {
            report.renumbered.push(event);
        }
    }
}

/// A claim is one delivery; and what has ended does not come again, unless something broke.
fn check_repeats(deliveries: &[&Delivery], report: &mut Report) {
    let mut earlier: BTreeMap<EventId, Vec<&Delivery>> = BTreeMap::new();
    for delivery in deliveries {
        let earlier = earlier.entry(delivery.event_id).or_default();
        if earlier.iter().any(|one| one.fence == delivery.fence) {
            report.claimed_twice.push((delivery.event_id, delivery.fence));
        }
        let repeats =
            |one: &&Delivery| one.ending.is_final() || (one.ending == Ending::Failed && one.attempt == delivery.attempt);
        report.duplicates += usize::from(earlier.iter().any(repeats));
        earlier.push(delivery);
    }
}

fn check_order(deliveries: &[&Delivery], delayed: &BTreeSet<EventId>, order: Order, report: &mut Report) {
    // Of each aggregate the highest number that was delivered; of each event whether it has come to its end.
    let mut highest: BTreeMap<&Aggregate, u64> = BTreeMap::new();
    let mut ended: BTreeMap<EventId, bool> = BTreeMap::new();
    for delivery in deliveries.iter().filter(|delivery| !delayed.contains(&delivery.event_id)) {
        let Some(aggregate) = &delivery.aggregate else { continue };
        let highest = highest.entry(aggregate).or_insert(delivery.sequence);
        let before = ended.get(&delivery.event_id).copied();
        let is_a_retry = before == Some(false);
        if delivery.sequence < *highest && !(is_a_retry && order == Order::FailuresMayBeOvertaken) {
            let (later, earlier) = (*highest, delivery.sequence);
            report.reordered.push(Reordered { later, earlier, aggregate: aggregate.clone() });
        }
        *highest = delivery.sequence.max(*highest);
        ended.insert(delivery.event_id, before == Some(true) || delivery.ending.is_final());
    }
}

#[cfg(test)]
mod tests;
