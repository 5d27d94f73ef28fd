//! Events that are delivered alone, because hosts were gone while they held them: one of them may have stopped those hosts.
//!
//! Its start is counted in the table before its listener is called, while no other listener is at work. Who reads the count
//! later and no outcome knows which event stopped the host. A host that is still there afterwards takes the count back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::{Shared, attempt};
use crate::queue::{Admitted, Delivery, Work};
use crate::settler::{Conclusion, SettlerHandle};
use crate::store::Settlement;

/// How long an event steps back that must be delivered alone, when a listener that blocks its thread keeps it from that.
const NOT_ALONE: Duration = Duration::from_secs(30);
/// The longest call that others wait for, or that is waited for, as a multiple of the usual deadline.
const LONGEST_CALL: u32 = 5;
/// How long an event steps back when its start could not be counted.
const NOT_COUNTED: Duration = Duration::from_secs(1);
/// How long an event is kept for its start to be taken back.
const UNCOUNTED: Duration = Duration::from_secs(2);
/// The one place in which such an event waits to be alone, so that the others of them wait without a worker. No listener has an
/// empty name.
static PLACE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Asks for the place of events that are delivered alone. Their listener's own places do not matter: nobody else is there.
pub(super) fn admit(shared: &Shared, delivery: Delivery) -> Admitted {
    shared.queue.admit(&PLACE, 1, delivery)
}

/// Waits until no other worker is with a listener, and keeps the others away; what becomes of the event when that takes too
/// long.
pub(super) async fn enter(shared: &Shared) -> Result<Work<'_>, Settlement> {
    let usual = shared.config.deadline;
    // As long as a call may take, or a listener that takes its time would keep it from ever being alone.
    let longest = shared.listeners.longest_deadline().unwrap_or(usual).clamp(usual, usual.saturating_mul(LONGEST_CALL));
    let work = shared.at_work.enter_alone(longest, longest).await;
    work.ok_or(Settlement::Released { after: NOT_ALONE })
}

/// Whether the start of an event was counted.
#[derive(Debug, Default)]
pub(super) struct Start {
    counted: AtomicBool,
    /// Held while it is being counted.
    counting: Arc<Mutex<()>>,
}

impl Start {
    /// Counts the start of an event. The one time that a worker waits for the database: what it knows when its host has stopped
    /// must be in the table before. `Err` when it could not be counted: what becomes of the event, or `None` when its claim was
    /// lost.
    pub(super) async fn count(&self, shared: &Shared, delivery: &Delivery) -> Result<(), Option<Settlement>> {
        let Some(fence) = delivery.fence() else { return Ok(()) };
        // Before the answer: it may be counted though nobody tells us so.
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
                Err(attempt::lost(shared, delivery, "before its listener was called"))
            }
            Ok(Err(error)) => {
                shared.metrics.db_error(&error);
                Err(Some(Settlement::Released { after: NOT_COUNTED }))
            }
            Err(_) => Err(Some(Settlement::Released { after: NOT_COUNTED })),
        }
    }

    /// Sends what became of an event, and takes its start back: this host is still there, so the event did not stop it.
    pub(super) async fn end(
        self,
        shared: &Shared,
        settler: &SettlerHandle,
        delivery: Delivery,
        conclusion: Option<Conclusion>,
    ) {
        match conclusion {
            // Before anybody can claim it again, and count the starts.
            None => self.uncount(shared, &delivery).await,
            // One with effects may be given back yet, when they meet others'.
            Some(back)
                if back.effects.is_some()
                    || matches!(back.settlement, Settlement::Released { .. } | Settlement::Parked { .. }) =>
            {
                self.uncount(shared, &delivery).await;
                settler.send(delivery, back).await;
            }
            // Nobody waits for it: an outcome ends the count by itself, unless somebody else holds the event by now.
            Some(outcome) => {
                drop(self.uncounting(shared, &delivery));
                settler.send(delivery, outcome).await;
            }
        }
    }

    async fn uncount(self, shared: &Shared, delivery: &Delivery) {
        if let Some(uncounting) = self.uncounting(shared, delivery) {
            // It goes on when this wait ends.
            let _ = tokio::time::timeout(UNCOUNTED, uncounting).await;
        }
    }

    /// Takes a counted start back, in a task of its own. When the database does not do it either, the event has one start too
    /// many until its next outcome.
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
