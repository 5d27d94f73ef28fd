//! The outbox's own database as the place where plugins keep values.

use std::sync::Arc;

use async_trait::async_trait;

use crate::event::{StateUsage, StateValue};
use crate::store::{Store, StoreError};
use crate::wasm::StateSource;

/// Reads plugins' values from the store; they are written with the outcomes.
pub(super) struct StoredState(pub(super) Arc<dyn Store>);

#[async_trait]
impl StateSource for StoredState {
    async fn get(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, String> {
        // In a task of its own: a call that is cut off must not break a statement off.
        let (store, plugin, key) = (self.0.clone(), plugin.to_owned(), key.to_owned());
        answer(tokio::spawn(async move { store.state(&plugin, &key).await }).await)
    }

    async fn usage(&self, plugin: &str) -> Result<StateUsage, String> {
        let (store, plugin) = (self.0.clone(), plugin.to_owned());
        answer(tokio::spawn(async move { store.state_usage(&plugin).await }).await)
    }
}

/// What a plugin is told of an error is short: the database's own words may name what is no plugin's business.
fn answer<T>(answer: Result<Result<T, StoreError>, tokio::task::JoinError>) -> Result<T, String> {
    match answer {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            tracing::warn!(error = %crate::chain(&error), "a plugin's state could not be read");
            Err("the database does not answer".to_owned())
        }
        Err(_) => Err("the host stops".to_owned()),
    }
}
