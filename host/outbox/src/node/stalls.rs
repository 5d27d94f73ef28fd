//! The routes that this host cannot deliver now.

use std::sync::Arc;
use std::time::Duration;

use outbox_listener::Stall;
use tokio::time::Instant;

use crate::event::Route;
use crate::listener::{Listeners, Owner};
use crate::readiness::Pulse;
use crate::store::StalledRoute;
use crate::time::system_clock;

/// How long no event of a listener must have been answered since one was given back before its host says so.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// How long a turn of the poller may take, beside the rest before it, before this host says that it cannot read the table.
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// Where stalls are seen.
pub(crate) struct Stalls {
    pub(crate) listeners: Arc<Listeners>,
    /// Beats each time that the poller has read the table, at least once in `poll_interval`.
    pub(crate) reads: Arc<Pulse>,
    pub(crate) poll_interval: Duration,
}

/// A stall of this host.
#[derive(Clone, Debug)]
pub(super) struct LocalStall {
    pub(super) route: StalledRoute,
    /// When the last event was given back.
    pub(super) last: Instant,
}

impl Stalls {
    /// The stalls that have lasted: sorted, and no more than a row tells, so that the lists of two hosts can be compared.
    pub(super) fn current(&self, now: Instant) -> Vec<LocalStall> {
        let is_lasting = |(_, _, stall): &(Route, Owner, Stall)| now.saturating_duration_since(stall.since) >= STALLED_AFTER;
        let of_listener = |(route, owner, stall): (Route, Owner, Stall)| LocalStall {
            route: StalledRoute::new(route.to_string(), owner.to_string(), stall.reason, stall.since_time),
            last: stall.last,
        };
        let of_listeners = self.listeners.stalls(now).into_iter().filter(is_lasting).map(of_listener);
        self.of_reads(now).into_iter().chain(of_listeners).take(StalledRoute::NAMED).collect()
    }

    fn of_reads(&self, now: Instant) -> Option<LocalStall> {
        let (silence, stillness) = (self.reads.silence(now), self.reads.stillness(now));
        // A turn that fails says more than one that takes long.
        let patience = if stillness < silence { STALLED_AFTER } else { LONGEST_TURN };
        (silence > self.poll_interval.saturating_add(patience)).then(|| {
            let since = system_clock().now().minus(silence);
            LocalStall { route: StalledRoute::all("this host cannot read the table".to_owned(), since), last: now }
        })
    }
}
