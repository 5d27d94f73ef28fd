//! Claims that rows were inserted with, given back.

use serde_json::json;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::MySqlStore;
use super::row::{numbers, sequence};
use super::transaction::{self, Patience};
use crate::event::{EventId, OwnerId};
use crate::store::StoreError;

/// Those whose claim began with the row, which no claim of a poller did; locked until the transaction ends. A row of a transaction that is open still is locked by that one, and
/// passed by. Bound: a JSON list of ids, the owner.
const FREE: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id
WHERE claim_seq = 1 AND locked_by = ? AND locked_at = created_at AND status IN (0, 2)
FOR UPDATE SKIP LOCKED";

/// The rows are locked already, and due since their insert. Bound: a JSON list of seq.
const GIVE_BACK: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET claims = GREATEST(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL";

/// Those that are not held by that claim any more. Bound: as [`FREE`].
const OTHERS: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id
WHERE claim_seq <> 1 OR NOT (locked_by <=> ?) OR NOT (locked_at <=> created_at) OR status NOT IN (0, 2)";

const ACTION: &str = "give claims back";

pub(super) async fn give_back(store: &MySqlStore, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
    let ids = json!(ids).to_string();
    let mut patience = Patience::new();
    loop {
        match try_give_back(store, owner, &ids).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_give_back(store: &MySqlStore, owner: &OwnerId, ids: &str) -> Result<Vec<EventId>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let mut transaction = transaction::begin(store).await?;
    let free = look(store, &mut transaction, FREE, owner, ids).await?;
    if !free.is_empty() {
        let sequences = free.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
        let query = sqlx::query(store.table.sql(GIVE_BACK)).bind(numbers(&sequences));
        query.execute(&mut *transaction).await.map_err(failed)?;
    }
    transaction::commit(transaction).await?;
    let mut connection = store.pool.acquire().await.map_err(failed)?;
    // After the commit those that were given back are among them.
    let rows = look(store, &mut connection, OTHERS, owner, ids).await?;
    let ids = rows.iter().map(|row| row.try_get::<&str, _>(1).map(|id| id.parse().ok())).collect::<Result<Vec<_>, _>>();
    Ok(ids.map_err(failed)?.into_iter().flatten().collect())
}

async fn look(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    statement: &'static str,
    owner: &OwnerId,
    ids: &str,
) -> Result<Vec<MySqlRow>, StoreError> {
    let query = sqlx::query(store.table.sql(statement)).bind(ids).bind(owner.as_str());
    query.fetch_all(connection).await.map_err(|error| store.failed(ACTION, error))
}
