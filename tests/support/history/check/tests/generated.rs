//! Histories by the thousand: valid ones prove that all is well, and one broken in one way is found to be broken in just that way.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::plan::{aggregate, event, history, plan, rules};
use super::violations::{Violation, break_in};
use crate::Seed;
use crate::history::check::Order;
use crate::history::{History, Line, Report};

const ORDERS: [Order; 4] = [Order::Any, Order::FailuresMayBeOvertaken, Order::Strict, Order::Total];

fn check(lines: Vec<Line>, order: Order) -> Report {
    let mut history = History::default();
    history.extend(lines);
    history.check(&rules(order))
}

/// Tries what chance brings, by the seed of this run.
fn run<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let seed = Seed::of_this_run();
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed.number()),
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(strategy, test) {
        panic!("OUTBOX_TEST_SEED={}: {error}", seed.number());
    }
}

#[test]
fn a_valid_history_is_found_valid_and_its_duplicates_are_counted() {
    run(300, &(plan(), prop::sample::select(ORDERS.to_vec())), |(plan, order)| {
        let (lines, duplicates) = history(&plan, order);
        prop_assert_eq!(check(lines, order), Report { duplicates, ..Report::default() });
        Ok(())
    });
}

#[test]
fn a_history_that_is_broken_in_one_way_is_found_broken_in_that_way_alone() {
    for violation in Violation::ALL {
        run(40, &(plan(), prop::sample::select(violation.orders()), any::<prop::sample::Index>()), |(plan, order, place)| {
            let (mut lines, _) = history(&plan, order);
            break_in(&mut lines, violation, place);
            lines.sort_by_key(|line| line.at);
            let report = check(lines, order);
            let found: Vec<_> = report.faults().iter().filter(|(_, count, _)| *count > 0).map(|(name, ..)| *name).collect();
            prop_assert_eq!(found, vec![violation.name()], "{:?}, {:?}: {}", violation, order, report);
            Ok(())
        });
    }
}

#[test]
fn the_plan_names_its_events_and_aggregates_apart() {
    assert_ne!(event(1, 2), event(2, 1));
    assert_ne!(aggregate(1), aggregate(2));
}
