//! The reasons for which an outcome cannot be stored although others can.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::time::{Timestamp, system_clock};

/// The interval of checks for locked rows.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// An outcome that waits for so long for a lock, or for an answer of the database, is reported as stuck: most wait for a moment.
pub(super) const LONG_WAIT: Duration = Duration::from_secs(10);
/// The delay after the first refusal; doubles up to the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// The error of an outcome that the database accepts and does not keep.
const NOTHING_CHANGED: &str = "the database accepted the change and left the row as it was or set it back; a trigger, rule or row-level policy of the table may do that";

/// The most outcomes that may wait for locked rows.
const MOST_LOCKED: usize = 10_000;
/// The most outcomes that may be refused: beyond that, the cause is no matter of single rows, and no further listener is called in vain.
const MOST_REFUSED: usize = 1_000;

/// The places of outcomes that wait apart.
#[derive(Debug)]
pub(crate) struct Places {
    locked: Arc<Semaphore>,
    refused: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        Self { locked: Arc::new(Semaphore::new(MOST_LOCKED)), refused: Arc::new(Semaphore::new(MOST_REFUSED)) }
    }
}

impl Places {
    fn take(&self, obstacle: &Obstacle) -> Option<OwnedSemaphorePermit> {
        let places = if obstacle.is_lock() { &self.locked } else { &self.refused };
        places.clone().try_acquire_owned().ok()
    }
}

/// Why an outcome cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Another transaction has locked its row.
    Locked,
    /// The database refuses it, with this error. All outcomes of a batch share it.
    Refused(Arc<str>),
    /// The database accepts it, and leaves the row as it is or sets it back.
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
    /// Whether it has been logged.
    pub(super) is_logged: bool,
    /// When it is tried again.
    pub(super) again_at: Instant,
    /// `None` if it waits beyond the places.
    place: Option<OwnedSemaphorePermit>,
}

impl Obstacle {
    pub(super) fn is_lock(&self) -> bool {
        matches!(self, Self::Locked)
    }

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
    /// `None` if there is no place for another, and it needs one.
    pub(super) fn new(obstacle: &Obstacle, needs_place: bool, places: &Places) -> Option<Self> {
        let (place, since, again_at) = (places.take(obstacle), system_clock().now(), Instant::now());
        if place.is_none() && needs_place {
            return None;
        }
        let mut new = Self { obstacle: obstacle.clone(), since, refusals: 0, is_logged: false, again_at, place };
        new.rest();
        Some(new)
    }

    /// Notes that the outcome met an obstacle once more. A lock that becomes a refusal, or the reverse, is another wait; it keeps its
    /// place if all places of the other kind are taken.
    pub(super) fn met(&mut self, obstacle: &Obstacle, places: &Places) {
        if self.obstacle.is_lock() != obstacle.is_lock() {
            (self.since, self.refusals, self.is_logged) = (system_clock().now(), 0, false);
            if let Some(place) = places.take(obstacle) {
                self.place = Some(place);
            }
        }
        self.obstacle = obstacle.clone();
        self.rest();
    }

    fn rest(&mut self) {
        let rest = if self.obstacle.is_lock() {
            LOOK_AGAIN
        } else {
            self.refusals = self.refusals.saturating_add(1);
            FIRST_REST.saturating_mul(1 << (self.refusals - 1).min(6)).min(LONGEST_REST)
        };
        self.again_at = Instant::now() + rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Obstacle {
        Obstacle::Refused("no".into())
    }

    #[test]
    fn a_refusal_rests_longer_each_time_and_a_minute_at_most() {
        let places = Places::default();
        let mut apart = Apart::new(&refused(), true, &places).expect("a place");
        let mut rests = vec![apart.again_at - Instant::now()];
        for _ in 0..8 {
            apart.met(&refused(), &places);
            rests.push(apart.again_at - Instant::now());
        }

        let seconds: Vec<u64> = rests.iter().map(|rest| (*rest + Duration::from_millis(500)).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn a_refusal_after_a_lock_is_logged_and_counts_from_its_own_time() {
        let places = Places::default();
        let mut apart = Apart::new(&Obstacle::Locked, true, &places).expect("a place");
        (apart.is_logged, apart.since) = (true, Timestamp::from_micros(0));

        apart.met(&refused(), &places);
        assert!(!apart.is_logged && apart.since > Timestamp::from_micros(0));
        assert_eq!(places.locked.available_permits(), MOST_LOCKED, "it has given its place back");

        apart.is_logged = true;
        apart.met(&Obstacle::Unchanged, &places);
        assert!(apart.is_logged, "it is the same wait");
    }

    #[test]
    fn many_locked_rows_leave_the_places_of_refused_outcomes_free() {
        let places = Places::default();
        let locked: Vec<_> = std::iter::from_fn(|| Apart::new(&Obstacle::Locked, true, &places)).collect();
        assert_eq!(locked.len(), MOST_LOCKED);

        let refused: Vec<_> = std::iter::from_fn(|| Apart::new(&refused(), true, &places)).collect();
        assert_eq!(refused.len(), MOST_REFUSED);
        assert!(Apart::new(&self::refused(), false, &places).is_some(), "one that must wait needs no place");
    }
}
