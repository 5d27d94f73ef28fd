//! Events that are delivered alone, because hosts were gone while they held them: one of them may have stopped those hosts.
//!
//! Its start is counted in the table before its listener is called, while no other listener is at work. Who reads the count later
//! and no outcome knows which event stopped the host. A host that is still there afterwards takes the count back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::{Shared, attempt};
use crate::queue::{Admitted, Delivery, Work};
use crate::store::Settlement;

/// How long an event steps back that must be delivered alone, when a listener that blocks its thread keeps it from that.
const NOT_ALONE: Duration = Duration::from_secs(30);
/// How long an event steps back when its start could not be counted.
const NOT_COUNTED: Duration = Duration::from_secs(1);
/// The one place that such events share, so that the others of them wait without a worker. No listener has an empty name.
static PLACE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Asks for the place of events that are delivered alone. Their listener's own places do not matter: nobody else is there.
pub(super) fn admit(shared: &Shared, delivery: Delivery) -> Admitted {
    shared.queue.admit(&PLACE, 1, delivery)
}

/// Waits until no other worker is with a listener, and keeps the others away; what becomes of the event when that takes too long.
pub(super) async fn enter(shared: &Shared) -> Result<Work<'_>, Settlement> {
    let deadline = shared.config.deadline;
    // The only worker has nobody to wait for it, and would make the queue wait.
    if shared.config.workers > 1 {
        shared.at_work.rest().await;
    }
    let work = shared.at_work.enter_alone(deadline, deadline * 2).await;
    work.ok_or(Settlement::Released { after: NOT_ALONE })
}

/// Whether the start of an event was counted.
#[derive(Debug, Default)]
pub(super) struct Start {
    counted: AtomicBool,
}

impl Start {
    /// Counts the start of an event. The one time that a worker waits for the database: what it knows when its host has stopped
    /// must be in the table before. `Err` when it could not be counted: what becomes of the event, or `None` when its claim was
    /// lost.
    pub(super) async fn count(&self, shared: &Shared, delivery: &Delivery) -> Result<(), Option<Settlement>> {
        let Some(fence) = delivery.fence() else { return Ok(()) };
        // Before the answer: it may be counted though nobody tells us so.
        self.counted.store(true, Ordering::Relaxed);
        // In a task of its own: a stop cuts this worker off.
        let store = shared.store.clone();
        match tokio::spawn(async move { store.count_start(fence).await }).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => {
                self.counted.store(false, Ordering::Relaxed);
                Err(attempt::lost(shared, delivery, "before its listener was called"))
            }
            Ok(Err(_)) | Err(_) => {
                shared.metrics.db_errors.increment();
                Err(Some(Settlement::Released { after: NOT_COUNTED }))
            }
        }
    }

    /// Takes a counted start back: this host is still there, so the event did not stop it. An outcome would end the count too, but
    /// there may be none, or somebody else may hold the event by now. When this fails, the event has one start too many until its
    /// next outcome.
    pub(super) async fn uncount(self, shared: &Shared, delivery: &Delivery) {
        let Some(fence) = delivery.fence().filter(|_| self.counted.into_inner()) else { return };
        if shared.store.uncount_start(fence.sequence).await.is_err() {
            shared.metrics.db_errors.increment();
        }
    }
}
