//! The reasons for which an outcome cannot be stored although others can.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::time::{Timestamp, system_clock};

/// How often it is looked whether locked rows are free.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The rest of a refused outcome after the first refusal; doubled up to the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// The error of an outcome that the database accepts without an effect.
const NOTHING_CHANGED: &str =
    "the database accepted the update and left the row as it is, as a trigger or a row-level policy of the table may have it";

/// Why an outcome cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Another transaction has locked its row.
    Locked,
    /// The database refuses it, with this error.
    Refused(String),
    /// The database accepts it and leaves the row as it is.
    Unchanged,
}

/// How an outcome waits.
#[derive(Debug)]
pub(super) struct Apart {
    pub(super) obstacle: Obstacle,
    /// Since when.
    pub(super) since: Timestamp,
    /// How often it was refused.
    refusals: u32,
    /// Whether the log has it.
    pub(super) is_told: bool,
    /// When it is tried again.
    pub(super) again_at: Instant,
    /// Its place among those that may wait.
    _place: OwnedSemaphorePermit,
}

impl Obstacle {
    /// The error of an outcome that the database refuses; `None` for a lock.
    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Locked => None,
            Self::Refused(error) => Some(error),
            Self::Unchanged => Some(NOTHING_CHANGED),
        }
    }
}

impl Apart {
    pub(super) fn new(place: OwnedSemaphorePermit) -> Self {
        let (since, again_at) = (system_clock().now(), Instant::now());
        Self { obstacle: Obstacle::Locked, since, refusals: 0, is_told: false, again_at, _place: place }
    }

    /// Notes that the outcome met an obstacle once more.
    pub(super) fn met(&mut self, obstacle: Obstacle) {
        let rest = if obstacle == Obstacle::Locked {
            LOOK_AGAIN
        } else {
            self.refusals = self.refusals.saturating_add(1);
            FIRST_REST.saturating_mul(1 << self.refusals.saturating_sub(1).min(6)).min(LONGEST_REST)
        };
        self.obstacle = obstacle;
        self.again_at = Instant::now() + rest;
    }
}
