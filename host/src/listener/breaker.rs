//! Pauses a listener that keeps breaking, so that its events wait and everybody else goes on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::units::duration;

/// When a listener is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// How many calls are looked at together. Default 20; at least 1.
    pub window: u32,
    /// How many of them must have broken (trapped, panicked, run into a limit). Default 10; at least 1, at most the window.
    pub threshold: u32,
    /// How long it is paused. Default 30 s; above zero.
    #[serde(with = "duration")]
    pub pause: Duration,
}

impl BreakerConfig {
    /// Everything that is wrong with these values, one text each; names begin with `prefix`.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.threshold == 0 {
            faults.push(format!("{prefix}.threshold is 0; it must be at least 1"));
        }
        if self.threshold > self.window {
            faults.push(format!(
                "{prefix}.threshold ({}) is above {prefix}.window ({}); no listener could ever reach it",
                self.threshold, self.window
            ));
        }
        if self.pause.is_zero() {
            faults.push(format!("{prefix}.pause is 0; it must be above zero"));
        }
        faults
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { window: 20, threshold: 10, pause: Duration::from_secs(30) }
    }
}

/// Counts how a listener's calls end. After a pause one call may try; if it breaks too, the pause begins again.
#[derive(Debug, Default)]
pub struct Breaker {
    config: BreakerConfig,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u32,
    broken: u32,
    open_until: Option<Instant>,
    trying: bool,
}

impl Breaker {
    /// A breaker that has seen nothing yet.
    #[must_use]
    pub fn new(config: BreakerConfig) -> Self {
        Self { config, state: Mutex::default() }
    }

    /// How long a pause is.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.config.pause
    }

    /// Whether a call may be made at `now`; otherwise how long to wait.
    ///
    /// # Errors
    /// The rest of the pause.
    pub fn admit(&self, now: Instant) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match state.open_until {
            None => Ok(()),
            Some(until) if now < until => Err(until - now),
            Some(_) if state.trying => Err(Duration::from_millis(100)),
            Some(_) => {
                state.trying = true;
                Ok(())
            }
        }
    }

    /// Takes note of how a call ended; true when this call opened the breaker.
    pub fn record(&self, broke: bool, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.trying {
            *state = State::default();
            if broke {
                state.open_until = Some(now + self.config.pause);
            }
            return broke;
        }
        state.calls += 1;
        state.broken += u32::from(broke);
        let opens = state.broken >= self.config.threshold && state.open_until.is_none();
        if opens {
            *state = State { open_until: Some(now + self.config.pause), ..State::default() };
        } else if state.calls >= self.config.window {
            (state.calls, state.broken) = (0, 0);
        }
        opens
    }

    /// Whether the listener is paused at `now`.
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.open_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_window_broken_pauses_and_one_good_call_after_the_pause_ends_it() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for call in 0..19 {
            assert_eq!(breaker.admit(start), Ok(()));
            assert!(!breaker.record(call % 2 == 0 && call < 18, start));
        }
        assert!(breaker.record(true, start), "the tenth of twenty");
        assert_eq!(breaker.admit(start), Err(Duration::from_secs(30)));
        let later = start + Duration::from_secs(30);
        assert_eq!(breaker.admit(later), Ok(()), "one call may try");
        assert!(breaker.admit(later).is_err(), "and no other beside it");
        assert!(!breaker.record(false, later));
        assert_eq!(breaker.admit(later), Ok(()));
    }

    #[test]
    fn a_listener_that_breaks_now_and_then_is_never_paused() {
        let breaker = Breaker::default();
        let now = Instant::now();
        for call in 0..1_000 {
            assert!(!breaker.record(call % 3 == 0, now), "call {call}");
        }
    }
}
