//! What an event costs the database, by the server's own counters. They count what others do there meanwhile, too.

use std::time::Duration;

use serde::Serialize;
use sqlx::{Connection, MySqlConnection, PgConnection};

use super::Error;

/// What an event costs, from its INSERT to its outcome.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    /// Rows inserted, updated and deleted.
    pub(super) row_writes: f64,
    /// Bytes of the write-ahead log (PostgreSQL) or the redo log (MySQL, MariaDB).
    pub(super) log_bytes: f64,
}

/// The counters of a server.
pub(super) enum Counters {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

/// What they say.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    row_writes: i64,
    log_bytes: i64,
}

const POSTGRES_ROWS: &str =
    "SELECT tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = current_database()";
const POSTGRES_LOG: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
const MYSQL: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Handler_delete',
  'Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted', 'Innodb_os_log_written')";

/// PostgreSQL's sessions tell what they have counted when they have been idle for ten seconds.
const TOLD_AFTER: Duration = Duration::from_secs(11);

/// What the counters say before a stage, where there are any.
pub(super) async fn begin(counters: &mut Option<Counters>) -> Result<Option<Counted>, Error> {
    let Some(counters) = counters else { return Ok(None) };
    let row_writes = counters.row_writes().await?;
    Ok(Some(Counted { row_writes, log_bytes: counters.log_bytes().await? }))
}

/// What each of so many events has cost since then.
pub(super) async fn end(counters: &mut Option<Counters>, begun: Option<Counted>, events: u32) -> Result<Option<Cost>, Error> {
    let (Some(counters), Some(begun)) = (counters, begun) else { return Ok(None) };
    let log_bytes = counters.log_bytes().await? - begun.log_bytes;
    let row_writes = counters.row_writes().await? - begun.row_writes;
    let per_event = |count: i64| count as f64 / f64::from(events);
    Ok(Some(Cost { row_writes: per_event(row_writes), log_bytes: per_event(log_bytes) }))
}

impl Counters {
    /// Those of the server of this URL; `None` for SQLite, which counts nothing.
    pub(super) async fn of(url: &str) -> Result<Option<Self>, Error> {
        Ok(match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            "postgres" | "postgresql" => Some(Self::Postgres(PgConnection::connect(url).await?)),
            "mysql" | "mariadb" => Some(Self::MySql(MySqlConnection::connect(url).await?)),
            _ => None,
        })
    }

    async fn row_writes(&mut self) -> Result<i64, Error> {
        Ok(match self {
            Self::Postgres(connection) => {
                tokio::time::sleep(TOLD_AFTER).await;
                sqlx::query_scalar(POSTGRES_ROWS).fetch_one(connection).await?
            }
            Self::MySql(connection) => {
                let status = status(connection).await?;
                let of = |prefix: &str| -> i64 {
                    status.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, value)| value).sum()
                };
                // MariaDB does not count InnoDB's rows; MySQL's handlers count temporary tables, too.
                if of("Innodb_rows") > 0 { of("Innodb_rows") } else { of("Handler") }
            }
        })
    }

    async fn log_bytes(&mut self) -> Result<i64, Error> {
        Ok(match self {
            Self::Postgres(connection) => sqlx::query_scalar(POSTGRES_LOG).fetch_one(connection).await?,
            Self::MySql(connection) => {
                let status = status(connection).await?;
                status.iter().filter(|(name, _)| name == "Innodb_os_log_written").map(|(_, value)| value).sum()
            }
        })
    }
}

async fn status(connection: &mut MySqlConnection) -> Result<Vec<(String, i64)>, Error> {
    let rows: Vec<(String, String)> = sqlx::query_as(MYSQL).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(name, value)| (name, value.parse().unwrap_or(0))).collect())
}
