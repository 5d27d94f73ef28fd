//! Where outcomes are sent from.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::completion::{Completion, Conclusion};
use super::excluded::Resting;
use super::failures::FailureLog;
use super::give_back::Unused;
use crate::event::{Effects, Fence};
use crate::metrics::Metrics;
use crate::queue::{Delivery, Queue};
use crate::store::Settlement;

/// The most effects that may wait for the database, in KiB; one call's more when there is nothing else.
const EFFECTS_KIB: u32 = 64 << 10;

/// Outcomes that may wait for the database; workers wait beyond that.
pub(super) const WAITING: usize = 2_048;

/// What effects take up until they are stored; `None` for none.
pub(crate) type EffectsRoom = Option<OwnedSemaphorePermit>;

/// Where outcomes are sent.
#[derive(Clone, Debug)]
pub(crate) struct SettlerHandle {
    pub(super) completions: mpsc::Sender<Completion>,
    /// Bounded by the room in the hot queue that each claim keeps.
    unused: mpsc::UnboundedSender<Unused>,
    /// Bounded by the room in the hot queue that each event keeps.
    excluded: mpsc::UnboundedSender<Resting>,
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
    /// Of effects on their way to the database, in KiB.
    effects_room: Arc<Semaphore>,
    failures: Arc<FailureLog>,
}

/// What the handles of a settler send, for that settler.
#[derive(Debug)]
pub(crate) struct SettlerInbox {
    pub(super) completions: mpsc::Receiver<Completion>,
    pub(super) unused: mpsc::UnboundedReceiver<Unused>,
    pub(super) excluded: mpsc::UnboundedReceiver<Resting>,
}

/// Makes the channels of a settler. What is sent before it is started waits for it.
pub(crate) fn channels(queue: Arc<Queue>, metrics: Arc<Metrics>) -> (SettlerHandle, SettlerInbox) {
    let (completions, to_write) = mpsc::channel(WAITING);
    let (unused, to_give_back) = mpsc::unbounded_channel();
    let (excluded, to_rest) = mpsc::unbounded_channel();
    let effects_room = Arc::new(Semaphore::new(EFFECTS_KIB as usize));
    let handle = SettlerHandle { completions, unused, excluded, queue, metrics, effects_room, failures: Arc::default() };
    (handle, SettlerInbox { completions: to_write, unused: to_give_back, excluded: to_rest })
}

impl SettlerHandle {
    /// Hands over what became of a delivery; waits while too many others wait for the database.
    pub(crate) async fn send(&self, delivery: Delivery, conclusion: impl Into<Conclusion>) {
        let conclusion = conclusion.into();
        let room = self.room_for(conclusion.effects.as_deref()).await;
        self.send_with(room, delivery, conclusion).await;
    }

    /// The same, with the room for its effects.
    pub(crate) async fn send_with(&self, room: EffectsRoom, delivery: Delivery, conclusion: Conclusion) {
        if let Some(mut completion) = self.complete(delivery, conclusion) {
            completion.held.room = room;
            // Fails only when the settler is gone; then the claim ends with its lease.
            let _ = self.completions.send(completion).await;
        }
    }

    /// Counts and logs what became of a delivery. `None` if the event is excluded from the store: then it rests.
    pub(super) fn complete(&self, delivery: Delivery, conclusion: Conclusion) -> Option<Completion> {
        count(&self.metrics, &conclusion.settlement);
        // Events that are excluded from the store are logged where they rest.
        if let Settlement::Retry { after, error } = &conclusion.settlement
            && delivery.fence().is_some()
        {
            self.failures.tell(&delivery.event, error, *after);
        }
        if delivery.fence().is_none() {
            if let Some(waiting) = Resting::of(delivery, conclusion.settlement, &self.queue)
                && let Err(unsent) = self.excluded.send(waiting)
            {
                unsent.0.lost();
            }
            return None;
        }
        Completion::of(delivery, conclusion)
    }

    /// Counts the settlement of a claim that never became a delivery.
    pub(super) fn complete_claim(&self, fence: Fence, settlement: Settlement) -> Completion {
        count(&self.metrics, &settlement);
        Completion::claim(fence, settlement)
    }

    /// Waits for room for effects, which may be large: outcomes are bounded by their number alone.
    pub(crate) async fn room_for(&self, effects: Option<&Effects>) -> EffectsRoom {
        let kib = u32::try_from(effects?.bytes() / 1_024 + 1).unwrap_or(u32::MAX).min(EFFECTS_KIB);
        // Never closed.
        self.effects_room.clone().acquire_many_owned(kib).await.ok()
    }

    /// What the log tells of failed attempts and dead events.
    pub(crate) fn failures(&self) -> &Arc<FailureLog> {
        &self.failures
    }

    /// Hands over claims that rows were inserted with and that nobody will use, without waiting.
    pub(crate) fn give_back_unused(&self, unused: Unused) {
        // Fails only when the settler is gone; then the claims end with their leases.
        let _ = self.unused.send(unused);
    }
}

/// Counts what is no outcome: those are counted for their route, where it is known.
fn count(metrics: &Metrics, settlement: &Settlement) {
    match settlement {
        Settlement::Parked { .. } => metrics.dispatch_parked.increment(),
        Settlement::Released { .. } | Settlement::Behind { .. } => metrics.dispatch_released.increment(),
        Settlement::Done
        | Settlement::Erased
        | Settlement::Deferred { .. }
        | Settlement::Retry { .. }
        | Settlement::Dead { .. } => {}
    }
}
