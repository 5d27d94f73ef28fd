//! The state of sinks. Reads the breakers and the unavailable receivers, where the decision is made, and keeps no connection open.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use outbox_event::time::{Timestamp, system_clock, time_of};
use outbox_event::{SinkOutage, SinkState, SinkStatus};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::batching::Link;
use super::breaker::{Breaker, OpenBreakers};
use super::observed::LastAnswers;
use super::outage::Outage;
use super::receiver::UnavailableReceivers;

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
    pub(super) source: Source,
}

/// Where the state of a sink is read.
pub(super) enum Source {
    Config {
        breaker: Arc<Breaker>,
        unavailable: Arc<UnavailableReceivers>,
        link: Weak<dyn Link>,
        target: watch::Receiver<String>,
        /// Whether the task that sends its messages has panicked.
        panicked: watch::Receiver<bool>,
    },
    Application(Arc<Mutex<LastAnswers>>),
}

impl SinkMonitor {
    /// The state of each sink, by name. Without routes, which only a host knows.
    #[must_use]
    pub fn list(&self) -> Vec<SinkStatus> {
        self.0.iter().map(|watched| watched.status(system_clock().now())).collect()
    }

    /// Waits until the task that sends the messages of a sink has panicked. Never returns if none panics. Must be called within a tokio
    /// runtime.
    #[doc(hidden)] // for the host
    pub async fn panicked(&self) {
        let mut waiting = JoinSet::new();
        for watched in &*self.0 {
            if let Source::Config { panicked, .. } = &watched.source {
                let mut panicked = panicked.clone();
                // An error means that the sink has ended.
                waiting.spawn(async move { panicked.wait_for(|panicked| *panicked).await.is_ok() });
            }
        }
        while let Some(ended) = waiting.join_next().await {
            if matches!(ended, Ok(true)) {
                return;
            }
        }
        std::future::pending().await
    }
}

impl fmt::Debug for SinkMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|watched| &watched.name)).finish()
    }
}

impl Watched {
    fn status(&self, now: Timestamp) -> SinkStatus {
        let (target, outage, last_success, unavailable_receivers, first_unavailable) = match &self.source {
            Source::Config { breaker, unavailable, link, target, .. } => {
                let OpenBreakers { outage, receivers, first } =
                    link.upgrade().map(|link| link.open_breakers()).unwrap_or_default();
                let outage = breaker.outage().or_else(|| unavailable.outage()).or(outage);
                (target.borrow().clone(), outage, breaker.last_success(), receivers, first)
            }
            Source::Application(answers) => {
                let LastAnswers { outage, last_success } = answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                (String::new(), outage.as_ref().map(Outage::report), last_success.map(time_of), 0, Vec::new())
            }
        };
        let (state, outage) = state(outage, last_success, now);
        SinkStatus {
            name: self.name.to_string(),
            kind: self.kind.to_owned(),
            target,
            state,
            outage,
            last_success,
            unavailable_receivers,
            first_unavailable,
            routes: Vec::new(),
            more_routes: 0,
        }
    }
}

/// The state of a sink with this outage, and the outage if it is recent.
fn state(outage: Option<SinkOutage>, last_success: Option<Timestamp>, now: Timestamp) -> (SinkState, Option<SinkOutage>) {
    match outage {
        Some(outage) if now.since(outage.next_try) < REMEMBERED => (SinkState::Down, Some(outage)),
        Some(_) => (SinkState::Unconfirmed, None),
        None if last_success.is_none() => (SinkState::Unconfirmed, None),
        None => (SinkState::Working, None),
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
        assert_eq!(state(Some(first.clone()), Some(time(0)), time(long - 1)), (SinkState::Down, Some(first.clone())));
        assert_eq!(state(Some(first), Some(time(0)), time(long)), (SinkState::Unconfirmed, None));
    }
}
