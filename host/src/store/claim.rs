//! Taking due events for one owner.

use std::time::Duration;

use async_trait::async_trait;

use super::{StoreError, WaitsFor};
use crate::event::{Event, Fence, OwnerId};
use crate::time::Timestamp;

/// Taking events that are due.
#[async_trait]
pub trait ClaimStore: Send + Sync {
    /// Takes those that have been due longest, in the order of their `seq`. Choosing and locking are one: no two owners ever
    /// hold the same event by a claim. A host may have read it of its partitions without one, and delivers it too then, unless some
    /// live node says that it does not [read](super::Node::reads): after that all hosts claim, each from its next heartbeat on.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError>;

    /// How long until the next event is due: zero when one is, `None` when none waits.
    async fn next_due(&self) -> Result<Option<Duration>, StoreError>;
}

/// What to claim.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who takes them.
    pub owner: OwnerId,
    /// How long the claim holds.
    pub lease: Duration,
    /// Most events; at least 1.
    pub limit: u32,
    /// No further event once those taken have this many payload bytes together.
    pub max_bytes: usize,
    /// Leave alone what was inserted within this span; zero for nothing.
    pub skip_recent: Duration,
    /// Where order is kept; `None` for any event, without looking at others.
    pub order: Option<ClaimOrder>,
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
    /// The `seq` of an earlier event of its queue that it waits for, as they stood before the claim: the last one, this batch's
    /// included. Where others than the owner hold any, a store may name one of those instead. `None` when it is the first of
    /// its queue, stands in none, or was not asked for in an order.
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

/// Claims that keep an order.
#[derive(Clone, Debug)]
pub enum ClaimOrder {
    /// A queue for each aggregate: any due event, those that have been due longest first.
    ByAggregate {
        /// Only events of these partitions, and of these only partitions that the owner holds by the database's clock.
        partitions: Vec<u16>,
        /// Which earlier events of its aggregate are looked for.
        waits_for: WaitsFor,
    },
    /// One queue of all events, in the order of their `seq`: the first that are NEW or RETRY and whose `available_at` has come,
    /// up to one that cannot be claimed (another owner holds it, it was deferred, it is parked). Nothing unless the owner holds
    /// partition 0 by the database's clock.
    OneForAll {
        /// The `seq` of events that the owner has in hand already: those behind them may be claimed.
        held: Vec<u64>,
    },
}
