//! Running one statement on a connection of the host's pool.
//!
//! A connection whose server went away or became a standby is thrown away at once: a pool would hand it out again and again.

use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::{AssertSqlSafe, Connection, Postgres};

use super::address::PostgresServers;
use super::error::{BEGIN, failed, is_of_trigger, is_silence, spoils_connection};
use super::{PostgresStore, PostgresTransaction};
use crate::connector::Connector;
use crate::keeper::{Keeper, alone, ask};
use crate::run::{End, Run, SIGN_OF_LIFE, commit_or_roll_back, in_own_task, in_time, within};
use crate::{StoreError, TableName, run};

/// A statement with what is bound to it.
pub(super) type Statement<'q> = run::Statement<'q, Postgres>;

impl Run for PostgresStore {
    type Database = Postgres;

    fn table(&self) -> &TableName {
        &self.table
    }

    fn statement<'q>(&self, sql: &'static str) -> Statement<'q> {
        sqlx::query(self.table.sql(sql)).persistent(!self.pooler.is_present())
    }

    /// As [`Self::sorted`]. A connection to a standby cannot be closed alone while a transaction is on it, so all are closed.
    fn failed(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        let error = self.sorted(action, source);
        if matches!(error, StoreError::Standby { .. } | StoreError::StaleRead { .. }) {
            self.trust.lose();
        }
        error
    }

    async fn all(&self, action: &'static str, statement: Statement<'_>) -> Result<Vec<PgRow>, StoreError> {
        if self.is_pooled(action).await? {
            let mut transaction = self.transaction().await?;
            let rows = within(self.longest, statement.persistent(false).fetch_all(&mut *transaction)).await;
            let rows = rows.map_err(|error| self.failed_in_pooler(action, error));
            return commit_or_roll_back(self, transaction, rows).await;
        }
        let mut connection = self.connection(action).await?;
        let rows = within(self.longest, statement.fetch_all(&mut *connection)).await;
        rows.map_err(|error| self.judge(action, error, connection))
    }

    async fn optional(&self, action: &'static str, statement: Statement<'_>) -> Result<Option<PgRow>, StoreError> {
        if self.is_pooled(action).await? {
            return Ok(self.all(action, statement).await?.into_iter().next());
        }
        let mut connection = self.connection(action).await?;
        let row = within(self.longest, statement.fetch_optional(&mut *connection)).await;
        row.map_err(|error| self.judge(action, error, connection))
    }

    async fn execute(&self, action: &'static str, statement: Statement<'_>) -> Result<u64, StoreError> {
        if self.is_pooled(action).await? {
            let mut transaction = self.transaction().await?;
            let result = within(self.longest, statement.persistent(false).execute(&mut *transaction)).await;
            let result = result.map_err(|error| self.failed_in_pooler(action, error));
            return Ok(commit_or_roll_back(self, transaction, result).await?.rows_affected());
        }
        let mut connection = self.connection(action).await?;
        let result = within(self.longest, statement.execute(&mut *connection)).await;
        Ok(result.map_err(|error| self.judge(action, error, connection))?.rows_affected())
    }
}

impl End for PostgresStore {
    async fn commit(&self, transaction: PostgresTransaction) -> Result<(), StoreError> {
        self.alone("commit", transaction.commit()).await
    }

    async fn roll_back(&self, transaction: PostgresTransaction) -> Result<(), StoreError> {
        transaction.rollback().await.map_err(|error| self.failed("roll back", error))
    }
}

impl PostgresStore {
    /// What is to take another pool when this store's gives no connection.
    fn stuck(&self) -> Option<Arc<Keeper<Postgres>>> {
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

    /// Whether a pooler in transaction mode is between, so that statements go together in a transaction alone.
    pub(super) async fn is_pooled(&self, action: &'static str) -> Result<bool, StoreError> {
        self.pooler.find(&self.connector).await.map_err(|error| failed(action, error))
    }

    pub(super) async fn connection(&self, action: &'static str) -> Result<PoolConnection<Postgres>, StoreError> {
        let acquired = async {
            let acquire = |pool| self.connector.ask_pool(pool, |pool: PgPool| async move { pool.acquire().await });
            let acquired = ask(self.host.clone(), self.stuck(), acquire).await;
            acquired.map_err(|error| failed(action, error))
        };
        in_time(self.patience, acquired, |late| failed(action, late)).await
    }

    /// As [`Run::all`]. After an error, waits until the server has rolled the statement back: it sends the error before it frees the
    /// locks, and a statement that follows on another connection would skip the locked rows.
    pub(super) async fn all_or_rolled_back(
        &self,
        action: &'static str,
        statement: Statement<'_>,
    ) -> Result<Vec<PgRow>, StoreError> {
        if self.is_pooled(action).await? {
            return self.all(action, statement).await;
        }
        let mut connection = self.connection(action).await?;
        let rows = within(self.longest, statement.fetch_all(&mut *connection)).await;
        if matches!(rows, Err(sqlx::Error::Database(_))) {
            let _ = within(SIGN_OF_LIFE, connection.ping()).await;
        }
        rows.map_err(|error| self.judge(action, error, connection))
    }

    /// A statement that names no table of ours, for a transaction.
    pub(super) fn plain<'q>(&self, sql: &'static str) -> Statement<'q> {
        sqlx::query(sql).persistent(!self.pooler.is_present())
    }

    /// Begins a transaction of the host's own.
    pub(super) async fn transaction(&self) -> Result<PostgresTransaction, StoreError> {
        let begun = async {
            let (pool, stuck, connector) = (self.host.clone(), self.stuck(), self.connector.clone());
            if !self.is_pooled(BEGIN).await? {
                return self.alone(BEGIN, async move { ask(pool, stuck, |pool| begun(&connector, pool, None)).await }).await;
            }
            let begin = Some(self.pooler.begin().to_owned());
            self.alone(BEGIN, async move { ask(pool, stuck, |pool| begun(&connector, pool, begin.clone())).await }).await
        };
        in_time(self.patience, begun, |late| failed(BEGIN, late)).await
    }

    /// A connection that a transaction is on cannot be thrown away alone.
    fn failed_in_pooler(&self, action: &'static str, error: sqlx::Error) -> StoreError {
        let error = self.failed(action, error);
        if spoils_connection(&error) {
            self.trust.lose();
        }
        error
    }

    /// As [`failed`], names the table when that is what is missing, and draws what it says of the other connections.
    pub(super) fn sorted(&self, action: &'static str, source: sqlx::Error) -> StoreError {
        let code = source.as_database_error().and_then(sqlx::error::DatabaseError::code);
        if matches!(code.as_deref(), Some("42P01" | "3F000")) && !is_of_trigger(&source) {
            return StoreError::NoSchema { table: self.table.to_string() };
        }
        let is_silence = is_silence(&source);
        let error = failed(action, source);
        if matches!(error, StoreError::Outdated { .. }) {
            // The same statement was prepared on the others.
            self.trust.lose();
            self.pooler.forget();
        }
        if is_silence {
            // The others are to the same server.
            self.trust.lose();
        }
        error
    }

    fn judge(&self, action: &'static str, error: sqlx::Error, mut connection: PoolConnection<Postgres>) -> StoreError {
        let error = self.sorted(action, error);
        if spoils_connection(&error) {
            connection.close_on_drop();
        }
        error
    }
}

/// Begins a transaction of the application's. `connector` is `None` for the application's own pool.
pub(super) async fn begin(
    pool: &PgPool,
    connector: Option<Arc<Connector<PostgresServers>>>,
) -> Result<PostgresTransaction, StoreError> {
    let pool = pool.clone();
    let begun = async move {
        match connector {
            Some(connector) => begun(&connector, pool, None).await,
            None => pool.begin().await,
        }
    };
    in_own_task(BEGIN, begun, failed).await
}

async fn begun(
    connector: &Arc<Connector<PostgresServers>>,
    pool: PgPool,
    begin: Option<String>,
) -> Result<PostgresTransaction, sqlx::Error> {
    let ask = |pool: PgPool| {
        let begin = begin.clone();
        async move {
            match begin {
                // Safe: the only text put in is numbers and names of settings.
                Some(begin) => pool.begin_with(AssertSqlSafe(begin)).await,
                None => pool.begin().await,
            }
        }
    };
    connector.ask_pool(pool, ask).await
}
