//! Outcomes with effects: follow-up events and plugins' state.
//!
//! The transaction holds the lock of the whole file, so nothing that it reads can change before its commit.

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;

use super::error::failed;
use super::run::Statement;
use super::settle::settle_in;
use super::{Run, SqliteStore, TransactionalStore};
use crate::effects::{Found, Plan, StoredValue, UsageRow, decide, keys, plugins};
use crate::number::signed;
use crate::{Committed, EffectStore, Ownership, SettledWithEffects, StoreError};

/// ?1 the seq, ?2 the fence, ?3 the id, NULL if it is not known.
const HELD: &str = "
SELECT 1 FROM outbox_event
WHERE seq = ?1 AND claim_seq & 4294967295 = ?2 & 4294967295 AND status IN (0, 2) AND (?3 IS NULL OR event_id = ?3)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = ?2 >> 32
                                          AND held.epoch > 0))";

/// ?1 the plugin.
pub(super) const USAGE: &str = "SELECT used_keys, used_bytes, revision FROM outbox_event_state_usage WHERE plugin = ?1";

/// ?1 the plugin, ?2 the key.
const PRESENT: &str = "
SELECT version, length(CAST(name AS BLOB)) + length(value) FROM outbox_event_state WHERE plugin = ?1 AND name = ?2";

/// ?1 the plugin, ?2 the key, ?3 the value, ?4 its version, ?5 now.
const SET: &str = "
INSERT INTO outbox_event_state (plugin, name, value, version, updated_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (plugin, name) DO UPDATE SET value = excluded.value, version = excluded.version, updated_at = excluded.updated_at";

/// ?1 the plugin, ?2 the key.
const DELETE: &str = "DELETE FROM outbox_event_state WHERE plugin = ?1 AND name = ?2";

/// ?1 the plugin, ?2 keys and ?3 bytes kept, ?4 the revision.
const NOTE_USAGE: &str = "
INSERT INTO outbox_event_state_usage (plugin, used_keys, used_bytes, revision) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (plugin) DO UPDATE
SET used_keys = excluded.used_keys, used_bytes = excluded.used_bytes, revision = excluded.revision";

const ACTION: &str = "store outcomes with their effects";

#[async_trait]
impl EffectStore for SqliteStore {
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
        let mut transaction = self.begin().await?;
        let plan = decide(settled, read(self, &mut transaction, settled).await?);
        write(self, &mut transaction, &plan).await?;
        self.finish(transaction).await?;
        Ok(plan.committed)
    }
}

async fn read<'a>(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    items: &[SettledWithEffects<'a>],
) -> Result<Found<'a>, StoreError> {
    let failed = |error| failed(ACTION, error);
    let mut found = Found::default();
    for item in items {
        let fence = item.settled.fence;
        let statement = store.statement(HELD).bind(signed(fence.sequence)).bind(signed(fence.claim));
        let statement = statement.bind(item.settled.id.map(|id| id.as_str().to_owned()));
        if statement.fetch_optional(&mut *connection).await.map_err(failed)?.is_some() {
            found.held.insert(fence);
        }
    }
    for plugin in plugins(items) {
        if let Some(row) = store.statement(USAGE).bind(plugin).fetch_optional(&mut *connection).await.map_err(failed)? {
            found.used.insert(plugin, UsageRow::read(&row).map_err(failed)?);
        }
    }
    for key in keys(items) {
        let statement = store.statement(PRESENT).bind(key.0).bind(key.1);
        if let Some(row) = statement.fetch_optional(&mut *connection).await.map_err(failed)? {
            found.present.insert(key, StoredValue::read(&row).map_err(failed)?);
        }
    }
    Ok(found)
}

async fn write(store: &SqliteStore, connection: &mut SqliteConnection, plan: &Plan<'_>) -> Result<(), StoreError> {
    let failed = |error| failed(ACTION, error);
    let outcomes = plan.settled.len();
    if settle_in(store, connection, &plan.settled).await? < outcomes as u64 {
        // No other connection writes during this transaction, so a trigger has left a row as it was.
        return Err(StoreError::PartitionsMoved { action: ACTION, outcomes });
    }
    if !plan.emitted.is_empty() {
        store.insert(connection, &plan.emitted, &Ownership::nobodys()).await?;
    }
    for ((plugin, key), write) in &plan.writes {
        let statement = match write {
            Some((value, version)) => {
                store.statement(SET).bind(*plugin).bind(*key).bind(&value[..]).bind(signed(*version)).bind(store.now_micros())
            }
            None => store.statement(DELETE).bind(*plugin).bind(*key),
        };
        statement.execute(&mut *connection).await.map_err(failed)?;
    }
    for (plugin, used) in &plan.used {
        noting_usage(store, plugin, *used).execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(())
}

/// The statement that notes what a plugin uses.
pub(super) fn noting_usage<'q>(store: &SqliteStore, plugin: &'q str, UsageRow { usage, revision }: UsageRow) -> Statement<'q> {
    store.statement(NOTE_USAGE).bind(plugin).bind(signed(usage.keys)).bind(signed(usage.bytes)).bind(signed(revision))
}
