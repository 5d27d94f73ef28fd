//! Plugin state: read, listed and deleted.

use async_trait::async_trait;
use outbox_event::{StateUsage, StateValue};
use sqlx::sqlite::SqliteRow;

use super::audit::note;
use super::effects::{USAGE, noting_usage};
use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore};
use crate::effects::UsageRow;
use crate::row::Named;
use crate::state::{DELETE_STATE, Deletion, end_of_prefix};
use crate::{Audit, PluginUsage, StateRecord, StateStore, StoreError, row};

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
        self.read_optional("read a plugin's state", self.statement(STATE).bind(plugin).bind(key), row::state_value).await
    }

    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError> {
        let usage =
            self.read_optional("read how much state a plugin has", self.statement(USAGE).bind(plugin), row::state_usage);
        Ok(usage.await?.unwrap_or_default())
    }

    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError> {
        let statement = self.statement(USAGES).bind(after.unwrap_or_default()).bind(i64::from(limit));
        let usage = |row: &SqliteRow| row::plugin_usage(row, row.string("plugin")?);
        self.read_all("read how much state plugins have", statement, usage).await
    }

    async fn list_state(
        &self,
        plugin: &str,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<StateRecord>, StoreError> {
        let statement = self.statement(LIST).bind(plugin).bind(prefix).bind(end_of_prefix(prefix));
        let statement = statement.bind(after.unwrap_or_default()).bind(i64::from(limit));
        self.read_all("list a plugin's state", statement, record).await
    }

    async fn get_state(&self, plugin: &str, key: &str) -> Result<Option<StateRecord>, StoreError> {
        self.read_optional("read a plugin's state", self.statement(GET).bind(plugin).bind(key), record).await
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
    let mut transaction = store.begin().await?;
    let (key, limit) = deletion.parameters();
    let statement = store.statement(DELETE).bind(plugin).bind(key).bind(limit);
    let gone = statement.fetch_all(&mut *transaction).await.map_err(failed)?;
    if gone.is_empty() {
        SqliteStore::rollback(transaction).await?;
        return Ok(0);
    }
    let (keys, bytes) = (gone.len() as u64, gone.iter().map(|row| row.number(0)).sum::<Result<u64, _>>().map_err(failed)?);
    let used = store.statement(USAGE).bind(plugin).fetch_optional(&mut *transaction).await.map_err(failed)?;
    let used = used.map(|row| UsageRow::read(&row)).transpose().map_err(failed)?.unwrap_or_default();
    noting_usage(store, plugin, used.without(keys, bytes)).execute(&mut *transaction).await.map_err(failed)?;
    note(store, &mut transaction, audit, DELETE_STATE, &deletion.selector(plugin), keys).await?;
    store.finish(transaction).await?;
    Ok(keys)
}

fn record(row: &SqliteRow) -> Result<StateRecord, sqlx::Error> {
    row::state_record(row, row.string("plugin")?, row.string("name")?)
}
