//! Optional indexes: each serves one mode or search.

use sqlx::AssertSqlSafe;
use sqlx::mysql::MySqlConnection;

use super::ddl::{lock, unlock};
use super::{MySqlStore, Run};
use crate::row::Named;
use crate::schema::in_use;
use crate::{Index, StoreError};

/// Bound: the table and the index.
pub(super) const EXISTS: &str = "
SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? AND index_name = ?";

const ACTION: &str = "create an index";

/// The name of an index, and the statement that creates it; `None` where the primary key does its work.
const fn definition(index: Index) -> Option<(&'static str, &'static str)> {
    match index {
        Index::OrderedByAggregate => Some(("outbox_key", "CREATE INDEX outbox_key ON outbox_event (key_hash, seq)")),
        Index::Ordered => None,
        Index::Aggregate => Some(("outbox_aggregate", "CREATE INDEX outbox_aggregate ON outbox_event (aggregate_id, seq)")),
    }
}

/// The statement that creates it.
pub(super) fn sql(index: Index) -> Option<&'static str> {
    definition(index).map(|(_, create)| create)
}

pub(super) async fn exists(store: &MySqlStore, index: Index) -> Result<bool, StoreError> {
    let Some((name, _)) = definition(index) else { return Ok(true) };
    let statement = sqlx::query(EXISTS).bind(store.table.as_str()).bind(name);
    Ok(store.read_one("look for an index", statement, |row| row.number(0)).await? > 0)
}

pub(super) async fn add(store: &MySqlStore, index: Index) -> Result<bool, StoreError> {
    let Some((name, create)) = definition(index) else { return Ok(false) };
    let mut connection = lock(store).await?;
    let added = add_locked(store, &mut connection, name, create).await;
    let unlocked = unlock(store, &mut connection).await;
    added.and_then(|added| unlocked.map(|()| added))
}

async fn add_locked(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    name: &'static str,
    create: &'static str,
) -> Result<bool, StoreError> {
    if is_there(store, connection, name).await? {
        return Ok(false);
    }
    let create = store.table.sql(create);
    // Only MariaDB executes the comment. Its sessions have a limit that ends this statement too, and a large table takes longer.
    let create = format!("/*M!100600 SET STATEMENT max_statement_time = 0 FOR */ {}", create.as_str());
    // Safe: the only text put in is checked identifiers.
    let created = sqlx::raw_sql(AssertSqlSafe(create)).execute(connection).await;
    created.map(|_| true).map_err(|error| in_use(&store.table, store.failed(ACTION, error)))
}

async fn is_there(store: &MySqlStore, connection: &mut MySqlConnection, name: &'static str) -> Result<bool, StoreError> {
    let row = sqlx::query(EXISTS).bind(store.table.as_str()).bind(name).fetch_one(connection).await;
    Ok(row.and_then(|row| row.number(0)).map_err(|error| store.failed(ACTION, error))? > 0)
}
