//! The outbox's own database as the place where plugins keep values.

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::{StateUsage, StateValue};
use crate::recurring::Outage;
use crate::store::{Store, StoreError};
use crate::wasm::StateSource;

/// Reads plugins' values from the store; they are written with the outcomes.
pub(super) struct StoredState {
    store: Arc<dyn Store>,
    /// Said once: a plugin may ask ten thousand times in a call.
    outage: Outage,
}

impl StoredState {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, outage: Outage::default() }
    }

    /// What a plugin is told of an error is short: the database's own words may name what is no plugin's business.
    fn answer<T>(&self, answer: Result<Result<T, StoreError>, tokio::task::JoinError>) -> Result<T, String> {
        let Ok(answer) = answer else { return Err("the host stops".to_owned()) };
        let value = self.outage.note(answer, |error| tracing::warn!(%error, "plugins' state cannot be read"), || {});
        value.ok_or_else(|| "the database does not answer".to_owned())
    }
}

#[async_trait]
impl StateSource for StoredState {
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, String> {
        // In a task of its own: a call that is cut off must not break a statement off.
        let (store, plugin, key) = (self.store.clone(), plugin.to_owned(), key.to_owned());
        self.answer(tokio::spawn(async move { store.state(&plugin, &key).await }).await)
    }

    async fn usage(&self, plugin: &str) -> Result<StateUsage, String> {
        let (store, plugin) = (self.store.clone(), plugin.to_owned());
        self.answer(tokio::spawn(async move { store.state_usage(&plugin).await }).await)
    }
}
