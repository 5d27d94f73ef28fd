//! Transactions on a pool.

use sqlx::postgres::PgPool;

use super::PostgresTransaction;
use super::error::failed;
use crate::store::StoreError;

/// Begins in a task of its own: a `begin` that is cancelled half-way leaves a pooled connection inside a transaction.
pub(super) async fn begin(pool: &PgPool) -> Result<PostgresTransaction, StoreError> {
    let pool = pool.clone();
    let begun = tokio::spawn(async move { pool.begin().await }).await;
    match begun {
        Ok(Ok(transaction)) => Ok(transaction),
        Ok(Err(error)) => Err(failed("begin a transaction", error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: "begin a transaction" }),
    }
}

/// Commits in a task of its own, for the same reason.
pub(super) async fn commit(transaction: PostgresTransaction) -> Result<(), StoreError> {
    let committed = tokio::spawn(async move { transaction.commit().await }).await;
    match committed {
        Ok(result) => result.map_err(|error| failed("commit", error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: "commit" }),
    }
}

pub(super) async fn rollback(transaction: PostgresTransaction) -> Result<(), StoreError> {
    transaction.rollback().await.map_err(|error| failed("roll back", error))
}
