//! How long events waited.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outbox::EventId;

use super::journal::History;
use super::step::{Step, Written};

impl History {
    /// How long each event waited from its commit to its first call, shortest first. Without those that were asked for later, and
    /// those of whose commit nobody was told.
    #[must_use]
    pub fn waits(&self) -> Vec<Duration> {
        let first = self.first_calls(i64::MIN, |_| true);
        let mut announced: BTreeMap<&str, &[Written]> = BTreeMap::new();
        for line in self.lines() {
            if let Step::Intent { transaction, events } = &line.step {
                announced.insert(transaction, events);
            }
        }
        let mut waits = Vec::new();
        for line in self.lines() {
            let Step::Committed { transaction, .. } = &line.step else { continue };
            let events = announced.get(transaction.as_str()).copied().unwrap_or_default();
            let at_once = events.iter().filter(|event| event.not_before.is_none());
            waits.extend(at_once.filter_map(|event| first.get(&event.event_id)).map(|began| span(line.at, *began)));
        }
        waits.sort_unstable();
        waits
    }

    /// How long after a moment, in microseconds since 1970, the first of these events came to a listener; `None` when none did.
    #[must_use]
    pub fn until_one_is_called(&self, moment: i64, events: &BTreeSet<EventId>) -> Option<Duration> {
        let calls = self.first_calls(moment, |event| events.contains(event));
        calls.values().min().map(|began| span(moment, *began))
    }

    /// When each of these events was first called after a moment.
    fn first_calls(&self, moment: i64, of: impl Fn(&EventId) -> bool) -> BTreeMap<EventId, i64> {
        let mut first = BTreeMap::new();
        for line in self.lines().iter().filter(|line| line.at > moment) {
            if let Step::Began(delivery) = &line.step
                && of(&delivery.event_id)
            {
                first.entry(delivery.event_id).or_insert(line.at);
            }
        }
        first
    }
}

/// Zero when the end is before the beginning: a hot event may be called before its writer has noted the commit.
fn span(from: i64, to: i64) -> Duration {
    Duration::from_micros(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::{Delivery, Line};
    use super::*;

    fn id(name: &str) -> EventId {
        name.parse().unwrap()
    }

    fn history(steps: impl IntoIterator<Item = (i64, Step)>) -> History {
        let mut history = History::default();
        history.extend(steps.into_iter().map(|(at, step)| Line { at, node: "n".to_owned(), step }));
        history
    }

    fn written(name: &str, not_before: Option<i64>) -> Written {
        Written { event_id: id(name), aggregate: None, place: 0, not_before }
    }

    fn began(name: &str) -> Step {
        Step::Began(Delivery { event_id: id(name), aggregate: None, sequence: 1, fence: 1, attempt: 1 })
    }

    #[test]
    fn a_wait_goes_from_the_commit_to_the_first_call() {
        let events = vec![written("slow", None), written("early", None), written("later", Some(90)), written("never", None)];
        let history = history([
            (1, Step::Intent { transaction: "t".to_owned(), events }),
            (5, began("early")),
            (10, Step::Committed { transaction: "t".to_owned(), sequences: Vec::new() }),
            (17, began("slow")),
            (95, began("later")),
            (99, began("slow")),
        ]);

        assert_eq!(history.waits(), [Duration::ZERO, Duration::from_micros(7)]);
    }

    #[test]
    fn a_gap_goes_from_a_moment_to_the_next_call_of_one_of_these_events() {
        let history = history([(5, began("a")), (20, began("c")), (30, began("b")), (40, began("a"))]);
        let of = |names: &[&str]| names.iter().map(|name| id(name)).collect();

        assert_eq!(history.until_one_is_called(10, &of(&["a", "b"])), Some(Duration::from_micros(20)));
        assert_eq!(history.until_one_is_called(35, &of(&["b"])), None);
    }
}
