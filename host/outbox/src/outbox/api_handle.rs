//! The parts of a running outbox that only our own HTTP API needs.

use std::sync::Arc;
use std::time::Duration;

use super::Outbox;
use crate::node::PluginStatus;
use crate::purge::PurgeConfig;
use crate::store::SharedStore;
use crate::wake::Wake;

/// The parts of a running outbox that the HTTP API needs beside the public methods. A handle keeps nothing alive that a shutdown ends.
#[doc(hidden)] // for our own HTTP API
pub struct ApiHandle {
    purge: PurgeConfig,
    lease: Duration,
    wake: Arc<Wake>,
    #[cfg(feature = "wasm")]
    plugins: Option<Box<dyn Fn() -> Vec<PluginStatus> + Send + Sync>>,
}

impl ApiHandle {
    /// The settings of the outbox's own purge.
    pub fn purge_config(&self) -> &PurgeConfig {
        &self.purge
    }

    /// The lease of this host.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Lets the poller read the table now.
    pub fn wake_poller(&self) {
        self.wake.now();
    }

    /// The plugins by name. Empty without a plugins directory, and after a shutdown.
    pub fn plugins(&self) -> Vec<PluginStatus> {
        #[cfg(feature = "wasm")]
        return self.plugins.as_ref().map(|list| list()).unwrap_or_default();
        #[cfg(not(feature = "wasm"))]
        Vec::new()
    }
}

impl<S: SharedStore> Outbox<S> {
    /// A handle for the HTTP API.
    #[doc(hidden)] // for our own HTTP API
    pub fn api_handle(&self) -> ApiHandle {
        let inner = &*self.inner;
        ApiHandle {
            purge: inner.purge.clone(),
            lease: inner.lease,
            wake: inner.hot.wake.clone(),
            #[cfg(feature = "wasm")]
            plugins: self.plugins().map(|plugins| plugins.lister()),
        }
    }
}
