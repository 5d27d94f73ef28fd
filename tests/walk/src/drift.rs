//! Clocks that run at another speed than the runtime's, and that are set forwards and backwards meanwhile.
//!
//! Nothing waits for a drift: a clock follows from the time that has passed on the paused clock.

use std::time::Duration;

use crate::chance::Chance;

/// Two per cent, in millionths.
const FASTEST: i64 = 20_000;
/// The most milliseconds that a clock is set by: more than the longest lease.
const LONGEST_STEP: u64 = 40_000;

/// How a clock differs from the runtime's. By default not at all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drift {
    /// How much faster it runs, in millionths; negative if it runs slower.
    rate: i64,
    /// When it is set, and by how many microseconds; negative if it is set backwards.
    steps: [Option<(Duration, i64)>; 2],
}

impl Drift {
    /// A clock that drifts in two of three runs, and is set in this many of a thousand runs while faults come.
    pub(crate) fn by(chance: &mut Chance, chaos: Duration, stepping: u64) -> Self {
        let rate = chance.one_of(&[0, 0, FASTEST, -FASTEST, FASTEST / 4, -FASTEST / 4]);
        let mut drift = Self { rate, ..Self::default() };
        if chance.per_mille(stepping) {
            let count = chance.index(drift.steps.len()) + 1;
            drift.steps[..count].fill_with(|| Some(step(chance, chaos)));
        }
        drift
    }

    /// The clock after this time, in microseconds since the beginning.
    pub(crate) fn reading(&self, elapsed: Duration) -> i64 {
        let passed = micros(elapsed);
        passed + passed * self.rate / 1_000_000 + self.steps_until(elapsed).sum::<i64>()
    }

    /// By how much it may differ from the runtime's clock after this time, or have differed before.
    pub(crate) fn error(&self, elapsed: Duration) -> Duration {
        let drifted = (micros(elapsed) * self.rate / 1_000_000).unsigned_abs();
        Duration::from_micros(drifted + self.steps_until(elapsed).map(i64::unsigned_abs).sum::<u64>())
    }

    /// The microseconds of each step until then.
    pub(crate) fn steps_until(&self, elapsed: Duration) -> impl Iterator<Item = i64> {
        self.steps.iter().flatten().filter(move |(at, _)| *at <= elapsed).map(|(_, by)| *by)
    }

    /// Whether it runs at another speed than this one.
    pub(crate) fn drifts_from(&self, other: &Self) -> bool {
        self.rate != other.rate
    }

    /// Whether it is ever set.
    pub(crate) fn is_set(&self) -> bool {
        self.steps.iter().any(Option::is_some)
    }
}

fn step(chance: &mut Chance, chaos: Duration) -> (Duration, i64) {
    let at = chaos.mul_f64(chance.number(100..1_000) as f64 / 1_000.0);
    let by = micros(chance.millis(500..LONGEST_STEP));
    (at, if chance.per_mille(500) { by } else { -by })
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).expect("some hours at most")
}
