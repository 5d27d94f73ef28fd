//! A connection to the server, as an account that may do everything.

use servers::Database;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

/// The settings that faults change for all sessions of MariaDB and that statements of the tests rely on.
const MARIADB: &str = "SET SESSION autocommit = 1, SESSION sql_big_selects = 1, SESSION sql_safe_updates = 0";

pub(super) enum Session {
    Postgres(PgConnection),
    MariaDb(MySqlConnection),
}

impl Session {
    pub(super) async fn connect(database: Database, url: &str) -> Result<Self, sqlx::Error> {
        let mut session = match database {
            Database::PostgreSql => return PgConnection::connect(url).await.map(Self::Postgres),
            Database::MariaDb => Self::MariaDb(MySqlConnection::connect(url).await?),
        };
        session.run(MARIADB).await?;
        Ok(session)
    }

    /// Runs one statement; on PostgreSQL, several are one transaction.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let statement = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Self::Postgres(connection) => statement.execute(&mut *connection).await.map(drop),
            Self::MariaDb(connection) => statement.execute(&mut *connection).await.map(drop),
        }
    }

    /// The number that a query returns.
    pub(super) async fn number(&mut self, sql: &str) -> Result<i64, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Postgres(connection) => sqlx::query_scalar(sql).fetch_one(&mut *connection).await,
            Self::MariaDb(connection) => sqlx::query_scalar(sql).fetch_one(&mut *connection).await,
        }
    }
}
