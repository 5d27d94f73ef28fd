//! Wake-ups between hosts: hints that there is something to claim.

use async_trait::async_trait;

use super::StoreError;

/// Wake-ups between hosts: hints that there is something to claim. Does nothing where the database has no wake-ups.
#[async_trait]
pub trait NotifyStore: Send + Sync {
    /// Wakes every listening host, this one included: there may be something to claim. A hint; does nothing where the database has
    /// no wake-ups.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn notify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Sends a wake-up that only tests whether wake-ups arrive: whoever hears it need not look for events. Where the database
    /// cannot tell the two apart, this is [`notify`](Self::notify).
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn send_test_wake_up(&self) -> Result<(), StoreError> {
        self.notify().await
    }

    /// Hears the wake-ups of all hosts, on a connection of its own; `None` where the database has no wake-ups.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError> {
        Ok(None)
    }
}

/// What a wake-up says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeUp {
    /// There may be something to claim.
    Events,
    /// A host tests whether wake-ups arrive.
    Test,
}

/// The wake-ups that this host hears.
#[async_trait]
pub trait WakeUps: Send {
    /// Waits for the next wake-up; all that came meanwhile are one. May be dropped while it waits.
    ///
    /// # Errors
    /// When the connection is lost; ask [`listen`](NotifyStore::listen) for another.
    async fn next(&mut self) -> Result<WakeUp, StoreError>;
}
