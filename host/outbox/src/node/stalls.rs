//! The stalls of this host: routes that it cannot deliver, a table that it cannot read, outcomes that it cannot store.

use std::sync::Arc;
use std::time::Duration;

use outbox_listener::Stall;
use tokio::time::Instant;

use crate::event::Route;
use crate::listener::{Listeners, Owner};
use crate::metrics::Metrics;
use crate::partition::LEASES_WITHOUT_CONNECTION;
use crate::readiness::Pulse;
use crate::store::{OpenBreaker, StalledRoute};
use crate::time::system_clock;

/// How long a kind of work must fail without a success before its host says so.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// How long a turn of the poller may take, beside the rest before it, before this host says that it cannot read the table.
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// Where stalls are seen.
pub(crate) struct Stalls {
    pub(crate) listeners: Arc<Listeners>,
    /// Beats each time that the poller has read the table, at least once in `poll_interval`. While the poller waits for the settler, the
    /// last turn counts.
    pub(crate) reads: Arc<Pulse>,
    pub(crate) poll_interval: Duration,
    pub(crate) metrics: Arc<Metrics>,
}

/// A stall of this host.
#[derive(Clone, Debug)]
pub(super) struct LocalStall {
    pub(super) route: StalledRoute,
    /// When it last failed.
    pub(super) last: Instant,
}

impl Stalls {
    /// The stalls that have lasted: sorted, and no more than a row tells, so that the lists of two hosts can be compared.
    pub(super) fn current(&self, now: Instant) -> Vec<LocalStall> {
        let is_lasting = |(_, _, stall): &(Route, Owner, Stall)| is_lasting(stall, now);
        let of_listener = |(route, owner, stall): (Route, Owner, Stall)| LocalStall {
            route: StalledRoute::new(route.to_string(), owner.to_string(), stall.reason, stall.since_time),
            last: stall.last,
        };
        let of_listeners = self.listeners.stalls(now).into_iter().filter(is_lasting).map(of_listener);
        let of_all = self.of_reads(now).or_else(|| self.of_outcomes(now));
        of_all.into_iter().chain(of_listeners).take(StalledRoute::NAMED).collect()
    }

    /// The breakers that are open on this host, those of plugins too.
    pub(super) fn open_breakers(&self) -> impl Iterator<Item = OpenBreaker> {
        self.listeners.open_breakers().into_iter().map(|(route, owner, pause)| OpenBreaker {
            route,
            listener: owner.to_string(),
            since: pause.since,
            next_try: pause.next_try,
        })
    }

    /// Whether this host cannot store outcomes, or its reads fail, so that a host that stands aside lets its lease and its claims end. A
    /// read that only takes long is not enough at first: it may wait for a busy connection of the pool, and then outcomes are stored
    /// later. If no read succeeds for two leases, the pool probably cannot connect.
    pub(super) fn lets_lease_end(&self, lease: Duration, now: Instant) -> bool {
        let longest = self.poll_interval.saturating_add(lease.saturating_mul(LEASES_WITHOUT_CONNECTION));
        let reads_fail = self.reads.is_failing() || self.reads.silence(now) > longest;
        self.of_outcomes(now).is_some() || (reads_fail && self.of_reads(now).is_some())
    }

    fn of_outcomes(&self, now: Instant) -> Option<LocalStall> {
        // One old failure proves no stall: later errors may be no fault of this host, such as a full disk.
        let stall = self.metrics.storing.stall(now).filter(has_failed_for_long)?;
        let reason = format!("this host cannot store outcomes: {}", stall.reason);
        Some(LocalStall { route: StalledRoute::all(reason, stall.since_time), last: stall.last })
    }

    fn of_reads(&self, now: Instant) -> Option<LocalStall> {
        let silence = self.reads.silence(now);
        // A turn that fails says more than one that takes long.
        let patience = if self.reads.is_failing() { STALLED_AFTER } else { LONGEST_TURN };
        (silence > self.poll_interval.saturating_add(patience)).then(|| {
            let since = system_clock().now().minus(silence);
            LocalStall { route: StalledRoute::all("this host cannot read the table".to_owned(), since), last: now }
        })
    }
}

fn is_lasting(stall: &Stall, now: Instant) -> bool {
    now.saturating_duration_since(stall.since) >= STALLED_AFTER
}

/// Whether the first and the last failure are far enough apart.
fn has_failed_for_long(stall: &Stall) -> bool {
    stall.last.saturating_duration_since(stall.since) >= STALLED_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn outcomes_that_cannot_be_stored_are_a_stall_until_one_can() {
        let hour = Duration::from_secs(3_600);
        let (reads, metrics) = (Arc::new(Pulse::new()), Arc::new(Metrics::default()));
        let stalls = Stalls { listeners: Arc::default(), reads, poll_interval: hour, metrics };
        let (storing, now) = (&stalls.metrics.storing, Instant::now());

        storing.failed(None, "permission denied", now);

        let later = now + STALLED_AFTER;
        assert!(stalls.current(later).is_empty() && !stalls.lets_lease_end(LEASE, later), "it failed only once");
        storing.failed(None, "permission denied", later);
        let found = stalls.current(later);
        assert!(found.len() == 1 && found[0].route.is_all(), "{found:?}");
        assert_eq!(found[0].route.reason, "this host cannot store outcomes: permission denied");
        assert!(stalls.lets_lease_end(LEASE, later));
        storing.succeeded(None);
        assert!(stalls.current(later).is_empty() && !stalls.lets_lease_end(LEASE, later));
    }

    #[test]
    fn a_failed_read_lets_the_lease_end_and_a_slow_one_does_so_after_two_leases() {
        let (reads, metrics) = (Arc::new(Pulse::new()), Arc::new(Metrics::default()));
        let stalls = Stalls { listeners: Arc::default(), reads, poll_interval: Duration::ZERO, metrics };
        let later = Instant::now() + LONGEST_TURN * 2;
        assert_eq!(stalls.current(later).len(), 1);
        assert!(!stalls.lets_lease_end(LEASE, later), "it may wait for a connection");
        let much_later = later + LEASE * LEASES_WITHOUT_CONNECTION;
        assert!(stalls.lets_lease_end(LEASE, much_later), "the pool probably cannot connect");

        // A pulse counts milliseconds.
        std::thread::sleep(Duration::from_millis(2));
        stalls.reads.failed();

        assert!(stalls.lets_lease_end(LEASE, later));
    }
}
