//! What a history proves.

mod numbers;
mod order;
mod overlaps;
mod repeats;
mod rows;
mod written;

use std::time::Duration;

use super::journal::History;
use super::report::Report;
use super::step::Step;

/// What the hosts of a history were to keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// In which order.
    pub order: Order,
    /// Counted failures after which an event is dead.
    pub max_attempts: u32,
    /// Calls in a row without an end after which an event is dead: it stops its hosts.
    pub max_starts: u32,
    /// The shortest rest between a failure and the next attempt.
    pub retry: Duration,
}

/// The host's own defaults, without a rest after failures.
impl Default for Rules {
    fn default() -> Self {
        Self { order: Order::Any, max_attempts: 10, max_starts: 5, retry: Duration::ZERO }
    }
}

/// In which order the events of one aggregate must be delivered: that in which their writers wrote them, by their own count.
/// Delayed events are left out, and so are events without an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In any.
    Any,
    /// The first deliveries come in order. Once a later event was delivered, an earlier one that had come to its end is not
    /// delivered again; one that had failed may be (`stop_on_first_failure` is off).
    FailuresMayBeOvertaken,
    /// Once a later event was delivered, an earlier one is not delivered any more, neither for the first time nor again.
    Strict,
    /// The same for all that one writer wrote, whatever it happened to; and there is never more than one call at a time.
    Total,
}

impl History {
    /// Compares what was written with what was delivered, and both with the table.
    ///
    /// # Panics
    /// When the record has a hole: something ends that never began.
    #[must_use]
    pub fn check(&self, rules: &Rules) -> Report {
        let (transactions, faults, table) = (self.transactions(), self.faults(), self.table());
        let calls = self.calls(&faults);
        let mut report = Report::default();
        written::check(&transactions, &calls, table, &mut report);
        numbers::check(&transactions, &calls, table, &mut report);
        repeats::check(&transactions, &calls, &faults, rules, table, &mut report);
        overlaps::check(&calls, &transactions, &faults, rules.order, &mut report);
        order::check(&calls, &transactions, rules.order, &mut report);
        report
    }

    /// How many calls of listeners there were.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.lines().iter().filter(|line| matches!(line.step, Step::Began(_))).count()
    }
}

#[cfg(test)]
mod tests;
