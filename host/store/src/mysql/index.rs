//! Optional indexes: each serves one mode or search.

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, Row};

use super::ddl::{lock, unlock};
use super::{MySqlStore, Run};
use crate::schema::in_use;
use crate::{Index, StoreError};

/// All columns: MySQL has `IS_VISIBLE`, MariaDB `IGNORED`. Bound: the table and the index.
const FIND: &str = "
SELECT * FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = ? AND index_name = ?";

/// Whether statements can use an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexState {
    Missing,
    /// It was made invisible (MySQL) or ignored (MariaDB): the server refuses statements that name it.
    Hidden,
    Usable,
}

impl IndexState {
    fn of(columns: &[MySqlRow]) -> Self {
        let Some(first) = columns.first() else { return Self::Missing };
        let is = |name: &str, value: &str| first.try_get_unchecked::<String, _>(name).is_ok_and(|found| found == value);
        if is("IS_VISIBLE", "NO") || is("IGNORED", "YES") { Self::Hidden } else { Self::Usable }
    }
}

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
    Ok(find(store, name).await? == IndexState::Usable)
}

pub(super) async fn find(store: &MySqlStore, name: &str) -> Result<IndexState, StoreError> {
    let columns = store.all("look for an index", sqlx::query(FIND).bind(store.table.as_str()).bind(name)).await?;
    Ok(IndexState::of(&columns))
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
    if is_usable(store, connection, name).await? {
        return Ok(false);
    }
    let create = store.table.sql(create);
    // Only MariaDB executes the comment. Its sessions have a limit that ends this statement too, and a large table takes longer.
    let create = format!("/*M!100600 SET STATEMENT max_statement_time = 0 FOR */ {}", create.as_str());
    // Safe: the only text put in is checked identifiers.
    let created = sqlx::raw_sql(AssertSqlSafe(create)).execute(connection).await;
    created.map(|_| true).map_err(|error| in_use(&store.table, store.failed(ACTION, error)))
}

async fn is_usable(store: &MySqlStore, connection: &mut MySqlConnection, name: &'static str) -> Result<bool, StoreError> {
    let columns = sqlx::query(FIND).bind(store.table.as_str()).bind(name).fetch_all(connection).await;
    let columns = columns.map_err(|error| store.failed(ACTION, error))?;
    Ok(IndexState::of(&columns) == IndexState::Usable)
}
