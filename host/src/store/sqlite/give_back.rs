//! Claims that rows were inserted with, given back.

use super::SqliteStore;
use super::error::failed;
use crate::event::{EventId, OwnerId};
use crate::store::StoreError;

/// By the id, not by `seq`: the number of a row that was rolled back is given out again. The claim began
/// with the row, which no claim of a poller did, and the row is due since then.
/// ?1 ids as a JSON list, ?2 the owner.
const GIVE_BACK: &str = "
UPDATE outbox_event SET claims = max(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
WHERE event_id IN (SELECT value FROM json_each(?1)) AND claim_seq = 1 AND locked_by = ?2 AND locked_at = created_at
  AND status IN (0, 2)";

/// While we may write, no other transaction has written and is open still: a row that is not there was rolled back.
pub(super) async fn give_back(store: &SqliteStore, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
    let list = serde_json::to_string(ids).expect("a list of texts is JSON");
    sqlx::query(store.table.sql(GIVE_BACK))
        .bind(list)
        .bind(owner.as_str())
        .execute(&store.writer)
        .await
        .map_err(|error| failed("give claims back", error))?;
    Ok(ids.to_vec())
}
