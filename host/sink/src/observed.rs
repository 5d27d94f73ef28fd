//! A sink of the application: its answers are recorded, since it has no breaker from which its state could be read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use outbox_event::text::shorten;

use super::outage::Outage;
use super::{Message, Sink, SinkError};

/// The most bytes of the reason of an outage.
const REASON_BYTES: usize = 500;

/// Sends through a sink of the application and records the answers.
pub(super) struct Observed {
    sink: Arc<dyn Sink>,
    answers: Arc<Mutex<LastAnswers>>,
}

/// The state of a sink by its last answers.
#[derive(Clone, Debug, Default)]
pub(super) struct LastAnswers {
    /// `None` if the sink was not down at its last answer.
    pub(super) outage: Option<Outage>,
    pub(super) last_success: Option<Instant>,
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
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).record(&answers, Instant::now());
        answers
    }

    fn destination(&self, message: &Message) -> Option<u64> {
        self.sink.destination(message)
    }
}

impl LastAnswers {
    fn record(&mut self, answers: &[Result<(), SinkError>], now: Instant) {
        for answer in answers {
            match answer {
                Ok(()) => *self = Self { outage: None, last_success: Some(now) },
                Err(SinkError::Down { reason, retry_after, .. }) => {
                    self.outage = Some(Outage::new(self.outage.as_ref(), safe(reason), *retry_after, now));
                }
                // They concern one receiver or destination, or the queue.
                Err(SinkError::Unavailable { .. } | SinkError::Closed { .. } | SinkError::Crowded { .. }) => {}
                // It looked at the message.
                Err(SinkError::Rejected { .. } | SinkError::Denied { .. } | SinkError::Failed { .. }) => self.outage = None,
            }
        }
    }
}

/// A reason without the users and passwords of the URLs in it, at most [`REASON_BYTES`] long: an application may pass on the error of a
/// client, which repeats its address.
fn safe(reason: &str) -> String {
    let hide = |word: &str| match word.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, server)) => format!("{scheme}://***@{server}"),
            None => word.to_owned(),
        },
        None => word.to_owned(),
    };
    let mut safe: String = reason.split_inclusive(char::is_whitespace).map(hide).collect();
    shorten(&mut safe, REASON_BYTES - '…'.len_utf8());
    safe
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reason_of_an_application_sink_shows_no_password() {
        let reason = "cannot connect to amqp://app:s3/cr@et@broker:5672/shop within 5 s";
        assert_eq!(safe(reason), "cannot connect to amqp://***@broker:5672/shop within 5 s");
        assert_eq!(safe("no route to https://broker"), "no route to https://broker");
        assert!(safe(&"x".repeat(100_000)).len() <= REASON_BYTES);
    }

    #[test]
    fn an_application_sink_is_down_from_its_first_such_answer_to_the_next_other_answer() {
        let (mut answers, start, rest) = (LastAnswers::default(), Instant::now(), Duration::from_secs(1));
        let time = |seconds| start + Duration::from_secs(seconds);
        let down = |reason: &str| Err(SinkError::down_for(rest, reason));

        answers.record(&[Ok(())], time(0));
        answers.record(&[down("refused")], time(1));
        answers.record(&[Err(SinkError::crowded("full")), down("reset")], time(5));
        let first = Outage::new(None, "refused".to_owned(), rest, time(1));
        let outage = Outage::new(Some(&first), "reset".to_owned(), rest, time(5));
        assert_eq!((answers.outage.clone(), answers.last_success), (Some(outage), Some(time(0))));

        answers.record(&[Err(SinkError::rejected("no"))], time(6));
        assert_eq!((answers.outage, answers.last_success), (None, Some(time(0))));
    }
}
