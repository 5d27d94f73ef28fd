//! What a test needs of a database beside its store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbox::time::Timestamp;
use outbox::{Store, TransactionalStore};

/// A database whose store is known by its type, for what happens in the caller's own transactions.
#[async_trait]
pub trait Database: Harness {
    /// The kind of store.
    type Store: TransactionalStore + Clone;

    /// The store under test.
    fn typed(&self) -> Self::Store;

    /// Another store on the same database, as another process would open it, on a clock that goes by itself.
    async fn another(&self) -> Self::Store;

    /// Runs a statement on a connection, as the application does in its transaction.
    async fn run_on(&self, connection: &mut <Self::Store as TransactionalStore>::Connection, sql: &str);
}

/// A database of its own for one test: migrated, empty, gone with the harness.
#[async_trait]
pub trait Harness: Send + Sync {
    /// The store under test.
    fn store(&self) -> Arc<dyn Store>;

    /// The time by the clock that decides what is due.
    async fn now(&self) -> Timestamp;

    /// Lets time pass for every row, without waiting.
    async fn let_pass(&self, span: Duration);

    /// Runs statements as any other program would, on a connection of its own. Returns the rows that the last one changed.
    async fn execute(&self, sql: &str) -> u64 {
        self.try_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// As [`execute`](Self::execute), for statements that the database may refuse.
    ///
    /// # Errors
    /// The database's own.
    async fn try_execute(&self, sql: &str) -> Result<u64, sqlx::Error>;

    /// The one number that a query answers.
    async fn number(&self, sql: &str) -> i64;

    /// Another store on the same database with another table; not migrated.
    async fn other_table(&self, name: &str) -> Arc<dyn Store>;
}
