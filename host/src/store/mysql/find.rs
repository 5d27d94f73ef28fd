//! Whether events are still in the transaction that they were written in.

use sqlx::Row;
use sqlx::mysql::MySqlConnection;

use super::MySqlStore;
use super::row::numbers;
use crate::event::EventId;
use crate::store::StoreError;
use crate::store::row::sequence;

/// Bound: a JSON list of seq.
pub(super) const FIND: &str = "
SELECT outbox_event.seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = given.seq";

pub(super) async fn find(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    sequences: &[u64],
) -> Result<Vec<(u64, EventId)>, StoreError> {
    let failed = |error| store.failed("look for written events", error);
    let query = sqlx::query(store.table.sql(FIND)).bind(numbers(sequences));
    let rows = query.fetch_all(connection).await.map_err(failed)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: &str = row.try_get(1).map_err(failed)?;
        if let Ok(id) = id.parse() {
            found.push((sequence(row)?, id));
        }
    }
    Ok(found)
}
