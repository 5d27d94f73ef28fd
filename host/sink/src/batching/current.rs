//! The link that a sink uses now: another takes its place when the settings of the sink change.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{Batch, Link, PLACES};
use crate::breaker::OpenBreakers;
use crate::receiver::Receiver;
use crate::rests::Rests;
use crate::{Message, SinkError};

/// A link that can be replaced.
pub(super) struct Current {
    link: Mutex<Arc<dyn Link>>,
    /// Where the link leads to, without credentials.
    target: watch::Sender<String>,
    /// A permit for each batch that may be on its way.
    in_flight: Arc<Semaphore>,
    /// All permits.
    most: u32,
}

impl Current {
    /// With at most `in_flight` batches on their way at once.
    pub(super) fn new(link: Arc<dyn Link>, target: String, in_flight: usize) -> Self {
        // Each batch has a message with a place.
        let in_flight = in_flight.clamp(1, PLACES);
        let most = u32::try_from(in_flight).expect("PLACES is small");
        Self {
            link: Mutex::new(link),
            target: watch::Sender::new(target),
            in_flight: Arc::new(Semaphore::new(in_flight)),
            most,
        }
    }

    /// Waits until one more batch may be sent. The batch is on its way until the permit is dropped.
    pub(super) async fn permit(&self) -> OwnedSemaphorePermit {
        self.in_flight.clone().acquire_owned().await.expect("it is never closed")
    }

    /// Uses another link. If messages have an order, as soon as no batch is on its way, and sends none meanwhile: messages of the new
    /// link could overtake those of the old one. A batch ends within the timeout of the sink.
    pub(super) async fn replace(&self, link: Arc<dyn Link>, target: String) {
        let _all = if link.is_ordered() {
            Some(self.in_flight.acquire_many(self.most).await.expect("it is never closed"))
        } else {
            None
        };
        *self.lock() = link;
        self.target.send_replace(target);
    }

    /// Where the link leads to, without credentials. Keeps the last target when the link is gone.
    pub(super) fn target(&self) -> watch::Receiver<String> {
        self.target.subscribe()
    }

    /// Lets the task that asks for a permit next panic.
    #[cfg(test)]
    pub(super) fn close(&self) {
        self.in_flight.close();
    }

    fn get(&self) -> Arc<dyn Link> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<dyn Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Link for Current {
    async fn send(&self, batch: &Batch, deadline: Instant) {
        let link = self.get();
        link.send(batch, deadline).await;
    }

    fn receiver(&self, message: &Message) -> Result<Option<Arc<Receiver>>, SinkError> {
        self.get().receiver(message)
    }

    fn destination<'m>(&self, message: &'m Message) -> Option<Cow<'m, str>> {
        self.get().destination(message)
    }

    fn reaches_each_destination(&self) -> bool {
        self.get().reaches_each_destination()
    }

    fn counts_closed(&self) -> bool {
        self.get().counts_closed()
    }

    fn is_ordered(&self) -> bool {
        self.get().is_ordered()
    }

    fn open_breakers(&self) -> OpenBreakers {
        self.get().open_breakers()
    }

    fn rests(&self) -> Rests {
        self.get().rests()
    }

    fn cut_off(&self) {
        self.get().cut_off();
    }
}
