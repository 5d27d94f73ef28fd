//! What a history proves, in words and figures.

use std::fmt;

use outbox::EventId;

use super::step::Aggregate;

/// What must never be. All lists are empty when all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Committed, but neither delivered nor given up.
    pub lost: Vec<EventId>,
    /// Delivered or in the table, though they were rolled back or never written.
    pub ghosts: Vec<EventId>,
    /// Transactions of unknown result of which a part came and a part did not.
    pub halves: Vec<String>,
    /// Events with two numbers, or with the number of another one.
    pub renumbered: Vec<EventId>,
    /// DONE, though the call that the table names did not succeed.
    pub unearned: Vec<EventId>,
    /// DEAD, though no listener said so and attempts were left.
    pub killed: Vec<EventId>,
    /// With two listeners at once.
    pub at_once: Vec<EventId>,
    /// Two events of one aggregate that were with listeners at once, where order was asked for.
    pub key_at_once: Vec<(EventId, EventId)>,
    /// Claims that go back or come twice: the event and the later claim.
    pub fences: Vec<(EventId, u64)>,
    /// Attempts or deferrals that are not the number of calls that failed or asked for later.
    pub miscounted: Vec<EventId>,
    /// Delivered before they were due: those asked for later, and those that had failed.
    pub early: Vec<EventId>,
    /// Called again without a reason: the outcome before was not stored, and no fault explains it.
    pub repeated: Vec<EventId>,
    /// Calls without an end, though their host was not killed: the event and its claim.
    pub unended: Vec<(EventId, u64)>,
    /// Delivered after a later event of their aggregate.
    pub reordered: Vec<Reordered>,
    /// Calls that came again because a fault came between them and their outcome: no more than the hosts held.
    pub duplicates: usize,
}

/// Two events of one aggregate in the wrong order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reordered {
    /// Delivered first.
    pub later: EventId,
    /// Delivered after it, though it was written before.
    pub earlier: EventId,
    /// What both happened to; `None` where all events are in one order.
    pub aggregate: Option<Aggregate>,
}

impl Report {
    /// This report without its duplicates: equal to the default one when nothing is wrong.
    #[must_use]
    pub fn without_duplicates(mut self) -> Self {
        self.duplicates = 0;
        self
    }

    /// Each kind of fault by name, with how many there are, and the first of them.
    #[must_use]
    pub fn faults(&self) -> [(&'static str, usize, Option<String>); 14] {
        fn told<T: fmt::Debug>(name: &'static str, faults: &[T]) -> (&'static str, usize, Option<String>) {
            (name, faults.len(), faults.first().map(|first| format!("{first:?}")))
        }
        [
            told("lost", &self.lost),
            told("rolled back or never written", &self.ghosts),
            told("transactions in part", &self.halves),
            told("renumbered", &self.renumbered),
            told("DONE without a success", &self.unearned),
            told("DEAD without a listener's word", &self.killed),
            told("with two listeners at once", &self.at_once),
            told("aggregates with two listeners at once", &self.key_at_once),
            told("claims that go back", &self.fences),
            told("miscounted", &self.miscounted),
            told("early", &self.early),
            told("repeated without a fault", &self.repeated),
            told("calls without an end", &self.unended),
            told("out of order", &self.reordered),
        ]
    }
}

/// The figures, and the first of each fault.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all_is_well = true;
        for (name, count, first) in self.faults() {
            if let Some(first) = first {
                all_is_well = false;
                write!(f, "{count} {name} (first: {first}), ")?;
            }
        }
        if all_is_well {
            f.write_str("nothing lost, killed, early or out of order, ")?;
        }
        write!(f, "{} duplicates", self.duplicates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_each_kind_with_its_number_and_the_first() {
        let ids: Vec<EventId> = ["a", "b"].iter().map(|id| id.parse().unwrap()).collect();
        let report = Report { lost: ids, duplicates: 3, ..Report::default() };

        let told = report.to_string();

        assert!(told.starts_with("2 lost (first: ") && told.ends_with("3 duplicates"), "{told}");
        assert_eq!(Report { duplicates: 2, ..Report::default() }.without_duplicates(), Report::default());
        assert_eq!(Report::default().to_string(), "nothing lost, killed, early or out of order, 0 duplicates");
    }
}
