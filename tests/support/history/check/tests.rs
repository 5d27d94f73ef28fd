//! The checker, fed with broken histories.

use super::*;
use crate::history::Line;

/// A history in the making: every step is a microsecond after the one before.
#[derive(Default)]
struct Story(History);

impl Story {
    fn step(mut self, step: Step) -> Self {
        let at = i64::try_from(self.0.lines().len()).unwrap();
        self.0.extend([Line { at, node: "n".to_owned(), step }]);
        self
    }

    fn intent(self, transaction: &str, events: &[&str]) -> Self {
        let written = |id: &&str| Written { event_id: id.parse().unwrap(), aggregate: None, delayed: id.starts_with("later") };
        self.step(Step::Intent { transaction: transaction.to_owned(), events: events.iter().map(written).collect() })
    }

    fn committed(self, transaction: &str, events: &[&str]) -> Self {
        self.intent(transaction, events).step(Step::Committed { transaction: transaction.to_owned(), sequences: Vec::new() })
    }

    fn rolled_back(self, transaction: &str, events: &[&str]) -> Self {
        self.intent(transaction, events).step(Step::RolledBack { transaction: transaction.to_owned() })
    }

    /// Delivered as an event of the one aggregate, under a fence of its own.
    fn ends(self, id: &str, sequence: u64, attempt: u32, ending: Ending) -> Self {
        let aggregate = Some(Aggregate { kind: "Order".to_owned(), id: "42".to_owned() });
        let fence = self.0.lines().len().try_into().unwrap();
        self.step(Step::Delivered(Delivery { event_id: id.parse().unwrap(), aggregate, sequence, fence, attempt, ending }))
    }

    fn done(self, id: &str, sequence: u64) -> Self {
        self.ends(id, sequence, 1, Ending::Done)
    }

    fn failed(self, id: &str, sequence: u64) -> Self {
        self.ends(id, sequence, 1, Ending::Failed)
    }

    fn report(&self) -> Report {
        self.0.check(Order::Any)
    }

    /// The pairs (delivered first, delivered after it) that are in the wrong order.
    fn reordered(&self, order: Order) -> Vec<(u64, u64)> {
        self.0.check(order).reordered.iter().map(|one| (one.later, one.earlier)).collect()
    }
}

fn id(text: &str) -> EventId {
    text.parse().unwrap()
}

#[test]
fn a_history_in_which_all_went_well_proves_it() {
    let story = Story::default().committed("t1", &["a", "b"]).rolled_back("t2", &["c"]).done("a", 1).done("b", 2);

    assert_eq!(story.0.check(Order::Strict), Report::default());
    assert_eq!((story.0.committed(), story.0.rolled_back(), story.0.deliveries().len()), (2, 1, 2));
}

#[test]
fn a_committed_event_that_never_comes_is_lost() {
    let report = Story::default().committed("t1", &["a", "b"]).done("a", 1).report();

    assert_eq!(report, Report { lost: vec![id("b")], ..Report::default() });
}

#[test]
fn what_was_rolled_back_or_never_written_must_not_come() {
    let report = Story::default().rolled_back("t1", &["a"]).done("a", 1).done("nobody-s", 2).report();

    assert_eq!(report, Report { ghosts: vec![id("a"), id("nobody-s")], ..Report::default() });
}

#[test]
fn a_transaction_of_unknown_result_comes_whole_or_not_at_all() {
    let story = || Story::default().intent("silent", &["a", "b"]);
    let unknown = Step::Unknown { transaction: "silent".to_owned() };

    assert_eq!(story().report(), Report::default());
    assert_eq!(story().done("a", 1).done("b", 2).report(), Report::default());
    assert_eq!(story().done("a", 1).report().halves, ["silent"]);
    assert_eq!(story().step(unknown).done("b", 2).report().halves, ["silent"]);
}

#[test]
fn an_event_that_comes_again_after_its_end_is_a_duplicate_and_a_retry_is_none() {
    let story = Story::default().committed("t1", &["a"]).ends("a", 1, 1, Ending::Deferred).failed("a", 1);
    assert_eq!(story.report().duplicates, 0);

    let retried = story.ends("a", 1, 2, Ending::Done);
    assert_eq!(retried.report().duplicates, 0);

    let repeated = retried.ends("a", 1, 2, Ending::Done).ends("a", 1, 2, Ending::Done);
    assert_eq!(repeated.report().duplicates, 2);
    assert_eq!(repeated.report().without_duplicates(), Report::default());
}

#[test]
fn a_failed_attempt_that_comes_again_under_its_number_is_a_duplicate() {
    let report = Story::default().committed("t1", &["a"]).failed("a", 1).failed("a", 1).report();

    assert_eq!(report, Report { duplicates: 1, ..Report::default() });
}

#[test]
fn one_claim_delivers_once() {
    let twice = Delivery { event_id: id("a"), aggregate: None, sequence: 1, fence: 5, attempt: 1, ending: Ending::Deferred };
    let story = Story::default().committed("t1", &["a"]);

    let report = story.step(Step::Delivered(twice.clone())).step(Step::Delivered(twice)).report();

    assert_eq!(report, Report { claimed_twice: vec![(id("a"), 5)], ..Report::default() });
}

#[test]
fn a_number_belongs_to_one_event_for_ever() {
    let story = Story::default().committed("t1", &["a", "b"]).done("a", 1);
    assert_eq!(story.done("b", 1).report().renumbered, [id("b")]);

    let told = Step::Committed { transaction: "t1".to_owned(), sequences: vec![7] };
    let story = Story::default().intent("t1", &["a"]).step(told).done("a", 8);
    assert_eq!(story.report().renumbered, [id("a")]);
}

#[test]
fn a_first_delivery_after_a_later_event_is_out_of_order() {
    let story = Story::default().committed("t1", &["a", "b", "c"]).done("a", 1).done("c", 3).done("b", 2);

    assert_eq!(story.reordered(Order::Any), []);
    assert_eq!(story.reordered(Order::FailuresMayBeOvertaken), [(3, 2)]);
    assert_eq!(story.reordered(Order::Strict), [(3, 2)]);
}

#[test]
fn an_event_that_had_ended_does_not_come_again_after_a_later_one() {
    let in_place = Story::default().committed("t1", &["a", "b"]).done("a", 1).done("a", 1).done("b", 2);
    assert_eq!(in_place.reordered(Order::Strict), [], "a duplicate in its place keeps the order");

    let late = in_place.done("a", 1);
    assert_eq!(late.reordered(Order::FailuresMayBeOvertaken), [(2, 1)]);
    assert_eq!(late.reordered(Order::Strict), [(2, 1)]);
}

#[test]
fn only_where_it_is_allowed_a_failure_is_overtaken() {
    let story = Story::default().committed("t1", &["a", "b"]).failed("a", 1).done("b", 2).ends("a", 1, 2, Ending::Done);

    assert_eq!(story.reordered(Order::FailuresMayBeOvertaken), []);
    assert_eq!(story.reordered(Order::Strict), [(2, 1)]);
}

#[test]
fn a_delayed_event_has_no_place_in_the_order() {
    let story = Story::default().committed("t1", &["later", "b"]).done("b", 2).done("later", 1);

    assert_eq!(story.reordered(Order::Strict), []);
}
