//! Running one statement on a connection of the host's pool.
//!
//! A connection whose server went away or became a standby is thrown away at once: a pool would hand it out again and again.

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgRow};

use super::error::{failed, spoils_connection};
use super::{PostgresStore, PostgresTransaction};
use crate::store::run::{Run, in_own_task};
use crate::store::{StoreError, TableName, run};

/// A statement with what is bound to it.
pub(super) type Statement<'q> = run::Statement<'q, Postgres>;

impl Run for PostgresStore {
    type Database = Postgres;

    fn table(&self) -> &TableName {
        &self.table
    }

    /// As [`failed`], names the table when that is what is missing, and draws what it says of the other connections.
    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if let Some("42P01" | "3F000") = code.as_deref() {
            return StoreError::NoSchema { table: self.table.to_string() };
        }
        let error = failed(action, source);
        if matches!(error, StoreError::Outdated { .. }) {
            // The same statement was prepared on the others.
            self.trust.lose();
        }
        error
    }

    async fn all(&self, action: &'static str, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        let mut connection = self.connection(action).await?;
        statement.fetch_all(&mut *connection).await.map_err(|error| self.judge(action, error, connection))
    }

    async fn optional(&self, action: &'static str, statement: Statement<'_>) -> Result<Option<PgRow>, StoreError> {
        let mut connection = self.connection(action).await?;
        statement.fetch_optional(&mut *connection).await.map_err(|error| self.judge(action, error, connection))
    }

    async fn execute(&self, action: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let mut connection = self.connection(action).await?;
        let result = statement.execute(&mut *connection).await.map_err(|error| self.judge(action, error, connection))?;
        Ok(result.rows_affected())
    }
}

impl PostgresStore {
    pub(super) async fn connection(&self, action: &'static str) -> Result<PoolConnection<Postgres>, StoreError> {
        self.host.acquire().await.map_err(|error| failed(action, error))
    }

    /// Begins a transaction of the host's own.
    pub(super) async fn transaction(&self) -> Result<PostgresTransaction, StoreError> {
        begin(&self.host).await
    }

    fn judge(&self, action: &'static str, error: sqlx::Error, mut connection: PoolConnection<Postgres>) -> StoreError {
        let error = self.failed(action, error);
        if spoils_connection(&error) {
            connection.close_on_drop();
        }
        error
    }
}

pub(super) async fn begin(pool: &PgPool) -> Result<PostgresTransaction, StoreError> {
    let pool = pool.clone();
    in_own_task("begin a transaction", async move { pool.begin().await }, failed).await
}
