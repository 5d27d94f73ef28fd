//! Warm instances: kept for the next event.
//!
//! Each listener has its own, so no instance meets two routes; one is never in use twice at a time, and meets one tenant only. An
//! instance is not kept while it works: a call that ends in any other way than well drops it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outbox_listener::Visit;

use crate::load::plugin::Instance;
use crate::manifest::Isolation;
use crate::shares::KeptPlace;

/// The most instances of one listener that wait for further events of their claim: so many claims are at work at once, at most.
const MAX_OF_BATCHES: usize = 8;

/// An instance that answered well and may do so again.
pub(crate) struct WarmInstance {
    pub(crate) instance: Instance,
    /// How many calls it has answered.
    pub(crate) calls: u32,
    tenant: Option<Box<str>>,
    batch: u64,
    since: Instant,
    place: KeptPlace,
}

/// The warm instances of one listener, the latest last. As many as calls were under way at once, within the room of the engine.
pub(crate) struct WarmInstances {
    kept: Mutex<Vec<WarmInstance>>,
    isolation: Isolation,
}

impl WarmInstances {
    pub(crate) fn new(isolation: Isolation) -> Self {
        Self { kept: Mutex::default(), isolation }
    }

    /// The latest instance that may meet this event.
    pub(crate) fn take(&self, visit: &Visit<'_>) -> Option<WarmInstance> {
        if matches!(self.isolation, Isolation::Event | Isolation::Strict) {
            return None;
        }
        let mut kept = self.lock();
        let fits = |kept: &WarmInstance| {
            kept.tenant.as_deref() == visit.event.tenant_id()
                && match self.isolation {
                    Isolation::Event | Isolation::Strict => false,
                    Isolation::Batch => kept.batch == visit.batch,
                    Isolation::Worker { max_calls } => kept.calls < max_calls,
                }
        };
        let index = kept.iter().rposition(fits)?;
        Some(kept.remove(index))
    }

    /// Keeps an instance for a later event, after a clean end and nothing else.
    pub(crate) fn put(&self, visit: &Visit<'_>, instance: Instance, calls: u32, place: KeptPlace) {
        let tenant = visit.event.tenant_id().map(Box::from);
        let warm = WarmInstance { instance, calls, tenant, batch: visit.batch, since: Instant::now(), place };
        let mut kept = self.lock();
        kept.push(warm);
        let too_many = self.isolation == Isolation::Batch && kept.len() > MAX_OF_BATCHES;
        let oldest = too_many.then(|| kept.remove(0));
        // Freeing an instance takes a while, and others wait for the lock.
        drop(kept);
        drop(oldest);
    }

    /// Drops the one that waits longest; false when there is none. Its room goes to another tenant, route or plugin.
    pub(crate) fn evict(&self) -> bool {
        let mut kept = self.lock();
        let oldest = (!kept.is_empty()).then(|| kept.remove(0));
        drop(kept);
        oldest.is_some()
    }

    /// Drops instances that nobody came for.
    pub(crate) fn sweep(&self, idle: Duration) {
        let mut kept = self.lock();
        let (idle, rest) = std::mem::take(&mut *kept).into_iter().partition(|kept| kept.since.elapsed() >= idle);
        *kept = rest;
        drop(kept);
        drop::<Vec<WarmInstance>>(idle);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WarmInstance>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WarmInstance {
    /// The instance, its calls, and the room it is kept in.
    pub(crate) fn into_parts(self) -> (Instance, u32, KeptPlace) {
        (self.instance, self.calls, self.place)
    }
}
