//! The outbox's own database as the place where plugins keep values.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;

use crate::event::{StateUsage, StateValue};
use crate::store::{Store, StoreError};
use crate::wasm::StateSource;

/// Reads plugins' values from the store; they are written with the outcomes.
pub(super) struct StoredState {
    store: Arc<dyn Store>,
    /// Said once: a plugin may ask ten thousand times in a call.
    failing: AtomicBool,
}

impl StoredState {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, failing: AtomicBool::new(false) }
    }

    /// What a plugin is told of an error is short: the database's own words may name what is no plugin's business.
    fn answer<T>(&self, answer: Result<Result<T, StoreError>, tokio::task::JoinError>) -> Result<T, String> {
        match answer {
            Ok(Ok(value)) => {
                self.failing.store(false, Ordering::Relaxed);
                Ok(value)
            }
            Ok(Err(error)) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(error = %crate::chain(&error), "plugins' state cannot be read");
                }
                Err("the database does not answer".to_owned())
            }
            Err(_) => Err("the host stops".to_owned()),
        }
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
