//! Leases of claims: renewed on a connection of their own, or given back; starts that are counted.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{EventId, Fence, OwnerId};
use serde_json::json;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::lock::free;
use super::patience::patiently;
use super::{MySqlStore, Run};
use crate::number::{fence_rows, numbers};
use crate::row::{sequence, with_ids};
use crate::run::commit_or_roll_back;
use crate::settle::delay_micros;
use crate::{LeaseStore, Renewed, StoreError};

/// Those whose claim began with the row, which no claim of a poller did; locked until the transaction ends. A row of a
/// transaction that is open still is locked by that one, and passed by. Bound: a JSON list of ids, the owner.
const FREE: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id
WHERE claim_seq = 1 AND locked_by = ? AND locked_at = created_at AND status IN (0, 2)
FOR UPDATE SKIP LOCKED";

/// The rows are locked already, and due since their insert. Bound: a JSON list of seq.
const GIVE_BACK: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET claim_seq = claim_seq + 1, claims = GREATEST(claims, 1) - 1, locked_by = NULL, locked_at = NULL, lease_end = NULL";

/// Those that are not held by that claim any more. Bound: as [`FREE`].
const OTHERS: &str = "
SELECT seq, outbox_event.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (event_id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS given
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_id) ON outbox_event.event_id = given.event_id
WHERE claim_seq <> 1 OR NOT (locked_by <=> ?) OR NOT (locked_at <=> created_at) OR status NOT IN (0, 2)";

const ACTION: &str = "give claims back";
const RENEW_ACTION: &str = "renew leases";

async fn try_give_back(store: &MySqlStore, owner: &OwnerId, ids: &str) -> Result<Vec<EventId>, StoreError> {
    let mut transaction = store.transaction().await?;
    let given_back = give_back_free(store, &mut transaction, owner, ids).await;
    commit_or_roll_back(store, transaction, given_back).await?;
    let mut connection = store.connection(ACTION).await?;
    // After the commit those that were given back are among them.
    let rows = look(store, &mut connection, OTHERS, owner, ids).await?;
    Ok(with_ids(&rows).map_err(|error| store.failed(ACTION, error))?.into_iter().map(|(_, id)| id).collect())
}

async fn give_back_free(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    ids: &str,
) -> Result<(), StoreError> {
    let free = look(store, connection, FREE, owner, ids).await?;
    if free.is_empty() {
        return Ok(());
    }
    let sequences = free.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
    let result = store.statement(GIVE_BACK).bind(numbers(&sequences)).execute(connection).await;
    result.map(drop).map_err(|error| store.failed(ACTION, error))
}

async fn look(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    statement: &'static str,
    owner: &OwnerId,
    ids: &str,
) -> Result<Vec<MySqlRow>, StoreError> {
    let query = store.statement(statement).bind(ids).bind(owner.as_str());
    query.fetch_all(connection).await.map_err(|error| store.failed(ACTION, error))
}

/// Names the primary key: along another index this database would wait for rows that others are inserting. Bound: the fence.
const COUNT: &str = "
UPDATE outbox_event FORCE INDEX (PRIMARY) SET starts = LEAST(starts + 1, 2147483647)
WHERE seq = ? AND claim_seq & 4294967295 = ? & 4294967295 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Names no fence: whoever holds the event now, this host has outlived it. Bound: the `seq`.
const UNCOUNT: &str = "
UPDATE outbox_event FORCE INDEX (PRIMARY) SET starts = starts - 1 WHERE seq = ? AND starts > 0 AND status IN (0, 2)";

/// The rows are locked already: waiting for one that somebody else has locked, the leases of all others would end. In order of
/// binding: rows of [seq, fence], the lease in microseconds.
pub(super) const RENEW: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$[0]', fence BIGINT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = held.seq
SET lease_end = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
WHERE claim_seq & 4294967295 = held.fence & 4294967295 AND locked_by IS NOT NULL AND status IN (0, 2)";

const STILL_HELD: &str = "
SELECT outbox_event.seq
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$[0]', fence BIGINT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = held.seq
WHERE claim_seq & 4294967295 = held.fence & 4294967295 AND locked_by IS NOT NULL AND status IN (0, 2)";

#[async_trait]
impl LeaseStore for MySqlStore {
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
        if held.is_empty() {
            return Ok(Renewed::default());
        }
        patiently(&self.keeping(), || try_renew(self, held, lease)).await
    }

    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        let ids = json!(ids).to_string();
        patiently(self, || try_give_back(self, owner, &ids)).await
    }

    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError> {
        Ok(self.execute("count a start", self.statement(COUNT).bind(fence.sequence).bind(fence.claim)).await? == 1)
    }

    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError> {
        self.execute("take back a start", self.statement(UNCOUNT).bind(sequence)).await?;
        Ok(())
    }
}

async fn try_renew(store: &MySqlStore, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
    let store = &store.keeping();
    let mut transaction = store.transaction().await?;
    let renewed = renew_free(store, &mut transaction, held, lease).await;
    commit_or_roll_back(store, transaction, renewed).await?
}

/// Renews those whose rows nobody has locked, and looks which are still held. Asked in the same transaction: a proxy may send a lone
/// read to a server that lags behind. That a look failed does not take the renewals back.
async fn renew_free(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    held: &[Fence],
    lease: Duration,
) -> Result<Result<Renewed, StoreError>, StoreError> {
    let failed = |error| store.failed(RENEW_ACTION, error);
    let sequences: Vec<u64> = held.iter().map(|fence| fence.sequence).collect();
    let free: HashSet<u64> = free(store, connection, &sequences).await?.into_iter().collect();
    let fences = fence_rows(held.iter().filter(|fence| free.contains(&fence.sequence)));
    let statement = store.statement(RENEW).bind(fences).bind(delay_micros(lease));
    let renewed = statement.execute(&mut *connection).await.map_err(failed)?.rows_affected();
    if usize::try_from(renewed) == Ok(held.len()) {
        return Ok(Ok(Renewed { held: sequences, locked: Vec::new() }));
    }
    let rows = store.statement(STILL_HELD).bind(fence_rows(held)).fetch_all(&mut *connection).await;
    let ours = rows.map_err(failed).and_then(|rows| rows.iter().map(sequence).collect::<Result<Vec<_>, _>>());
    Ok(ours.map(|ours| {
        let (held, locked) = ours.into_iter().partition(|sequence| free.contains(sequence));
        Renewed { held, locked }
    }))
}
