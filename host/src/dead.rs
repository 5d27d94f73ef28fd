//! Dead events: look at them, bring them back, throw them away. Source: specification 18.

use std::sync::Arc;

use crate::event::{EventId, Status};
use crate::store::{DeadFilter, Filter, Record, Store, StoreError};

/// What can be done with events that were given up. Errors of the database are returned, never shown as 0.
#[derive(Clone)]
pub struct DeadEvents {
    store: Arc<dyn Store>,
}

impl DeadEvents {
    /// Those of this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Dead events that match, oldest first, at most `limit`; only `status` of the filter is ours.
    ///
    /// # Errors
    /// The database's own.
    pub async fn list(&self, filter: Filter, limit: u32) -> Result<Vec<Record>, StoreError> {
        self.store.list(&Filter { status: Some(Status::Dead), ..filter }, limit).await
    }

    /// How many match.
    ///
    /// # Errors
    /// The database's own.
    pub async fn count(&self, filter: &DeadFilter) -> Result<u64, StoreError> {
        self.store.count_dead(filter).await
    }

    /// Brings one back; false when it is not there or not dead.
    ///
    /// # Errors
    /// The database's own.
    pub async fn replay(&self, id: EventId) -> Result<bool, StoreError> {
        self.store.replay(id).await
    }

    /// Brings back all that match and are dead by now, oldest first, in batches; what dies again meanwhile is left alone.
    /// `progress` is told after each batch how many it has been so far.
    ///
    /// # Errors
    /// The database's own; earlier batches stay replayed, and a repeat is safe.
    pub async fn replay_all(
        &self,
        filter: &DeadFilter,
        batch_size: u32,
        mut progress: impl FnMut(u64),
    ) -> Result<u64, StoreError> {
        let now = self.store.now().await?;
        let filter =
            DeadFilter { dead_before: Some(filter.dead_before.map_or(now, |before| before.min(now))), ..filter.clone() };
        let mut replayed = 0;
        loop {
            let batch = self.store.replay_batch(&filter, batch_size.max(1)).await?;
            replayed += batch;
            progress(replayed);
            if batch < u64::from(batch_size.max(1)) {
                return Ok(replayed);
            }
        }
    }

    /// Deletes one; false when it is not there or not dead.
    ///
    /// # Errors
    /// The database's own.
    pub async fn discard(&self, id: EventId) -> Result<bool, StoreError> {
        self.store.discard(id).await
    }
}
