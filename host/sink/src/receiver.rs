//! One receiver of a sink's messages: whether it may get a message now, by its last answers.
//!
//! The messages of an endpoint may go to many receivers. One that is slow or away must not use up the requests of the others, so
//! a receiver that does not answer gets one message at a time, and one that takes none rests.

mod unavailable;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::unavailable::MANY_RECEIVERS;
pub(super) use self::unavailable::UnavailableReceivers;
use super::SinkError;
use super::breaker::{Breaker, BreakerScope, Down};

/// The longest rest of all messages that a receiver is granted; one message rests for as long as it was asked to.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// After so many messages in a row that it did not take for no fault of theirs, the receiver rests.
const RESTS_AFTER: u32 = 10;
/// The least rest of a message while many receivers are unavailable, so that the sink counts as down.
const LEAST_REST: Duration = Duration::from_secs(1);

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
    /// Tells it from the others of its sink.
    key: u64,
    breaker: Breaker,
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
    /// Whether it was added to the [`UnavailableReceivers`] since its last answer. A receiver that stays dead counts once while others
    /// answer, so that its retries do not make a working sink count as down.
    was_counted: bool,
}

impl Receiver {
    pub(super) fn new(common: Arc<Common>, key: u64, now: Instant) -> Self {
        let scope = if common.has_others { BreakerScope::Receiver } else { BreakerScope::Sink };
        let breaker = Breaker::new(&common.sink, scope);
        let state = State { in_flight: 0, answers: false, heard_at: now, not_taken: 0, last_not_taken: 0, was_counted: false };
        Self { common, key, breaker, state: Mutex::new(state) }
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

    /// Whether a message may be sent. Give its answer to the [`Turn`].
    ///
    /// # Errors
    /// As [`look`](Self::look) has.
    pub(super) fn admit(self: Arc<Self>, message_id: &str, now: Instant) -> Result<Turn, SinkError> {
        let mut state = self.lock();
        let permit = match self.check(&state, now)? {
            true => Some(self.common.unproven.clone().try_acquire_owned().map_err(|_| self.others_hang())?),
            false => None,
        };
        let is_trial = self.breaker.try_admit(now)?;
        if state.in_flight == 0 {
            state.heard_at = now;
        }
        state.in_flight += 1;
        drop(state);
        let message = self.common.hasher.hash_one(message_id);
        Ok(Turn { receiver: self, message, is_trial, _permit: permit })
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

    /// Counts the receiver among the [`UnavailableReceivers`], or ends that count because it answered. Returns whether it is unavailable.
    fn count(&self, state: &mut State, answer: &Answer, now: Instant) -> bool {
        let common = &self.common;
        let is_unavailable = match answer {
            // A receiver that says when it takes messages again proves that the sink works, unless it is the only one.
            Err(SinkError::Unavailable { retry_after, .. }) => retry_after.is_none() || !common.has_others,
            // It answered.
            Ok(()) | Err(_) => false,
        };
        state.was_counted = if is_unavailable {
            common.unavailable.add(self.key, state.was_counted, now)
        } else {
            common.unavailable.clear(now);
            false
        };
        is_unavailable
    }

    /// Begins a rest after many messages in a row that the receiver did not take, and ends it when the receiver looked at a message.
    /// Returns the answer for the message.
    fn rest(&self, state: &mut State, message: u64, answer: Answer, is_trial: bool, now: Instant) -> Answer {
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
                self.breaker.record(None, is_trial, now);
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
                let rest = self.breaker.record(Some(down), is_trial, now);
                Err(self.breaker.scope().error(reason, rest))
            }
            answer => {
                self.breaker.record(None, is_trial, now);
                answer
            }
        }
    }

    /// The answer of an unavailable receiver: the sink is down if many receivers are unavailable.
    fn with_other_receivers(&self, answer: Answer) -> Answer {
        let common = &self.common;
        match answer {
            Err(SinkError::Unavailable { reason, retry_after }) if common.unavailable.is_sink_down() => {
                // Events of other messages store this reason, and operators see it.
                Err(SinkError::down_for(retry_after.unwrap_or_default().max(LEAST_REST), without_body(&reason, &common.shown)))
            }
            answer => answer,
        }
    }

    /// Reports the outage of the sink to operators if this answer belongs to one.
    fn note_outage(&self, answer: &Answer, is_unavailable: bool, now: Instant) {
        let common = &self.common;
        let outage = match answer {
            Err(SinkError::Down { reason, retry_after }) if is_unavailable => Some((reason, *retry_after)),
            // The only receiver: operators see its outage before its breaker opens, which takes several messages.
            Err(SinkError::Unavailable { reason, retry_after })
                if !common.has_others && !common.unavailable.has_just_answered(now) =>
            {
                Some((reason, retry_after.unwrap_or_default()))
            }
            _ => None,
        };
        if let Some((reason, rest)) = outage {
            let least = if common.has_others { MANY_RECEIVERS } else { 1 };
            common.unavailable.note_outage(least, without_body(reason, &common.shown), rest);
        }
    }

    /// Whether nothing would be lost if the receiver was forgotten.
    pub(super) fn works(&self) -> bool {
        self.breaker.is_closed() && self.lock().not_taken == 0
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
pub(super) struct Turn {
    receiver: Arc<Receiver>,
    message: u64,
    is_trial: bool,
    /// Where the receiver did not answer its last message.
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// The answer for the message, in view of those before it.
    pub(super) fn judge(mut self, answer: Answer, now: Instant) -> Answer {
        let receiver = &*self.receiver;
        let mut state = receiver.lock();
        state.heard_at = now;
        // This concerns the sink as a whole: its own breaker has seen it.
        if matches!(answer, Err(SinkError::Down { .. })) {
            return answer;
        }
        let is_unavailable = receiver.count(&mut state, &answer, now);
        let is_trial = std::mem::take(&mut self.is_trial);
        let answer = receiver.rest(&mut state, self.message, answer, is_trial, now);
        let answer = if is_unavailable { receiver.with_other_receivers(answer) } else { answer };
        receiver.note_outage(&answer, is_unavailable, now);
        answer
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_trial {
            self.receiver.breaker.abandon_trial();
        }
        self.receiver.lock().in_flight -= 1;
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
mod tests {
    use super::unavailable::{RECOUNTED_AFTER, REPORTED_AFTER};
    use super::*;

    const URL: &str = "https://a";
    const HOUR: Duration = Duration::from_secs(3_600);
    const PATIENCE: Duration = Duration::from_secs(2);

    fn common(has_others: bool, unproven: usize) -> Arc<Common> {
        Arc::new(Common {
            sink: "hooks".to_owned(),
            shown: URL.to_owned(),
            has_others,
            patience: PATIENCE,
            unproven: Arc::new(Semaphore::new(unproven)),
            hasher: RandomState::new(),
            unavailable: UnavailableReceivers::default(),
        })
    }

    fn receiver(has_others: bool) -> Arc<Receiver> {
        Arc::new(Receiver::new(common(has_others, 16), 1, Instant::now()))
    }

    /// Sends a message, once the receiver does not rest any more.
    fn send(receiver: &Arc<Receiver>, id: &str, answer: Answer) -> Answer {
        let turn = receiver.clone().admit(id, Instant::now() + HOUR).expect("it may be sent");
        turn.judge(answer, Instant::now())
    }

    fn unavailable() -> Answer {
        Err(SinkError::unavailable("https://a answered 503: card 4711"))
    }

    fn denied() -> Answer {
        Err(SinkError::denied("https://a answered 404: card 4711"))
    }

    fn rests(answer: &Answer) -> bool {
        matches!(answer, Err(SinkError::Down { retry_after, .. } | SinkError::Unavailable { retry_after: Some(retry_after), .. })
            if !retry_after.is_zero())
    }

    #[test]
    fn a_receiver_that_takes_nothing_rests_until_it_has_looked_at_a_message() {
        for has_others in [false, true] {
            let receiver = receiver(has_others);
            let answers: Vec<_> = (0..12)
                .map(|n: u32| send(&receiver, &n.to_string(), if n.is_multiple_of(2) { unavailable() } else { denied() }))
                .collect();
            let rest: Vec<_> = answers.iter().map(rests).collect();
            assert_eq!(rest, [false, false, false, false, false, false, false, false, false, true, true, true]);
            assert_eq!(answers[11].as_ref().is_err_and(SinkError::is_down), !has_others, "the sink is down if it has no other");
            assert!(rests(&receiver.look(Instant::now())), "another message is answered at once");

            for looked in [Ok(()), Err(SinkError::rejected("422")), Err(SinkError::Failed { reason: "500".to_owned() })] {
                assert_eq!(send(&receiver, "looked", looked.clone()), looked);
                assert_eq!(receiver.look(Instant::now()), Ok(()));
                assert_eq!(send(&receiver, "next", denied()), denied(), "after {looked:?}");
            }
        }
    }

    #[test]
    fn a_sink_is_down_while_many_receivers_are_unavailable_and_none_answers() {
        let (common, now) = (common(true, 16), Instant::now());
        let receivers: Vec<_> = (0..4).map(|key| Arc::new(Receiver::new(common.clone(), key, now))).collect();
        let is_down = |receiver, id, answer| send(receiver, id, answer).is_err_and(|error| error.is_down());

        let all: Vec<bool> = receivers.iter().map(|receiver| is_down(receiver, "1", unavailable())).collect();
        assert_eq!(all, [false, false, true, true]);
        let down = send(&receivers[2], "1", unavailable());
        assert_eq!(down, Err(SinkError::down_for(LEAST_REST, "https://a answered 503")), "without the body");

        assert!(!is_down(&receivers[0], "2", denied()), "it answers");
        let of_one = ["3", "4", "5"].map(|id| is_down(&receivers[1], id, unavailable()));
        assert_eq!(of_one, [false; 3], "the others may work");
    }

    #[test]
    fn a_dead_receiver_counts_once_until_it_answers() {
        let (common, now) = (common(true, 16), Instant::now());
        let receivers: Vec<_> = (0..4).map(|key| Arc::new(Receiver::new(common.clone(), key, now))).collect();
        let (works, dead) = receivers.split_first().expect("four");
        let are_down = |id| -> Vec<bool> {
            dead.iter().map(|receiver| send(receiver, id, unavailable()).is_err_and(|error| error.is_down())).collect()
        };

        assert_eq!(are_down("1"), [false, false, true]);
        for id in ["2", "3"] {
            assert_eq!(send(works, id, Ok(())), Ok(()));
            assert_eq!(are_down(id), [false; 3], "the sink works");
        }

        for receiver in dead {
            assert_eq!(send(receiver, "4", Ok(())), Ok(()));
        }
        assert_eq!(are_down("5"), [false, false, true]);
    }

    #[test]
    fn one_answer_in_an_outage_hides_it_for_a_minute_at_most() {
        let (common, now) = (common(true, 16), Instant::now());
        let receivers: Vec<_> = (0..7).map(|key| Arc::new(Receiver::new(common.clone(), key, now))).collect();
        let (lucky, dead) = receivers.split_first().expect("seven");
        let are_down = |dead: &[Arc<Receiver>], at| -> Vec<bool> {
            let fails = |receiver: &Arc<Receiver>| {
                let turn = receiver.clone().admit("1", now).expect("it may be sent");
                turn.judge(unavailable(), at).is_err_and(|error| error.is_down())
            };
            dead.iter().map(fails).collect()
        };

        assert_eq!(are_down(dead, now), [false, false, true, true, true, true]);
        assert_eq!(send(lucky, "2", Ok(())), Ok(()));
        assert_eq!(are_down(&dead[..3], now), [false; 3], "these were counted");
        assert_eq!(are_down(&dead[3..], now), [false, false, true], "these were not");

        assert_eq!(send(lucky, "3", Ok(())), Ok(()));
        assert_eq!(are_down(dead, now), [false; 6], "all were counted");
        assert_eq!(are_down(&dead[..3], now + 2 * RECOUNTED_AFTER), [false, false, true], "no receiver answers");
    }

    #[test]
    fn only_receiver_that_refuses_one_message_among_many_is_not_reported() {
        let (receiver, now) = (receiver(false), Instant::now());
        let answer = |id, answer, at| {
            let _ = receiver.clone().admit(id, at).expect("it may be sent").judge(answer, at);
            receiver.common.unavailable.outage()
        };
        let asks = || Err(SinkError::unavailable_for(HOUR, "https://a answered 429"));

        assert_eq!(answer("1", Ok(()), now), None);
        assert_eq!(answer("2", asks(), now + REPORTED_AFTER / 2), None);
        let outage = answer("3", asks(), now + REPORTED_AFTER).expect("it is unavailable");
        assert_eq!(outage.next_try, outage.since.plus(HOUR));
        assert_eq!(answer("4", Ok(()), now + REPORTED_AFTER), None);
    }

    #[test]
    fn one_message_that_is_refused_again_and_again_is_no_reason_to_send_no_other() {
        let receiver = receiver(false);
        assert!((0..30).all(|_| send(&receiver, "7", denied()) == denied()));
    }

    #[test]
    fn what_a_receiver_says_of_one_message_is_not_told_of_others() {
        let receiver = receiver(false);
        let answers: Vec<_> = (0..10).map(|n: u32| send(&receiver, &n.to_string(), unavailable())).collect();
        let last = &answers[9];
        assert!(matches!(last, Err(SinkError::Down { reason, .. }) if reason == "https://a answered 503"), "{last:?}");
        assert_eq!(without_body("https://a: connection reset", URL), "https://a: connection reset");
    }

    #[test]
    fn a_rest_that_a_receiver_asks_for_is_that_of_its_message_and_bounded_for_all_others() {
        let asks = || Err(SinkError::unavailable_for(HOUR, "https://a answered 429"));
        for has_others in [false, true] {
            let receiver = receiver(has_others);
            assert!((1..10).all(|n: u32| send(&receiver, &n.to_string(), asks()) == asks()));
            let tenth = send(&receiver, "10", asks());
            assert_eq!(tenth, Err(receiver.breaker.scope().error("https://a answered 429".to_owned(), LONGEST_REST)));
        }
    }

    #[test]
    fn a_receiver_that_has_not_answered_gets_one_message_and_one_that_answers_as_many_as_there_are() {
        let (receiver, now) = (receiver(true), Instant::now());
        let admit = |now| receiver.clone().admit("1", now);
        let first = admit(now).expect("one may be sent");
        let crowded = |answer: &Answer| matches!(answer, Err(SinkError::Crowded { .. }));
        assert!(crowded(&receiver.look(now)) && admit(now).is_err());
        assert_eq!(first.judge(Ok(()), now), Ok(()));

        let many: Vec<_> = (0..100).map(|_| admit(now + PATIENCE).expect("it answers")).collect();
        let later = now + 3 * PATIENCE;
        assert!(admit(later).is_err(), "it is silent");
        let mut many = many.into_iter();
        let _ = many.next().expect("a hundred").judge(Ok(()), later);
        drop(admit(later).expect("it answers again"));

        let _ = many.next().expect("a hundred").judge(unavailable(), later);
        assert!(admit(later).is_err(), "it did not answer that one");
        drop(many);
        assert!(admit(later).is_ok(), "none is in flight");
    }

    #[test]
    fn receivers_that_have_not_answered_leave_requests_to_those_that_answer() {
        let (common, now) = (common(true, 2), Instant::now());
        let other = || Arc::new(Receiver::new(common.clone(), 1, now));
        let good = other();
        let _ = good.clone().admit("1", now).expect("one may be sent").judge(Ok(()), now);
        let hanging = [other().admit("2", now).expect("one"), other().admit("3", now).expect("two")];
        assert!(other().look(now).is_err() && other().admit("4", now).is_err());
        assert!(good.admit("5", now).is_ok());
        drop(hanging);
        assert!(other().admit("6", now).is_ok());
    }

    #[test]
    fn the_only_receiver_of_a_sink_gets_as_many_messages_as_there_are() {
        let (receiver, now) = (receiver(false), Instant::now());
        let turns: Vec<_> =
            (0..100).map(|n: u32| receiver.clone().admit(&n.to_string(), now + HOUR).expect("it may")).collect();
        assert_eq!(turns.len(), 100);
    }

    #[test]
    fn one_message_tries_after_a_rest() {
        let receiver = receiver(true);
        for n in 0..10 {
            let _ = send(&receiver, &n.to_string(), denied());
        }
        let later = Instant::now() + HOUR;
        let trial = receiver.clone().admit("10", later).expect("one may try");
        assert!(receiver.clone().admit("11", later).is_err());
        assert_eq!(trial.judge(Ok(()), later), Ok(()));
        assert!(receiver.admit("11", later).is_ok());
    }
}
