//! Messages that are sent together, each of which has its own answer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Answer, Caller, Job};
use crate::breaker::{Down, Pass};
use crate::{Message, SinkError};

/// Messages that are sent together. A link answers each of them by [`answer`](Self::answer), as soon as it can.
pub(crate) struct Batch {
    messages: Vec<Message>,
    state: Mutex<State>,
}

struct State {
    /// The caller of each message; `None` when its answer is there.
    callers: Vec<Option<Caller>>,
    /// Callers whose message found the sink down, with the reason and the least rest. Answered when the batch ends, since another message
    /// may still prove that the sink works.
    down: Vec<(Caller, String, Duration)>,
    /// Whether the other side looked at a message, instead of taking none.
    is_any_judged: bool,
    /// Until the first message is confirmed.
    pass: Option<Pass>,
}

impl Batch {
    pub(super) fn new(jobs: Vec<Job>, pass: Pass) -> Self {
        let (messages, callers) = jobs.into_iter().map(|job| (job.message, Some(job.caller))).unzip();
        Self { messages, state: Mutex::new(State { callers, down: Vec::new(), is_any_judged: false, pass: Some(pass) }) }
    }

    /// The messages, in the order in which they were queued.
    pub(crate) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Answers the message of this index; only the first answer of a message counts. Its caller hears of it at once, unless the
    /// sink seems to be down. One confirmed message proves that the sink works. Messages of the batch that found it down, such as
    /// those after a lost connection, then wait by themselves: no attempt is counted, and no breaker opens.
    pub(crate) fn answer(&self, index: usize, answer: Answer) {
        let mut state = self.lock();
        let Some(caller) = state.callers.get_mut(index).and_then(Option::take) else { return };
        match answer {
            Err(SinkError::Down { reason, retry_after, .. }) if state.pass.is_some() => {
                state.down.push((caller, reason, retry_after))
            }
            Err(SinkError::Down { reason, .. }) => caller.hear(Err(SinkError::unavailable(reason))),
            Err(error) => {
                let is_judged =
                    !matches!(error, SinkError::Unavailable { .. } | SinkError::Closed { .. } | SinkError::Crowded { .. });
                state.is_any_judged |= is_judged;
                caller.hear(Err(error));
            }
            Ok(()) => {
                if let Some(pass) = state.pass.take() {
                    pass.confirm(Instant::now());
                }
                for (caller, reason, _) in state.down.drain(..) {
                    caller.hear(Err(SinkError::unavailable(reason)));
                }
                caller.hear(Ok(()));
            }
        }
    }

    /// Whether a message of the batch was confirmed, so that the sink works.
    #[cfg(feature = "amqp")] // which needs it
    pub(crate) fn is_confirmed(&self) -> bool {
        self.lock().pass.is_none()
    }

    /// Answers the messages in their order; where the answers run out, the rest stay unanswered.
    pub(crate) fn answer_all(&self, answers: impl IntoIterator<Item = Answer>) {
        answers.into_iter().take(self.messages.len()).enumerate().for_each(|(index, answer)| self.answer(index, answer));
    }

    /// Answers all messages with this failure.
    pub(crate) fn fail(&self, error: &SinkError) {
        self.answer_all(std::iter::repeat_with(|| Err(error.clone())));
    }

    /// Ends the batch. Messages without an answer get this one: a link that forgets a message has not confirmed it.
    pub(super) fn end(self, without_answer: &SinkError) {
        self.fail(without_answer);
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(pass) = state.pass else { return };
        let down = state.down.first().map(|(_, reason, rest)| Down { reason, rest: *rest });
        if down.is_none() && !state.is_any_judged {
            return pass.record_contact();
        }
        let retry_after = pass.record(down, Instant::now());
        for (caller, reason, _) in state.down {
            caller.hear(Err(SinkError::down_for(retry_after, reason)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
