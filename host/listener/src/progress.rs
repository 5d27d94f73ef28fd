//! Whether this host makes progress with a kind of work, such as the events of a listener.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outbox_event::time::{Timestamp, system_clock};
use tokio::time::Instant;

/// How long a stall outlasts its last failure: longer than the longest delay of an event (15 minutes, `Retry-After`). After that its events
/// may no longer exist.
const REMEMBERED: Duration = Duration::from_secs(20 * 60);
/// The same for one destination while others succeed: longer than the longest rest of its events (a minute) and than the first rests of a
/// host that stands aside. Another host may have taken its events over.
const REMEMBERED_BESIDE_SUCCESS: Duration = Duration::from_secs(5 * 60);
/// How long the failures of one destination must last before they are a stall. A single one may be a broker that restarts.
const LEAST_OF_DESTINATION: Duration = Duration::from_secs(3);
/// The most destinations that are remembered; events may choose millions.
const MOST_DESTINATIONS: usize = 64;

/// Whether the last steps of a kind of work succeeded or failed, as a whole and for each of its destinations, such as the topics of a
/// broker.
#[derive(Debug, Default)]
#[doc(hidden)] // for the host
pub struct Progress {
    /// Whether any stall is remembered. Each success reads this flag first, and so usually takes no lock.
    is_stalled: AtomicBool,
    /// By the hash of the destination; `None` for the whole work.
    stalls: Mutex<BTreeMap<Option<u64>, Stall>>,
}

/// Since when, and why, a kind of work fails without any success.
#[derive(Clone, Debug)]
#[doc(hidden)] // for the host
pub struct Stall {
    /// When the first step failed.
    pub since: Instant,
    /// The same, by the system's clock.
    pub since_time: Timestamp,
    /// When the last step failed.
    pub last: Instant,
    /// Why the last step failed.
    pub reason: String,
}

impl Progress {
    /// Notes a success at this destination; `None` if the work has no destinations. A success ends the stall of its destination and that of
    /// the whole work, but not the stalls of other destinations.
    pub fn succeeded(&self, destination: Option<u64>) {
        if self.is_stalled.load(Ordering::Relaxed) {
            self.end(destination, Instant::now());
        }
    }

    fn end(&self, destination: Option<u64>, now: Instant) {
        let mut stalls = self.lock();
        stalls.retain(|failed, stall| {
            let is_other = failed.is_some() && *failed != destination;
            is_other && now.saturating_duration_since(stall.last) < REMEMBERED_BESIDE_SUCCESS
        });
        self.is_stalled.store(!stalls.is_empty(), Ordering::Relaxed);
    }

    /// Notes a failure at this destination; `None` for a failure of the whole work.
    pub fn failed(&self, destination: Option<u64>, reason: &str, now: Instant) {
        let mut stalls = self.lock();
        if destination.is_some() && !stalls.contains_key(&destination) && stalls.len() >= MOST_DESTINATIONS {
            stalls.retain(|_, stall| stall.is_remembered(now));
            if stalls.len() >= MOST_DESTINATIONS {
                return;
            }
        }
        let new = || Stall { since: now, since_time: system_clock().now(), last: now, reason: String::new() };
        let stall = stalls.entry(destination).or_insert_with(new);
        stall.last = now;
        if stall.reason != reason {
            reason.clone_into(&mut stall.reason);
        }
        self.is_stalled.store(true, Ordering::Relaxed);
    }

    /// The oldest stall, with the time of the last failure of any. `None` if the last steps succeeded, or if the last failure is too long
    /// ago.
    #[must_use]
    pub fn stall(&self, now: Instant) -> Option<Stall> {
        if !self.is_stalled.load(Ordering::Relaxed) {
            return None;
        }
        let stalls = self.lock();
        let lasts = |(destination, stall): &(&Option<u64>, &Stall)| {
            let lasted = stall.last.saturating_duration_since(stall.since);
            stall.is_remembered(now) && (destination.is_none() || lasted >= LEAST_OF_DESTINATION)
        };
        let lasting = || stalls.iter().filter(lasts).map(|(_, stall)| stall);
        let last = lasting().map(|stall| stall.last).max()?;
        lasting().min_by_key(|stall| stall.since).map(|oldest| Stall { last, ..oldest.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Option<u64>, Stall>> {
        self.stalls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stall {
    fn is_remembered(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_begins_with_the_first_failure_and_ends_with_any_success() {
        let (progress, start) = (Progress::default(), Instant::now());
        let stall = |now| progress.stall(now).map(|stall| (stall.last - stall.since, stall.reason));
        assert_eq!(stall(start), None);

        progress.failed(None, "no broker", start);
        assert_eq!(stall(start), Some((Duration::ZERO, "no broker".to_owned())));
        let last = start + Duration::from_secs(3);
        progress.failed(None, "no network", last);

        assert_eq!(stall(last), Some((Duration::from_secs(3), "no network".to_owned())));
        assert_eq!(stall(last + REMEMBERED), None, "its events are gone");
        progress.succeeded(None);
        assert_eq!(stall(last), None);
        progress.failed(None, "no broker", last);
        assert_eq!(stall(last), Some((Duration::ZERO, "no broker".to_owned())), "it begins again");
    }

    #[test]
    fn destination_that_fails_is_a_stall_however_many_others_succeed() {
        let (progress, start) = (Progress::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let reason = |now| progress.stall(now).map(|stall| (stall.reason, stall.last));
        progress.failed(Some(1), "no leader", start);
        progress.end(Some(2), after(3));
        assert_eq!(reason(after(3)), None, "it failed only once");

        progress.failed(Some(1), "no leader", after(4));
        progress.failed(Some(3), "no node", after(5));
        progress.failed(Some(3), "no node", after(9));
        progress.end(Some(2), after(9));
        assert_eq!(reason(after(9)), Some(("no leader".to_owned(), after(9))), "the oldest, and the last failure of any");

        progress.end(Some(1), after(10));
        assert_eq!(reason(after(10)), Some(("no node".to_owned(), after(9))));
        progress.end(Some(2), after(9) + REMEMBERED_BESIDE_SUCCESS);
        assert_eq!(reason(after(9)), None, "its events are gone");
    }

    #[test]
    fn any_success_ends_the_stall_of_the_whole_work() {
        let (progress, start) = (Progress::default(), Instant::now());
        progress.failed(None, "no broker", start);
        progress.succeeded(Some(1));
        assert!(progress.stall(start).is_none());
    }

    #[test]
    fn bounded_number_of_destinations_is_remembered_beside_the_whole_work() {
        let (progress, start) = (Progress::default(), Instant::now());
        for destination in 0..1_000 {
            progress.failed(Some(destination), "no leader", start);
        }
        progress.failed(None, "no broker", start);
        assert_eq!(progress.lock().len(), MOST_DESTINATIONS + 1);
        progress.failed(Some(1_000), "no leader", start + REMEMBERED);
        assert_eq!(progress.lock().len(), 1, "those of long ago make room");
    }
}
