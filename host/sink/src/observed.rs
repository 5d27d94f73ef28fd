//! A sink of the application: its answers are recorded, since it has no breaker from which its state could be read.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use outbox_event::SinkOutage;
use outbox_event::time::{Timestamp, system_clock};

use super::{Message, Sink, SinkError};

/// Sends through a sink of the application and records the answers.
pub(super) struct Observed {
    sink: Arc<dyn Sink>,
    answers: Arc<Mutex<LastAnswers>>,
}

/// The state of a sink by its last answers.
#[derive(Clone, Debug, Default)]
pub(super) struct LastAnswers {
    /// `None` if the sink was not down at its last answer.
    pub(super) outage: Option<SinkOutage>,
    pub(super) last_success: Option<Timestamp>,
}

impl Observed {
    pub(super) fn new(sink: Arc<dyn Sink>) -> Self {
        Self { sink, answers: Arc::default() }
    }

    /// The last answers, which outlive the sink.
    pub(super) fn answers(&self) -> Arc<Mutex<LastAnswers>> {
        self.answers.clone()
    }
}

#[async_trait]
impl Sink for Observed {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let answers = self.sink.send(messages).await;
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).record(&answers, system_clock().now());
        answers
    }
}

impl LastAnswers {
    fn record(&mut self, answers: &[Result<(), SinkError>], now: Timestamp) {
        for answer in answers {
            match answer {
                Ok(()) => *self = Self { outage: None, last_success: Some(now) },
                Err(SinkError::Down { reason, retry_after }) => {
                    let since = self.outage.as_ref().map_or(now, |outage| outage.since);
                    self.outage = Some(SinkOutage { since, reason: reason.clone(), next_try: now.plus(*retry_after) });
                }
                // They concern one receiver, or the queue.
                Err(SinkError::Unavailable { .. } | SinkError::Crowded { .. }) => {}
                // It looked at the message.
                Err(SinkError::Rejected { .. } | SinkError::Denied { .. } | SinkError::Failed { .. }) => self.outage = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn time(seconds: u64) -> Timestamp {
        Timestamp::from_micros(0).plus(Duration::from_secs(seconds))
    }

    #[test]
    fn an_application_sink_is_unavailable_from_its_first_answer_that_it_is_down_to_the_next_other_answer() {
        let mut answers = LastAnswers::default();
        let down = |reason: &str| Err(SinkError::Down { reason: reason.to_owned(), retry_after: Duration::from_secs(1) });

        answers.record(&[Ok(())], time(0));
        answers.record(&[down("refused")], time(1));
        answers.record(&[Err(SinkError::crowded("full")), down("reset")], time(5));
        let outage = SinkOutage { since: time(1), reason: "reset".to_owned(), next_try: time(6) };
        assert_eq!((answers.outage.clone(), answers.last_success), (Some(outage), Some(time(0))));

        answers.record(&[Err(SinkError::rejected("no"))], time(6));
        assert_eq!((answers.outage, answers.last_success), (None, Some(time(0))));
    }
}
