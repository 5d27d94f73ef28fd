//! Items that the database refuses although it accepts others: rows to claim, claims to renew or give back, routes to unpark. They rest
//! before they are tried again.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The rest after the first refusal; doubled up to the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How long after its rest an item is known if it is not tried again.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(120);
/// The most items that rest. Beyond that, items are tried again each time.
const MOST: usize = 1_000;

/// The items that rest.
#[derive(Debug)]
pub(crate) struct Refusals<K>(Mutex<HashMap<K, Rest>>);

#[derive(Clone, Copy, Debug)]
struct Rest {
    rest: Duration,
    until: Instant,
}

impl<K> Default for Refusals<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K: Clone + Eq + Hash> Refusals<K> {
    /// Lets an item rest. Returns whether it is new among those that rest.
    pub(crate) fn refuse(&self, item: K, now: Instant) -> bool {
        let mut rests = self.lock();
        let before = rests.get(&item).copied();
        let fits = rests.len() < MOST;
        if before.is_some() || fits {
            let rest = before.map_or(FIRST_REST, |before| (before.rest * 2).min(LONGEST_REST));
            rests.insert(item, Rest { rest, until: now + rest });
        }
        before.is_none() && fits
    }

    /// Whether an item was refused, and not accepted since.
    pub(crate) fn knows(&self, item: &K) -> bool {
        let rests = self.lock();
        !rests.is_empty() && rests.contains_key(item)
    }

    /// How many more items can rest.
    pub(crate) fn free_places(&self) -> usize {
        MOST.saturating_sub(self.lock().len())
    }

    /// When this item is tried again; `None` if it does not rest.
    pub(crate) fn retry_at(&self, item: &K) -> Option<Instant> {
        self.lock().get(item).map(|rest| rest.until)
    }

    /// The items that rest now. Forgets those that were not tried for long: their rows were deleted, or another host has them.
    pub(crate) fn resting(&self, now: Instant) -> Vec<K> {
        let mut rests = self.lock();
        rests.retain(|_, rest| now < rest.until + KNOWN_FOR);
        rests.iter().filter(|(_, rest)| now < rest.until).map(|(item, _)| item.clone()).collect()
    }

    /// How long until the first item has rested. `None` if no item rests now.
    pub(crate) fn next_retry(&self, now: Instant) -> Option<Duration> {
        let rests = self.lock();
        rests.values().filter(|rest| now < rest.until).map(|rest| rest.until.saturating_duration_since(now)).min()
    }

    /// Notes that the database has accepted these items.
    pub(crate) fn accepted(&self, items: impl Iterator<Item = K>) {
        let mut rests = self.lock();
        if !rests.is_empty() {
            for item in items {
                rests.remove(&item);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_item_rests_longer_each_time_until_it_is_accepted() {
        let (refused, start) = (Refusals::default(), Instant::now());
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

        refused.accepted([7].into_iter());
        assert!(refused.refuse(7, now), "it is refused anew");
    }

    #[test]
    fn items_that_are_not_tried_again_are_forgotten_and_their_number_has_a_bound() {
        let (refused, now) = (Refusals::default(), Instant::now());
        for item in 0..5_000 {
            refused.refuse(item, now);
        }
        assert_eq!((refused.resting(now).len(), refused.free_places()), (MOST, 0));
        assert!(!refused.refuse(4_999, now), "it is not logged each time");

        assert!(refused.resting(now + 3 * LONGEST_REST).is_empty());
        assert!(refused.refuse(1, now), "it was forgotten");
    }

    #[test]
    fn the_next_retry_is_that_of_the_item_that_has_rested_first() {
        let (refused, now) = (Refusals::default(), Instant::now());
        assert_eq!(refused.next_retry(now), None);
        refused.refuse("late", now);
        refused.refuse("late", now);
        refused.refuse("soon", now);

        assert_eq!(refused.next_retry(now), Some(FIRST_REST));
        assert_eq!(refused.next_retry(now + FIRST_REST), Some(FIRST_REST), "the other rests twice as long");
        assert_eq!(refused.next_retry(now + 2 * FIRST_REST), None);
    }
}
