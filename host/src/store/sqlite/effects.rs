//! Outcomes with effects: follow-up events and plugins' state.
//!
//! The transaction holds the lock of the whole file, so that nothing that it reads can change before its commit.

use async_trait::async_trait;
use sqlx::FromRow;
use sqlx::sqlite::SqliteConnection;

use super::error::failed;
use super::insert::insert;
use super::settle::settle_in;
use super::{SqliteStore, transaction};
use crate::store::effects::{Decided, Present, Read, Used, decide, keys, plugins};
use crate::store::number::{signed, unsigned};
use crate::store::{Committed, EffectStore, Ownership, SettledWithEffects, StoreError};

/// ?1 the seq, ?2 the fence.
const HELD: &str = "
SELECT 1 FROM outbox_event WHERE seq = ?1 AND claim_seq = ?2 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// ?1 the plugin.
pub(super) const USED: &str = "SELECT used_keys, used_bytes, revision FROM outbox_event_state_usage WHERE plugin = ?1";

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
pub(super) const NOTE_USAGE: &str = "
INSERT INTO outbox_event_state_usage (plugin, used_keys, used_bytes, revision) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (plugin) DO UPDATE
SET used_keys = excluded.used_keys, used_bytes = excluded.used_bytes, revision = excluded.revision";

const ACTION: &str = "store outcomes with their effects";

#[async_trait]
impl EffectStore for SqliteStore {
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
        let items = settled;
        let mut transaction = transaction::begin(self).await?;
        let decided = decide(items, read(self, &mut transaction, items).await?);
        write(self, &mut transaction, &decided).await?;
        transaction::commit(transaction).await?;
        Ok(decided.committed)
    }
}

async fn read<'a>(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    items: &[SettledWithEffects<'a>],
) -> Result<Read<'a>, StoreError> {
    let failed = |error| failed(ACTION, error);
    let mut read = Read::default();
    for item in items {
        let fence = item.settled.fence;
        let query = sqlx::query(store.table.sql(HELD)).bind(signed(fence.sequence)).bind(signed(fence.claim));
        if query.fetch_optional(&mut *connection).await.map_err(failed)?.is_some() {
            read.held.insert(fence);
        }
    }
    for plugin in plugins(items) {
        let query = sqlx::query(store.table.sql(USED)).bind(plugin);
        if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(failed)? {
            let used: (i64, i64, i64) = FromRow::from_row(&row).map_err(failed)?;
            read.used.insert(plugin, Used::from(used));
        }
    }
    for key in keys(items) {
        let query = sqlx::query(store.table.sql(PRESENT)).bind(key.0).bind(key.1);
        if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(failed)? {
            let (version, bytes): (i64, i64) = FromRow::from_row(&row).map_err(failed)?;
            read.present.insert(key, Present { version: unsigned(version), bytes: unsigned(bytes) });
        }
    }
    Ok(read)
}

async fn write(store: &SqliteStore, connection: &mut SqliteConnection, decided: &Decided<'_>) -> Result<(), StoreError> {
    let failed = |error| failed(ACTION, error);
    settle_in(store, connection, &decided.settled).await?;
    if !decided.emitted.is_empty() {
        insert(store, connection, &decided.emitted, &Ownership::nobodys()).await?;
    }
    for ((plugin, key), write) in &decided.writes {
        let query = match write {
            Some((value, version)) => sqlx::query(store.table.sql(SET))
                .bind(*plugin)
                .bind(*key)
                .bind(&value[..])
                .bind(signed(*version))
                .bind(store.now_micros()),
            None => sqlx::query(store.table.sql(DELETE)).bind(*plugin).bind(*key),
        };
        query.execute(&mut *connection).await.map_err(failed)?;
    }
    for (plugin, used) in &decided.used {
        let query = sqlx::query(store.table.sql(NOTE_USAGE))
            .bind(*plugin)
            .bind(signed(used.usage.keys))
            .bind(signed(used.usage.bytes))
            .bind(signed(used.revision));
        query.execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(())
}
