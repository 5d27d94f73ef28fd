//! Wake-ups between hosts, where the database can carry them. A wake-up is a hint; the poll is the truth.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::recurring::Outage;
use crate::store::{Store, StoreError, WakeUp, WakeUps};
use crate::wake::Wake;

/// All commits within this span send one wake-up: it costs the database a lock that all commits share.
const NOTIFY_PAUSE: Duration = Duration::from_millis(5);
/// How often a host tests whether it hears wake-ups, and how long a wake-up may take: poolers and firewalls lose them without an
/// error.
const TEST_EVERY: Duration = Duration::from_secs(30);
const TEST_PATIENCE: Duration = Duration::from_secs(5);
/// The rest before the host listens anew, doubled at each failure up to the longest one.
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
pub(crate) async fn listen(store: Arc<dyn Store>, wake: Arc<Wake>, mut stopped: watch::Receiver<bool>) {
    let mut rest = LISTEN_FIRST_REST;
    let outage = Outage::default();
    while !*stopped.borrow() {
        let lost = match store.listen().await {
            Ok(None) => return,
            Ok(Some(mut wake_ups)) => tokio::select! {
                lost = hear(&*store, &mut *wake_ups, &wake, &outage) => {
                    rest = LISTEN_FIRST_REST;
                    lost
                }
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

/// Wakes the poller at each wake-up, and tests at the start and every now and then whether wake-ups arrive. Returns why they do
/// not.
async fn hear(store: &dyn Store, wake_ups: &mut dyn WakeUps, wake: &Wake, outage: &Outage) -> Lost {
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
