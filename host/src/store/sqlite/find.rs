//! Whether events are still in the transaction that they were written in.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::error::failed;
use crate::event::EventId;
use crate::store::StoreError;
use crate::store::row::sequence;

/// ?1 numbers of rows as a JSON list.
const FIND: &str = "SELECT seq, event_id FROM outbox_event WHERE seq IN (SELECT value FROM json_each(?1))";

pub(super) async fn find(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    sequences: &[u64],
) -> Result<Vec<(u64, EventId)>, StoreError> {
    let failed = |error| failed("look for written events", error);
    let list = serde_json::to_string(sequences).expect("a list of numbers is JSON");
    let rows = sqlx::query(store.table.sql(FIND)).bind(list).fetch_all(connection).await.map_err(failed)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: &str = row.try_get(1).map_err(failed)?;
        if let Ok(id) = id.parse() {
            found.push((sequence(row)?, id));
        }
    }
    Ok(found)
}
