//! `walk [--seeds COUNT] [--seed FIRST] [--mode MODE] [--jobs COUNT] [--log]`: runs whole hosts under a paused clock, over a
//! store in memory that fails on purpose; one run for each seed.
//!
//! A run has one thread and no real time in it. What the store answers follows from the model that every database is held
//! against (`tests/store/model`); when it fails, how listeners behave and who dies when follows from the seed, and so does
//! everything else: the same seed runs the same way again. `plan.rs` says what a seed decides, `store.rs` and `fate.rs` are the
//! database, `drift.rs` the clocks that run at other speeds and are set, `run.rs` what happens on the stage, and `calls.rs` what is
//! checked at each call and each outcome:
//!
//! - no call begins of an event that is not committed, that is finished, or that its host does not own by the database's clock, unless
//!   that clock was set a short while ago;
//! - no call begins while an earlier one of the event has no outcome, unless its host lost it, or the database failed that host;
//! - numbers of deliveries grow; an attempt is as many as there were counted failures; what is stored is what was answered;
//! - in the two ordered modes no call overtakes another of its queue, or is at work beside it;
//! - a broken listener is called a few times only; a stop ends in time; every event ends once the database is well;
//! - finished events are purged in time, even if others cannot be deleted, and no unfinished one is ever deleted;
//! - a relay's pattern takes no events of a route that has a listener on another host, once its host knows;
//! - hosts with nothing to do ask the database for little;
//! - the clock of the hosts follows the time of day, even if that is set back.
//!
//! A seed that fails is printed with what happened; with `--log` beside that what its hosts logged.

mod again;
mod calls;
mod chance;
mod drift;
mod fate;
mod listener;
mod log;
mod plan;
mod run;
mod store;
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

use std::cell::RefCell;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use outbox::Mode;

use listener::ON_PURPOSE;
use plan::Plan;
use run::Report;

const HELP: &str = "\
walk [--seeds COUNT] [--seed FIRST] [--mode single_node|multi_node|ordered|ordered_by_aggregate] [--jobs COUNT] [--log]
  Runs whole hosts under a paused clock, over a store that fails on purpose: COUNT seeds (1,000, or 1 after --seed), from FIRST (0) on,
  COUNT at once (one for each core). --log adds what hosts log to what is printed of a seed that was named.
";
/// How many seeds are run unless somebody says otherwise.
const SEEDS: u64 = 1_000;
/// One in this many seeds is run twice, to see that it runs the same way again.
const AGAIN: u64 = 50;
/// What the line of a run's figures begins with.
const FIGURES: &str = "figures:";
/// A run that takes this much real time is stuck.
const STUCK: Duration = Duration::from_secs(120);
/// How many lines of a failed run are shown among many.
const SHOWN: usize = 150;

struct Asked {
    first: u64,
    count: u64,
    mode: Option<Mode>,
    jobs: usize,
    log: bool,
    /// Whether one seed was named, and is run here.
    named: bool,
}

fn main() -> ExitCode {
    let Some(asked) = asked(std::env::args().skip(1)) else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    if asked.named { run_one(&asked) } else { run_many(&asked) }
}

/// Runs one seed here, and tells everything of it.
fn run_one(asked: &Asked) -> ExitCode {
    note_panics();
    if asked.log {
        log::collect();
    }
    let plan = Plan::of(asked.first, asked.mode);
    let mut report = run_alone(plan.clone());
    log::merge(&mut report.history);
    println!("{plan:#?}\n{}", report.history.join("\n"));
    if let Some(violation) = &report.violation {
        println!("seed {} fails: {violation}", asked.first);
    }
    let Report { violation, sum, events, calls, repeats, passed, .. } = report;
    println!("{FIGURES} {events} {calls} {repeats} {} {sum}", passed.as_secs());
    if violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_alone(plan: Plan) -> Report {
    again::seeded(plan.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let mut report = runtime.expect("a runtime can be made").block_on(run::run(plan));
    report.violation = report.violation.or_else(|| PANIC.take());
    report
}

/// Runs many seeds, each in a process of its own: what a process keeps for its life begins anew, and one that hangs can be
/// killed.
fn run_many(asked: &Asked) -> ExitCode {
    let (next, totals, began) = (AtomicU64::new(asked.first), Mutex::new(Totals::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= asked.first + asked.count {
                        return;
                    }
                    let ran = run_seed(seed, asked);
                    totals.lock().unwrap_or_else(PoisonError::into_inner).take_in(seed, ran, asked);
                }
            });
        }
    });
    let Totals { figures: [events, calls, repeats, passed], failed } =
        totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!(
        "{} seeds in {:.1} s: {events} events, {calls} calls, {repeats} of them again after a call without an outcome, {:.1} hours on the \
         paused clock; {} failed {failed:?}",
        asked.count,
        began.elapsed().as_secs_f64(),
        passed as f64 / 3_600.0,
        failed.len(),
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a run of one seed has said: its figures (events, calls, repeats, seconds) and the sum of its history, or what was wrong.
type Ran = Result<([u64; 4], u64), String>;

#[derive(Default)]
struct Totals {
    figures: [u64; 4],
    failed: Vec<u64>,
}

impl Totals {
    fn take_in(&mut self, seed: u64, ran: Ran, asked: &Asked) {
        match ran {
            Ok((figures, _)) => self.figures.iter_mut().zip(figures).for_each(|(total, figure)| *total += figure),
            Err(said) => {
                self.failed.push(seed);
                let mode = asked.mode.map(|mode| format!(" --mode {}", mode.as_str())).unwrap_or_default();
                println!("{said}\nagain, from its beginning: cargo xtask walk --seed {seed}{mode}\n");
            }
        }
    }
}

fn run_seed(seed: u64, asked: &Asked) -> Ran {
    let ran = run_apart(seed, asked)?;
    if seed.is_multiple_of(AGAIN) && run_apart(seed, asked)?.1 != ran.1 {
        return Err(format!("seed {seed} does not run the same way again"));
    }
    Ok(ran)
}

fn run_apart(seed: u64, asked: &Asked) -> Ran {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(["--seed", &seed.to_string()]).args(asked.mode.iter().flat_map(|mode| ["--mode", mode.as_str()]));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let (mut out, mut err) = (child.stdout.take().expect("it is piped"), child.stderr.take().expect("it is piped"));
    let read_err = std::thread::spawn(move || read_all(&mut err));
    let read_out = std::thread::spawn(move || read_all(&mut out));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if began.elapsed() > STUCK {
            child.kill().map_err(|error| error.to_string())?;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let (out, err) = (read_out.join().expect("it reads"), read_err.join().expect("it reads"));
    let figures = out.lines().last().and_then(|line| line.strip_prefix(FIGURES)).filter(|_| status.success());
    let numbers: Vec<u64> =
        figures.iter().flat_map(|line| line.split_whitespace()).filter_map(|text| text.parse().ok()).collect();
    if let [events, calls, repeats, passed, sum] = numbers[..] {
        return Ok(([events, calls, repeats, passed], sum));
    }
    let lines: Vec<&str> = out.lines().chain(err.lines()).collect();
    Err(format!(
        "seed {seed} has ended with {status}; the last of what it says:\n{}",
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    ))
}

fn read_all(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    // What came is shown; why no more came, its process tells.
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

thread_local! {
    /// The first panic of this thread's run that was not on purpose. A host survives one of its tasks.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Listeners panic on purpose: of that nobody needs to read.
fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&ON_PURPOSE) {
            PANIC.with_borrow_mut(|first| first.get_or_insert_with(|| info.to_string()).len());
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
