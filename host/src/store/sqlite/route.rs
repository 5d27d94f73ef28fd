//! Routes that had a listener, and the events that wait for theirs.

use serde_json::json;
use sqlx::Row;

use super::SqliteStore;
use super::open::failed;
use crate::event::Route;
use crate::store::StoreError;

/// ?1 rows of [aggregate_type, event_type], ?2 most rows. The index on parked routes serves the join.
const UNPARK: &str = "
UPDATE outbox_event SET parked = NULL, due_at = available_at
WHERE seq IN (
  SELECT outbox_event.seq FROM jsonb_each(?1) AS route CROSS JOIN outbox_event
  WHERE outbox_event.aggregate_type = route.value ->> 0 AND outbox_event.event_type = route.value ->> 1
    AND outbox_event.parked IS NOT NULL
  LIMIT ?2)";

const REMEMBER: &str = "
INSERT INTO outbox_event_route (aggregate_type, event_type, first_seen_at)
SELECT value ->> 0, value ->> 1, ?2 FROM jsonb_each(?1) WHERE true
ON CONFLICT DO NOTHING";

const KNOWN: &str = "SELECT aggregate_type, event_type FROM outbox_event_route";

pub(super) async fn unpark(store: &SqliteStore, routes: &[Route], limit: u32) -> Result<u64, StoreError> {
    let result = sqlx::query(store.table.sql(UNPARK))
        .bind(pairs(routes))
        .bind(i64::from(limit))
        .execute(&store.writer)
        .await
        .map_err(|error| failed("unpark events", error))?;
    Ok(result.rows_affected())
}

pub(super) async fn remember(store: &SqliteStore, routes: &[Route]) -> Result<(), StoreError> {
    sqlx::query(store.table.sql(REMEMBER))
        .bind(pairs(routes))
        .bind(store.now_micros())
        .execute(&store.writer)
        .await
        .map_err(|error| failed("note routes", error))?;
    Ok(())
}

pub(super) async fn known(store: &SqliteStore) -> Result<Vec<Route>, StoreError> {
    let rows = sqlx::query(store.table.sql(KNOWN))
        .fetch_all(&store.readers)
        .await
        .map_err(|error| failed("read the known routes", error))?;
    Ok(rows
        .iter()
        .filter_map(|row| Route::new(row.try_get::<&str, _>(0).ok()?, row.try_get::<&str, _>(1).ok()?).ok())
        .collect())
}

fn pairs(routes: &[Route]) -> String {
    let pairs = routes.iter().map(|route| json!([route.aggregate_type, route.event_type])).collect();
    serde_json::Value::Array(pairs).to_string()
}
