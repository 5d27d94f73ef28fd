//! Ends the poller's rest early. A wake-up is a hint, the poll is the truth.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Ends the poller's rest early.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    soonest: Mutex<Option<Instant>>,
    notify: Notify,
}

impl Wake {
    /// Something may be due now.
    pub(crate) fn now(&self) {
        self.within(Duration::ZERO);
    }

    /// Something will be due after `delay`.
    pub(crate) fn within(&self, delay: Duration) {
        // A time that the clock cannot tell never comes.
        let Some(at) = Instant::now().checked_add(delay) else { return };
        let mut soonest = self.soonest.lock().unwrap_or_else(PoisonError::into_inner);
        if soonest.is_none_or(|soonest| at < soonest) {
            *soonest = Some(at);
            drop(soonest);
            self.notify.notify_one();
        }
    }

    /// Rests until `latest`, or until something is due before that. Returns whether something was.
    pub(crate) async fn rest(&self, latest: Instant) -> bool {
        loop {
            let until =
                self.soonest.lock().unwrap_or_else(PoisonError::into_inner).map_or(latest, |soonest| soonest.min(latest));
            if tokio::time::timeout_at(until, self.notify.notified()).await.is_err() {
                *self.soonest.lock().unwrap_or_else(PoisonError::into_inner) = None;
                return until < latest;
            }
        }
    }
}
