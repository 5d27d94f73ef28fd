//! Running statements, and reading what they answer.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::time::Duration;

use sqlx::Database;
use sqlx::query::Query;

use super::row::Named;
use super::{StoreError, TableName};

/// A statement with what is bound to it.
pub(super) type Statement<'q, D> = Query<'q, D, <D as Database>::Arguments>;

/// What a store's statements answer.
pub(super) type RowOf<S> = <<S as Run>::Database as Database>::Row;

/// Runs single statements, each a transaction of its own. A database says how; what is read of the rows is read once for all.
pub(super) trait Run: Sync {
    /// The driver.
    type Database: Database<Row: Named>;

    /// The table that statements are meant for.
    fn table(&self) -> &TableName;

    /// Sorts a driver's error by what can be done about it.
    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError;

    /// Asks for all rows.
    fn all(
        &self,
        action: &'static str,
        statement: Statement<'_, Self::Database>,
    ) -> impl Future<Output = Result<Vec<RowOf<Self>>, StoreError>> + Send;

    /// Asks for the first row, if any.
    fn optional(
        &self,
        action: &'static str,
        statement: Statement<'_, Self::Database>,
    ) -> impl Future<Output = Result<Option<RowOf<Self>>, StoreError>> + Send;

    /// Changes rows. Returns how many.
    fn execute(
        &self,
        action: &'static str,
        statement: Statement<'_, Self::Database>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// A statement of this store's table.
    fn statement<'q>(&self, sql: &'static str) -> Statement<'q, Self::Database> {
        sqlx::query(self.table().sql(sql))
    }

    /// Asks for the one row of a statement that always answers one.
    fn one(
        &self,
        action: &'static str,
        statement: Statement<'_, Self::Database>,
    ) -> impl Future<Output = Result<RowOf<Self>, StoreError>> + Send {
        async move { self.optional(action, statement).await?.ok_or_else(|| self.failed(action, sqlx::Error::RowNotFound)) }
    }

    /// Reads all rows.
    fn read_all<T>(
        &self,
        action: &'static str,
        statement: Statement<'_, Self::Database>,
        read: impl Fn(&RowOf<Self>) -> Result<T, sqlx::Error> + Send,
    ) -> impl Future<Output = Result<Vec<T>, StoreError>> + Send {
        async move {
            let rows = self.all(action, statement).await?;
            rows.iter().map(read).collect::<Result<_, _>>().map_err(|error| self.failed(action, error))
        }
    }

    /// Reads the first row, if any.
    fn read_optional<T>(
        &self,
        action: &'static str,
        statement: Statement<'_, Self::Database>,
        read: impl Fn(&RowOf<Self>) -> Result<T, sqlx::Error> + Send,
    ) -> impl Future<Output = Result<Option<T>, StoreError>> + Send {
        async move {
            let row = self.optional(action, statement).await?;
            row.as_ref().map(read).transpose().map_err(|error| self.failed(action, error))
        }
    }

    /// Reads the one row of a statement that always answers one.
    fn read_one<T>(
        &self,
        action: &'static str,
        statement: Statement<'_, Self::Database>,
        read: impl Fn(&RowOf<Self>) -> Result<T, sqlx::Error> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send {
        async move {
            let row = self.one(action, statement).await?;
            read(&row).map_err(|error| self.failed(action, error))
        }
    }
}

/// A connection, or a transaction, if it does not take longer than the store waits for one. What is asked for can be dropped at any time.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) async fn in_time<T>(
    patience: Option<Duration>,
    asked: impl Future<Output = Result<T, StoreError>>,
    failed: impl FnOnce(sqlx::Error) -> StoreError,
) -> Result<T, StoreError> {
    let Some(patience) = patience else { return asked.await };
    tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| Err(failed(sqlx::Error::PoolTimedOut)))
}

/// Waits for what is done in a task of its own: a `begin` or a commit that is cancelled half-way leaves a pooled connection
/// inside a transaction.
pub(super) async fn in_own_task<T: Send + 'static>(
    action: &'static str,
    work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    failed: impl FnOnce(&'static str, sqlx::Error) -> StoreError,
) -> Result<T, StoreError> {
    match tokio::spawn(work).await {
        Ok(result) => result.map_err(|error| failed(action, error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action }),
    }
}
