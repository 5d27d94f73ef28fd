//! Warm instances: kept for the next event, at most one for each worker.
//!
//! Each listener has its own, so no instance meets two routes; a worker takes only its own, so none meets two workers. An
//! instance is not kept while it works: a call that ends in any other way than well drops it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::engine::KeptPlace;
use super::manifest::Isolation;
use super::plugin::Instance;
use crate::listener::Visit;

/// An instance that answered well and may do so again.
pub(super) struct WarmInstance {
    pub(super) instance: Instance,
    /// How many calls it has answered.
    pub(super) calls: u32,
    tenant: Option<Box<str>>,
    batch: u64,
    since: Instant,
    _place: KeptPlace,
}

/// The warm instances of one listener, one for each worker.
pub(super) struct WarmInstances(Box<[Mutex<Option<WarmInstance>>]>);

impl WarmInstances {
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    /// The worker's instance, if it may meet this event.
    pub(super) fn take(&self, visit: &Visit<'_>, isolation: Isolation) -> Option<WarmInstance> {
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

    /// Keeps an instance for the worker's next event, after a clean end and nothing else.
    pub(super) fn put(&self, visit: &Visit<'_>, instance: Instance, calls: u32, place: KeptPlace) {
        if let Some(slot) = self.0.get(visit.worker) {
            let tenant = visit.event.tenant_id().map(Box::from);
            let kept = WarmInstance { instance, calls, tenant, batch: visit.batch, since: Instant::now(), _place: place };
            let before = slot.lock().unwrap_or_else(PoisonError::into_inner).replace(kept);
            drop(before);
        }
    }

    /// Drops instances that nobody came for.
    pub(super) fn sweep(&self, idle: Duration) {
        for slot in &self.0 {
            let mut kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.as_ref().is_some_and(|kept| kept.since.elapsed() >= idle) {
                *kept = None;
            }
        }
    }
}

impl WarmInstance {
    /// The instance and the room it is kept in.
    pub(super) fn into_parts(self) -> (Instance, u32, KeptPlace) {
        (self.instance, self.calls, self._place)
    }
}
