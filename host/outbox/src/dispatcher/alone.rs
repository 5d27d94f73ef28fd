//! Events that are delivered alone: hosts died while they held them, and one of the events may be the cause.
//!
//! The start of such an event is counted in the table before its listener is called, and no other listener runs meanwhile. A row
//! with a counted start and no outcome then names the event that stopped the host. A host that survives takes the count back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::shared::{LostWhen, Shared};
use crate::queue::{CallAdmission, Delivery, Work};
use crate::settlement::{not_alone, start_not_counted};
use crate::settler::{Conclusion, SettlerHandle};
use crate::store::Settlement;

/// The longest call that such an event waits for, or that others wait for, as a multiple of the usual deadline.
const LONGEST_CALL: u32 = 5;
/// How long an event is held while its start is taken back.
const UNCOUNT_PATIENCE: Duration = Duration::from_secs(2);
/// Of all events that must be alone, one waits with a worker; the others wait for this slot, without a worker. No listener has
/// an empty name.
static SLOT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Asks for the slot of events that are delivered alone. The listener's own bound does not matter: no other call runs.
pub(super) fn admit(shared: &Shared, delivery: Delivery) -> CallAdmission {
    shared.queue.admit(&SLOT, 1, delivery)
}

/// Waits until no other worker calls a listener, and keeps them waiting. `Err` is the settlement of the event when that takes too
/// long.
pub(super) async fn enter(shared: &Shared) -> Result<Work<'_>, Settlement> {
    let usual = shared.config.deadline;
    // As long as the longest call may take; otherwise a slow listener could prevent it for ever.
    let longest = shared.listeners.longest_deadline().unwrap_or(usual).clamp(usual, usual.saturating_mul(LONGEST_CALL));
    let work = shared.at_work.enter_alone(longest, longest).await;
    work.ok_or(not_alone())
}

/// Whether the start of an event was counted.
#[derive(Debug, Default)]
pub(super) struct Start {
    counted: AtomicBool,
    /// Locked while the start is being counted.
    counting: Arc<Mutex<()>>,
}

impl Start {
    /// Counts the start of an event, and waits until the count is in the table: the listener may stop the host. `Err` if it could not be
    /// counted, with the settlement of the event, or `None` if its claim was lost.
    pub(super) async fn count(&self, shared: &Shared, delivery: &Delivery) -> Result<(), Option<Settlement>> {
        let Some(fence) = delivery.fence() else { return Ok(()) };
        // Set before the answer: the database may have counted even if the answer is lost.
        self.counted.store(true, Ordering::Relaxed);
        let counting = self.counting.clone().lock_owned().await;
        let store = shared.store.clone();
        // In a task of its own: a stop cuts this worker off.
        let counted = tokio::spawn(async move {
            let _counting = counting;
            store.count_start(fence).await
        });
        match counted.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => {
                self.counted.store(false, Ordering::Relaxed);
                shared.lease_lost(delivery, LostWhen::BeforeCall);
                Err(None)
            }
            Ok(Err(error)) => {
                shared.metrics.db_error(&error);
                Err(Some(start_not_counted()))
            }
            Err(_) => Err(Some(start_not_counted())),
        }
    }

    /// Sends the conclusion of an event and takes its start back: this host is still alive, so the event did not stop it.
    pub(super) async fn end(
        self,
        shared: &Shared,
        settler: &SettlerHandle,
        delivery: Delivery,
        conclusion: Option<Conclusion>,
    ) {
        match conclusion {
            // First, so that no host that claims the event sees the count.
            None => self.uncount(shared, &delivery).await,
            // An answer with effects may still be given back, when its effects conflict with others.
            Some(back)
                if back.effects.is_some()
                    || matches!(back.settlement, Settlement::Released { .. } | Settlement::Parked { .. }) =>
            {
                self.uncount(shared, &delivery).await;
                settler.send(delivery, back).await;
            }
            // No need to wait: the outcome clears the count, unless another host holds the event by now.
            Some(outcome) => {
                drop(self.uncounting(shared, &delivery));
                settler.send(delivery, outcome).await;
            }
        }
    }

    async fn uncount(self, shared: &Shared, delivery: &Delivery) {
        if let Some(uncounting) = self.uncounting(shared, delivery) {
            // The task goes on after this wait.
            let _ = tokio::time::timeout(UNCOUNT_PATIENCE, uncounting).await;
        }
    }

    /// Takes a counted start back, in a task of its own. If the database refuses that too, the event has one start too many until
    /// its next outcome.
    fn uncounting(self, shared: &Shared, delivery: &Delivery) -> Option<JoinHandle<()>> {
        let fence = delivery.fence().filter(|_| self.counted.load(Ordering::Relaxed))?;
        let (store, metrics) = (shared.store.clone(), shared.metrics.clone());
        Some(tokio::spawn(async move {
            let _counting = self.counting.lock().await;
            for rest in [1, 2, 4, 8] {
                match store.uncount_start(fence.sequence).await {
                    Ok(()) => return,
                    Err(error) => metrics.db_error(&error),
                }
                tokio::time::sleep(Duration::from_millis(100) * rest).await;
            }
        }))
    }
}
