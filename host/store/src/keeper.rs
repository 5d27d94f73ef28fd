//! The one connection for what keeps leases.

use std::sync::Arc;

use arc_swap::ArcSwap;
use sqlx::pool::PoolOptions;
use sqlx::{Connection, Database, Pool};

use super::StoreError;
use super::run::{KEEPERS_LONGEST, LONGEST_IN_OWN_TASK, SIGN_OF_LIFE, in_own_task_within};
use super::trust::Trust;

/// A pool of one connection. A pool asks a connection that comes back for a sign of life and waits for the answer without an end, so
/// that a server that falls silent just then would take the only connection with it: another pool takes the place of one that
/// gives no connection in time.
#[derive(Debug)]
pub(super) struct Keeper<D: Database>(ArcSwap<Pool<D>>);

impl<D: Database> Keeper<D> {
    /// Opens its connection when it is needed, and leaves it open from then on: a server that is full might have no other.
    pub(super) fn new(options: PoolOptions<D>, connect: <D::Connection as Connection>::Options) -> Self {
        let patience = options.get_acquire_timeout().min(SIGN_OF_LIFE);
        let options = options.max_connections(1).acquire_timeout(patience).idle_timeout(None).max_lifetime(None);
        Self(ArcSwap::from_pointee(options.connect_lazy_with(connect)))
    }

    /// The pool as it is now.
    pub(super) fn pool(&self) -> Pool<D> {
        Pool::clone(&self.0.load())
    }

    /// Leaves the pool to itself, and makes another.
    pub(super) fn replace(&self) -> Pool<D> {
        let stuck = self.pool();
        let connect = (*stuck.connect_options()).clone();
        let pool = stuck.options().clone().connect_lazy_with(connect);
        self.0.store(Arc::new(pool.clone()));
        pool
    }

    /// Closes the connection, unless it is stuck.
    pub(super) async fn close(&self) {
        let _ = tokio::time::timeout(SIGN_OF_LIFE, self.pool().close()).await;
    }
}

/// Asks a pool for a connection. If it is a keeper's and gives none in time, another takes its place, and is asked.
pub(super) async fn ask<D: Database, T, F: Future<Output = Result<T, sqlx::Error>>>(
    pool: Pool<D>,
    keeper: Option<Arc<Keeper<D>>>,
    ask: impl Fn(Pool<D>) -> F,
) -> Result<T, sqlx::Error> {
    match (ask(pool).await, keeper) {
        (Err(sqlx::Error::PoolTimedOut), Some(keeper)) => ask(keeper.replace()).await,
        (asked, _) => asked,
    }
}

/// Begins or commits a transaction of the host's own, in a task of its own. A keeper waits for no longer than leases allow, and goes
/// on with another pool then.
pub(super) async fn alone<D: Database, T: Send + 'static>(
    trust: &Arc<Trust>,
    keeper: Option<Arc<Keeper<D>>>,
    action: &'static str,
    work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    failed: impl FnOnce(&'static str, sqlx::Error) -> StoreError,
) -> Result<T, StoreError> {
    let longest = if keeper.is_some() { KEEPERS_LONGEST } else { LONGEST_IN_OWN_TASK };
    let trust = trust.clone();
    let given_up = move || {
        trust.lose();
        if let Some(keeper) = keeper {
            keeper.replace();
        }
    };
    in_own_task_within(longest, given_up, action, work, failed).await
}
