//! Optional indexes: each serves one mode or search.

use sqlx::sqlite::SqliteConnection;

use super::ddl::run;
use super::error::failed;
use super::{SqliteStore, TransactionalStore};
use crate::row::Named;
use crate::{Index, StoreError};

/// ?1 the index.
pub(super) const EXISTS: &str = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name = ?1";

const ACTION: &str = "create an index";

/// The name of an index, and the statement that creates it.
const fn definition(index: Index) -> (&'static str, &'static str) {
    match index {
        Index::OrderedByAggregate => (
            "outbox_event_key",
            "CREATE INDEX outbox_event_key ON outbox_event (aggregate_type, aggregate_id, seq)
             WHERE aggregate_id IS NOT NULL AND (status IN (0, 2) OR blocks = 1)",
        ),
        Index::Ordered => ("outbox_event_open", "CREATE INDEX outbox_event_open ON outbox_event (seq) WHERE done_at IS NULL"),
        Index::Aggregate => (
            "outbox_event_aggregate",
            "CREATE INDEX outbox_event_aggregate ON outbox_event (aggregate_id, seq) WHERE aggregate_id IS NOT NULL",
        ),
    }
}

/// The statement that creates it.
pub(super) const fn sql(index: Index) -> &'static str {
    definition(index).1
}

pub(super) async fn exists(store: &SqliteStore, index: Index) -> Result<bool, StoreError> {
    let mut connection = store.reading("look for an index").await?;
    is_there(store, &mut connection, index).await
}

pub(super) async fn add(store: &SqliteStore, index: Index) -> Result<bool, StoreError> {
    let mut transaction = store.begin().await?;
    if is_there(store, &mut transaction, index).await? {
        return Ok(false);
    }
    run(store, &mut transaction, sql(index)).await?;
    store.finish(transaction).await?;
    Ok(true)
}

async fn is_there(store: &SqliteStore, connection: &mut SqliteConnection, index: Index) -> Result<bool, StoreError> {
    let name = definition(index).0.replace("outbox_event", store.table.as_str());
    let row = sqlx::query(EXISTS).bind(name).fetch_one(connection).await;
    Ok(row.and_then(|row| row.number(0)).map_err(|error| failed(ACTION, error))? > 0)
}
