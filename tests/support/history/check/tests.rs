//! The checker, fed with broken histories: told here one by one, and generated in [`generated`].

mod generated;
mod plan;
mod violations;

use outbox::{EventId, Status};

use super::*;
use crate::history::{Aggregate, Delivery, Ended, Ending, Fault, FaultKind, Held, Line, Row, Written};

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
        let aggregate = Some(Aggregate { kind: "Order".to_owned(), id: "42".to_owned() });
        let first = u64::try_from(self.0.lines().len()).unwrap();
        let written = |(place, id): (u64, &&str)| Written {
            event_id: id.parse().unwrap(),
            aggregate: aggregate.clone(),
            place,
            not_before: id.starts_with("later").then_some(0),
        };
        let events = (first..).zip(events).map(written).collect();
        self.step(Step::Intent { transaction: transaction.to_owned(), events })
    }

    fn committed(self, transaction: &str, events: &[&str]) -> Self {
        self.intent(transaction, events).step(Step::Committed { transaction: transaction.to_owned(), sequences: Vec::new() })
    }

    fn rolled_back(self, transaction: &str, events: &[&str]) -> Self {
        self.intent(transaction, events).step(Step::RolledBack { transaction: transaction.to_owned() })
    }

    /// Called as an event of the one aggregate, under a fence of its own.
    fn begins(self, id: &str, attempt: u32) -> Self {
        let (event_id, fence) = (id.parse().unwrap(), self.0.lines().len().try_into().unwrap());
        let aggregate = Some(Aggregate { kind: "Order".to_owned(), id: "42".to_owned() });
        self.step(Step::Began(Delivery { event_id, aggregate, sequence: 0, fence, attempt }))
    }

    fn ends(self, id: &str, attempt: u32, ending: Ending) -> Self {
        let (event_id, fence) = (id.parse().unwrap(), self.0.lines().len().try_into().unwrap());
        self.begins(id, attempt).step(Step::Ended(Ended { event_id, fence, ending, after_ms: None }))
    }

    fn done(self, id: &str) -> Self {
        self.ends(id, 1, Ending::Done)
    }

    fn failed(self, id: &str) -> Self {
        self.ends(id, 1, Ending::Failed)
    }

    /// Something was done to the host of all calls, since a moment ago.
    fn fault(self, kind: FaultKind, held: Held) -> Self {
        let from = i64::try_from(self.0.lines().len()).unwrap();
        self.step(Step::Fault(Fault { host: "n".to_owned(), kind, from, held }))
    }

    fn row(self, id: &str, status: Status, attempts: u32, fence: u64) -> Self {
        let row = Row { event_id: id.parse().unwrap(), sequence: 1, status, attempts, deferrals: 0, fence };
        self.step(Step::Table { rows: vec![row] })
    }

    fn report(&self) -> Report {
        self.0.check(&Rules { max_attempts: 3, max_starts: 2, ..Rules::default() })
    }

    /// The pairs (delivered first, delivered after it) that are in the wrong order.
    fn reordered(&self, order: Order) -> Vec<(String, String)> {
        let report = self.0.check(&Rules { order, ..Rules::default() });
        report.reordered.iter().map(|one| (one.later.to_string(), one.earlier.to_string())).collect()
    }
}

fn id(text: &str) -> EventId {
    text.parse().unwrap()
}

fn pair(later: &str, earlier: &str) -> (String, String) {
    (later.to_owned(), earlier.to_owned())
}

#[test]
fn a_history_in_which_all_went_well_proves_it() {
    let story = Story::default().committed("t1", &["a", "b"]).rolled_back("t2", &["c", "g"]).intent("t3", &["d", "e", "f"]);
    let story = story.done("a").done("b");

    assert_eq!(story.0.check(&Rules { order: Order::Strict, ..Rules::default() }), Report::default());
    assert_eq!(story.0.check(&Rules { order: Order::Total, ..Rules::default() }), Report::default());
    assert_eq!((story.0.committed(), story.0.rolled_back(), story.0.unknown(), story.0.deliveries()), (2, 2, 3, 2));
}

#[test]
fn without_a_table_an_event_is_lost_that_never_came() {
    let report = Story::default().committed("t1", &["a", "b"]).done("a").report();

    assert_eq!(report, Report { lost: vec![id("b")], ..Report::default() });
}

#[test]
fn with_a_table_an_event_is_lost_that_is_not_finished_there() {
    let story = || Story::default().committed("t1", &["a"]).failed("a");

    assert_eq!(story().row("a", Status::Retry, 1, 2).report(), Report { lost: vec![id("a")], ..Report::default() });
    assert_eq!(story().row("b", Status::New, 0, 0).report().lost, [id("a")], "it has no row");
    assert_eq!(story().row("b", Status::New, 0, 0).report().ghosts, [id("b")], "nobody wrote that row");
}

#[test]
fn what_was_rolled_back_or_never_written_must_not_come() {
    let report = Story::default().rolled_back("t1", &["a"]).done("a").done("nobody-s").report();

    assert_eq!(report, Report { ghosts: vec![id("a"), id("nobody-s")], ..Report::default() });
}

#[test]
fn a_transaction_of_unknown_result_comes_whole_or_not_at_all() {
    let story = || Story::default().intent("silent", &["a", "b"]);
    let unknown = Step::Unknown { transaction: "silent".to_owned() };

    assert_eq!(story().report(), Report::default());
    assert_eq!(story().done("a").done("b").report(), Report::default());
    assert_eq!(story().done("a").report().halves, ["silent"]);
    assert_eq!(story().step(unknown).done("b").report().halves, ["silent"]);
}

#[test]
fn an_event_that_comes_again_after_its_end_is_repeated_and_a_retry_is_not() {
    let story = Story::default().committed("t1", &["a"]).ends("a", 1, Ending::Deferred).failed("a").ends("a", 2, Ending::Done);
    assert_eq!(story.report(), Report::default());

    let story = story.ends("a", 2, Ending::Done).ends("a", 2, Ending::Done);
    assert_eq!(story.report(), Report { repeated: vec![id("a"), id("a")], ..Report::default() });
}

#[test]
fn a_fault_excuses_one_more_call_of_what_its_host_held_and_of_nothing_else() {
    let killed = |claim| {
        let story = Story::default().committed("t1", &["a"]).done("a");
        story.fault(FaultKind::Killed, Held::Claims(vec![(id("a"), claim)])).done("a")
    };

    assert_eq!(killed(2).report(), Report { duplicates: 1, ..Report::default() });
    assert_eq!(killed(3).report(), Report { repeated: vec![id("a")], ..Report::default() }, "held under another claim");
    let once_more = killed(2).done("a").report();
    assert_eq!((once_more.duplicates, once_more.repeated), (1, vec![id("a")]));
}

#[test]
fn a_fault_excuses_no_call_that_began_after_it() {
    let story = Story::default().committed("t1", &["a"]);
    let story = story.fault(FaultKind::CutOff, Held::Claims(vec![(id("a"), 3)])).done("a").done("a");

    assert_eq!(story.report(), Report { repeated: vec![id("a")], ..Report::default() });
}

#[test]
fn where_nobody_could_look_only_fresh_outcomes_may_be_forgotten() {
    let story = |pause: i64| {
        let mut story = Story::default().committed("t1", &["a"]).done("a");
        let fault = Fault { host: "n".to_owned(), kind: FaultKind::CutOff, from: pause, held: Held::Unseen };
        story.0.extend([Line { at: pause, node: "test".to_owned(), step: Step::Fault(fault) }]);
        let again = Delivery { event_id: id("a"), aggregate: None, sequence: 0, fence: 9, attempt: 1 };
        let end = Ended { event_id: id("a"), fence: 9, ending: Ending::Done, after_ms: None };
        let line = |at, step| Line { at: pause + at, node: "n".to_owned(), step };
        story.0.extend([line(1, Step::Began(again)), line(2, Step::Ended(end))]);
        story.report()
    };

    // The first call ended at 3.
    assert_eq!((story(5_000_003).duplicates, story(5_000_003).repeated), (1, vec![]));
    assert_eq!((story(5_000_004).duplicates, story(5_000_004).repeated), (0, vec![id("a")]));
}

#[test]
fn a_call_ends_unless_its_host_was_killed_or_cut_off() {
    let story = || Story::default().committed("t1", &["a"]).begins("a", 1);
    let held = || Held::Claims(vec![(id("a"), 2)]);

    assert_eq!(story().report(), Report { unended: vec![(id("a"), 2)], ..Report::default() });
    assert_eq!(story().fault(FaultKind::Killed, held()).report(), Report::default());
    assert_eq!(story().fault(FaultKind::CutOff, held()).report(), Report::default());
    let later = story().fault(FaultKind::Killed, held()).begins("a", 1);
    assert_eq!(later.report(), Report { unended: vec![(id("a"), 4)], duplicates: 1, ..Report::default() });
}

#[test]
fn what_a_stopped_thread_writes_when_it_wakes_up_began_before_but_not_what_goes_on_and_not_many() {
    let begins = |fence| Step::Began(Delivery { event_id: id("a"), aggregate: None, sequence: 1, fence, attempt: 1 });
    let ends = |fence| Step::Ended(Ended { event_id: id("a"), fence, ending: Ending::Done, after_ms: None });
    let other = |at, fence| {
        let step = |step| Line { at, node: "other".to_owned(), step };
        [step(begins(fence)), step(ends(fence))]
    };
    let stopped = |held| {
        let mut story = Story::default().committed("t1", &["a"]);
        story = story.step(Step::Fault(Fault {
            host: "n".to_owned(),
            kind: FaultKind::Stalled,
            from: 1,
            held: Held::Claims(held),
        }));
        story.0.extend(other(2, 8));
        story
    };
    let held = || stopped(vec![(id("a"), 7)]);

    assert_eq!(held().step(begins(7)).report(), Report { duplicates: 1, ..Report::default() });
    let twice = Report { fences: vec![(id("a"), 7)], ..Report::default() };
    assert_eq!(held().step(begins(7)).step(ends(7)).report(), twice, "it went on");
    let foreign = Report { fences: vec![(id("a"), 7)], unended: vec![(id("a"), 7)], ..Report::default() };
    assert_eq!(stopped(vec![(id("a"), 6)]).step(begins(7)).report(), foreign, "it did not hold it");
    let many = (0..6).fold(held(), |story, _| story.step(begins(7))).report();
    assert_eq!(many.unended.len(), 2, "a host has so many threads");
    let mut late = held();
    late.0.extend([Line { at: 1_000_000, node: "n".to_owned(), step: begins(7) }]);
    assert!(!late.report().fences.is_empty(), "long after it woke up");
}

#[test]
fn a_listener_that_its_host_cut_off_has_failed() {
    let story = Story::default().committed("t1", &["a"]).begins("a", 1).ends("a", 2, Ending::Done);

    assert_eq!(story.report(), Report { unended: vec![(id("a"), 2)], ..Report::default() });
}

#[test]
fn one_claim_delivers_once_and_claims_do_not_go_back() {
    let call = |fence| Step::Began(Delivery { event_id: id("a"), aggregate: None, sequence: 1, fence, attempt: 1 });
    let end = |fence| Step::Ended(Ended { event_id: id("a"), fence, ending: Ending::Deferred, after_ms: None });
    let story = || Story::default().committed("t1", &["a"]).step(call(5)).step(end(5));

    assert_eq!(story().step(call(6)).step(end(6)).report(), Report::default());
    assert_eq!(story().step(call(5)).step(end(5)).report(), Report { fences: vec![(id("a"), 5)], ..Report::default() });
    assert_eq!(story().step(call(4)).step(end(4)).report(), Report { fences: vec![(id("a"), 4)], ..Report::default() });
}

#[test]
fn a_dead_event_had_its_listeners_word_or_all_its_attempts_or_stopped_its_hosts() {
    let story = || Story::default().committed("t1", &["a"]);
    let killed = Report { killed: vec![id("a")], ..Report::default() };
    let failed = story().ends("a", 1, Ending::Failed).ends("a", 2, Ending::Failed);
    assert_eq!(story().ends("a", 1, Ending::Dead).row("a", Status::Dead, 0, 2).report(), Report::default());
    assert_eq!(failed.row("a", Status::Dead, 2, 4).report(), killed);
    let failed = story().ends("a", 1, Ending::Failed).ends("a", 2, Ending::Failed).ends("a", 3, Ending::Failed);
    assert_eq!(failed.row("a", Status::Dead, 3, 6).report(), Report::default());
    assert_eq!(story().row("a", Status::Dead, 0, 1).report(), killed, "it never had a listener");

    let stops = |story: Story| {
        let claim = story.0.lines().len().try_into().unwrap();
        story.begins("a", 1).fault(FaultKind::Killed, Held::Claims(vec![(id("a"), claim)]))
    };
    assert_eq!(stops(story()).row("a", Status::Dead, 0, 3).report(), killed, "it may be chance");
    let twice = stops(stops(story())).row("a", Status::Dead, 0, 5).report();
    assert_eq!(twice, Report { duplicates: 1, ..Report::default() });
}

#[test]
fn a_number_belongs_to_one_event_for_ever() {
    let told = |sequences| Step::Committed { transaction: "t1".to_owned(), sequences };
    let story = |sequences| Story::default().intent("t1", &["a", "b"]).step(told(sequences)).done("b");

    assert_eq!(story(vec![7, 7]).done("a").report().renumbered, [id("b")]);
    assert_eq!(story(vec![7, 8]).done("a").report(), Report::default());
    let row = story(vec![7, 8]).done("a").row("b", Status::Done, 0, 2).report();
    assert!(row.renumbered == [id("b")], "the table says 1: {row}");
}

#[test]
fn a_first_delivery_after_a_later_event_is_out_of_order() {
    let story = Story::default().committed("t1", &["a", "b", "c"]).done("a").done("c").done("b");

    assert_eq!(story.reordered(Order::Any), []);
    for order in [Order::FailuresMayBeOvertaken, Order::Strict, Order::Total] {
        assert_eq!(story.reordered(order), [pair("c", "b")]);
    }
}

#[test]
fn an_event_that_had_ended_does_not_come_again_after_a_later_one() {
    let in_place = Story::default().committed("t1", &["a", "b"]).done("a").done("a").done("b");
    assert_eq!(in_place.reordered(Order::Strict), [], "a duplicate in its place keeps the order");

    let late = in_place.done("a");
    assert_eq!(late.reordered(Order::FailuresMayBeOvertaken), [pair("b", "a")]);
    assert_eq!(late.reordered(Order::Strict), [pair("b", "a")]);
}

#[test]
fn only_where_it_is_allowed_a_failure_is_overtaken() {
    let story = Story::default().committed("t1", &["a", "b"]).failed("a").done("b").ends("a", 2, Ending::Done);

    assert_eq!(story.reordered(Order::FailuresMayBeOvertaken), []);
    assert_eq!(story.reordered(Order::Strict), [pair("b", "a")]);
}

#[test]
fn a_delayed_event_has_no_place_in_the_order() {
    let story = Story::default().committed("t1", &["later", "b"]).done("b").done("later");

    assert_eq!(story.reordered(Order::Strict), []);
}

#[test]
fn what_comes_in_order_is_with_one_listener_at_a_time() {
    let call = |name: &str, key: &str| {
        let aggregate = Some(Aggregate { kind: "Order".to_owned(), id: key.to_owned() });
        Step::Began(Delivery { event_id: id(name), aggregate, sequence: 0, fence: 1, attempt: 1 })
    };
    let end = |name: &str| Step::Ended(Ended { event_id: id(name), fence: 1, ending: Ending::Done, after_ms: None });
    let two = |key| {
        let story = Story::default().committed("t1", &["a", "b"]);
        story.step(call("a", "42")).step(call("b", key)).step(end("a")).step(end("b"))
    };
    let at_once = |story: Story, order| story.0.check(&Rules { order, ..Rules::default() }).key_at_once;

    assert_eq!(at_once(two("42"), Order::Any), []);
    assert_eq!(at_once(two("42"), Order::Strict), [(id("a"), id("b"))]);
    assert_eq!(at_once(two("43"), Order::Strict), []);
    assert_eq!(at_once(two("43"), Order::Total), [(id("a"), id("b"))]);
}

#[test]
fn the_table_counts_as_many_deferrals_as_the_listener_asked_for() {
    let deferrals = |story: Story, deferrals| {
        let fence = story.0.lines().len() as u64 - 2;
        let row = Row { event_id: id("a"), sequence: 1, status: Status::Done, attempts: 0, deferrals, fence };
        story.step(Step::Table { rows: vec![row] }).report()
    };
    let miscounted = Report { miscounted: vec![id("a")], ..Report::default() };
    let twice = || {
        let story = Story::default().committed("t1", &["a"]).ends("a", 1, Ending::Deferred);
        story.ends("a", 1, Ending::Deferred).done("a")
    };
    assert_eq!(deferrals(twice(), 2), Report::default());
    assert_eq!((deferrals(twice(), 1), deferrals(twice(), 3)), (miscounted.clone(), miscounted));

    let cut_off = || {
        let story = Story::default().committed("t1", &["a"]).ends("a", 1, Ending::Deferred);
        story.fault(FaultKind::CutOff, Held::Claims(vec![(id("a"), 2)])).done("a")
    };
    assert_eq!(
        (deferrals(cut_off(), 0), deferrals(cut_off(), 1)),
        (Report::default(), Report::default()),
        "it may not be stored"
    );
    assert_eq!(deferrals(cut_off(), 2).miscounted, [id("a")]);

    // It asked for an hour, and came again at once: whether the deferral was stored is open.
    let asked = Ended { event_id: id("a"), fence: 2, ending: Ending::Deferred, after_ms: Some(3_600_000) };
    let early = || Story::default().committed("t1", &["a"]).begins("a", 1).step(Step::Ended(asked.clone())).done("a");
    let report = Report { early: vec![id("a")], ..Report::default() };
    assert_eq!((deferrals(early(), 0), deferrals(early(), 1)), (report.clone(), report));
    assert_eq!(deferrals(early(), 2).miscounted, [id("a")]);
}

#[test]
fn a_call_whose_host_was_killed_counts_as_no_attempt() {
    let story = Story::default().committed("t1", &["a"]).begins("a", 1);
    let story = story.fault(FaultKind::Killed, Held::Claims(vec![(id("a"), 2)])).ends("a", 2, Ending::Done);

    assert_eq!(story.report(), Report { miscounted: vec![id("a")], ..Report::default() });
}

#[test]
fn a_delayed_event_that_comes_when_it_is_due_is_not_early() {
    let story = |not_before| {
        let written = Written { event_id: id("a"), aggregate: None, place: 0, not_before: Some(not_before) };
        let story = Story::default().step(Step::Intent { transaction: "t1".to_owned(), events: vec![written] });
        story.step(Step::Committed { transaction: "t1".to_owned(), sequences: Vec::new() }).done("a").report().early
    };

    assert_eq!((story(2), story(3)), (vec![], vec![id("a")]), "it came at 2");
}

#[test]
fn a_report_names_the_aggregate_unless_all_events_are_in_one_order() {
    let story = Story::default().committed("t1", &["a", "b"]).done("b").done("a");
    let aggregate = |order| story.0.check(&Rules { order, ..Rules::default() }).reordered[0].aggregate.clone();

    assert_eq!(aggregate(Order::Strict), Some(Aggregate { kind: "Order".to_owned(), id: "42".to_owned() }));
    assert_eq!(aggregate(Order::Total), None);
}

#[test]
fn a_report_without_its_duplicates_keeps_everything_else() {
    let report = Report { duplicates: 2, lost: vec![id("a")], ..Report::default() };

    assert_eq!(report.without_duplicates(), Report { lost: vec![id("a")], ..Report::default() });
}
