//! Transactions, and what to do when this database breaks one off.

use std::time::Duration;

use rand::RngExt;
use sqlx::Executor;
use sqlx::mysql::{MySqlPool, MySqlTransaction};

use super::error::{DEADLOCK, failed, number};
use super::{MySqlStore, find, insert, insert_many};
use crate::store::StoreError;

const BEGIN: &str = "begin a transaction";

/// Begins in a task of its own: a `begin` that is cancelled half-way leaves a pooled connection inside a transaction.
pub(super) async fn begin(store: &MySqlStore) -> Result<MySqlTransaction<'static>, StoreError> {
    begin_on(store, &store.pool).await
}

/// As [`begin`], for a transaction of the caller. What is run in it later is prepared now, once for each connection: a future
/// of his that is dropped while the server prepares a statement leaves the connection waiting for an answer for ever.
pub(super) async fn begin_for_caller(store: &MySqlStore) -> Result<MySqlTransaction<'static>, StoreError> {
    let this = store.clone();
    match tokio::spawn(async move {
        let mut transaction = this.callers.begin().await.map_err(|error| this.failed(BEGIN, error))?;
        for sql in insert::STATEMENTS.into_iter().chain(insert_many::STATEMENTS).chain([find::FIND]) {
            match transaction.prepare(this.table.sql(sql)).await {
                // What this user may not do, or the table is not there for, he is told when he asks for it.
                Err(error) if error.as_database_error().is_none() => return Err(this.failed(BEGIN, error)),
                _ => {}
            }
        }
        Ok(transaction)
    })
    .await
    {
        Ok(begun) => begun,
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: BEGIN }),
    }
}

/// As [`begin`], on another pool of the store.
pub(super) async fn begin_on(store: &MySqlStore, pool: &MySqlPool) -> Result<MySqlTransaction<'static>, StoreError> {
    let pool = pool.clone();
    match tokio::spawn(async move { pool.begin().await }).await {
        Ok(Ok(transaction)) => Ok(transaction),
        Ok(Err(error)) => Err(store.failed(BEGIN, error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: BEGIN }),
    }
}

/// Commits in a task of its own, for the same reason.
pub(super) async fn commit(transaction: MySqlTransaction<'static>) -> Result<(), StoreError> {
    match tokio::spawn(async move { transaction.commit().await }).await {
        Ok(result) => result.map_err(|error| failed("commit", error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: "commit" }),
    }
}

pub(super) async fn rollback(transaction: MySqlTransaction<'static>) -> Result<(), StoreError> {
    transaction.rollback().await.map_err(|error| failed("roll back", error))
}

/// How often a transaction that the server broke off is tried again. A deadlock is nobody's fault and heals at once; a lock
/// that was waited for in vain has cost seconds already.
pub(super) struct Patience {
    left: u32,
    rest: Duration,
}

const TRIES: u32 = 10;

impl Patience {
    pub(super) fn new() -> Self {
        Self { left: TRIES, rest: Duration::from_millis(2) }
    }

    /// Whether to try again; rests first, a little longer each time and never as long as the others.
    pub(super) async fn allows(&mut self, error: &StoreError) -> bool {
        let StoreError::Locked { source, .. } = error else { return false };
        let cost = if number(source) == Some(DEADLOCK) { 1 } else { TRIES };
        if self.left <= cost {
            return false;
        }
        self.left -= cost;
        let rest = self.rest.mul_f64(rand::rng().random_range(0.5..1.5));
        tokio::time::sleep(rest).await;
        self.rest = (self.rest * 2).min(Duration::from_millis(100));
        true
    }
}
