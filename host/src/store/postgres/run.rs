//! Running one statement on a connection of the host's pool.
//!
//! A connection whose server went away or became a standby is thrown away at once: a pool would hand it out again and again.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, SqlStr};

use super::PostgresStore;
use super::error::{failed, spoils_connection};
use crate::store::StoreError;

/// A statement with what is bound to it.
pub(super) type Statement<'q> = Query<'q, Postgres, PgArguments>;

impl PostgresStore {
    /// A statement of this store's table.
    pub(super) fn statement<'q>(&self, sql: &'static str) -> Statement<'q> {
        sqlx::query(self.table.sql(sql))
    }

    /// The text of a statement for this store's table.
    pub(super) fn text(&self, sql: &'static str) -> SqlStr {
        self.table.sql(sql)
    }

    pub(super) async fn connection(&self, action: &'static str) -> Result<PoolConnection<Postgres>, StoreError> {
        self.host.acquire().await.map_err(|error| failed(action, error))
    }

    pub(super) async fn all(&self, action: &'static str, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        let mut connection = self.connection(action).await?;
        statement.fetch_all(&mut *connection).await.map_err(|error| self.judge(action, error, connection))
    }

    pub(super) async fn one(&self, action: &'static str, statement: Statement<'_>) -> Result<PgRow, StoreError> {
        let mut connection = self.connection(action).await?;
        statement.fetch_one(&mut *connection).await.map_err(|error| self.judge(action, error, connection))
    }

    pub(super) async fn optional(&self, action: &'static str, statement: Statement<'_>) -> Result<Option<PgRow>, StoreError> {
        let mut connection = self.connection(action).await?;
        statement.fetch_optional(&mut *connection).await.map_err(|error| self.judge(action, error, connection))
    }

    /// Returns how many rows it changed.
    pub(super) async fn execute(&self, action: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let mut connection = self.connection(action).await?;
        let result = statement.execute(&mut *connection).await.map_err(|error| self.judge(action, error, connection))?;
        Ok(result.rows_affected())
    }

    fn judge(&self, action: &'static str, error: sqlx::Error, mut connection: PoolConnection<Postgres>) -> StoreError {
        let error = self.failed(action, error);
        if spoils_connection(&error) {
            connection.close_on_drop();
        }
        error
    }

    /// As [`failed`], names the table when that is what is missing, and draws what it says of the other connections.
    pub(super) fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
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
}
