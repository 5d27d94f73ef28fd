//! The plugins of an outbox that starts: none where nobody asked for any, or where this program cannot run them.

#[cfg(feature = "wasm")]
use std::sync::Arc;

use outbox_listener::Health;

use super::StartError;
#[cfg(feature = "wasm")]
use super::state::StoredState;
use super::wanted::Wanted;
use crate::listener::Listeners;
use crate::node::PluginLister;
use crate::store::Store;

/// The plugins of an outbox that starts.
pub(super) struct Loaded {
    #[cfg(feature = "wasm")]
    pub(super) plugins: Option<Arc<crate::wasm::Plugins>>,
}

impl Loaded {
    /// Loads what was asked for, and watches its directory.
    #[cfg(feature = "wasm")]
    pub(super) async fn start<S>(
        wanted: &mut Wanted<S>,
        store: &Arc<dyn Store>,
        listeners: &Arc<Listeners>,
        health: &Health,
    ) -> Result<Self, StartError> {
        let Some(config) = wanted.plugins.take().filter(|_| wanted.delivers()) else { return Ok(Self { plugins: None }) };
        let config = crate::wasm::PluginsConfig { sinks: wanted.sinks.clone(), ..config };
        let workers = wanted.dispatcher.workers;
        let state: Arc<dyn crate::wasm::StateSource> = Arc::new(StoredState::new(store.clone()));
        let plugins = crate::wasm::Plugins::start_watched(config, workers, listeners.clone(), Some(state), health).await?;
        Ok(Self { plugins: Some(Arc::new(plugins)) })
    }

    /// Loads nothing.
    #[cfg(not(feature = "wasm"))]
    pub(super) async fn start<S>(
        _: &mut Wanted<S>,
        _: &std::sync::Arc<dyn Store>,
        _: &std::sync::Arc<Listeners>,
        _: &Health,
    ) -> Result<Self, StartError> {
        Ok(Self {})
    }

    /// How many of them may yet bring routes.
    pub(super) fn loading(&self) -> usize {
        #[cfg(feature = "wasm")]
        return self.plugins.as_ref().map_or(0, |plugins| plugins.loading());
        #[cfg(not(feature = "wasm"))]
        0
    }

    /// Lists them for the heartbeat and the audit log.
    pub(super) fn lister(&self) -> Option<PluginLister> {
        #[cfg(feature = "wasm")]
        return self.plugins.as_ref().map(|plugins| plugins.lister());
        #[cfg(not(feature = "wasm"))]
        None
    }

    /// Ends them, where the start goes no further.
    pub(super) async fn end(&self) {
        #[cfg(feature = "wasm")]
        if let Some(plugins) = &self.plugins {
            plugins.end().await;
        }
    }
}
