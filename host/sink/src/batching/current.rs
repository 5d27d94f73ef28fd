//! The link that a sink uses now: another takes its place when the settings of the sink change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;

use super::{Batch, Link};
use crate::breaker::OpenBreakers;
use crate::receiver::Receiver;
use crate::rests::Rests;
use crate::{Message, SinkError};

/// A link that can be replaced.
pub(super) struct Current(Mutex<Arc<dyn Link>>);

impl Current {
    pub(super) fn new(link: Arc<dyn Link>) -> Self {
        Self(Mutex::new(link))
    }

    /// Uses another link from the next batch on. The batches that are on their way keep theirs.
    pub(super) fn replace(&self, link: Arc<dyn Link>) {
        *self.lock() = link;
    }

    fn get(&self) -> Arc<dyn Link> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<dyn Link>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Link for Current {
    async fn send(&self, batch: &Batch<'_>, deadline: Instant) {
        let link = self.get();
        link.send(batch, deadline).await;
    }

    fn receiver(&self, message: &Message) -> Result<Option<Arc<Receiver>>, SinkError> {
        self.get().receiver(message)
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
