//! Plugin state: read, listed and deleted.

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};

use super::audit::note;
use super::effects::{NOTE_USAGE, USED};
use super::error::failed;
use super::{SqliteStore, transaction};
use crate::event::{StateUsage, StateValue};
use crate::store::effects::Used;
use crate::store::number::{signed, unsigned};
use crate::store::row::Named;
use crate::store::state::{DELETE_STATE, Deletion, end_of_prefix};
use crate::store::{Audit, PluginUsage, StateRecord, StateStore, StoreError};
use crate::time::Timestamp;

/// ?1 the plugin, ?2 the key.
const STATE: &str = "SELECT version, value FROM outbox_event_state WHERE plugin = ?1 AND name = ?2";

/// ?1 after which plugin, ?2 most plugins.
const USAGES: &str = "
SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage
WHERE plugin > ?1 AND used_keys > 0
ORDER BY plugin LIMIT ?2";

/// ?1 the plugin, ?2 the lowest key, ?3 the upper bound (exclusive) or NULL, ?4 after which key, ?5 most values.
const LIST: &str = "
SELECT plugin, name, version, length(value) AS value_bytes, updated_at, NULL AS value FROM outbox_event_state
WHERE plugin = ?1 AND name >= ?2 AND (?3 IS NULL OR name < ?3) AND name > ?4
ORDER BY name LIMIT ?5";

/// ?1 the plugin, ?2 the key.
const GET: &str = "
SELECT plugin, name, version, length(value) AS value_bytes, updated_at, value FROM outbox_event_state
WHERE plugin = ?1 AND name = ?2";

/// ?1 the plugin, ?2 the key or NULL for every key, ?3 most values.
const DELETE: &str = "
DELETE FROM outbox_event_state
WHERE plugin = ?1 AND name IN (
  SELECT name FROM outbox_event_state WHERE plugin = ?1 AND (?2 IS NULL OR name = ?2) ORDER BY name LIMIT ?3)
RETURNING length(CAST(name AS BLOB)) + length(value)";

const ACTION: &str = "delete a plugin's state";

#[async_trait]
impl StateStore for SqliteStore {
    async fn state(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, StoreError> {
        let failed = |error| failed("read a plugin's state", error);
        let query = sqlx::query(self.table.sql(STATE)).bind(plugin).bind(key);
        let row = query.fetch_optional(&self.readers).await.map_err(failed)?;
        let value = |row: &SqliteRow| {
            Ok(StateValue { version: unsigned(row.try_get(0)?), value: Bytes::from(row.try_get::<Vec<u8>, _>(1)?) })
        };
        row.as_ref().map(value).transpose().map_err(failed)
    }

    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError> {
        let failed = |error| failed("read how much state a plugin has", error);
        let query = sqlx::query(self.table.sql(USED)).bind(plugin);
        let row = query.fetch_optional(&self.readers).await.map_err(failed)?;
        let usage = |row: &SqliteRow| Ok(StateUsage { keys: unsigned(row.try_get(0)?), bytes: unsigned(row.try_get(1)?) });
        Ok(row.as_ref().map(usage).transpose().map_err(failed)?.unwrap_or_default())
    }

    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError> {
        let failed = |error| failed("read how much state plugins have", error);
        let query = sqlx::query(self.table.sql(USAGES)).bind(after.unwrap_or_default()).bind(i64::from(limit));
        let rows = query.fetch_all(&self.readers).await.map_err(failed)?;
        rows.iter().map(usage).collect::<Result<_, _>>().map_err(failed)
    }

    async fn list_state(
        &self,
        plugin: &str,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<StateRecord>, StoreError> {
        let failed = |error| failed("list a plugin's state", error);
        let query = sqlx::query(self.table.sql(LIST))
            .bind(plugin)
            .bind(prefix)
            .bind(end_of_prefix(prefix))
            .bind(after.unwrap_or_default())
            .bind(i64::from(limit));
        let rows = query.fetch_all(&self.readers).await.map_err(failed)?;
        rows.iter().map(record).collect::<Result<_, _>>().map_err(failed)
    }

    async fn get_state(&self, plugin: &str, key: &str) -> Result<Option<StateRecord>, StoreError> {
        let failed = |error| failed("read a plugin's state", error);
        let query = sqlx::query(self.table.sql(GET)).bind(plugin).bind(key);
        let row = query.fetch_optional(&self.readers).await.map_err(failed)?;
        row.as_ref().map(record).transpose().map_err(failed)
    }

    async fn delete_state(&self, plugin: &str, key: &str, audit: &Audit) -> Result<bool, StoreError> {
        Ok(delete(self, plugin, Deletion::One(key), audit).await? == 1)
    }

    async fn delete_all_state(&self, plugin: &str, limit: u32, audit: &Audit) -> Result<u64, StoreError> {
        delete(self, plugin, Deletion::All(limit), audit).await
    }
}

async fn delete(store: &SqliteStore, plugin: &str, deletion: Deletion<'_>, audit: &Audit) -> Result<u64, StoreError> {
    let failed = |error| failed(ACTION, error);
    let mut transaction = transaction::begin(store).await?;
    let (key, limit) = deletion.parameters();
    let query = sqlx::query_as(store.table.sql(DELETE)).bind(plugin).bind(key).bind(limit);
    let gone: Vec<(i64,)> = query.fetch_all(&mut *transaction).await.map_err(failed)?;
    let (keys, bytes) = (gone.len() as u64, gone.iter().map(|(bytes,)| unsigned(*bytes)).sum::<u64>());
    if keys == 0 {
        transaction::rollback(transaction).await?;
        return Ok(0);
    }
    let query = sqlx::query(store.table.sql(USED)).bind(plugin);
    let row = query.fetch_optional(&mut *transaction).await.map_err(failed)?;
    let used: (i64, i64, i64) = row.as_ref().map(FromRow::from_row).transpose().map_err(failed)?.unwrap_or_default();
    let after = Used::from(used).without(keys, bytes);
    let query = sqlx::query(store.table.sql(NOTE_USAGE))
        .bind(plugin)
        .bind(signed(after.usage.keys))
        .bind(signed(after.usage.bytes))
        .bind(signed(after.revision));
    query.execute(&mut *transaction).await.map_err(failed)?;
    note(store, &mut transaction, audit, DELETE_STATE, &deletion.selector(plugin), keys).await?;
    transaction::commit(transaction).await?;
    Ok(keys)
}

fn usage(row: &SqliteRow) -> Result<PluginUsage, sqlx::Error> {
    let usage = StateUsage { keys: row.count("used_keys")?, bytes: row.count("used_bytes")? };
    Ok(PluginUsage { plugin: row.try_get("plugin")?, usage })
}

fn record(row: &SqliteRow) -> Result<StateRecord, sqlx::Error> {
    Ok(StateRecord {
        plugin: row.try_get("plugin")?,
        key: row.try_get("name")?,
        version: row.count("version")?,
        value_bytes: row.count("value_bytes")?,
        updated_at: Timestamp::from_micros(row.try_get("updated_at")?),
        value: row.try_get::<Option<Vec<u8>>, _>("value")?.map(Bytes::from),
    })
}
