//! Claiming single events for one owner.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use outbox_event::{Event, Fence, OwnerId};

use super::StoreError;

/// Claiming single events.
#[async_trait]
pub trait ClaimStore: Send + Sync {
    /// Claims the events of these fences that are due and not held under a claim. Returns them in the order of their `seq`.
    ///
    /// Skips an event that was claimed or got an outcome since its fence was read: the owner of its partition may have read it. Skips
    /// an event whose fence has an epoch if this owner does not have the partition under that epoch; the owner's lease may have ended.
    ///
    /// Choosing and locking are one step: two owners never hold the same event under a claim.
    async fn claim(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError>;
}

/// An event that was read or claimed, with the fence of its outcome.
#[derive(Debug)]
#[non_exhaustive]
pub struct Claimed {
    /// The proof.
    pub fence: Fence,
    /// The event, or why its row cannot be read.
    pub event: Result<Event, String>,
    /// Counted failures so far.
    pub attempts: u32,
    /// Deferrals so far.
    pub deferrals: u32,
    /// Claims since the last outcome, this one included.
    pub claims: u32,
    /// Times since the last outcome that it was started alone; see [`LeaseStore::count_start`](super::LeaseStore::count_start).
    pub starts: u32,
    /// Whether it is really time.
    pub due: Due,
    /// How long after the claim it expires, by the database's clock; `None` for never.
    pub expires_in: Option<Duration>,
    /// The `seq` of an earlier event of its queue that it waits for, as [`ReadOrder`](super::ReadOrder) says. `None` if it waits
    /// for no event, if it was read without an order, and always after a claim.
    pub behind: Option<u64>,
}

impl Claimed {
    /// An event claimed for the first time that waits for nothing; for stores of another kind, which change what they need.
    #[must_use]
    pub fn new(fence: Fence, event: Event) -> Self {
        let (event, due) = (Ok(event), Due::Since(Duration::ZERO));
        Self { fence, event, attempts: 0, deferrals: 0, claims: 1, starts: 0, due, expires_in: None, behind: None }
    }
}

/// What an event dies of that was not done in the time that its writer gave it.
#[doc(hidden)] // for the host
pub const EXPIRED: &str = "expired: expires_at passed before it was done";

/// Whether it is really time for a claimed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is, and has been for this long: since `available_at`.
    Since(Duration),
    /// Its writer asked for later: a plain INSERT that set `available_at` alone.
    In(Duration),
    /// Its writer gave it until a time that is over.
    Expired,
}

impl Due {
    /// Judges the times of a row by the database's own.
    pub(super) fn at(now: Timestamp, available_at: Timestamp, expires_at: Option<Timestamp>) -> Self {
        if expires_at.is_some_and(|expires_at| expires_at <= now) {
            Self::Expired
        } else if available_at > now {
            Self::In(available_at.since(now))
        } else {
            Self::Since(now.since(available_at))
        }
    }
}
