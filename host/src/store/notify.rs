//! Hints between hosts that there is something to claim.

use async_trait::async_trait;

use super::StoreError;

/// Hints between hosts that there is something to claim. Does nothing where the database has no such thing.
#[async_trait]
pub trait NotifyStore: Send + Sync {
    /// Tells every listening node, this one included, that there is something to claim. A hint; does nothing where the
    /// database has no such thing.
    async fn notify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What other nodes tell, on a connection of its own; `None` where the database has no such thing.
    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError> {
        Ok(None)
    }
}

/// Hints from other nodes that there is something to claim.
#[async_trait]
pub trait WakeUps: Send {
    /// Waits for the next one. May be dropped while it waits.
    ///
    /// # Errors
    /// When the connection is lost; ask [`listen`](NotifyStore::listen) for another.
    async fn next(&mut self) -> Result<(), StoreError>;
}
