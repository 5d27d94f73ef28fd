//! Backoff for rows that the database refuses to let this host claim, although it accepts claims of other rows.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The delay after the first refusal. It doubles up to the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// The most rows with a delay. Further rows are tried again at each read.
const MOST: usize = 1_000;

/// The refused rows, by `seq`.
#[derive(Debug, Default)]
pub(crate) struct RefusedClaims(Mutex<HashMap<u64, Rest>>);

#[derive(Clone, Copy, Debug)]
struct Rest {
    rest: Duration,
    until: Instant,
}

impl RefusedClaims {
    /// Delays the next claim of a row. Returns whether the row is new among the refused rows.
    pub(super) fn refuse(&self, sequence: u64, now: Instant) -> bool {
        let mut rests = self.lock();
        let before = rests.get(&sequence).copied();
        let fits = rests.len() < MOST;
        if before.is_some() || fits {
            let rest = before.map_or(FIRST_REST, |before| (before.rest * 2).min(LONGEST_REST));
            rests.insert(sequence, Rest { rest, until: now + rest });
        }
        before.is_none() && fits
    }

    /// Whether a row was refused, and could not be claimed since.
    pub(super) fn knows(&self, sequence: u64) -> bool {
        let rests = self.lock();
        !rests.is_empty() && rests.contains_key(&sequence)
    }

    /// The `seq` of rows whose delay has not ended. Forgets rows that were not tried for long: they were deleted, or another host holds
    /// them.
    pub(super) fn resting(&self, now: Instant) -> Vec<u64> {
        let mut rests = self.lock();
        rests.retain(|_, rest| now < rest.until + 2 * LONGEST_REST);
        rests.iter().filter(|(_, rest)| now < rest.until).map(|(sequence, _)| *sequence).collect()
    }

    /// Notes that these rows were claimed.
    pub(super) fn claimed(&self, sequences: impl Iterator<Item = u64>) {
        let mut rests = self.lock();
        if !rests.is_empty() {
            for sequence in sequences {
                rests.remove(&sequence);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_row_rests_longer_each_time_until_it_is_claimed() {
        let (refused, start) = (RefusedClaims::default(), Instant::now());
        let mut now = start;
        let mut rests = Vec::new();
        for number in 0..8 {
            assert_eq!(refused.refuse(7, now), number == 0);
            let began = now;
            while refused.resting(now) == [7] {
                now += FIRST_REST;
            }
            rests.push((now - began).as_secs());
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);

        refused.claimed([7].into_iter());
        assert!(refused.refuse(7, now), "it is refused anew");
    }

    #[test]
    fn rows_that_nobody_tries_again_are_forgotten_and_their_number_has_a_bound() {
        let (refused, now) = (RefusedClaims::default(), Instant::now());
        for sequence in 0..5_000 {
            refused.refuse(sequence, now);
        }
        assert_eq!(refused.resting(now).len(), MOST);
        assert!(!refused.refuse(4_999, now), "it is not logged at each read");

        assert!(refused.resting(now + 3 * LONGEST_REST).is_empty());
        assert!(refused.refuse(1, now), "it was forgotten");
    }
}
