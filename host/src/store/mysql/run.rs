//! Running one statement on a connection of the host's pool.

use sqlx::MySql;
use sqlx::mysql::{MySqlPool, MySqlRow, MySqlTransaction};
use sqlx::pool::PoolConnection;

use super::{MySqlStore, error};
use crate::store::run::{Run, in_own_task, in_time, within};
use crate::store::{StoreError, TableName, run};

const BEGIN: &str = "begin a transaction";

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
        let mut connection = self.connection(action).await?;
        within(self.longest, statement.fetch_all(&mut *connection)).await.map_err(|error| self.failed(action, error))
    }

    async fn optional(&self, action: &'static str, statement: Statement<'_>) -> Result<Option<MySqlRow>, StoreError> {
        let mut connection = self.connection(action).await?;
        within(self.longest, statement.fetch_optional(&mut *connection)).await.map_err(|error| self.failed(action, error))
    }

    async fn execute(&self, action: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let mut connection = self.connection(action).await?;
        let result = within(self.longest, statement.execute(&mut *connection)).await;
        Ok(result.map_err(|error| self.failed(action, error))?.rows_affected())
    }
}

impl MySqlStore {
    pub(super) async fn connection(&self, action: &'static str) -> Result<PoolConnection<MySql>, StoreError> {
        let acquired = async { self.pool.acquire().await.map_err(|error| self.failed(action, error)) };
        in_time(self.patience, acquired, |late| self.failed(action, late)).await
    }

    /// Begins a transaction of the host's own.
    pub(super) async fn transaction(&self) -> Result<MySqlTransaction<'static>, StoreError> {
        self.transaction_on(&self.pool).await
    }

    /// As [`transaction`](Self::transaction), on another pool of the store.
    pub(super) async fn transaction_on(&self, pool: &MySqlPool) -> Result<MySqlTransaction<'static>, StoreError> {
        let pool = pool.clone();
        let begun = in_own_task(BEGIN, async move { pool.begin().await }, |action, error| self.failed(action, error));
        in_time(self.patience, begun, |late| self.failed(BEGIN, late)).await
    }
}
