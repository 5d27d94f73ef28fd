//! What the HTTP API is given of a running outbox beside its public methods.

use std::sync::Arc;

use super::{Mode, Outbox};
use crate::purge::PurgeConfig;
use crate::queue::{InFlight, Queue};
use crate::store::SharedStore;
use crate::wake::Wake;

/// What the HTTP API is given of a running outbox beside its public methods. It keeps nothing alive that a stop ends.
pub(crate) struct Inside {
    pub(crate) mode: Mode,
    pub(crate) purge: PurgeConfig,
    pub(crate) wake: Arc<Wake>,
    queue: Arc<Queue>,
    in_flight: Arc<InFlight>,
    #[cfg(feature = "wasm")]
    plugins: Option<Box<dyn Fn() -> Vec<crate::wasm::PluginStatus> + Send + Sync>>,
}

impl Inside {
    /// How many events are queued: hot, cold.
    pub(crate) fn queue_depth(&self) -> (usize, usize) {
        self.queue.depth()
    }

    /// How many events are in this process's hands.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The plugins by name; none when no directory was given, or the host has stopped.
    #[cfg(feature = "wasm")]
    pub(crate) fn plugins(&self) -> Vec<crate::wasm::PluginStatus> {
        self.plugins.as_ref().map(|list| list()).unwrap_or_default()
    }
}

impl<S: SharedStore> Outbox<S> {
    /// What the HTTP API is given beside the public methods.
    pub(crate) fn inside(&self) -> Inside {
        let inner = &*self.inner;
        Inside {
            mode: inner.mode,
            purge: inner.purge.clone(),
            wake: inner.hot.wake.clone(),
            queue: inner.queue.clone(),
            in_flight: inner.in_flight.clone(),
            #[cfg(feature = "wasm")]
            plugins: self.plugins().map(|plugins| plugins.lister()),
        }
    }
}
