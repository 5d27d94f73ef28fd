//! Taking due events for one owner.

use std::time::Duration;

use crate::event::{Event, Fence, OwnerId};

/// What to claim.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Who takes them.
    pub owner: OwnerId,
    /// How long the claim holds.
    pub lease: Duration,
    /// Most events; at least 1.
    pub limit: u32,
    /// No further event once those taken have so many payload bytes together.
    pub max_bytes: usize,
    /// Leave alone what was inserted within this span; zero for nothing.
    pub skip_recent: Duration,
}

/// An event that is ours until its lease ends.
#[derive(Debug)]
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
    /// Whether it is really time.
    pub due: Due,
}

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
