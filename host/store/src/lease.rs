//! How long a claim holds.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{EventId, Fence, OwnerId};

use super::StoreError;

/// Keeping and giving back what was taken.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Makes claims hold for `lease` from now. Waits for nobody: a row that somebody else has locked is left as it is.
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError>;

    /// Gives back the claims that the owner inserted these rows with, as if they had not been claimed. Waits for nobody: a row
    /// that cannot be seen yet, or that somebody else has locked, is left as it is. Returns those that need no second look:
    /// given back now, or not held by that claim any more.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError>;

    /// Counts that a claimed event is started now, with no other event's listener at work in its host: if nothing more is heard
    /// of it, it has stopped that host. False when the claim is lost.
    ///
    /// # Errors
    /// The database's own. A repeat counts again.
    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError>;

    /// Takes back one counted start of an event, because its host is still there: the event did not stop it. Whoever holds the
    /// event now. Nothing when none is counted, or the event is finished.
    ///
    /// # Errors
    /// The database's own. A repeat takes back another.
    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError>;
}

/// What a renewal came to. A claim that stands in neither list is lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewed {
    /// The `seq` of those that hold for the whole lease from now.
    pub held: Vec<u64>,
    /// The `seq` of those that end when they would have ended: somebody else has their rows locked. Nobody can claim them
    /// meanwhile.
    pub locked: Vec<u64>,
}
