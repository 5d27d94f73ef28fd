//! `walk [--seeds COUNT] [--seed FIRST] [--mode MODE] [--jobs COUNT] [--log]`: runs whole hosts under a paused clock, over a store in memory
//! that fails on purpose; one run for each seed.
//!
//! A run has one thread and no real time in it. What the store answers follows from the model that every database is held against
//! (`tests/store/model`); when it fails, how listeners behave and who dies when follows from the seed, and so does everything else: the
//! same seed runs the same way again. `plan.rs` says what a seed decides, `store.rs` and `fate.rs` are the database, `run.rs` what happens
//! on the stage, and `calls.rs` what is checked at each call and each outcome:
//!
//! - no call begins of an event that is not committed, that is finished, or that its host does not own by the database's clock;
//! - no call begins while an earlier one of the event has no outcome, unless its host lost it, or the database failed that host;
//! - numbers of deliveries grow; an attempt is as many as there were counted failures; what is stored is what was answered;
//! - in the two ordered modes no call overtakes another of its queue, or is at work beside it;
//! - a broken listener is called a few times only; a stop ends in time; every event ends once the database is well.
//!
//! A seed that fails is printed with what happened; with `--log` beside that what its hosts logged.

mod again;
mod calls;
mod chance;
mod fate;
mod listener;
mod log;
mod plan;
mod run;
mod store;
mod unasked;
mod world;

// The model's tables. What traces alone need of them is not used here.
#[allow(dead_code, reason = "used by traces")]
#[path = "../../store/model/effects.rs"]
mod effects;
#[allow(dead_code, reason = "used by traces")]
#[path = "../../store/model/hand.rs"]
mod hand;
#[allow(dead_code, reason = "used by traces")]
#[path = "../../store/model/looking.rs"]
mod looking;
#[allow(dead_code, reason = "used by traces")]
#[path = "../../store/model/order.rs"]
mod order;
#[allow(dead_code, reason = "used by traces")]
#[path = "../../store/model/table.rs"]
mod table;
#[allow(dead_code, reason = "used by traces")]
#[path = "../../store/model/taking.rs"]
mod taking;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use outbox::Mode;

use listener::ON_PURPOSE;
use plan::Plan;
use run::Report;

const HELP: &str = "\
walk [--seeds COUNT] [--seed FIRST] [--mode single_node|multi_node|ordered|ordered_by_aggregate] [--jobs COUNT] [--log]
  Runs whole hosts under a paused clock, over a store that fails on purpose: COUNT seeds (300, or 1 after --seed), from FIRST (0) on,
  COUNT at once (one for each core). --log adds what hosts log to what is printed of a seed that fails, or of one that was named.
";
/// How many seeds are run unless somebody says otherwise.
const SEEDS: u64 = 300;
/// Every so many seeds one is run twice, to see that it runs the same way again.
const AGAIN: u64 = 50;
/// After so much real time a run goes round in circles.
const STUCK: Duration = Duration::from_secs(120);
/// How many lines of a failed run are shown, unless its seed was named.
const SHOWN: usize = 150;

struct Asked {
    first: u64,
    count: u64,
    mode: Option<Mode>,
    jobs: usize,
    log: bool,
    named: bool,
}

fn main() -> ExitCode {
    let Some(asked) = asked(std::env::args().skip(1)) else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    quiet_panics();
    if asked.log {
        log::collect();
    }
    let (next, totals, began) = (AtomicU64::new(asked.first), Mutex::new(Totals::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= asked.first + asked.count {
                        return;
                    }
                    let report = run_seed(seed, &asked);
                    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
                    totals.take_in(seed, &report, &asked);
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} seeds in {:.1} s: {} events, {} calls, {} of them again after a call without an outcome, {:.1} hours on the paused clock; \
         {} failed{}",
        asked.count,
        began.elapsed().as_secs_f64(),
        totals.events,
        totals.calls,
        totals.repeats,
        totals.passed.as_secs_f64() / 3_600.0,
        totals.failed.len(),
        if totals.failed.is_empty() { String::new() } else { format!(": {:?}", totals.failed) }
    );
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Totals {
    events: usize,
    calls: usize,
    repeats: usize,
    passed: Duration,
    failed: Vec<u64>,
}

impl Totals {
    fn take_in(&mut self, seed: u64, report: &Report, asked: &Asked) {
        self.events += report.events;
        self.calls += report.calls;
        self.repeats += report.repeats;
        self.passed += report.passed;
        if asked.named {
            println!("{}", report.history.join("\n"));
        }
        let Some(violation) = &report.violation else { return };
        self.failed.push(seed);
        println!("seed {seed} fails: {violation}\n{:#?}", Plan::of(seed, asked.mode));
        if !asked.named {
            let from = report.history.len().saturating_sub(SHOWN);
            println!("{}", report.history[from..].join("\n"));
        }
        println!(
            "again, from its beginning: cargo xtask walk --seed {seed}{}\n",
            match asked.mode {
                Some(mode) => format!(" --mode {}", mode.as_str()),
                None => String::new(),
            }
        );
    }
}

fn run_seed(seed: u64, asked: &Asked) -> Report {
    let plan = Plan::of(seed, asked.mode);
    let report = run_alone(plan.clone());
    if report.violation.is_none() && seed % AGAIN == 0 {
        let again = run_alone(plan);
        if again.sum != report.sum {
            let apart = again.history.iter().zip(&report.history).find(|(one, other)| one != other);
            let violation = Some(format!("it does not run the same way again: {apart:?}"));
            return Report { violation, ..report };
        }
    }
    report
}

/// A thread for each run: what it keeps for its thread begins anew.
fn run_alone(plan: Plan) -> Report {
    let seed = plan.seed;
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        again::seeded(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let mut report = runtime.expect("a runtime can be made").block_on(run::run(plan));
        log::merge(&mut report.history);
        // Nobody waits for one that took too long.
        let _ = sender.send(report);
    };
    std::thread::Builder::new().name(format!("seed {seed}")).spawn(run).expect("a thread can be started");
    receiver.recv_timeout(STUCK).unwrap_or_else(|error| Report {
        violation: Some(format!("the run did not end: {error}")),
        history: Vec::new(),
        sum: 0,
        events: 0,
        calls: 0,
        repeats: 0,
        passed: Duration::ZERO,
    })
}

/// Listeners panic on purpose: of that nobody needs to read.
fn quiet_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&ON_PURPOSE) {
            before(info);
        }
    }));
}

fn asked(mut arguments: impl Iterator<Item = String>) -> Option<Asked> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut asked = Asked { first: 0, count: SEEDS, mode: None, jobs, log: false, named: false };
    let mut count = None;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--log" => asked.log = true,
            "--seeds" => count = Some(arguments.next()?.parse().ok()?),
            "--seed" => (asked.first, asked.named) = (arguments.next()?.parse().ok()?, true),
            "--jobs" => asked.jobs = arguments.next()?.parse().ok()?,
            "--mode" => {
                let name = arguments.next()?;
                let modes = [Mode::SingleNode, Mode::MultiNode, Mode::Ordered, Mode::OrderedByAggregate];
                asked.mode = Some(modes.into_iter().find(|mode| mode.as_str() == name)?);
            }
            _ => return None,
        }
    }
    asked.count = count.unwrap_or(if asked.named { 1 } else { SEEDS });
    // A series from a seed on is a series.
    asked.named &= asked.count == 1;
    Some(asked)
}
