//! What an event costs the database, by the server's own counters. They include what other clients do meanwhile.

use std::time::Duration;

use serde::Serialize;
use sqlx::{Connection, MySqlConnection, PgConnection};

use super::stage::Error;
use crate::config::Kind;

/// What an event costs, from its INSERT to its outcome.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    /// Rows inserted, updated and deleted.
    pub(super) row_writes: f64,
    /// Bytes of the write-ahead log (PostgreSQL) or the redo log (MySQL, MariaDB).
    pub(super) log_bytes: f64,
}

/// A connection to the server whose counters are read.
pub(super) enum Counters {
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

const POSTGRES_ROWS: &str =
    "SELECT tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = current_database()";
const POSTGRES_LOG: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
const MYSQL: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_write', 'Handler_update', 'Handler_delete',
  'Innodb_rows_inserted', 'Innodb_rows_updated', 'Innodb_rows_deleted', 'Innodb_os_log_written')";

/// PostgreSQL's sessions report what they have counted only after they have been idle for ten seconds.
const REPORTED_AFTER: Duration = Duration::from_secs(11);

/// Does this work on this many events, and returns what each of the events has cost; `None` without counters.
pub(super) async fn costed<T>(
    counters: &mut Option<Counters>,
    events: u32,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<(T, Option<Cost>), Error> {
    let Some(counters) = counters else { return Ok((work.await?, None)) };
    // The log is read last before the work and first after it, so that it does not grow while we wait for the sessions.
    let row_writes = counters.row_writes().await?;
    let log_bytes = counters.log_bytes().await?;
    let value = work.await?;
    let log_bytes = counters.log_bytes().await? - log_bytes;
    let row_writes = counters.row_writes().await? - row_writes;
    let per_event = |count: i64| count as f64 / f64::from(events);
    Ok((value, Some(Cost { row_writes: per_event(row_writes), log_bytes: per_event(log_bytes) })))
}

impl Counters {
    /// Connects to the server of this URL; `None` for SQLite, which counts nothing.
    pub(super) async fn connect(kind: Kind, url: &str) -> Result<Option<Self>, Error> {
        Ok(match kind {
            Kind::Postgres => Some(Self::Postgres(PgConnection::connect(url).await?)),
            Kind::Mysql => Some(Self::MySql(MySqlConnection::connect(url).await?)),
            Kind::Sqlite => None,
        })
    }

    async fn row_writes(&mut self) -> Result<i64, Error> {
        Ok(match self {
            Self::Postgres(connection) => {
                tokio::time::sleep(REPORTED_AFTER).await;
                sqlx::query_scalar(POSTGRES_ROWS).fetch_one(connection).await?
            }
            Self::MySql(connection) => {
                let status = status(connection).await?;
                let sum = |prefix: &str| -> i64 {
                    status.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, value)| value).sum()
                };
                // MariaDB does not count InnoDB's rows; MySQL's handlers also count the rows of temporary tables.
                if sum("Innodb_rows") > 0 { sum("Innodb_rows") } else { sum("Handler") }
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
