//! Whether events are still in the transaction that they were written in.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::error::failed;
use crate::event::EventId;
use crate::store::StoreError;

/// ?1 ids as a JSON list.
const FIND: &str = "SELECT event_id FROM outbox_event WHERE event_id IN (SELECT value FROM json_each(?1))";

pub(super) async fn find(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    ids: &[EventId],
) -> Result<Vec<EventId>, StoreError> {
    let failed = |error| failed("look for written events", error);
    let list = serde_json::to_string(ids).expect("a list of texts is JSON");
    let rows = sqlx::query(store.table.sql(FIND)).bind(list).fetch_all(connection).await.map_err(failed)?;
    let ids = rows.iter().map(|row| row.try_get::<&str, _>(0).map(|id| id.parse().ok())).collect::<Result<Vec<_>, _>>();
    Ok(ids.map_err(failed)?.into_iter().flatten().collect())
}
