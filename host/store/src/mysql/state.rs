//! Plugin state: read, listed and deleted. Names of plugins and keys are bytes here.

use async_trait::async_trait;
use outbox_event::{StateUsage, StateValue};
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::audit::note;
use super::effects::{LOCK_USAGE, noting_usage};
use super::patience::patiently;
use super::primary::on_primary;
use super::{MySqlStore, Run};
use crate::effects::UsageRow;
use crate::row::{Named, filled};
use crate::run::commit_if_some;
use crate::state::{DELETE_STATE, Deletion, end_of_prefix};
use crate::{Audit, PluginUsage, StateRecord, StateStore, StoreError, row};

/// Bound: the plugin, the key.
const STATE: &str = concat!("SELECT version, value FROM outbox_event_state WHERE plugin = ? AND name = ? AND ", on_primary!());

/// Bound: the plugin.
const USAGE: &str =
    concat!("SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage WHERE plugin = ? AND ", on_primary!());

/// Bound: after which plugin, most plugins.
const USAGES: &str = concat!(
    "
SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage
WHERE plugin > ? AND used_keys > 0 AND ",
    on_primary!(),
    "
ORDER BY plugin LIMIT ?"
);

/// Bound: the plugin, the lowest key, twice the upper bound (exclusive) or NULL, after which key, most values.
const LIST: &str = concat!(
    "
SELECT plugin, name, version, LENGTH(value) AS value_bytes,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at) AS updated_at, CAST(NULL AS BINARY) AS value
FROM outbox_event_state
WHERE plugin = ? AND name >= ? AND (? IS NULL OR name < ?) AND name > ?
  AND ",
    on_primary!(),
    "
ORDER BY name LIMIT ?"
);

/// Bound: the plugin, the key.
const GET: &str = concat!(
    "
SELECT plugin, name, version, LENGTH(value) AS value_bytes,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at) AS updated_at, value
FROM outbox_event_state WHERE plugin = ? AND name = ? AND ",
    on_primary!()
);

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
        let statement = self.statement(STATE).bind(plugin.as_bytes()).bind(key.as_bytes());
        self.read_optional("read a plugin's state", statement, row::state_value).await
    }

    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError> {
        let statement = self.statement(USAGE).bind(plugin.as_bytes());
        Ok(self.read_optional("read how much state a plugin has", statement, row::state_usage).await?.unwrap_or_default())
    }

    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError> {
        let statement = self.statement(USAGES).bind(after.unwrap_or_default().as_bytes()).bind(i64::from(limit));
        let usage = |row: &MySqlRow| row::plugin_usage(row, text(row, "plugin")?);
        self.read_all("read how much state plugins have", statement, usage).await
    }

    async fn list_state(
        &self,
        plugin: &str,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<StateRecord>, StoreError> {
        let end = end_of_prefix(prefix).map(String::into_bytes);
        let statement = self.statement(LIST).bind(plugin.as_bytes()).bind(prefix.as_bytes());
        let statement = statement.bind(end.as_deref()).bind(end.as_deref());
        let statement = statement.bind(after.unwrap_or_default().as_bytes()).bind(i64::from(limit));
        self.read_all("list a plugin's state", statement, record).await
    }

    async fn get_state(&self, plugin: &str, key: &str) -> Result<Option<StateRecord>, StoreError> {
        let statement = self.statement(GET).bind(plugin.as_bytes()).bind(key.as_bytes());
        self.read_optional("read a plugin's state", statement, record).await
    }

    async fn delete_state(&self, plugin: &str, key: &str, audit: &Audit) -> Result<bool, StoreError> {
        Ok(delete(self, plugin, Deletion::One(key), audit).await? == 1)
    }

    async fn delete_all_state(&self, plugin: &str, limit: u32, audit: &Audit) -> Result<u64, StoreError> {
        delete(self, plugin, Deletion::All(limit), audit).await
    }
}

async fn delete(store: &MySqlStore, plugin: &str, deletion: Deletion<'_>, audit: &Audit) -> Result<u64, StoreError> {
    patiently(store, || try_delete(store, plugin, deletion, audit)).await
}

async fn try_delete(store: &MySqlStore, plugin: &str, deletion: Deletion<'_>, audit: &Audit) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let deleted = delete_and_note(store, &mut transaction, plugin, deletion, audit).await;
    Ok(commit_if_some(store, transaction, deleted).await?.unwrap_or(0))
}

/// Returns how many keys it deleted; `None` when the plugin has no such state.
async fn delete_and_note(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    plugin: &str,
    deletion: Deletion<'_>,
    audit: &Audit,
) -> Result<Option<u64>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let statement = store.statement(LOCK_USAGE).bind(plugin.as_bytes());
    let Some(locked) = statement.fetch_optional(&mut *connection).await.map_err(failed)? else {
        // It has never had state.
        return Ok(None);
    };
    let used = UsageRow::read(&locked).map_err(failed)?;
    let (key, limit) = deletion.parameters();
    let bind = |sql| {
        let key = key.map(str::as_bytes);
        store.statement(sql).bind(plugin.as_bytes()).bind(key).bind(key).bind(limit)
    };
    let chosen = bind(CHOOSE).fetch_all(&mut *connection).await.map_err(failed)?;
    if chosen.is_empty() {
        return Ok(None);
    }
    let (keys, bytes) = (chosen.len() as u64, chosen.iter().map(|row| row.number(0)).sum::<Result<u64, _>>().map_err(failed)?);
    bind(DELETE).execute(&mut *connection).await.map_err(failed)?;
    noting_usage(store, plugin, used.without(keys, bytes)).execute(&mut *connection).await.map_err(failed)?;
    note(store, connection, audit, DELETE_STATE, &deletion.selector(plugin), keys).await?;
    Ok(Some(keys))
}

fn record(row: &MySqlRow) -> Result<StateRecord, sqlx::Error> {
    row::state_record(row, text(row, "plugin")?, text(row, "name")?)
}

/// A name that was written as UTF-8.
fn text(row: &MySqlRow, name: &str) -> Result<String, sqlx::Error> {
    Ok(String::from_utf8_lossy(&filled(name, row.optional_bytes(name))?).into_owned())
}
