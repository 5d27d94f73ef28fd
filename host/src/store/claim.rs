//! Claiming single events for one owner.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::event::{Event, Fence, OwnerId};
use crate::time::Timestamp;

/// Claiming single events.
#[async_trait]
pub trait ClaimStore: Send + Sync {
    /// Claims the events of these fences that are due, not held under a claim, and still as their fences say. An event that was
    /// claimed, or got an outcome, since it was looked at is left alone, because the owner of its partition may have read it. So is
    /// an event whose fence has an epoch, unless the owner is named in its partition under that epoch; its lease may be over. Returns
    /// the events in the order of their `seq`.
    ///
    /// Choosing and locking are one: no two owners ever hold the same event by a claim.
    async fn claim(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError>;
}

/// An event that is ours until its lease ends.
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
    /// The `seq` of an earlier event of its queue that it waits for, as [`ReadOrder`](super::ReadOrder) says. `None` if it is the first
    /// of its queue, is in no queue, or was not read in an order.
    pub behind: Option<u64>,
}

impl Claimed {
    /// An event claimed for the first time that waits for nothing; for stores of another kind, which change what they need.
    #[must_use]
    pub fn new(fence: Fence, event: Event) -> Self {
        let (event, due) = (Ok(event), Due::Now);
        Self { fence, event, attempts: 0, deferrals: 0, claims: 1, starts: 0, due, expires_in: None, behind: None }
    }
}

/// What an event dies of that was not done in the time that its writer gave it.
pub(crate) const EXPIRED: &str = "expired: expires_at passed before it was done";

/// Whether it is really time for a claimed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is.
    Now,
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
            Self::Now
        }
    }
}
