//! Instances that wait for the next event: at most one for each worker, in a seat of its own.
//!
//! A listener has its own seats, so no instance meets two routes; a worker takes only from its own, so none meets two workers.
//! The instance is out of its seat while it works: whatever ends the call in any other way than well, drops it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::engine::KeptPlace;
use super::manifest::Isolation;
use super::plugin::Instance;
use crate::listener::Visit;

/// An instance that answered well and may do so again.
pub(super) struct Kept {
    pub(super) instance: Instance,
    /// How many calls it has answered.
    pub(super) calls: u32,
    tenant: Option<Box<str>>,
    batch: u64,
    since: Instant,
    _place: KeptPlace,
}

/// The seats of one listener.
pub(super) struct Seats(Box<[Mutex<Option<Kept>>]>);

impl Seats {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    /// The worker's instance, if it may meet this event.
    pub(super) fn take(&self, visit: &Visit<'_>, isolation: Isolation) -> Option<Kept> {
        let kept = self.0.get(visit.worker)?.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let same_batch = kept.batch == visit.batch;
        let fits = kept.tenant.as_deref() == visit.event.tenant_id()
            && match isolation {
                Isolation::Event => false,
                Isolation::Batch => same_batch,
                Isolation::Worker { max_calls } => kept.calls < max_calls,
            };
        fits.then_some(kept)
    }

    /// Puts an instance into the worker's seat, after a clean end and nothing else.
    pub(super) fn put(&self, visit: &Visit<'_>, instance: Instance, calls: u32, place: KeptPlace) {
        if let Some(seat) = self.0.get(visit.worker) {
            let tenant = visit.event.tenant_id().map(Box::from);
            let kept = Kept { instance, calls, tenant, batch: visit.batch, since: Instant::now(), _place: place };
            let before = seat.lock().unwrap_or_else(PoisonError::into_inner).replace(kept);
            drop(before);
        }
    }

    /// Drops instances that nobody came for.
    pub(super) fn sweep(&self, idle: Duration) {
        for seat in &self.0 {
            let mut seat = seat.lock().unwrap_or_else(PoisonError::into_inner);
            if seat.as_ref().is_some_and(|kept| kept.since.elapsed() >= idle) {
                *seat = None;
            }
        }
    }
}

impl Kept {
    /// The instance and the room it is kept in.
    pub(super) fn into_parts(self) -> (Instance, u32, KeptPlace) {
        (self.instance, self.calls, self._place)
    }
}
