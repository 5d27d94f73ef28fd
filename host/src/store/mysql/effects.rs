//! Outcomes with effects: follow-up events and plugins' state.

use async_trait::async_trait;
use sqlx::mysql::MySqlConnection;

use super::patience::patiently;
use super::run::Statement;
use super::settle::settle_in;
use super::{MySqlStore, Run, TransactionalStore};
use crate::store::effects::{Decided, Present, Read, TRIES, Used, decide, keys, plugins};
use crate::store::number::{fence_rows, signed};
use crate::store::{Committed, EffectStore, Ownership, SettledWithEffects, StoreError, row};

/// The events that are held under these fences, locked in the order in which everybody locks. Bound: rows of [seq, fence], in
/// order.
const HELD: &str = "
SELECT settled.seq, settled.fence
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$[0]', fence BIGINT PATH '$[1]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
WHERE claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))
FOR UPDATE";

/// Bound: the plugin.
const OPEN_USAGE: &str = "INSERT IGNORE INTO outbox_event_state_usage (plugin) VALUES (?)";

/// One transaction at a time changes the state of a plugin: what is read after this lock stays true until the commit. Bound: the
/// plugin.
pub(super) const LOCK_USAGE: &str = "
SELECT used_keys, used_bytes, revision FROM outbox_event_state_usage WHERE plugin = ? FOR UPDATE";

/// Read under a lock, or this database would answer what was true when the transaction began. Bound: the plugin, the key.
const PRESENT: &str = "
SELECT version, LENGTH(name) + LENGTH(value) FROM outbox_event_state WHERE plugin = ? AND name = ? FOR UPDATE";

/// Bound: the plugin, the key, the value, its version.
const SET: &str = "
INSERT INTO outbox_event_state (plugin, name, value, version, updated_at) VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE value = VALUES(value), version = VALUES(version), updated_at = VALUES(updated_at)";

/// Bound: the plugin, the key.
const DELETE: &str = "DELETE FROM outbox_event_state WHERE plugin = ? AND name = ?";

/// Bound: keys and bytes kept, the revision, the plugin.
const NOTE_USAGE: &str = "
UPDATE outbox_event_state_usage SET used_keys = ?, used_bytes = ?, revision = ? WHERE plugin = ?";

const ACTION: &str = "store outcomes with their effects";

#[async_trait]
impl EffectStore for MySqlStore {
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
        // A row that is missing is made outside of the transaction: two that both make it would wait for each other.
        for plugin in plugins(settled) {
            self.execute(ACTION, self.statement(OPEN_USAGE).bind(plugin.as_bytes())).await?;
        }
        patiently(|| try_settle(self, settled)).await
    }
}

async fn try_settle(store: &MySqlStore, items: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
    for _ in 0..TRIES {
        let mut transaction = store.transaction().await?;
        let decided = decide(items, read(store, &mut transaction, items).await?);
        if write(store, &mut transaction, &decided).await? {
            MySqlStore::commit(transaction).await?;
            return Ok(decided.committed);
        }
        MySqlStore::rollback(transaction).await?;
    }
    Err(store.failed(ACTION, sqlx::Error::RowNotFound))
}

async fn read<'a>(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    items: &[SettledWithEffects<'a>],
) -> Result<Read<'a>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let query = store.statement(HELD).bind(fence_rows(items.iter().map(|item| &item.settled.fence)));
    let rows = query.fetch_all(&mut *connection).await.map_err(failed)?;
    let mut read = Read { held: rows.iter().map(row::fence).collect::<Result<_, _>>().map_err(failed)?, ..Read::default() };
    for plugin in plugins(items) {
        let query = store.statement(LOCK_USAGE).bind(plugin.as_bytes());
        if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(failed)? {
            read.used.insert(plugin, Used::read(&row).map_err(failed)?);
        }
    }
    for key in keys(items) {
        let query = store.statement(PRESENT).bind(key.0.as_bytes()).bind(key.1.as_bytes());
        if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(failed)? {
            read.present.insert(key, Present::read(&row).map_err(failed)?);
        }
    }
    Ok(read)
}

/// False when an outcome was not stored: its partition has got another owner since it was looked at.
async fn write(store: &MySqlStore, connection: &mut MySqlConnection, decided: &Decided<'_>) -> Result<bool, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    if settle_in(store, connection, &decided.settled).await? < decided.settled.len() as u64 {
        return Ok(false);
    }
    if !decided.emitted.is_empty() {
        store.insert(connection, &decided.emitted, &Ownership::nobodys()).await?;
    }
    for ((plugin, key), write) in &decided.writes {
        let query = match write {
            Some((value, version)) => {
                store.statement(SET).bind(plugin.as_bytes()).bind(key.as_bytes()).bind(&value[..]).bind(signed(*version))
            }
            None => store.statement(DELETE).bind(plugin.as_bytes()).bind(key.as_bytes()),
        };
        query.execute(&mut *connection).await.map_err(failed)?;
    }
    for (plugin, used) in &decided.used {
        noting_usage(store, plugin, *used).execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(true)
}

/// The statement that notes what a plugin uses.
pub(super) fn noting_usage<'q>(store: &MySqlStore, plugin: &'q str, Used { usage, revision }: Used) -> Statement<'q> {
    let statement = store.statement(NOTE_USAGE).bind(signed(usage.keys)).bind(signed(usage.bytes));
    statement.bind(signed(revision)).bind(plugin.as_bytes())
}
