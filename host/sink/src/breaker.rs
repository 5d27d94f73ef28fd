//! Sends nothing to a sink that is down, for growing rests; after each rest one batch tries.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outbox_event::SinkOutage;
#[cfg(any(feature = "http", feature = "kafka", feature = "redis"))]
use outbox_event::SinkStatus;
use outbox_event::time::{Timestamp, time_of};
use rand::RngExt;

use super::SinkError;
#[cfg(any(feature = "http", feature = "kafka", feature = "redis"))]
use super::error::quoted;
use super::outage::Outage;

/// The first rest; each further one is twice as long.
const FIRST_REST: Duration = Duration::from_millis(200);
const LONGEST_REST: Duration = Duration::from_secs(15);
/// The least time that other batches wait while one tries.
const TRYING: Duration = Duration::from_millis(100);

/// Closed while the sink works. While it is open, only one batch is sent after each rest. It has in common with the breaker of
/// listeners (`listener/breaker.rs`) that one call tries, and that others wait as long again as that call takes.
#[derive(Debug)]
pub(super) struct Breaker {
    sink: String,
    scope: BreakerScope,
    state: Mutex<State>,
}

/// The messages that a breaker stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BreakerScope {
    /// All messages of a sink.
    Sink,
    /// The messages for one of its receivers, such as a node of a cluster.
    #[cfg_attr(
        not(any(feature = "http", feature = "redis")),
        allow(dead_code, reason = "other kinds of sinks have one receiver")
    )]
    Receiver,
}

impl BreakerScope {
    /// The answer for a message that is not sent before this rest is over. The last try was `tried_ago`; zero if it was this message.
    pub(super) fn error(self, reason: String, rest: Duration, tried_ago: Duration) -> SinkError {
        match self {
            Self::Sink => SinkError::Down { reason, retry_after: rest, tried_ago },
            Self::Receiver => SinkError::Unavailable { reason, retry_after: Some(rest), tried_ago },
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Failures in a row.
    failures: u32,
    /// `None` while the sink works.
    open: Option<Open>,
    /// Since when one batch has been trying.
    trying_since: Option<Instant>,
    /// Whether the sink answered after an outage but has taken no message since, so that no recovery was logged.
    is_recovery_pending: bool,
    /// When a message was last confirmed.
    last_success: Option<Instant>,
}

/// A breaker that is open.
#[derive(Debug)]
struct Open {
    /// When a batch last failed.
    tried_at: Instant,
    /// When one batch may try.
    until: Instant,
    /// Reported to operators.
    outage: Outage,
}

impl State {
    /// Refuses until the rest is over, or for as long again as a batch has been trying: with a fixed wait, events would be
    /// claimed and given back again and again while the sink does not answer.
    fn refusal(&self, open: &Open, scope: BreakerScope, now: Instant) -> SinkError {
        let tried = self.trying_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let retry_after = open.until.saturating_duration_since(now).max(tried.min(LONGEST_REST)).max(TRYING);
        scope.error(open.outage.reason.clone(), retry_after, now.saturating_duration_since(open.tried_at))
    }

    /// Whether a batch has to wait.
    fn refuses(&self, open: &Open, now: Instant) -> bool {
        now < open.until || self.trying_since.is_some()
    }
}

impl Breaker {
    pub(super) fn new(sink: &str, scope: BreakerScope) -> Self {
        Self { sink: sink.to_owned(), scope, state: Mutex::default() }
    }

    /// The messages that it stops.
    pub(super) fn scope(&self) -> BreakerScope {
        self.scope
    }

    /// Whether everything may be sent.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().open.is_none()
    }

    /// Since when nothing is sent, why, and until when; `None` while the breaker is closed.
    pub(super) fn outage(&self) -> Option<SinkOutage> {
        self.lock().open.as_ref().map(|open| open.outage.report())
    }

    /// When a message was last confirmed. Known of the breaker of a sink only, not of its receivers.
    pub(super) fn last_success(&self) -> Option<Timestamp> {
        self.lock().last_success.map(time_of)
    }

    /// Whether a message may be queued.
    pub(super) fn look(&self, now: Instant) -> Result<(), SinkError> {
        let state = self.lock();
        match &state.open {
            Some(open) if state.refuses(open, now) => Err(state.refusal(open, self.scope, now)),
            _ => Ok(()),
        }
    }

    /// Whether a batch may be sent. Report its result to the [`Pass`].
    pub(super) fn admit(self: &Arc<Self>, now: Instant) -> Result<Pass, SinkError> {
        let mut state = self.lock();
        let is_trial = match &state.open {
            None => false,
            Some(open) if state.refuses(open, now) => return Err(state.refusal(open, self.scope, now)),
            Some(_) => true,
        };
        if is_trial {
            state.trying_since = Some(now);
        }
        drop(state);
        Ok(Pass { breaker: self.clone(), is_trial })
    }

    /// Records the result of a batch: `down` says why nothing could be sent, if so. Returns the rest before the next try.
    fn record(&self, down: Option<Down<'_>>, is_trial: bool, now: Instant) -> Duration {
        let mut state = self.lock();
        // A batch that was sent before the sink went down says nothing about what comes after it.
        if let (Some(open), false) = (&state.open, is_trial) {
            return open.until.saturating_duration_since(now).max(TRYING);
        }
        state.trying_since = None;
        let Some(Down { reason, rest: asked_for }) = down else {
            let was_pending = std::mem::take(&mut state.is_recovery_pending);
            if state.open.take().is_some() || was_pending {
                self.log_recovery();
            }
            state.failures = 0;
            return Duration::ZERO;
        };
        if state.open.is_none() {
            self.log_failure(reason);
        }
        let rest = FIRST_REST.saturating_mul(1 << state.failures.min(16)).min(LONGEST_REST);
        // Varied, so that hosts that lost it together do not come back together.
        let rest = rest.mul_f64(rand::rng().random_range(0.75..1.0)).max(asked_for);
        state.failures = state.failures.saturating_add(1);
        let outage = Outage::new(state.open.as_ref().map(|open| &open.outage), reason.to_owned(), rest, now);
        state.open = Some(Open { tried_at: now, until: now + rest, outage });
        rest
    }

    /// Records that the sink answered a batch, but could take no message of it. This closes the breaker, and is no recovery yet.
    fn record_contact(&self, is_trial: bool) {
        let mut state = self.lock();
        if state.open.is_some() && !is_trial {
            return;
        }
        state.trying_since = None;
        state.failures = 0;
        if state.open.take().is_some() {
            state.is_recovery_pending = true;
        }
    }

    fn log_failure(&self, reason: &str) {
        let sink = &self.sink;
        match self.scope {
            BreakerScope::Sink => {
                tracing::warn!(target: "outbox::sink::breaker", sink, reason, "the sink is down; its events wait and lose no attempt");
            }
            // Events choose the receivers, and could fill the log. The reason is in the rows of the events.
            BreakerScope::Receiver => {
                tracing::debug!(target: "outbox::sink::breaker", sink, reason, "a receiver of the sink rests")
            }
        }
    }

    fn log_recovery(&self) {
        let sink = &self.sink;
        match self.scope {
            BreakerScope::Sink => tracing::info!(target: "outbox::sink::breaker", sink, "the sink works again"),
            BreakerScope::Receiver => {
                tracing::debug!(target: "outbox::sink::breaker", sink, "a receiver of the sink works again")
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The open breakers of a sink's receivers.
#[derive(Debug, Default)]
pub(super) struct OpenBreakers {
    /// The outage of the only receiver, or of many receivers at once, and so of the sink.
    pub(super) outage: Option<SinkOutage>,
    /// How many receivers are unavailable, while others may work.
    pub(super) receivers: u32,
    /// The first of these receivers by name.
    pub(super) first: Vec<String>,
}

#[cfg(any(feature = "http", feature = "kafka", feature = "redis"))]
impl OpenBreakers {
    /// The open ones among these breakers, each with the name of its receiver.
    #[cfg(any(feature = "http", feature = "redis"))]
    pub(super) fn of<'b>(breakers: impl Iterator<Item = (&'b str, &'b Breaker)>) -> Self {
        let (mut outage, mut names) = (None, Vec::new());
        for (name, breaker) in breakers.filter(|(_, breaker)| !breaker.is_closed()) {
            match breaker.scope {
                BreakerScope::Sink => outage = breaker.outage(),
                BreakerScope::Receiver => names.push(name),
            }
        }
        Self { outage, ..Self::of_receivers(names) }
    }

    /// Receivers with these names, which are unavailable.
    pub(super) fn of_receivers(mut names: Vec<&str>) -> Self {
        // The same ones each time: a host writes its report again if it changes.
        names.sort_unstable();
        let first = names.iter().take(SinkStatus::NAMED_RECEIVERS).map(|name| quoted(name)).collect();
        Self { outage: None, receivers: u32::try_from(names.len()).unwrap_or(u32::MAX), first }
    }
}

/// Why the whole sink did not work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Down<'r> {
    pub(super) reason: &'r str,
    /// The least rest before the next try.
    pub(super) rest: Duration,
}

/// The right to send a batch. If it is dropped without a result, another batch may try.
#[derive(Debug)]
#[must_use = "tell it what came of the batch"]
pub(super) struct Pass {
    breaker: Arc<Breaker>,
    is_trial: bool,
}

impl Pass {
    /// Reports that a message of the batch was confirmed, which proves that the sink works.
    pub(super) fn confirm(self, now: Instant) {
        self.breaker.lock().last_success = Some(now);
        self.record(None, now);
    }

    /// Reports that the sink answered, but could take no message of the batch, such as an endpoint that answers 503.
    pub(super) fn record_contact(mut self) {
        let is_trial = std::mem::take(&mut self.is_trial);
        self.breaker.record_contact(is_trial);
    }

    /// Reports the result of the batch: `down` says why the whole sink did not work, if so. Returns the rest before the next
    /// try.
    pub(super) fn record(mut self, down: Option<Down<'_>>, now: Instant) -> Duration {
        let is_trial = std::mem::take(&mut self.is_trial);
        self.breaker.record(down, is_trial, now)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.is_trial {
            self.breaker.lock().trying_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const REFUSED: Down<'_> = Down { reason: "refused", rest: Duration::ZERO };

    fn fail(breaker: &Arc<Breaker>, now: Instant) -> Duration {
        breaker.admit(now).expect("a batch may be sent").record(Some(REFUSED), now)
    }

    #[test]
    fn rests_grow_to_the_longest_and_one_good_batch_ends_them() {
        let breaker = Arc::new(Breaker::new("orders", BreakerScope::Sink));
        let mut now = Instant::now();
        for failure in 0..20 {
            let rest = fail(&breaker, now);
            let ideal = FIRST_REST.saturating_mul(1 << failure).min(LONGEST_REST);
            assert!(rest >= ideal.mul_f64(0.74) && rest <= ideal, "failure {failure}: {rest:?} of {ideal:?}");
            let error = breaker.look(now).expect_err("open");
            assert_eq!(error, SinkError::down_for(rest, "refused"));
            now += rest;
        }
        let _ = breaker.admit(now).expect("a trial").record(None, now);
        assert_eq!(breaker.look(now), Ok(()));
        assert!(fail(&breaker, now) <= FIRST_REST, "and the next rest is a short one again");
    }

    #[test]
    fn an_outage_keeps_its_beginning_until_a_batch_succeeds() {
        let breaker = Arc::new(Breaker::new("orders", BreakerScope::Sink));
        let now = Instant::now();
        assert_eq!((breaker.outage(), breaker.last_success()), (None, None));
        let later = now + fail(&breaker, now);
        let first = breaker.outage().expect("it is open");
        assert!(first.reason == "refused" && first.next_try > first.since, "{first:?}");

        let rest = breaker.admit(later).expect("a trial").record(Some(Down { reason: "reset", rest: HOUR }), later);
        let second = breaker.outage().expect("it is open");
        assert_eq!((second.since, second.reason.as_str()), (first.since, "reset"));
        assert!(second.next_try.since(second.since) >= HOUR, "{second:?}");

        breaker.admit(later + rest).expect("a trial").confirm(later + rest);
        assert_eq!(breaker.outage(), None);
        assert!(breaker.last_success().is_some_and(|time| time >= first.since));
    }

    #[test]
    fn a_sink_that_answers_but_takes_no_message_has_not_recovered() {
        let breaker = Arc::new(Breaker::new("orders", BreakerScope::Sink));
        let now = Instant::now();
        let later = now + fail(&breaker, now);

        breaker.admit(later).expect("a trial").record_contact();
        assert!(breaker.is_closed() && breaker.lock().is_recovery_pending);

        breaker.admit(later).expect("closed").confirm(later);
        assert!(!breaker.lock().is_recovery_pending);
    }

    #[test]
    fn one_batch_tries_after_a_rest_and_a_trial_that_was_none_leaves_it_to_the_next() {
        let breaker = Arc::new(Breaker::new("orders", BreakerScope::Sink));
        let now = Instant::now();
        let later = now + fail(&breaker, now);
        let trial = breaker.admit(later).expect("one batch may try");
        assert!(breaker.admit(later).is_err(), "and no other beside it");
        drop(trial);
        assert!(breaker.admit(later).is_ok());
    }

    #[test]
    fn others_wait_as_long_again_as_a_trial_has_taken_and_no_longer_than_the_longest_rest() {
        let breaker = Arc::new(Breaker::new("orders", BreakerScope::Sink));
        let now = Instant::now();
        let later = now + fail(&breaker, now);
        let _hangs = breaker.admit(later).expect("one batch may try");
        let after = |seconds| match breaker.look(later + Duration::from_secs(seconds)) {
            Err(SinkError::Down { retry_after, .. }) => retry_after,
            other => panic!("the trial lasts: {other:?}"),
        };
        assert_eq!([after(0), after(8), after(80)], [TRYING, Duration::from_secs(8), LONGEST_REST]);
    }

    #[test]
    fn a_message_that_is_not_sent_learns_how_long_ago_the_sink_was_tried() {
        let breaker = Arc::new(Breaker::new("orders", BreakerScope::Receiver));
        let now = Instant::now();
        let tried_at = now + fail(&breaker, now);
        let _ = fail(&breaker, tried_at);
        let later = tried_at + Duration::from_millis(50);
        let answer = breaker.look(later);
        let tried = |ago| matches!(answer, Err(SinkError::Unavailable { tried_ago, .. }) if tried_ago == ago);
        assert!(tried(later - tried_at), "the last try counts: {answer:?}");
    }

    #[test]
    fn a_batch_that_was_sent_before_the_sink_went_down_neither_closes_the_breaker_nor_lengthens_the_rest() {
        let breaker = Arc::new(Breaker::new("orders", BreakerScope::Sink));
        let now = Instant::now();
        let [early, late] = [0, 1].map(|_| breaker.admit(now).expect("closed"));
        let rest = fail(&breaker, now);
        assert_eq!(late.record(Some(REFUSED), now), rest);
        let _ = early.record(None, now);
        assert!(breaker.look(now).is_err());
    }
}
