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
        // A server may limit its connections: one that does not work must not use up the place of the next one.
        self.forget();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Weak};

    use super::*;

    #[tokio::test]
    async fn all_that_waited_for_a_connection_hear_that_it_failed_and_who_comes_later_connects_anew() {
        let (connection, tries) = (Connection::<u32>::default(), AtomicU32::new(0));
        let (begun, go_on) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
        let fails = || async {
            tries.fetch_add(1, Ordering::Relaxed);
            begun.notify_one();
            go_on.notified().await;
            Err(SinkError::down("nobody listens"))
        };

        let (first, second, ()) = tokio::join!(
            connection.get(|_| true, fails()),
            async {
                begun.notified().await;
                connection.get(|_| true, fails()).await
            },
            async {
                // The second one has asked by then: all three are one task, which looks at them in turn.
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
                go_on.notify_one();
            }
        );

        assert!(first.is_err_and(|error| error.is_down()) && second.is_err_and(|error| error.is_down()));
        assert_eq!(tries.load(Ordering::Relaxed), 1, "the second one did not try the same again");
        assert_eq!(connection.get(|_| true, async { Ok(7) }).await.ok(), Some(7));
        assert_eq!(connection.get(|_| true, fails()).await.ok(), Some(7), "it is there");
        assert_eq!(connection.get(|kept| *kept != 7, async { Ok(8) }).await.ok(), Some(8), "it does not work any more");
        connection.forget();
        assert_eq!(connection.get(|_| true, async { Ok(9) }).await.ok(), Some(9));
    }

    #[tokio::test]
    async fn connection_that_does_not_work_is_closed_before_the_next_one_is_made() {
        let connection = Connection::default();
        let first = connection.get(|_| true, async { Ok(Arc::new(1)) }).await.ok();
        let first = first.map_or_else(Weak::new, |first| Arc::downgrade(&first));
        assert!(first.upgrade().is_some());

        let second = connection.get(|_| false, async { Ok(Arc::new(first.strong_count())) }).await.ok();

        assert_eq!(second.as_deref(), Some(&0));
    }
}
