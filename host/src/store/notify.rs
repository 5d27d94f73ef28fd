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

    /// As [`notify`](Self::notify), and says that there is nothing to claim: whoever tries whether wake-ups arrive wakes nobody.
    async fn try_wake_ups(&self) -> Result<(), StoreError> {
        self.notify().await
    }

    /// What other nodes tell, on a connection of its own; `None` where the database has no such thing.
    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError> {
        Ok(None)
    }
}

/// What a wake-up says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// There may be something to claim.
    Events,
    /// Somebody tries whether wake-ups arrive.
    Trial,
}

/// Hints from other nodes that there is something to claim.
#[async_trait]
pub trait WakeUps: Send {
    /// Waits for the next one; many that came meanwhile are one. May be dropped while it waits.
    ///
    /// # Errors
    /// When the connection is lost; ask [`listen`](NotifyStore::listen) for another.
    async fn next(&mut self) -> Result<WakeUp, StoreError>;
}
