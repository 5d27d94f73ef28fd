//! A read transaction that stays open: the database keeps every row version that was replaced since it began.

use sqlx::{Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};

use super::stage::Error;
use crate::config::Kind;

/// The connection of the transaction, which is open until this is dropped.
pub(super) enum Snapshot {
    Postgres(PgConnection),
    MySql(MySqlConnection),
    Sqlite(SqliteConnection),
}

impl Snapshot {
    /// Connects to the database of this URL. The transaction begins later, since it may keep the table from being created.
    pub(super) async fn connect(kind: Kind, url: &str) -> Result<Self, Error> {
        Ok(match kind {
            Kind::Postgres => Self::Postgres(PgConnection::connect(url).await?),
            Kind::Mysql => Self::MySql(MySqlConnection::connect(url).await?),
            Kind::Sqlite => Self::Sqlite(SqliteConnection::connect(url).await?),
        })
    }

    /// Begins the transaction. It reads none of the benchmark's tables, so they can be dropped while it is open.
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
