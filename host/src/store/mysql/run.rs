//! Running one statement on a connection of the host's pool.

use sqlx::MySql;
use sqlx::mysql::{MySqlPool, MySqlRow, MySqlTransaction};
use sqlx::pool::PoolConnection;

use super::{MySqlStore, error};
use crate::store::run::{Run, in_own_task};
use crate::store::{StoreError, TableName, run};

/// A statement with what is bound to it.
pub(super) type Statement<'q> = run::Statement<'q, MySql>;

impl Run for MySqlStore {
    type Database = MySql;

    fn table(&self) -> &TableName {
        &self.table
    }

    /// Sorts a driver's error, and draws what it says of the other connections.
    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        let error = error::failed(action, source);
        if error::concerns_all(&error) {
            self.trust.lose();
        }
        error
    }

    async fn all(&self, action: &'static str, statement: Statement<'_>) -> Result<Vec<MySqlRow>, StoreError> {
        statement.fetch_all(&self.pool).await.map_err(|error| self.failed(action, error))
    }

    async fn optional(&self, action: &'static str, statement: Statement<'_>) -> Result<Option<MySqlRow>, StoreError> {
        statement.fetch_optional(&self.pool).await.map_err(|error| self.failed(action, error))
    }

    async fn execute(&self, action: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let result = statement.execute(&self.pool).await.map_err(|error| self.failed(action, error))?;
        Ok(result.rows_affected())
    }
}

impl MySqlStore {
    pub(super) async fn connection(&self, action: &'static str) -> Result<PoolConnection<MySql>, StoreError> {
        self.pool.acquire().await.map_err(|error| self.failed(action, error))
    }

    /// Begins a transaction of the host's own.
    pub(super) async fn transaction(&self) -> Result<MySqlTransaction<'static>, StoreError> {
        self.transaction_on(&self.pool).await
    }

    /// As [`transaction`](Self::transaction), on another pool of the store.
    pub(super) async fn transaction_on(&self, pool: &MySqlPool) -> Result<MySqlTransaction<'static>, StoreError> {
        let pool = pool.clone();
        let begun =
            in_own_task("begin a transaction", async move { pool.begin().await }, |action, error| self.failed(action, error));
        begun.await
    }
}
