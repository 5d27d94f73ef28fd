//! Whether events are still in the transaction that they were written in.

use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::PostgresStore;
use crate::event::EventId;
use crate::store::StoreError;

/// $1 ids.
const FIND: &str = "SELECT event_id FROM outbox_event WHERE event_id = ANY ($1::text[])";

pub(super) async fn find(
    store: &PostgresStore,
    connection: &mut PgConnection,
    ids: &[EventId],
) -> Result<Vec<EventId>, StoreError> {
    let failed = |error| store.failed("look for written events", error);
    let texts: Vec<String> = ids.iter().map(EventId::to_string).collect();
    let rows = store.statement(FIND).bind(texts).fetch_all(connection).await.map_err(failed)?;
    let ids = rows.iter().map(|row| row.try_get::<&str, _>(0).map(|id| id.parse().ok())).collect::<Result<Vec<_>, _>>();
    Ok(ids.map_err(failed)?.into_iter().flatten().collect())
}
