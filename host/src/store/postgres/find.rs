//! Whether events are still in the transaction that they were written in.

use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::PostgresStore;
use crate::event::EventId;
use crate::store::StoreError;
use crate::store::number::signed;
use crate::store::row::sequence;

/// $1 numbers of rows.
const FIND: &str = "SELECT seq, event_id FROM outbox_event WHERE seq = ANY ($1::bigint[])";

pub(super) async fn find(
    store: &PostgresStore,
    connection: &mut PgConnection,
    sequences: &[u64],
) -> Result<Vec<(u64, EventId)>, StoreError> {
    let failed = |error| store.failed("look for written events", error);
    let given: Vec<i64> = sequences.iter().copied().map(signed).collect();
    let rows = store.statement(FIND).bind(given).fetch_all(connection).await.map_err(failed)?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: &str = row.try_get(1).map_err(failed)?;
        if let Ok(id) = id.parse() {
            found.push((sequence(row)?, id));
        }
    }
    Ok(found)
}
