//! Running statements, and reading what they answer.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::time::Duration;

use sqlx::Database;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use sqlx::Transaction;
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

/// Ends transactions of the host's own: those of the application's end by [`TransactionalStore`](super::TransactionalStore).
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) trait End: Run {
    /// Commits, within the time that the store has for it.
    fn commit(&self, transaction: Transaction<'static, Self::Database>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls back.
    fn roll_back(
        &self,
        transaction: Transaction<'static, Self::Database>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
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

/// How much longer than a statement may take its answer is waited for.
#[cfg(any(feature = "postgres", feature = "mysql"))]
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// For how long an answer of the database is waited for, where it ends a statement by itself after `statement_timeout`; `None`, for
/// ever, where it does not. Who hears nothing for longer has lost the server, and nobody closed the connection: a machine was
/// switched off, say. TCP notices after a quarter of an hour, or never when the server has confirmed the question.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn longest_answer(statement_timeout: Duration) -> Option<Duration> {
    (!statement_timeout.is_zero()).then(|| statement_timeout + ON_ITS_WAY)
}

/// The same of what keeps leases: they end before long.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const KEEPERS_LONGEST: Duration = Duration::from_secs(10);

/// How long a connection that was idle may take to show that it lives.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// What the database answers to the statements of a transaction, if it does not stay silent.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) async fn answered<T>(
    longest: Option<Duration>,
    asked: impl Future<Output = Result<T, StoreError>>,
    failed: impl FnOnce(sqlx::Error) -> StoreError,
) -> Result<T, StoreError> {
    let Some(longest) = longest else { return asked.await };
    // Dropped after the error is judged, so that the pool does not trust the connection it gets back.
    let mut asked = std::pin::pin!(asked);
    tokio::time::timeout(longest, asked.as_mut()).await.unwrap_or_else(|_| Err(failed(silence(longest))))
}

/// What is asked on one connection, if the answer does not take longer.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) async fn within<T>(
    span: impl Into<Option<Duration>>,
    asked: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let Some(span) = span.into() else { return asked.await };
    tokio::time::timeout(span, asked).await.unwrap_or_else(|_| Err(silence(span)))
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn silence(span: Duration) -> sqlx::Error {
    std::io::Error::new(std::io::ErrorKind::TimedOut, format!("no answer within {span:?}")).into()
}

/// Ends a transaction of the host's own: commits it, or rolls it back after an error.
///
/// # Errors
/// The error in `result`, or that of the commit.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) async fn commit_or_roll_back<S: End, T>(
    store: &S,
    transaction: Transaction<'static, S::Database>,
    result: Result<T, StoreError>,
) -> Result<T, StoreError> {
    match result {
        Ok(_) => store.commit(transaction).await?,
        Err(ref error) => roll_back(store, transaction, Some(error)).await,
    }
    result
}

/// Like [`commit_or_roll_back`], but also rolls back when the result is `None`.
///
/// # Errors
/// As [`commit_or_roll_back`].
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) async fn commit_if_some<S: End, T>(
    store: &S,
    transaction: Transaction<'static, S::Database>,
    result: Result<Option<T>, StoreError>,
) -> Result<Option<T>, StoreError> {
    if matches!(result, Ok(None)) {
        roll_back(store, transaction, None).await;
        return Ok(None);
    }
    commit_or_roll_back(store, transaction, result).await
}

/// Waits for the rollback: who tries again would wait for the locks of this transaction otherwise. Where it fails, the connection is
/// lost, and the server rolls back by itself.
#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn roll_back<S: End>(store: &S, transaction: Transaction<'static, S::Database>, after: Option<&StoreError>) {
    // A server that has fallen silent answers no rollback either.
    if !matches!(after, Some(StoreError::Disconnected { .. })) {
        let silent = |silence| store.failed("roll back", silence);
        let _ = answered(Some(SIGN_OF_LIFE), store.roll_back(transaction), silent).await;
    }
}

/// The longest that a commit or the begin of a transaction is waited for. A standby may have to confirm a commit.
pub(super) const LONGEST_IN_OWN_TASK: std::time::Duration = std::time::Duration::from_secs(600);

/// Waits for what is done in a task of its own: a `begin` or a commit that is cancelled half-way leaves a pooled connection
/// inside a transaction.
pub(super) async fn in_own_task<T: Send + 'static>(
    action: &'static str,
    work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    failed: impl FnOnce(&'static str, sqlx::Error) -> StoreError,
) -> Result<T, StoreError> {
    in_own_task_within(LONGEST_IN_OWN_TASK, || (), action, work, failed).await
}

/// As [`in_own_task`], for no longer than this; then `given_up` is called before the connection goes back to its pool.
pub(super) async fn in_own_task_within<T: Send + 'static>(
    longest: std::time::Duration,
    given_up: impl FnOnce() + Send + 'static,
    action: &'static str,
    work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    failed: impl FnOnce(&'static str, sqlx::Error) -> StoreError,
) -> Result<T, StoreError> {
    // Nobody else ends it, and without an answer it would keep its connection for ever.
    let work = async move {
        let mut work = std::pin::pin!(work);
        tokio::time::timeout(longest, work.as_mut()).await.unwrap_or_else(|_| {
            given_up();
            Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())
        })
    };
    match tokio::spawn(work).await {
        Ok(result) => result.map_err(|error| failed(action, error)),
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action }),
    }
}
