//! Statements that change the schema, under a lock of the server's.

use sqlx::MySql;
use sqlx::mysql::MySqlConnection;
use sqlx::pool::PoolConnection;

use super::{MySqlStore, Run};
use crate::StoreError;
use crate::row::Columns;
use crate::schema::in_use;

/// Such locks belong to the whole server, and their names have at most 64 characters. It ends with the connection at the
/// latest.
const LOCK: &str = "SELECT GET_LOCK(MD5(CONCAT(DATABASE(), '.', ?)), 60)";
const UNLOCK: &str = "DO RELEASE_LOCK(MD5(CONCAT(DATABASE(), '.', ?)))";

pub(super) const ACTION: &str = "migrate the schema";

pub(super) async fn lock(store: &MySqlStore) -> Result<PoolConnection<MySql>, StoreError> {
    let mut connection = store.connection(ACTION).await?;
    let row = sqlx::query(LOCK).bind(store.table.as_str()).fetch_one(&mut *connection).await;
    match row.and_then(|row| row.integer(0)).map_err(|error| store.failed(ACTION, error))? {
        Some(1) => Ok(connection),
        _ => Err(StoreError::Locked { action: ACTION, source: sqlx::Error::PoolTimedOut }),
    }
}

pub(super) async fn unlock(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<(), StoreError> {
    let result = sqlx::query(UNLOCK).bind(store.table.as_str()).execute(connection).await;
    result.map(drop).map_err(|error| store.failed(ACTION, error))
}

pub(super) async fn run(store: &MySqlStore, connection: &mut MySqlConnection, text: &'static str) -> Result<(), StoreError> {
    // A lock of a table is waited for no longer than by any statement of the host: see `open.rs`.
    let result = sqlx::raw_sql(store.table.sql(text)).execute(connection).await;
    result.map(drop).map_err(|error| in_use(&store.table, store.failed(ACTION, error)))
}
