//! The connection of a sink: one for all its batches, made when it is first needed, and again after it was lost.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Mutex as AsyncMutex;

use super::SinkError;

/// A connection that all batches of a sink share.
pub(super) struct Connection<C> {
    /// Held while one batch connects: the others wait for it, since they need the same. Says when the last try failed, and how.
    connecting: AsyncMutex<Option<(Instant, SinkError)>>,
    current: Mutex<Option<C>>,
}

impl<C> Default for Connection<C> {
    fn default() -> Self {
        Self { connecting: AsyncMutex::default(), current: Mutex::default() }
    }
}

impl<C: Clone> Connection<C> {
    /// The connection that is there, if it still works; else the one that `connect` makes, which others then get too. If it fails,
    /// it has failed for all that waited for it.
    ///
    /// # Errors
    /// Those of `connect`.
    pub(super) async fn get(
        &self,
        works: impl Fn(&C) -> bool,
        connect: impl Future<Output = Result<C, SinkError>>,
    ) -> Result<C, SinkError> {
        let current = || self.lock().clone().filter(|connection| works(connection));
        if let Some(connection) = current() {
            return Ok(connection);
        }
        let asked_at = Instant::now();
        let mut failed = self.connecting.lock().await;
        if let Some(connection) = current() {
            return Ok(connection);
        }
        if let Some((at, error)) = &*failed
            && *at >= asked_at
        {
            return Err(error.clone());
        }
        let connection = connect.await.inspect_err(|error| *failed = Some((Instant::now(), error.clone())))?;
        *self.lock() = Some(connection.clone());
        Ok(connection)
    }

    /// The next batch connects anew.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<C>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
