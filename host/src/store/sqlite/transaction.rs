//! Transactions on the one connection that writes.

use sqlx::sqlite::SqliteTransaction;

use super::SqliteStore;
use super::error::failed;
use crate::store::StoreError;

/// Takes the write lock at once: a deferred BEGIN that reads first and writes later fails with SQLITE_BUSY, which no timeout
/// helps against.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// Begins in a task of its own: a `begin` that is cancelled half-way leaves a pooled connection inside a transaction.
pub(super) async fn begin(store: &SqliteStore) -> Result<SqliteTransaction<'static>, StoreError> {
    let writer = store.writer.clone();
    let begun = tokio::spawn(async move { writer.begin_with(BEGIN).await }).await;
    match begun {
        Ok(Ok(transaction)) => Ok(transaction),
        Ok(Err(error)) => Err(failed("begin a transaction", error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: "begin a transaction" }),
    }
}

/// Commits in a task of its own, for the same reason.
pub(super) async fn commit(transaction: SqliteTransaction<'static>) -> Result<(), StoreError> {
    let committed = tokio::spawn(async move { transaction.commit().await }).await;
    match committed {
        Ok(result) => result.map_err(|error| failed("commit", error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: "commit" }),
    }
}

pub(super) async fn rollback(transaction: SqliteTransaction<'static>) -> Result<(), StoreError> {
    transaction.rollback().await.map_err(|error| failed("roll back", error))
}
