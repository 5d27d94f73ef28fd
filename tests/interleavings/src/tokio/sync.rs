//! `Notify`, and a lock that is waited for.

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

pub use super::notify::{Notified, Notify};

/// A lock whose waiters get it in the order in which they came. Nobody looks at what is in it.
#[derive(Debug)]
pub struct Mutex<T> {
    permit: BatchSemaphore,
    _value: T,
}

/// Somebody has it.
#[derive(Debug)]
pub struct TryLockError;

/// Has it, as long as it lives.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(&'a Mutex<T>);

impl<T> Mutex<T> {
    /// Takes it unless somebody has it or waits for it.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.permit.try_acquire(1).map(|()| MutexGuard(self)).map_err(|_| TryLockError)
    }

    /// Waits for it.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        self.permit.acquire(1).await.expect("never closed");
        MutexGuard(self)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self { permit: BatchSemaphore::new(1, Fairness::StrictlyFair), _value: T::default() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.permit.release(1);
    }
}
