//! Running one statement: what is asked runs on the connections that only read, what changes rows on the one that writes.

use sqlx::Sqlite;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::error::failed;
use crate::run::Run;
use crate::{StoreError, TableName, run};

/// A statement with what is bound to it.
pub(super) type Statement<'q> = run::Statement<'q, Sqlite>;

impl Run for SqliteStore {
    type Database = Sqlite;

    fn table(&self) -> &TableName {
        &self.table
    }

    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        // SQLite would only tell of an error of the disk.
        self.opened_file.check().err().unwrap_or_else(|| failed(action, source))
    }

    async fn all(&self, action: &'static str, statement: Statement<'_>) -> Result<Vec<SqliteRow>, StoreError> {
        let mut connection = self.reading(action).await?;
        statement.fetch_all(&mut *connection).await.map_err(|error| self.failed(action, error))
    }

    async fn optional(&self, action: &'static str, statement: Statement<'_>) -> Result<Option<SqliteRow>, StoreError> {
        let mut connection = self.reading(action).await?;
        statement.fetch_optional(&mut *connection).await.map_err(|error| self.failed(action, error))
    }

    async fn execute(&self, action: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        let mut connection = self.writing(|error| self.failed(action, error)).await?;
        let result = statement.execute(&mut *connection).await.map_err(|error| self.failed(action, error))?;
        Ok(result.rows_affected())
    }
}
