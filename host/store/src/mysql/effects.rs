//! Outcomes with effects: follow-up events and plugins' state.

use async_trait::async_trait;
use sqlx::mysql::MySqlConnection;

use super::patience::patiently;
use super::run::Statement;
use super::settle::{held, rows_of, settle_in};
use super::{MySqlStore, Run, TransactionalStore};
use crate::effects::{Found, Plan, StoredValue, UsageRow, decide, keys, plugins, until_written};
use crate::number::signed;
use crate::run::commit_if_some;
use crate::{Committed, EffectStore, Ownership, SettledWithEffects, StoreError, row};

/// The events for which these outcomes can still be written, locked in the order in which all statements lock. Bound: rows of
/// [seq, fence, id], in order.
const HELD: &str = concat!(
    "
SELECT settled.seq, settled.fence
FROM JSON_TABLE(?, '$[*]' COLUMNS (
       seq BIGINT UNSIGNED PATH '$[0]', fence BIGINT PATH '$[1]',
       id VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[2]')) AS settled
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = settled.seq
",
    held!(),
    "
FOR UPDATE"
);

/// Bound: the plugin.
const OPEN_USAGE: &str = "INSERT IGNORE INTO outbox_event_state_usage (plugin) VALUES (?)";

/// One transaction at a time changes the state of a plugin: what is read after this lock stays true until the commit. Bound: the
/// plugin.
pub(super) const LOCK_USAGE: &str = "
SELECT used_keys, used_bytes, revision FROM outbox_event_state_usage WHERE plugin = ? FOR UPDATE";

/// Read under a lock: otherwise this database would return what was there when the transaction began. Bound: the plugin, the key.
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
        // A missing row is made outside of the transaction: two transactions that both make it would wait for each other.
        for plugin in plugins(settled) {
            self.execute(ACTION, self.statement(OPEN_USAGE).bind(plugin.as_bytes())).await?;
        }
        until_written(settled.len(), ACTION, || patiently(self, || try_settle(self, settled))).await
    }
}

/// `None` when a partition got another owner meanwhile: nothing is written.
async fn try_settle(store: &MySqlStore, items: &[SettledWithEffects<'_>]) -> Result<Option<Vec<Committed>>, StoreError> {
    let mut transaction = store.transaction().await?;
    let written = read_and_write(store, &mut transaction, items).await;
    commit_if_some(store, transaction, written).await
}

async fn read_and_write(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    items: &[SettledWithEffects<'_>],
) -> Result<Option<Vec<Committed>>, StoreError> {
    let plan = decide(items, read(store, connection, items).await?);
    Ok(write(store, connection, &plan).await?.then_some(plan.committed))
}

async fn read<'a>(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    items: &[SettledWithEffects<'a>],
) -> Result<Found<'a>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let query = store.statement(HELD).bind(rows_of(items.iter().map(|item| item.settled)));
    let rows = query.fetch_all(&mut *connection).await.map_err(failed)?;
    let mut found = Found { held: rows.iter().map(row::fence).collect::<Result<_, _>>().map_err(failed)?, ..Found::default() };
    for plugin in plugins(items) {
        let query = store.statement(LOCK_USAGE).bind(plugin.as_bytes());
        if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(failed)? {
            found.used.insert(plugin, UsageRow::read(&row).map_err(failed)?);
        }
    }
    for key in keys(items) {
        let query = store.statement(PRESENT).bind(key.0.as_bytes()).bind(key.1.as_bytes());
        if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(failed)? {
            found.present.insert(key, StoredValue::read(&row).map_err(failed)?);
        }
    }
    Ok(found)
}

/// False when an outcome was not stored, because its partition got another owner after `read`.
async fn write(store: &MySqlStore, connection: &mut MySqlConnection, plan: &Plan<'_>) -> Result<bool, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    if settle_in(store, connection, &plan.settled).await? < plan.settled.len() as u64 {
        return Ok(false);
    }
    if !plan.emitted.is_empty() {
        store.insert(connection, &plan.emitted, &Ownership::nobodys()).await?;
    }
    for ((plugin, key), write) in &plan.writes {
        let query = match write {
            Some((value, version)) => {
                store.statement(SET).bind(plugin.as_bytes()).bind(key.as_bytes()).bind(&value[..]).bind(signed(*version))
            }
            None => store.statement(DELETE).bind(plugin.as_bytes()).bind(key.as_bytes()),
        };
        query.execute(&mut *connection).await.map_err(failed)?;
    }
    for (plugin, used) in &plan.used {
        noting_usage(store, plugin, *used).execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(true)
}

/// The statement that notes what a plugin uses.
pub(super) fn noting_usage<'q>(store: &MySqlStore, plugin: &'q str, UsageRow { usage, revision }: UsageRow) -> Statement<'q> {
    let statement = store.statement(NOTE_USAGE).bind(signed(usage.keys)).bind(signed(usage.bytes));
    statement.bind(signed(revision)).bind(plugin.as_bytes())
}
