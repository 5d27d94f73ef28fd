//! A transaction that has read and stays open: while it does, the server keeps every version of a row that was replaced meanwhile.

use sqlx::{Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};

use super::Error;

/// Open until it is dropped.
pub(super) enum Snapshot {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Snapshot {
    /// Connects to this database. The transaction is opened later: a table cannot be made anew meanwhile.
    pub(super) async fn of(url: &str) -> Result<Self, Error> {
        Ok(match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "postgres" | "postgresql" => Self::Postgres(PgConnection::connect(url).await?),
            "mysql" | "mariadb" => Self::MySql(MySqlConnection::connect(url).await?),
            _ => Self::Sqlite(SqliteConnection::connect(url).await?),
        })
    }

    /// From now on it sees the database as it is. It reads none of the benchmark's tables, which can be dropped before it ends.
    pub(super) async fn take(&mut self) -> Result<(), Error> {
        match self {
            Self::Postgres(connection) => {
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_database").await?;
            }
            Self::MySql(connection) => {
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await?;
                connection.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT").await?;
            }
            Self::Sqlite(connection) => {
                connection.execute("BEGIN; SELECT count(*) FROM sqlite_schema").await?;
            }
        }
        Ok(())
    }
}
