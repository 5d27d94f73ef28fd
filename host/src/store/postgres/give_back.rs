//! Claims that rows were inserted with, given back.

use sqlx::Row;

use super::PostgresStore;
use crate::event::{EventId, OwnerId};
use crate::store::StoreError;

/// A row of a transaction that is open still cannot be seen, and one that somebody has locked is passed by: neither is waited for.
/// The claim began with the row, which no claim of a poller did, and the row is due since then. $1 ids, $2 the owner.
const GIVE_BACK: &str = "
WITH free AS MATERIALIZED (
  SELECT seq FROM outbox_event
  WHERE event_id = ANY ($1::text[]) AND claim_seq = 1 AND locked_by = $2::text AND locked_at = created_at
    AND status IN (0, 2)
  FOR NO KEY UPDATE SKIP LOCKED),
given_back AS (
  UPDATE outbox_event SET claims = greatest(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
  FROM free WHERE outbox_event.seq = free.seq RETURNING event_id)
SELECT event_id FROM given_back
UNION ALL
SELECT event_id FROM outbox_event
WHERE event_id = ANY ($1::text[]) AND (claim_seq <> 1 OR locked_by IS DISTINCT FROM $2::text
  OR locked_at IS DISTINCT FROM created_at OR status NOT IN (0, 2))";

pub(super) async fn give_back(store: &PostgresStore, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
    let action = "give claims back";
    let texts: Vec<String> = ids.iter().map(EventId::to_string).collect();
    let rows = store.all(action, store.statement(GIVE_BACK).bind(texts).bind(owner.as_str())).await?;
    let ids = rows.iter().map(|row| row.try_get::<&str, _>(0).map(|id| id.parse().ok())).collect::<Result<Vec<_>, _>>();
    Ok(ids.map_err(|error| store.failed(action, error))?.into_iter().flatten().collect())
}
