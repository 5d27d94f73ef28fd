//! Whether events are still in the transaction that they were written in.

use serde_json::json;
use sqlx::Row;
use sqlx::mysql::MySqlConnection;

use super::MySqlStore;
use crate::event::EventId;
use crate::store::StoreError;

/// Bound: a JSON list of ids.
pub(super) const FIND: &str = "
SELECT outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id";

pub(super) async fn find(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    ids: &[EventId],
) -> Result<Vec<EventId>, StoreError> {
    let failed = |error| store.failed("look for written events", error);
    let query = sqlx::query(store.table.sql(FIND)).bind(json!(ids).to_string());
    let rows = query.fetch_all(connection).await.map_err(failed)?;
    let ids = rows.iter().map(|row| row.try_get::<&str, _>(0).map(|id| id.parse().ok())).collect::<Result<Vec<_>, _>>();
    Ok(ids.map_err(failed)?.into_iter().flatten().collect())
}
