//! Plugin state: read, listed and deleted. Names of plugins and keys are bytes here.

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};

use super::MySqlStore;
use super::audit::note;
use super::effects::{LOCK_USAGE, NOTE_USAGE};
use super::transaction::{self, Patience};
use crate::event::{StateUsage, StateValue};
use crate::store::effects::Used;
use crate::store::number::{signed, unsigned};
use crate::store::row::Named;
use crate::store::state::{DELETE_STATE, Deletion, end_of_prefix};
use crate::store::{Audit, PluginUsage, StateRecord, StateStore, StoreError};
use crate::time::Timestamp;

/// Bound: the plugin, the key.
const STATE: &str = "SELECT version, value FROM outbox_event_state WHERE plugin = ? AND name = ?";

/// Bound: the plugin.
const USAGE: &str = "SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage WHERE plugin = ?";

/// Bound: after which plugin, most plugins.
const USAGES: &str = "
SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage
WHERE plugin > ? AND used_keys > 0
ORDER BY plugin LIMIT ?";

/// Bound: the plugin, the lowest key, twice the upper bound (exclusive) or NULL, after which key, most values.
const LIST: &str = "
SELECT plugin, name, version, LENGTH(value) AS value_bytes,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at) AS updated_at, CAST(NULL AS BINARY) AS value
FROM outbox_event_state
WHERE plugin = ? AND name >= ? AND (? IS NULL OR name < ?) AND name > ?
ORDER BY name LIMIT ?";

/// Bound: the plugin, the key.
const GET: &str = "
SELECT plugin, name, version, LENGTH(value) AS value_bytes,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at) AS updated_at, value
FROM outbox_event_state WHERE plugin = ? AND name = ?";

/// Read under a lock, or this database would answer what was true when the transaction began. Bound: the plugin, twice the key or
/// NULL for every key, most values.
const CHOOSE: &str = "
SELECT LENGTH(name) + LENGTH(value) FROM outbox_event_state WHERE plugin = ? AND (? IS NULL OR name = ?)
ORDER BY name LIMIT ? FOR UPDATE";

/// Deletes those that [`CHOOSE`] has chosen: the plugin's usage is locked, so nobody else changes its state. Bound: as there.
const DELETE: &str = "
DELETE FROM outbox_event_state WHERE plugin = ? AND (? IS NULL OR name = ?)
ORDER BY name LIMIT ?";

const ACTION: &str = "delete a plugin's state";

#[async_trait]
impl StateStore for MySqlStore {
    async fn state(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, StoreError> {
        let failed = |error| self.failed("read a plugin's state", error);
        let query = sqlx::query(self.table.sql(STATE)).bind(plugin.as_bytes()).bind(key.as_bytes());
        let row = query.fetch_optional(&self.pool).await.map_err(failed)?;
        let value = |row: &MySqlRow| {
            Ok(StateValue { version: unsigned(row.try_get(0)?), value: Bytes::from(row.try_get::<Vec<u8>, _>(1)?) })
        };
        row.as_ref().map(value).transpose().map_err(failed)
    }

    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError> {
        let failed = |error| self.failed("read how much state a plugin has", error);
        let query = sqlx::query(self.table.sql(USAGE)).bind(plugin.as_bytes());
        let row = query.fetch_optional(&self.pool).await.map_err(failed)?;
        let found = row.as_ref().map(usage).transpose().map_err(failed)?;
        Ok(found.map(|found| found.usage).unwrap_or_default())
    }

    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError> {
        let failed = |error| self.failed("read how much state plugins have", error);
        let after = after.unwrap_or_default();
        let query = sqlx::query(self.table.sql(USAGES)).bind(after.as_bytes()).bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(failed)?;
        rows.iter().map(usage).collect::<Result<_, _>>().map_err(failed)
    }

    async fn list_state(
        &self,
        plugin: &str,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<StateRecord>, StoreError> {
        let failed = |error| self.failed("list a plugin's state", error);
        let end = end_of_prefix(prefix).map(String::into_bytes);
        let query = sqlx::query(self.table.sql(LIST))
            .bind(plugin.as_bytes())
            .bind(prefix.as_bytes())
            .bind(end.as_deref())
            .bind(end.as_deref())
            .bind(after.unwrap_or_default().as_bytes())
            .bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(failed)?;
        rows.iter().map(record).collect::<Result<_, _>>().map_err(failed)
    }

    async fn get_state(&self, plugin: &str, key: &str) -> Result<Option<StateRecord>, StoreError> {
        let failed = |error| self.failed("read a plugin's state", error);
        let query = sqlx::query(self.table.sql(GET)).bind(plugin.as_bytes()).bind(key.as_bytes());
        let row = query.fetch_optional(&self.pool).await.map_err(failed)?;
        row.as_ref().map(record).transpose().map_err(failed)
    }

    async fn delete_state(&self, plugin: &str, key: &str, audit: &Audit) -> Result<bool, StoreError> {
        Ok(delete(self, plugin, Deletion::One(key), audit).await? == 1)
    }

    async fn delete_all_state(&self, plugin: &str, limit: u32, audit: &Audit) -> Result<u64, StoreError> {
        delete(self, plugin, Deletion::All(limit), audit).await
    }
}

async fn delete(store: &MySqlStore, plugin: &str, deletion: Deletion<'_>, audit: &Audit) -> Result<u64, StoreError> {
    let mut patience = Patience::new();
    loop {
        match try_delete(store, plugin, deletion, audit).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_delete(store: &MySqlStore, plugin: &str, deletion: Deletion<'_>, audit: &Audit) -> Result<u64, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let mut transaction = transaction::begin(store).await?;
    let query = sqlx::query(store.table.sql(LOCK_USAGE)).bind(plugin.as_bytes());
    let Some(locked) = query.fetch_optional(&mut *transaction).await.map_err(failed)? else {
        // It has never had state.
        transaction::rollback(transaction).await?;
        return Ok(0);
    };
    let used: (i64, i64, i64) = FromRow::from_row(&locked).map_err(failed)?;
    let (key, limit) = deletion.parameters();
    let key = key.map(str::as_bytes);
    let query = sqlx::query_as(store.table.sql(CHOOSE)).bind(plugin.as_bytes()).bind(key).bind(key).bind(limit);
    let chosen: Vec<(i64,)> = query.fetch_all(&mut *transaction).await.map_err(failed)?;
    let (keys, bytes) = (chosen.len() as u64, chosen.iter().map(|(bytes,)| unsigned(*bytes)).sum::<u64>());
    if keys == 0 {
        transaction::rollback(transaction).await?;
        return Ok(0);
    }
    let query = sqlx::query(store.table.sql(DELETE)).bind(plugin.as_bytes()).bind(key).bind(key).bind(limit);
    query.execute(&mut *transaction).await.map_err(failed)?;
    let after = Used::from(used).without(keys, bytes);
    let query = sqlx::query(store.table.sql(NOTE_USAGE))
        .bind(signed(after.usage.keys))
        .bind(signed(after.usage.bytes))
        .bind(signed(after.revision))
        .bind(plugin.as_bytes());
    query.execute(&mut *transaction).await.map_err(failed)?;
    note(store, &mut transaction, audit, DELETE_STATE, &deletion.selector(plugin), keys).await?;
    transaction::commit(transaction).await?;
    Ok(keys)
}

fn usage(row: &MySqlRow) -> Result<PluginUsage, sqlx::Error> {
    let usage = StateUsage { keys: row.count("used_keys")?, bytes: row.count("used_bytes")? };
    Ok(PluginUsage { plugin: text(row, "plugin")?, usage })
}

fn record(row: &MySqlRow) -> Result<StateRecord, sqlx::Error> {
    Ok(StateRecord {
        plugin: text(row, "plugin")?,
        key: text(row, "name")?,
        version: row.count("version")?,
        value_bytes: row.count("value_bytes")?,
        updated_at: Timestamp::from_micros(row.try_get("updated_at")?),
        value: row.try_get::<Option<Vec<u8>>, _>("value")?.map(Bytes::from),
    })
}

/// A name that was written as UTF-8.
fn text(row: &MySqlRow, name: &str) -> Result<String, sqlx::Error> {
    Ok(String::from_utf8_lossy(&row.try_get::<Vec<u8>, _>(name)?).into_owned())
}
