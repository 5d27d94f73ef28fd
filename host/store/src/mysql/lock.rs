//! Rows that somebody else has locked are passed by: who waits for one holds up all the others that wait for him.
//!
//! Statements that are given rows name the primary key: this database reads a small table from end to end, and would wait for
//! rows that were never asked for.

use sqlx::mysql::MySqlConnection;

use super::patience::patiently;
use super::{MySqlStore, Run};
use crate::StoreError;
use crate::number::numbers;
use crate::row::sequence;
use crate::run::commit_or_roll_back;

/// Bound: a JSON list of seq.
const FREE: &str = "
SELECT outbox_event.seq FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
FOR UPDATE SKIP LOCKED";

/// Bound: a JSON list of seq.
pub(super) const THERE: &str = "
SELECT outbox_event.seq FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq";

/// Locks those of some rows that nobody else has locked, until the transaction ends; in the order in which everybody locks.
pub(super) async fn free(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    sequences: &[u64],
) -> Result<Vec<u64>, StoreError> {
    let mut sequences = sequences.to_vec();
    sequences.sort_unstable();
    let query = store.statement(FREE).bind(numbers(&sequences));
    let rows = query.fetch_all(connection).await.map_err(|error| store.failed("lock events", error))?;
    rows.iter().map(sequence).collect()
}

/// Runs a statement, to which a JSON list of seq is bound, on those of some rows that nobody else has locked. Returns how many it
/// changed.
pub(super) async fn change_free(
    store: &MySqlStore,
    action: &'static str,
    sql: &'static str,
    sequences: &[u64],
) -> Result<u64, StoreError> {
    if sequences.is_empty() {
        return Ok(0);
    }
    patiently(store, || try_change(store, action, sql, sequences)).await
}

async fn try_change(store: &MySqlStore, action: &'static str, sql: &'static str, sequences: &[u64]) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let changed = lock_and_change(store, &mut transaction, action, sql, sequences).await;
    commit_or_roll_back(store, transaction, changed).await
}

async fn lock_and_change(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    action: &'static str,
    sql: &'static str,
    sequences: &[u64],
) -> Result<u64, StoreError> {
    let free = free(store, connection, sequences).await?;
    let result = store.statement(sql).bind(numbers(&free)).execute(connection).await;
    Ok(result.map_err(|error| store.failed(action, error))?.rows_affected())
}
