//! A store for all parts of one outbox.

use std::sync::Arc;

use super::Store;

/// A store that can be given to every room: one of a kind known at compile time, or one that was chosen by its URL.
pub trait SharedStore: Clone + Send + Sync + 'static {
    /// The same store, for all who only need a store.
    fn shared(&self) -> Arc<dyn Store>;
}

impl<S: Store + Clone> SharedStore for S {
    fn shared(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }
}

impl SharedStore for Arc<dyn Store> {
    fn shared(&self) -> Arc<dyn Store> {
        self.clone()
    }
}
