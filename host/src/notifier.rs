//! Wake-ups between nodes, where the database can carry them. A hint: the poll is the truth.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::recurring::Outage;
use crate::store::{Store, StoreError, WakeUp, WakeUps};
use crate::wake::Wake;

/// All commits within this span send one wake-up: it costs the database a lock that all commits share.
const PAUSE: Duration = Duration::from_millis(5);
/// How often the way of a wake-up is tried, and how long one may take: poolers and firewalls lose them without a word.
const TEST_EVERY: Duration = Duration::from_secs(30);
const TEST_PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_REST: Duration = Duration::from_secs(30);

/// Tells other nodes that there is something to claim.
#[derive(Debug, Default)]
pub(crate) struct Notifier(Notify);

impl Notifier {
    /// Something was committed that another node may claim.
    pub(crate) fn notify(&self) {
        self.0.notify_one();
    }

    /// Tells the other nodes, until it is stopped.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<dyn Store>, mut stopped: watch::Receiver<bool>) {
        let outage = Outage::default();
        loop {
            tokio::select! {
                () = self.0.notified() => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            outage.note(
                store.notify().await,
                |error| tracing::warn!(%error, "other nodes could not be woken; they find the events by polling"),
                || {},
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Hears what other nodes tell, and wakes the poller, until it is stopped. Ends at once where the database has no wake-ups.
pub(crate) async fn listen(store: Arc<dyn Store>, wake: Arc<Wake>, mut stopped: watch::Receiver<bool>) {
    let mut rest = Duration::from_millis(100);
    let deaf = Outage::default();
    while !*stopped.borrow() {
        let lost = match store.listen().await {
            Ok(None) => return,
            Ok(Some(mut wake_ups)) => tokio::select! {
                lost = hear(&*store, &mut *wake_ups, &wake, &deaf) => {
                    rest = Duration::from_millis(100);
                    lost
                }
                _ = stopped.wait_for(|stopped| *stopped) => return,
            },
            Err(error) => error.into(),
        };
        if deaf.begins() {
            tracing::warn!(
                reason = lost.to_string(),
                "wake-ups from other nodes are not heard; their events are found by polling"
            );
        }
        // What came meanwhile was not heard.
        wake.now();
        let _ = tokio::time::timeout(rest, stopped.wait_for(|stopped| *stopped)).await;
        rest = (rest * 2).min(LONGEST_REST);
    }
}

/// Why wake-ups are not heard.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(
        "a wake-up that this node sent to itself did not arrive within {TEST_PATIENCE:?}; a pooler that shares connections loses them: give the host a direct connection"
    )]
    Silent,
    #[error("{}", crate::chain(.0))]
    Store(#[from] StoreError),
}

/// Wakes the poller at each wake-up, and tries the way at the start and every now and then. Returns when it is lost.
async fn hear(store: &dyn Store, wake_ups: &mut dyn WakeUps, wake: &Wake, deaf: &Outage) -> Lost {
    let mut test_at = Instant::now();
    let (mut answer_until, mut has_heard) = (None, false);
    loop {
        let until = answer_until.unwrap_or(test_at);
        match tokio::time::timeout_at(until, wake_ups.next()).await {
            Ok(Ok(said)) => {
                if deaf.ends() {
                    tracing::info!("wake-ups from other nodes are heard again");
                }
                answer_until = None;
                // What came before the first was not heard.
                if said == WakeUp::Events || !has_heard {
                    wake.now();
                }
                has_heard = true;
            }
            Ok(Err(error)) => return error.into(),
            Err(_) if answer_until.is_some() => return Lost::Silent,
            Err(_) => {
                if let Err(error) = store.try_wake_ups().await {
                    return error.into();
                }
                test_at = Instant::now() + TEST_EVERY;
                answer_until = Some(Instant::now() + TEST_PATIENCE);
            }
        }
    }
}
