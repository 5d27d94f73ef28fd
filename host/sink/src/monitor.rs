//! The state of sinks. Reads the breakers, where the decision is made, and keeps no connection open.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::{Timestamp, system_clock};
use outbox_event::{SinkOutage, SinkState, SinkStatus};

use super::batching::Link;
use super::breaker::{Breaker, OpenBreakers};
use super::{Message, Sink, SinkError};

/// How long an outage is reported after the time of its next try, if no message was sent since. It is longer than any event waits for
/// another delivery, so its events no longer exist.
const REMEMBERED: Duration = Duration::from_secs(20 * 60);

/// Reports the state of all sinks of a host. Cheap to clone; it keeps no sink and no connection.
#[derive(Clone, Default)]
pub struct SinkMonitor(pub(super) Arc<[Watched]>);

/// A sink whose state is reported.
pub(super) struct Watched {
    pub(super) name: Arc<str>,
    pub(super) kind: &'static str,
    pub(super) target: String,
    pub(super) source: Source,
}

/// Where the state of a sink is read.
pub(super) enum Source {
    Config { breaker: Arc<Breaker>, link: Weak<dyn Link> },
    Application(Arc<LastAnswers>),
}

impl SinkMonitor {
    /// The state of each sink, by name. Without routes, which only a host knows.
    #[must_use]
    pub fn list(&self) -> Vec<SinkStatus> {
        self.0.iter().map(|watched| watched.status(system_clock().now())).collect()
    }
}

impl fmt::Debug for SinkMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|watched| &watched.name)).finish()
    }
}

impl Watched {
    fn status(&self, now: Timestamp) -> SinkStatus {
        let (outage, last_success, unavailable_receivers) = match &self.source {
            Source::Config { breaker, link } => {
                let OpenBreakers { outage, receivers } = link.upgrade().map(|link| link.open_breakers()).unwrap_or_default();
                (breaker.outage().or(outage), breaker.last_success(), receivers)
            }
            Source::Application(answers) => {
                let Seen { outage, last_success } = answers.lock().clone();
                (outage, last_success, 0)
            }
        };
        let (state, outage) = state(outage, last_success, now);
        SinkStatus {
            name: self.name.to_string(),
            kind: self.kind.to_owned(),
            target: self.target.clone(),
            state,
            outage,
            last_success,
            unavailable_receivers,
            routes: Vec::new(),
            more_routes: 0,
        }
    }
}

/// The state of a sink with this outage, and the outage if it is recent.
fn state(outage: Option<SinkOutage>, last_success: Option<Timestamp>, now: Timestamp) -> (SinkState, Option<SinkOutage>) {
    match outage {
        Some(outage) if now.since(outage.next_try) < REMEMBERED => (SinkState::Unavailable, Some(outage)),
        Some(_) => (SinkState::Unconfirmed, None),
        None if last_success.is_none() => (SinkState::Unconfirmed, None),
        None => (SinkState::Working, None),
    }
}

/// A sink of the application, whose answers are recorded: it has no breaker of ours.
pub(super) struct Observed {
    sink: Arc<dyn Sink>,
    pub(super) answers: Arc<LastAnswers>,
}

/// The last answers of a sink of the application.
#[derive(Debug, Default)]
pub(super) struct LastAnswers(Mutex<Seen>);

#[derive(Clone, Debug, Default)]
struct Seen {
    outage: Option<SinkOutage>,
    last_success: Option<Timestamp>,
}

impl Observed {
    pub(super) fn new(sink: Arc<dyn Sink>) -> Self {
        Self { sink, answers: Arc::default() }
    }
}

#[async_trait]
impl Sink for Observed {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let answers = self.sink.send(messages).await;
        self.answers.record(&answers, system_clock().now());
        answers
    }
}

impl LastAnswers {
    fn record(&self, answers: &[Result<(), SinkError>], now: Timestamp) {
        let mut seen = self.lock();
        for answer in answers {
            match answer {
                Ok(()) => *seen = Seen { outage: None, last_success: Some(now) },
                Err(SinkError::Down { reason, retry_after }) => {
                    let since = seen.outage.as_ref().map_or(now, |outage| outage.since);
                    seen.outage = Some(SinkOutage { since, reason: reason.clone(), next_try: now.plus(*retry_after) });
                }
                // They concern one receiver, or the queue.
                Err(SinkError::Unavailable { .. } | SinkError::Crowded { .. }) => {}
                // It looked at the message.
                Err(SinkError::Rejected { .. } | SinkError::Denied { .. } | SinkError::Failed { .. }) => seen.outage = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: u64) -> Timestamp {
        Timestamp::from_micros(0).plus(Duration::from_secs(seconds))
    }

    fn outage(since: u64, reason: &str, next_try: u64) -> SinkOutage {
        SinkOutage { since: time(since), reason: reason.to_owned(), next_try: time(next_try) }
    }

    #[test]
    fn an_outage_is_reported_until_no_message_was_sent_for_long() {
        let first = outage(1, "refused", 2);
        let long = 2 + REMEMBERED.as_secs();
        assert_eq!(state(None, None, time(0)), (SinkState::Unconfirmed, None));
        assert_eq!(state(None, Some(time(0)), time(9)), (SinkState::Working, None));
        assert_eq!(state(Some(first.clone()), Some(time(0)), time(long - 1)), (SinkState::Unavailable, Some(first.clone())));
        assert_eq!(state(Some(first), Some(time(0)), time(long)), (SinkState::Unconfirmed, None));
    }

    #[test]
    fn an_application_sink_is_unavailable_from_its_first_answer_that_it_is_down_to_the_next_other_answer() {
        let answers = LastAnswers::default();
        let down = |reason: &str| Err(SinkError::Down { reason: reason.to_owned(), retry_after: Duration::from_secs(1) });
        let seen = || {
            let Seen { outage, last_success } = answers.lock().clone();
            (outage, last_success)
        };

        answers.record(&[Ok(())], time(0));
        answers.record(&[down("refused")], time(1));
        answers.record(&[Err(SinkError::crowded("full")), down("reset")], time(5));
        assert_eq!(seen(), (Some(outage(1, "reset", 6)), Some(time(0))));

        answers.record(&[Err(SinkError::rejected("no"))], time(6));
        assert_eq!(seen(), (None, Some(time(0))));
    }
}
