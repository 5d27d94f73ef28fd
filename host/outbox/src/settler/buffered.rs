//! Where the poller sends outcomes from: it must not wait for the settler in the middle of a turn.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::error::TrySendError;

use super::completion::Completion;
use super::failures::FailureLog;
use super::handle::SettlerHandle;
use crate::event::Fence;
use crate::queue::Delivery;
use crate::store::Settlement;

/// A handle whose sends never wait: it keeps the outcomes for which the settler has no place. The sender flushes it before it takes on
/// more work, which bounds the buffer.
#[derive(Debug)]
pub(crate) struct BufferedHandle {
    handle: SettlerHandle,
    unsent: Mutex<VecDeque<Completion>>,
}

impl BufferedHandle {
    pub(crate) fn new(handle: SettlerHandle) -> Self {
        Self { handle, unsent: Mutex::default() }
    }

    /// Sends the settlement of a delivery.
    pub(crate) fn send(&self, delivery: Delivery, settlement: Settlement) {
        if let Some(completion) = self.handle.complete(delivery, settlement.into()) {
            self.push(completion);
        }
    }

    /// Sends the settlement of a claim that never became a delivery.
    pub(crate) fn send_claim(&self, fence: Fence, settlement: Settlement) {
        self.push(self.handle.complete_claim(fence, settlement));
    }

    /// Waits until the settler has taken every outcome that was sent. May be dropped while it waits.
    pub(crate) async fn flush(&self) {
        while !self.lock().is_empty() {
            // Fails only when the settler is gone; then the claims end with their leases.
            let Ok(place) = self.handle.completions.reserve().await else { return };
            let Some(next) = self.lock().pop_front() else { return };
            place.send(next);
        }
    }

    /// The log of failed attempts and dead events.
    pub(crate) fn failures(&self) -> &Arc<FailureLog> {
        self.handle.failures()
    }

    fn push(&self, completion: Completion) {
        let mut unsent = self.lock();
        if !unsent.is_empty() {
            unsent.push_back(completion);
            return;
        }
        // Fails otherwise only when the settler is gone; then the claim ends with its lease.
        if let Err(TrySendError::Full(completion)) = self.handle.completions.try_send(completion) {
            unsent.push_back(completion);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Completion>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::metrics::Metrics;
    use crate::queue::{Queue, QueueLimits};
    use crate::settlement::given_back;
    use crate::settler::handle::{WAITING, channels};

    #[tokio::test]
    async fn outcomes_beyond_the_settlers_places_are_kept_in_order_until_it_takes_others() {
        let queue = Arc::new(Queue::new(QueueLimits::default()));
        let (handle, mut inbox) = channels(queue, Arc::new(Metrics::default()));
        let buffered = BufferedHandle::new(handle);
        let most = u64::try_from(WAITING).expect("small");

        for sequence in 1..=most + 2 {
            buffered.send_claim(Fence::new(sequence, 2, 3), given_back());
        }
        assert!(buffered.flush().now_or_never().is_none(), "the settler takes nothing");

        let mut taken = Vec::new();
        inbox.completions.recv_many(&mut taken, WAITING).await;
        buffered.flush().await;
        inbox.completions.recv_many(&mut taken, WAITING).await;

        assert!(taken.iter().map(|one| one.settled.fence.sequence).eq(1..=most + 2));
    }
}
