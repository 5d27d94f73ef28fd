//! The queues of aggregates: whose turn it is, and who waits behind whom.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::event::{EventId, Status};
use crate::time::Timestamp;

/// The queues of aggregates, where events are delivered in order.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// The heads of the queues that these events stand in: for each that waits for earlier events of its aggregate, its `seq`
    /// and that of the first of them. Events whose way is free are left out.
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError>;

    /// The events that others of these partitions wait behind (see [`Settlement::Behind`](super::Settlement::Behind)), in order of
    /// their `seq`: those after the `seq` `after`, at most `limit`.
    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError>;

    /// Lets events that wait behind these be due now, oldest first, at most `limit` behind each; of those alone whose turn it
    /// is: no earlier event of their aggregate is waited for, so they are not set aside again at once.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError>;

    /// The aggregates whose events wait behind one that is not resolved, longest queue first, at most `limit`.
    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError>;
}

/// An event that others wait behind, by their rows: its own may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Its `seq`.
    pub sequence: u64,
    /// Of what kind their aggregate is.
    pub aggregate_type: String,
    /// Which one it is.
    pub aggregate_id: String,
}

/// What became of events that others wait behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unblocked {
    /// Nothing waits behind these any more.
    pub cleared: Vec<u64>,
    /// Some were let go from behind these, and others wait there still.
    pub left: Vec<u64>,
}

/// Which earlier events of its aggregate an event waits for. One whose `available_at` is still to come is never waited for: it
/// joins the queue when its time comes. Events without an aggregate id wait for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Every one that is NEW or RETRY, or DEAD and blocks.
    Unresolved,
    /// Every one that is NEW: one that failed is overtaken.
    Untried,
    /// None: nothing blocks anything.
    Nothing,
}

/// An aggregate whose events wait behind one that is not resolved.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "http", derive(utoipa::ToSchema))]
#[non_exhaustive]
pub struct BlockedKey {
    /// The kind of aggregate.
    pub aggregate_type: String,
    /// Which one.
    pub aggregate_id: String,
    /// The `seq` of the event that they wait behind.
    pub seq: u64,
    /// Its id; `None` when it is gone already, and the others about to go on.
    pub event_id: Option<EventId>,
    /// Its type.
    pub event_type: Option<String>,
    /// Where it stands.
    pub status: Option<Status>,
    /// When it is tried again; `None` when it waits for something that is not time.
    pub due_at: Option<Timestamp>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// How many wait behind it.
    pub waiting: u64,
}
