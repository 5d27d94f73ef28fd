//! One receiver of a sink's messages: whether it may get a message now, by its last answers.
//!
//! The messages of an endpoint may go to many receivers. One that is slow or away must not use up the requests of the others, so
//! a receiver that does not answer gets one message at a time, and one that takes none rests.

mod unavailable;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outbox_event::text::shorten;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::unavailable::Unavailability;
pub(super) use self::unavailable::UnavailableReceivers;
use super::SinkError;
use super::breaker::{Breaker, BreakerScope, Down, Pass};

/// The longest rest of all messages that a receiver is granted; one message rests for as long as it was asked to.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// After so many messages in a row that it did not take for no fault of theirs, the receiver rests.
const RESTS_AFTER: u32 = 10;
/// The least rest of a message while many receivers are unavailable, so that the sink counts as down.
const LEAST_REST: Duration = Duration::from_secs(1);
/// The most bytes of a path that a receiver keeps.
const PATH_BYTES: usize = 80;

type Answer = Result<(), SinkError>;

/// The values that all receivers of one sink share.
#[derive(Debug)]
pub(super) struct Common {
    /// The sink's name.
    pub(super) sink: String,
    /// The sink's address, with which every error begins.
    pub(super) shown: String,
    /// Whether the sink has several receivers. A single receiver can hold up no other, and gets as many messages as there are.
    pub(super) has_others: bool,
    /// A receiver with messages in flight that has answered none of them for so long is silent.
    pub(super) patience: Duration,
    /// The requests of receivers that did not answer their last message, all together.
    pub(super) unproven: Arc<Semaphore>,
    pub(super) hasher: RandomState,
    pub(super) unavailable: UnavailableReceivers,
}

/// One receiver.
#[derive(Debug)]
pub(super) struct Receiver {
    common: Arc<Common>,
    /// The beginning of its path: reported to operators.
    path: String,
    /// Tells it from the others of its sink.
    key: u64,
    breaker: Arc<Breaker>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Messages that were sent and have no answer yet.
    in_flight: usize,
    /// Whether it answered the last message that it was sent.
    answers: bool,
    /// When it last answered, or got a message while it had no other.
    heard_at: Instant,
    /// Messages in a row that it did not take for no fault of theirs.
    not_taken: u32,
    /// The hash of the ID of the last of them: a message that comes again says nothing of the others.
    last_not_taken: u64,
    /// How it counts among the [`UnavailableReceivers`]; `None` if its last answer was of another kind. A receiver that stays dead counts
    /// once while others answer, so that its retries do not make a working sink count as down.
    counted: Option<Unavailability>,
}

impl Receiver {
    pub(super) fn new(common: Arc<Common>, path: &str, key: u64, now: Instant) -> Self {
        let scope = if common.has_others { BreakerScope::Receiver } else { BreakerScope::Sink };
        let breaker = Arc::new(Breaker::new(&common.sink, scope));
        let state = State { in_flight: 0, answers: false, heard_at: now, not_taken: 0, last_not_taken: 0, counted: None };
        let mut path = path.to_owned();
        shorten(&mut path, PATH_BYTES);
        Self { common, path, key, breaker, state: Mutex::new(state) }
    }

    /// Whether a message may be queued.
    ///
    /// # Errors
    /// When the receiver rests, or owes an answer to an earlier message.
    pub(super) fn look(&self, now: Instant) -> Answer {
        self.breaker.look(now)?;
        let needs_permit = self.check(&self.lock(), now)?;
        if needs_permit && self.common.unproven.available_permits() == 0 { Err(self.others_hang()) } else { Ok(()) }
    }

    /// Whether a message may be sent. Give its answer to the [`SendPermit`].
    ///
    /// # Errors
    /// As [`look`](Self::look) has.
    pub(super) fn admit(self: Arc<Self>, message_id: &str, now: Instant) -> Result<SendPermit, SinkError> {
        let mut state = self.lock();
        let permit = match self.check(&state, now)? {
            true => Some(self.common.unproven.clone().try_acquire_owned().map_err(|_| self.others_hang())?),
            false => None,
        };
        let pass = self.breaker.admit(now)?;
        if state.in_flight == 0 {
            state.heard_at = now;
        }
        state.in_flight += 1;
        drop(state);
        let message = self.common.hasher.hash_one(message_id);
        Ok(SendPermit { in_flight: InFlight(self), message, pass, _unproven: permit })
    }

    /// Whether a message needs one of the permits of receivers that did not answer.
    fn check(&self, state: &State, now: Instant) -> Result<bool, SinkError> {
        if !self.common.has_others {
            return Ok(false);
        }
        let is_silent = !state.answers || now.saturating_duration_since(state.heard_at) > self.common.patience;
        if state.in_flight > 0 && is_silent {
            let shown = &self.common.shown;
            return Err(SinkError::crowded(format!("{shown} has not yet answered an earlier message of the same receiver")));
        }
        Ok(!state.answers)
    }

    fn others_hang(&self) -> SinkError {
        let shown = &self.common.shown;
        SinkError::crowded(format!(
            "{shown} does not answer for too many other receivers; this one has not yet answered a message"
        ))
    }

    /// Counts the receiver among the [`UnavailableReceivers`], or ends that count because it looked at a message. Returns whether it is
    /// unavailable.
    fn count(&self, state: &mut State, answer: &Answer, now: Instant) -> bool {
        let common = &self.common;
        let how = match answer {
            Err(SinkError::Unavailable { retry_after: Some(_), .. } | SinkError::Denied { .. }) if common.has_others => {
                Unavailability::Refuses
            }
            Err(SinkError::Unavailable { .. }) => Unavailability::Silent,
            Ok(()) | Err(_) => {
                common.unavailable.clear(now);
                state.counted = None;
                return false;
            }
        };
        let is_counted = common.unavailable.add(self.key, how, state.counted == Some(how), now);
        state.counted = is_counted.then_some(how);
        true
    }

    /// Begins a rest after many messages in a row that the receiver did not take, and ends it when the receiver looked at a message.
    /// Returns the answer for the message.
    fn rest(&self, state: &mut State, message: u64, answer: Answer, pass: Pass, now: Instant) -> Answer {
        let asked_for = match &answer {
            Err(SinkError::Unavailable { retry_after, .. }) => {
                state.answers = false;
                retry_after.unwrap_or_default()
            }
            Err(SinkError::Denied { .. }) => {
                state.answers = true;
                Duration::ZERO
            }
            // It looked at the message.
            Ok(()) | Err(_) => {
                state.answers = true;
                state.not_taken = 0;
                pass.record(None, now);
                return answer;
            }
        };
        if state.not_taken == 0 || state.last_not_taken != message {
            state.not_taken = state.not_taken.saturating_add(1);
            state.last_not_taken = message;
        }
        match answer {
            Err(error) if state.not_taken >= RESTS_AFTER => {
                let reason = without_body(&error.to_string(), &self.common.shown);
                let down = Down { reason: &reason, rest: asked_for.min(LONGEST_REST) };
                let rest = pass.record(Some(down), now);
                Err(self.breaker.scope().error(reason, rest, Duration::ZERO))
            }
            answer => {
                pass.record(None, now);
                answer
            }
        }
    }

    /// The answer of an unavailable receiver: the sink is down if many receivers are unavailable.
    fn with_other_receivers(&self, answer: Answer) -> Answer {
        let common = &self.common;
        match answer {
            Err(error @ (SinkError::Unavailable { .. } | SinkError::Denied { .. })) if common.unavailable.is_sink_down() => {
                let asked_for = match &error {
                    SinkError::Unavailable { retry_after, .. } => retry_after.unwrap_or_default(),
                    _ => Duration::ZERO,
                };
                // Events of other messages store this reason, and operators see it.
                Err(SinkError::down_for(asked_for.max(LEAST_REST), without_body(&error.to_string(), &common.shown)))
            }
            answer => answer,
        }
    }

    /// Reports the outage of the sink to operators if this answer belongs to one.
    fn note_outage(&self, answer: &Answer, is_unavailable: bool, now: Instant) {
        let common = &self.common;
        let outage = match answer {
            Err(SinkError::Down { reason, retry_after, .. }) if is_unavailable => Some((reason, *retry_after)),
            // The only receiver: operators see its outage before its breaker opens, which takes several messages.
            Err(SinkError::Unavailable { reason, retry_after, .. })
                if !common.has_others && !common.unavailable.has_just_answered(now) =>
            {
                Some((reason, retry_after.unwrap_or_default()))
            }
            _ => None,
        };
        if let Some((reason, rest)) = outage {
            common.unavailable.note_outage(common.has_others, without_body(reason, &common.shown), rest, now);
        }
    }

    /// Whether nothing would be lost if the receiver was forgotten.
    pub(super) fn works(&self) -> bool {
        self.breaker.is_closed() && self.lock().not_taken == 0
    }

    /// The beginning of its path.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Its breaker.
    pub(super) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// When it last answered, or got a message while it had no other.
    pub(super) fn heard_at(&self) -> Instant {
        self.lock().heard_at
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to send one message to a receiver. Dropped without an answer, it says nothing of the receiver.
#[derive(Debug)]
#[must_use = "give it the answer of the message"]
pub(super) struct SendPermit {
    in_flight: InFlight,
    message: u64,
    pass: Pass,
    /// One of the permits of receivers that did not answer their last message, if this one did not.
    _unproven: Option<OwnedSemaphorePermit>,
}

impl SendPermit {
    /// The answer for the message, in view of those before it.
    pub(super) fn judge(self, answer: Answer, now: Instant) -> Answer {
        // Dropped in reverse: the message is no longer in flight when its permit is free.
        let Self { _unproven, pass, message, in_flight } = self;
        let receiver = &*in_flight.0;
        let mut state = receiver.lock();
        state.heard_at = now;
        // This concerns the sink as a whole: its own breaker has seen it.
        if matches!(answer, Err(SinkError::Down { .. })) {
            return answer;
        }
        let is_unavailable = receiver.count(&mut state, &answer, now);
        let answer = receiver.rest(&mut state, message, answer, pass, now);
        let answer = if is_unavailable { receiver.with_other_receivers(answer) } else { answer };
        receiver.note_outage(&answer, is_unavailable, now);
        answer
    }
}

/// A message that was sent to a receiver and has no answer yet.
#[derive(Debug)]
struct InFlight(Arc<Receiver>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.lock().in_flight -= 1;
    }
}

/// A reason without the response's body, which may repeat the message: events of other messages store it too.
fn without_body(reason: &str, shown: &str) -> String {
    let status = reason.strip_prefix(shown).and_then(|said| said.strip_prefix(" answered "));
    match status.and_then(|said| said.split([':', ' ']).next()) {
        Some(status) => format!("{shown} answered {status}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests;
