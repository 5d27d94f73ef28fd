//! Running one statement on a connection of the host's pool.

use std::sync::Arc;

use sqlx::MySql;
use sqlx::mysql::{MySqlPool, MySqlRow, MySqlTransaction};
use sqlx::pool::PoolConnection;

use super::primary::is_of_read_only_server;
use super::{MySqlStore, error};
use crate::keeper::{Keeper, alone, ask};
use crate::run::{End, Run, in_time, within};
use crate::{StoreError, TableName, run};

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
        let error = if is_of_read_only_server(&source) {
            StoreError::StaleRead { action, server: self.database.to_string() }
        } else {
            error::failed(action, source)
        };
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

impl End for MySqlStore {
    async fn commit(&self, transaction: MySqlTransaction<'static>) -> Result<(), StoreError> {
        self.alone("commit", transaction.commit()).await
    }

    async fn roll_back(&self, transaction: MySqlTransaction<'static>) -> Result<(), StoreError> {
        transaction.rollback().await.map_err(|error| self.failed("roll back", error))
    }
}

impl MySqlStore {
    /// What is to take another pool when this store's gives no connection.
    fn stuck(&self) -> Option<Arc<Keeper<MySql>>> {
        self.keeps.then(|| self.keeper.clone())
    }

    /// Begins or commits a transaction of the host's own, in a task of its own.
    async fn alone<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl Future<Output = Result<T, sqlx::Error>> + Send + 'static,
    ) -> Result<T, StoreError> {
        alone(&self.trust, self.stuck(), action, work, |action, error| self.failed(action, error)).await
    }

    pub(super) async fn connection(&self, action: &'static str) -> Result<PoolConnection<MySql>, StoreError> {
        let acquired = async {
            let acquire = |pool| self.connector.ask_pool(pool, |pool: MySqlPool| async move { pool.acquire().await });
            let acquired = ask(self.pool.clone(), self.stuck(), acquire).await;
            acquired.map_err(|error| self.failed(action, error))
        };
        in_time(self.patience, acquired, |late| self.failed(action, late)).await
    }

    /// Begins a transaction of the host's own.
    pub(super) async fn transaction(&self) -> Result<MySqlTransaction<'static>, StoreError> {
        let (pool, stuck, connector) = (self.pool.clone(), self.stuck(), self.connector.clone());
        let begun = async move {
            ask(pool, stuck, |pool| connector.ask_pool(pool, |pool: MySqlPool| async move { pool.begin().await })).await
        };
        let begun = self.alone(BEGIN, begun);
        in_time(self.patience, begun, |late| self.failed(BEGIN, late)).await
    }
}
