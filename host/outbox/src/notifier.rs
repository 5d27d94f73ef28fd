//! Wake-ups between hosts, where the database can carry them. A wake-up is a hint; the poll is the truth.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::recurring::Outage;
use crate::store::{NotifyStore, Store, StoreError, WakeUp, WakeUps};
use crate::wake::Wake;

/// All commits within this span send one wake-up: it costs the database a lock that all commits share.
const NOTIFY_PAUSE: Duration = Duration::from_millis(5);
/// How often a host tests whether it hears wake-ups, and how long a wake-up may take: poolers and firewalls lose them without an
/// error.
const TEST_EVERY: Duration = Duration::from_secs(30);
const TEST_PATIENCE: Duration = Duration::from_secs(5);
/// The rest before the host listens anew, doubled at each failure up to the longest one until a wake-up is heard.
const LISTEN_FIRST_REST: Duration = Duration::from_millis(100);
const LISTEN_LONGEST_REST: Duration = Duration::from_secs(30);

/// Tells other hosts that there are events to read.
#[derive(Debug, Default)]
pub(crate) struct Notifier(Notify);

impl Notifier {
    /// Notes a commit of events that another host may have to deliver.
    pub(crate) fn notify(&self) {
        self.0.notify_one();
    }

    /// Tells the other hosts, until it is stopped.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<dyn Store>, mut stopped: watch::Receiver<bool>) {
        let outage = Outage::default();
        loop {
            tokio::select! {
                () = self.0.notified() => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            outage.note(
                store.notify().await,
                |error| tracing::warn!(%error, "other hosts could not be woken; they find the events by polling"),
                || {},
            );
            tokio::time::sleep(NOTIFY_PAUSE).await;
        }
    }
}

/// Hears wake-ups of other hosts and wakes the poller, until it is stopped. Ends at once where the database has no wake-ups.
pub(crate) async fn listen(store: Arc<dyn NotifyStore>, wake: Arc<Wake>, mut stopped: watch::Receiver<bool>) {
    let mut rest = LISTEN_FIRST_REST;
    let outage = Outage::default();
    while !*stopped.borrow() {
        let lost = match store.listen().await {
            Ok(None) => return,
            Ok(Some(mut wake_ups)) => tokio::select! {
                lost = hear(&*store, &mut *wake_ups, &wake, &outage, &mut rest) => lost,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            },
            Err(error) => error.into(),
        };
        if outage.begins() {
            tracing::warn!(
                reason = lost.to_string(),
                "wake-ups from other hosts are not heard; their events are found by polling"
            );
        }
        // Wake-ups that were sent meanwhile are not heard.
        wake.now();
        let _ = tokio::time::timeout(rest, stopped.wait_for(|stopped| *stopped)).await;
        rest = (rest * 2).min(LISTEN_LONGEST_REST);
    }
}

/// Why wake-ups are not heard.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(
        "a wake-up that this host sent to itself did not arrive within {TEST_PATIENCE:?}; a pooler that shares connections loses them: give the host a direct connection"
    )]
    Silent,
    #[error("{}", crate::chain(.0))]
    Store(#[from] StoreError),
}

/// Wakes the poller at each wake-up, and tests at the start and every [`TEST_EVERY`] whether wake-ups arrive. Returns why they do not.
/// Resets `rest` when a wake-up is heard: a connection alone does not show that wake-ups arrive.
async fn hear(store: &dyn NotifyStore, wake_ups: &mut dyn WakeUps, wake: &Wake, outage: &Outage, rest: &mut Duration) -> Lost {
    let mut test_at = Instant::now();
    let (mut answer_until, mut has_heard) = (None, false);
    loop {
        let until = answer_until.unwrap_or(test_at);
        match tokio::time::timeout_at(until, wake_ups.next()).await {
            Ok(Ok(said)) => {
                if outage.ends() {
                    tracing::info!("wake-ups from other hosts are heard again");
                }
                answer_until = None;
                *rest = LISTEN_FIRST_REST;
                // Wake-ups that were sent before the first one was heard may be lost.
                if said == WakeUp::Events || !has_heard {
                    wake.now();
                }
                has_heard = true;
            }
            Ok(Err(error)) => return error.into(),
            Err(_) if answer_until.is_some() => return Lost::Silent,
            Err(_) => {
                if let Err(error) = store.send_test_wake_up().await {
                    return error.into();
                }
                test_at = Instant::now() + TEST_EVERY;
                answer_until = Some(Instant::now() + TEST_PATIENCE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;

    /// A database that lets this host listen, and refuses to send wake-ups.
    struct Mute;

    #[async_trait]
    impl NotifyStore for Mute {
        async fn send_test_wake_up(&self) -> Result<(), StoreError> {
            Err(StoreError::Forbidden { action: "test", source: sqlx::Error::RowNotFound })
        }
    }

    /// A connection that brings this many wake-ups.
    struct Connection(usize);

    #[async_trait]
    impl WakeUps for Connection {
        async fn next(&mut self) -> Result<WakeUp, StoreError> {
            if self.0 == 0 {
                return std::future::pending().await;
            }
            self.0 -= 1;
            Ok(WakeUp::Events)
        }
    }

    #[tokio::test]
    async fn the_rest_before_listening_again_is_reset_only_by_a_wake_up() {
        let (wake, outage) = (Wake::default(), Outage::default());
        let mut rest = LISTEN_LONGEST_REST;

        let lost = hear(&Mute, &mut Connection(0), &wake, &outage, &mut rest).await;
        assert!(matches!(lost, Lost::Store(StoreError::Forbidden { .. })), "{lost:?}");
        assert_eq!(rest, LISTEN_LONGEST_REST, "the connection brought no wake-up");

        hear(&Mute, &mut Connection(1), &wake, &outage, &mut rest).await;
        assert_eq!(rest, LISTEN_FIRST_REST);
    }
}
