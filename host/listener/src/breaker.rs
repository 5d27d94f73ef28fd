//! Keeps calls from a listener that keeps breaking, so that its events wait and other listeners continue.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use outbox_event::time::{Timestamp, system_clock};
use outbox_event::units::{duration, too_long};

/// The shortest wait of other events during a trial call.
const TRYING: Duration = Duration::from_millis(100);

/// When the breaker of a listener opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerConfig {
    /// How many calls are counted together. Default 20; at least 1.
    pub window: u32,
    /// How many of them must have broken (trapped, panicked, run into a limit). Default 10; at least 1, at most the window.
    pub threshold: u32,
    /// How long it is open. Default 30 s; above zero.
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
        faults.extend(too_long(format_args!("{prefix}.pause"), self.pause));
        faults
    }
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { window: 20, threshold: 10, pause: Duration::from_secs(30) }
    }
}

/// Counts how a listener's calls end. After a pause one trial call is allowed; if it breaks too, the pause begins again.
#[derive(Debug, Default)]
#[doc(hidden)] // for the host
pub struct Breaker {
    config: BreakerConfig,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: u32,
    broken: u32,
    /// `None` while it is closed.
    open: Option<BreakerPause>,
    /// When the first trial after the pause began; kept until a trial calls the listener.
    tried_since: Option<Instant>,
    /// Whether a trial is in progress.
    trying: bool,
}

/// The pause of an open breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub struct BreakerPause {
    /// When the breaker opened, by the system's clock. A trial that breaks does not change it.
    pub since: Timestamp,
    /// When a trial is allowed, by the system's clock.
    pub next_try: Timestamp,
    until: Instant,
}

impl BreakerPause {
    /// Whether the pause is over at `now`: the next call is a trial.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// A pause that begins at `now`. `since` is when the breaker opened, if it has been open.
    fn new(since: Option<Timestamp>, length: Duration, now: Instant) -> Self {
        let time = system_clock().now();
        Self { since: since.unwrap_or(time), next_try: time.plus(length), until: now + length }
    }
}

impl Breaker {
    /// A closed breaker without counted calls.
    #[must_use]
    pub fn new(config: BreakerConfig) -> Self {
        Self { config, state: Mutex::default() }
    }

    /// The length of a pause.
    #[must_use]
    pub fn pause(&self) -> Duration {
        self.config.pause
    }

    /// Asks whether a call may be made at `now`. The caller records the end of the call in the returned [`Admittance`].
    ///
    /// # Errors
    /// How long to wait.
    pub fn admit(&self, now: Instant) -> Result<Admittance<'_>, Duration> {
        let mut state = self.lock();
        match state.open {
            None => return Ok(Admittance { breaker: self, is_trial: false }),
            Some(open) if now < open.until => return Err(open.until - now),
            Some(_) if state.trying => return Err(self.rest(&state, now)),
            Some(_) => {}
        }
        state.trying = true;
        state.tried_since.get_or_insert(now);
        Ok(Admittance { breaker: self, is_trial: true })
    }

    /// How long an event waits during a trial: as long again as the trial has taken. With a constant delay, events would be claimed and
    /// given back again and again.
    fn rest(&self, state: &State, now: Instant) -> Duration {
        let tried = state.tried_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        tried.clamp(TRYING, self.config.pause.max(TRYING))
    }

    /// Counts how a call ended. Returns whether it opened the breaker.
    fn record(&self, broke: bool, now: Instant) -> bool {
        let mut state = self.lock();
        // A call that began before the pause does not count after it.
        if state.open.is_some() {
            return false;
        }
        state.calls += 1;
        state.broken += u32::from(broke);
        let opens = state.broken >= self.config.threshold;
        if opens {
            *state = State { open: Some(BreakerPause::new(None, self.config.pause, now)), ..State::default() };
        } else if state.calls >= self.config.window {
            *state = State::default();
        }
        opens
    }

    /// Whether the breaker is open at `now`, and no trial is due yet.
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        self.lock().open.is_some_and(|open| !open.is_over(now))
    }

    /// Its pause; `None` while it is closed. A pause that is over still counts until a trial has succeeded.
    #[must_use]
    pub fn open(&self) -> Option<BreakerPause> {
        self.lock().open
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permits one call. If it is dropped without [`record`](Self::record), no call was made: after a pause another trial is allowed.
#[derive(Debug)]
#[must_use = "tell it how the call ended"]
#[doc(hidden)] // for the host
pub struct Admittance<'b> {
    breaker: &'b Breaker,
    is_trial: bool,
}

impl Admittance<'_> {
    /// Notes that no call was made, because the listener could not take the event. Returns how long the event waits, at least `after`.
    #[must_use]
    pub fn no_call(self, after: Duration, now: Instant) -> Duration {
        if self.is_trial { self.breaker.rest(&self.breaker.lock(), now).max(after) } else { after }
    }

    /// Records how the call ended. Returns whether it opened the breaker.
    pub fn record(mut self, broke: bool, now: Instant) -> bool {
        if !std::mem::take(&mut self.is_trial) {
            return self.breaker.record(broke, now);
        }
        let mut state = self.breaker.lock();
        let since = state.open.map(|open| open.since);
        let open = broke.then(|| BreakerPause::new(since, self.breaker.config.pause, now));
        *state = State { open, ..State::default() };
        broke
    }
}

impl Drop for Admittance<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            self.breaker.lock().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(30);

    fn call(breaker: &Breaker, broke: bool, now: Instant) -> bool {
        breaker.admit(now).expect("a call may be made").record(broke, now)
    }

    /// A breaker that opened at `start`.
    fn open(start: Instant) -> Breaker {
        let breaker = Breaker::default();
        for _ in 0..9 {
            assert!(!call(&breaker, true, start));
        }
        assert!(call(&breaker, true, start), "the tenth");
        breaker
    }

    #[test]
    fn an_open_breaker_says_since_when_until_a_trial_succeeds() {
        assert_eq!(Breaker::default().open(), None);
        let start = Instant::now();
        let breaker = open(start);
        let first = breaker.open().expect("it opened");
        assert_eq!(first.next_try.since(first.since), PAUSE);

        assert!(call(&breaker, true, start + PAUSE));
        let second = breaker.open().expect("the trial broke");
        assert!(second.since == first.since && second.next_try >= first.next_try, "{first:?} {second:?}");

        let later = start + PAUSE * 2;
        assert_eq!((breaker.is_open(later), breaker.open()), (false, Some(second)), "a trial is allowed, and none was made");
        assert!(second.is_over(later) && !second.is_over(start + PAUSE));
        assert!(!call(&breaker, false, later));
        assert_eq!(breaker.open(), None);
    }

    #[test]
    fn half_of_the_window_broken_pauses_and_one_good_call_after_the_pause_ends_it() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for number in 0..19 {
            assert!(!call(&breaker, number % 2 == 0 && number < 18, start));
        }
        assert!(call(&breaker, true, start), "the tenth of twenty");
        assert_eq!(breaker.admit(start).err(), Some(PAUSE));
        let later = start + PAUSE;
        let trial = breaker.admit(later).expect("one call may try");
        assert!(breaker.admit(later).is_err(), "and no other beside it");
        assert!(!trial.record(false, later));
        assert!(breaker.admit(later).is_ok());
    }

    #[test]
    fn a_trial_that_breaks_begins_the_pause_again() {
        let start = Instant::now();
        let breaker = open(start);
        let later = start + PAUSE;
        assert!(call(&breaker, true, later));
        assert_eq!(breaker.admit(later).err(), Some(PAUSE));
    }

    #[test]
    fn a_trial_that_was_no_call_leaves_it_to_the_next() {
        let start = Instant::now();
        let breaker = open(start);
        let later = start + PAUSE;
        drop(breaker.admit(later).expect("one call may try"));
        let trial = breaker.admit(later).expect("another may try, since the first was no call");
        assert!(breaker.admit(later).is_err(), "one at a time");
        assert!(trial.record(true, later), "and it decides alone");
    }

    #[test]
    fn others_wait_as_long_again_as_a_trial_has_taken_and_no_longer_than_a_pause() {
        let start = Instant::now();
        let breaker = open(start);
        let later = start + PAUSE;
        let _hangs = breaker.admit(later).expect("one call may try");
        let after = |seconds| breaker.admit(later + Duration::from_secs(seconds)).err();
        assert_eq!([after(0), after(8), after(80)], [Some(TRYING), Some(Duration::from_secs(8)), Some(PAUSE)]);
    }

    #[test]
    fn events_wait_longer_and_longer_while_no_trial_is_a_call() {
        let start = Instant::now();
        let breaker = open(start);
        let later = start + PAUSE;
        let after = |seconds| {
            let now = later + Duration::from_secs(seconds);
            breaker.admit(now).expect("the one before it was no call").no_call(TRYING, now)
        };
        assert_eq!([after(0), after(8), after(80)], [TRYING, Duration::from_secs(8), PAUSE]);
        assert!(!call(&breaker, false, later + PAUSE * 4));
        let closed = breaker.admit(later + PAUSE * 5).expect("it works again");
        assert_eq!(closed.no_call(TRYING, later + PAUSE * 5), TRYING);
    }

    #[test]
    fn a_call_that_began_before_the_pause_is_no_trial() {
        let start = Instant::now();
        let breaker = Breaker::default();
        let early = breaker.admit(start).expect("closed");
        for _ in 0..10 {
            call(&breaker, true, start);
        }
        let later = start + PAUSE;
        let trial = breaker.admit(later).expect("one call may try");
        assert!(!early.record(false, later));
        assert!(breaker.admit(later).is_err(), "the trial is still on its way");
        assert!(trial.record(true, later));
    }

    #[test]
    fn a_listener_that_breaks_now_and_then_is_never_paused() {
        let breaker = Breaker::default();
        let now = Instant::now();
        for number in 0..1_000 {
            assert!(!call(&breaker, number % 3 == 0, now), "call {number}");
        }
    }
}
