//! Lasting faults, one after the other, while three hosts deliver and an application writes. During each fault, healthy hosts deliver.
//! Nothing is lost, and only events of the sick host or the odd event are delivered twice. `outbox doctor` and the first problem of the
//! overview page name the fault until it ends.
//!
//! A fault that fails does not end the run; all failures are reported at its end.

mod fixture;
mod hosts;
mod ledger;
mod load;
mod receiver;
mod reports;
mod rows;
mod session;
mod settings;
mod tables;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use servers::Database;

use crate::node::{Mode, say};
use crate::program::{LOOK_AGAIN, PATIENCE};
use fixture::Fixture;
use reports::{Reports, has_all};

/// The host that is disturbed by faults of one host.
const SICK: usize = 0;

/// How long each fault lasts at the least, in seconds, unless `OUTBOX_TEST_FAULT_SECONDS` says otherwise.
const SECONDS: u64 = 10;

/// A fault and the reports that it must cause. A part of a report may contain `{host}`, the process of the sick host, and `{event}`, the
/// ID of the odd event.
struct Fault {
    name: &'static str,
    apply: fn(&mut Fixture),
    /// Ends it; called after a failed `apply`, too.
    undo: fn(&mut Fixture),
    /// The parts of a finding of doctor, which begins with the name of its check. `None` if hosts are not affected: no new finding.
    doctor: Option<&'static [&'static str]>,
    /// The parts of the first problem on the overview page. `None` if hosts are not affected: no problem.
    overview: Option<&'static [&'static str]>,
    repeats: Repeats,
    /// Whether the application can write meanwhile.
    is_writable: bool,
}

/// The events that may be delivered more than once. Source: `GUARANTEES.md`, "When an event is delivered twice".
#[derive(Clone, Copy, Debug)]
enum Repeats {
    Never,
    /// The events that the sick host delivered: it lost its partitions, or could not store the outcomes.
    OfSickHost,
    /// The odd event: its row was locked.
    OfOddEvent,
    /// All events: the partition table was changed by hand.
    OfAny,
}

impl Repeats {
    fn allow(self, id: &str, odd: &str, mut hosts: impl Iterator<Item = usize>) -> bool {
        match self {
            Self::Never => false,
            Self::OfSickHost => hosts.any(|host| host == SICK),
            Self::OfOddEvent => id == odd,
            Self::OfAny => true,
        }
    }
}

/// The faults of PostgreSQL, in the order of the run: those that change many rows come last.
fn of_postgres() -> Vec<&'static Fault> {
    rows::POSTGRES.iter().chain(settings::POSTGRES).chain(hosts::POSTGRES).chain(tables::POSTGRES).collect()
}

fn of_mariadb() -> Vec<&'static Fault> {
    rows::MARIADB.iter().chain(settings::MARIADB).chain(hosts::MARIADB).chain(tables::MARIADB).collect()
}

#[test]
fn twenty_five_faults_are_tried() {
    assert_eq!(of_postgres().len() + of_mariadb().len(), 25);
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn each_fault_is_named_and_hurts_only_what_it_hits_on_postgres() {
    each_fault_is_named_and_hurts_only_what_it_hits(Database::PostgreSql, Mode::Any, &of_postgres());
}

#[test]
#[ignore = "takes long: .ci/nightly runs it"]
fn each_fault_is_named_and_hurts_only_what_it_hits_in_order_on_mariadb() {
    each_fault_is_named_and_hurts_only_what_it_hits(Database::MariaDb, Mode::ByAggregate, &of_mariadb());
}

fn each_fault_is_named_and_hurts_only_what_it_hits(database: Database, mode: Mode, faults: &[&Fault]) {
    let mut fixture = Fixture::start(database, mode);
    let lasts = lasts();
    let mut failures = undisturbed(&fixture, lasts);
    for fault in faults {
        failures.extend(play(&mut fixture, fault, lasts));
    }
    assert!(failures.is_empty(), "{}: {} failures:\n{}", database.name(), failures.len(), failures.join("\n"));
}

/// The steps of a fault that failed.
struct Steps<'f> {
    fault: &'f str,
    failures: Vec<String>,
}

impl<'f> Steps<'f> {
    const fn of(fault: &'f str) -> Self {
        Self { fault, failures: Vec::new() }
    }

    /// Runs a step. `None` if it panics, which is a failure.
    fn attempt<T>(&mut self, step: &str, act: impl FnOnce() -> T) -> Option<T> {
        let attempted = catch_unwind(AssertUnwindSafe(act));
        attempted.map_err(|panic| self.failures.push(format!("{}: {step}: {}", self.fault, message(&*panic)))).ok()
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

/// As long as a fault, without one.
fn undisturbed(fixture: &Fixture, lasts: Duration) -> Vec<String> {
    let mut steps = Steps::of("undisturbed");
    let began = Instant::now();
    steps.attempt("hosts deliver", || fixture.wait_for_progress(began));
    thread::sleep(lasts.saturating_sub(began.elapsed()));
    check_deliveries(&mut steps, fixture, Repeats::Never, began);
    steps.failures
}

fn play(fixture: &mut Fixture, fault: &Fault, lasts: Duration) -> Vec<String> {
    let mut steps = Steps::of(fault.name);
    let before = steps.attempt("reports before it", || fixture.reports());
    let began = Instant::now();
    let is_applied = steps.attempt("its begin", || (fault.apply)(fixture)).is_some();
    if let Some(before) = before.as_ref().filter(|_| is_applied) {
        if fault.is_writable {
            steps.attempt("healthy hosts meanwhile", || fixture.wait_for_progress(began));
        }
        steps.attempt("its reports", || wait_for_reports(fixture, fault, before, Phase::Lasting));
        thread::sleep(lasts.saturating_sub(began.elapsed()));
        // A fault without harm has not been noticed by now either.
        if fault.doctor.is_none() {
            steps.attempt("its reports at its end", || wait_for_reports(fixture, fault, before, Phase::Lasting));
        }
    }
    steps.attempt("its end", || (fault.undo)(fixture));
    if let Some(before) = &before {
        steps.attempt("reports after it", || wait_for_reports(fixture, fault, before, Phase::Over));
    }
    check_deliveries(&mut steps, fixture, fault.repeats, began);
    steps.failures
}

fn check_deliveries(steps: &mut Steps<'_>, fixture: &Fixture, repeats: Repeats, began: Instant) {
    let ended = Instant::now();
    let settled =
        steps.attempt("deliveries", || fixture.check_deliveries(repeats).unwrap_or_else(|problem| panic!("{problem}")));
    let p99 = fixture.p99(began, ended).map_or_else(|| "unknown".to_owned(), |p99| format!("{p99:.1?}"));
    let settled = settled.as_deref().unwrap_or("failed");
    say(&format!("{}: {settled}; p99 of calm events of healthy hosts: {p99}\n", steps.fault));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Lasting,
    Over,
}

/// Waits until doctor and the overview page have reported what they must report, in any order. When the fault is over, both must show no
/// problem that they did not show before it.
fn wait_for_reports(fixture: &Fixture, fault: &Fault, before: &Reports, phase: Phase) {
    let started = Instant::now();
    let (mut is_doctor_right, mut is_overview_right) = (false, false);
    loop {
        if !is_doctor_right {
            let doctor = fixture.doctor();
            let is_named = fault.doctor.is_some_and(|parts| doctor.names(&fixture.fill(parts)));
            is_doctor_right = match phase {
                Phase::Lasting if fault.doctor.is_some() => is_named,
                _ => !is_named && !doctor.is_worse_than(&before.doctor),
            };
            assert!(is_doctor_right || started.elapsed() < PATIENCE, "within {PATIENCE:?}, {phase:?}: not {doctor:?}");
        }
        if !is_overview_right {
            let first = fixture.first_problem();
            is_overview_right = match (fault.overview, phase) {
                (Some(parts), Phase::Lasting) => first.as_ref().is_some_and(|first| has_all(first, &fixture.fill(parts))),
                _ => first.is_none() || first == before.first_problem,
            };
            assert!(is_overview_right || started.elapsed() < PATIENCE, "within {PATIENCE:?}, {phase:?}: not {first:?}");
        }
        if is_doctor_right && is_overview_right {
            return;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

#[expect(clippy::disallowed_methods, reason = "OUTBOX_TEST_FAULT_SECONDS sets the length of the run")]
fn lasts() -> Duration {
    let seconds = std::env::var("OUTBOX_TEST_FAULT_SECONDS").ok();
    let seconds = seconds.map_or(SECONDS, |seconds| seconds.parse().expect("OUTBOX_TEST_FAULT_SECONDS is a number"));
    Duration::from_secs(seconds)
}
