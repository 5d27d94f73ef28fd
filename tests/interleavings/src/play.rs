//! Plays checks under schedules.

use std::process::ExitCode;
use std::time::Instant;
use std::{panic, thread};

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};

use crate::arguments::Arguments;
use crate::checks;

/// One thing that must hold under every schedule.
pub(crate) struct Check {
    /// What must hold.
    pub(crate) name: &'static str,
    /// Plays it once. It panics when it does not hold.
    pub(crate) play: fn(),
}

/// How many times a schedule turns from its threads' order of precedence. Most faults need one or two turns.
const TURNS: usize = 3;
/// Far more steps than any check takes: an endless loop is found.
const MOST_STEPS: usize = 20_000;

/// Plays what was asked for.
pub(crate) fn all(arguments: &Arguments) -> ExitCode {
    let is_wanted = |check: &&Check| arguments.names.is_empty() || arguments.names.iter().any(|name| check.name.contains(name));
    let wanted: Vec<&Check> = checks::ALL.iter().copied().flatten().filter(is_wanted).collect();
    if wanted.is_empty() || arguments.replay.is_some() && wanted.len() > 1 {
        eprintln!("{} checks have such names:", wanted.len());
        wanted.iter().for_each(|check| eprintln!("  {}", check.name));
        return ExitCode::from(2);
    }
    // Shorter than the usual one, which the schedule is printed before.
    panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let began = Instant::now();
    let failed: Vec<&str> = wanted.iter().filter(|check| !holds(check, arguments)).map(|check| check.name).collect();
    let schedules = if arguments.replay.is_some() { 1 } else { arguments.iterations };
    println!("{} checks, {schedules} schedules each, seed {}, {:.1?}", wanted.len(), arguments.seed, began.elapsed());
    failed.iter().for_each(|name| println!("FAILED {name}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Half of the schedules choose at every step who goes on; the others keep to an order of precedence and turn from it a few times,
/// which finds what the first half would need luck for: one that is held up for long.
fn holds(check: &Check, arguments: &Arguments) -> bool {
    let began = Instant::now();
    let Arguments { iterations, seed, .. } = *arguments;
    let (play, replay) = (check.play, arguments.replay.clone());
    // On a thread of its own: one that has failed is left as it is.
    let played = thread::spawn(move || match replay {
        Some(schedule) => played(play, ReplayScheduler::new_from_encoded(&schedule)),
        None => {
            played(play, RandomScheduler::new_from_seed(seed, iterations.div_ceil(2)));
            played(play, PctScheduler::new_from_seed(seed, TURNS, iterations / 2));
        }
    });
    let held = played.join().is_ok();
    println!("{} {} ({:.1?})", if held { "ok    " } else { "FAILED" }, check.name, began.elapsed());
    held
}

fn played(play: fn(), scheduler: impl Scheduler + 'static) {
    let mut config = Config::new();
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    // What it warns of is said in `sync.rs`.
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    Runner::new(scheduler, config).run(play);
}
