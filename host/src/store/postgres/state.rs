//! Plugin state: read, listed and deleted.

use async_trait::async_trait;
use bytes::Bytes;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, Row};

use super::audit::noting;
use super::effects::{LOCK_USAGE, NOTE_USAGE};
use super::{PostgresStore, transaction};
use crate::event::{StateUsage, StateValue};
use crate::store::effects::Used;
use crate::store::number::{signed, unsigned};
use crate::store::row::Named;
use crate::store::state::{DELETE_STATE, Deletion, end_of_prefix};
use crate::store::{Audit, PluginUsage, StateRecord, StateStore, StoreError};

/// $1 the plugin, $2 the key.
const STATE: &str = "SELECT version, value FROM outbox_event_state WHERE plugin = $1::text AND name = $2::text";

/// $1 the plugin.
const USAGE: &str = "SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage WHERE plugin = $1::text";

/// $1 after which plugin, $2 most plugins.
const USAGES: &str = "
SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage
WHERE plugin > $1::text AND used_keys > 0
ORDER BY plugin LIMIT $2::bigint";

/// $1 the plugin, $2 the lowest key, $3 the upper bound (exclusive) or NULL, $4 after which key, $5 most values.
const LIST: &str = "
SELECT plugin, name, version, octet_length(value)::bigint AS value_bytes, updated_at, NULL::bytea AS value
FROM outbox_event_state
WHERE plugin = $1::text AND name >= $2::text AND ($3::text IS NULL OR name < $3::text) AND name > $4::text
ORDER BY name LIMIT $5::bigint";

/// $1 the plugin, $2 the key.
const GET: &str = "
SELECT plugin, name, version, octet_length(value)::bigint AS value_bytes, updated_at, value FROM outbox_event_state
WHERE plugin = $1::text AND name = $2::text";

/// Runs when the plugin's usage is locked, so that nobody else changes its state. $1 the plugin, $2 the key or NULL for every key,
/// $3 most values.
const DELETE: &str = "
DELETE FROM outbox_event_state
WHERE plugin = $1::text AND name = ANY (ARRAY (
  SELECT name FROM outbox_event_state WHERE plugin = $1::text AND ($2::text IS NULL OR name = $2::text)
  ORDER BY name LIMIT $3::bigint))
RETURNING octet_length(name) + octet_length(value)";

const ACTION: &str = "delete a plugin's state";

#[async_trait]
impl StateStore for PostgresStore {
    async fn state(&self, plugin: &str, key: &str) -> Result<Option<StateValue>, StoreError> {
        let action = "read a plugin's state";
        let row = self.optional(action, self.statement(STATE).bind(plugin).bind(key)).await?;
        let value = |row: &PgRow| {
            Ok(StateValue { version: unsigned(row.try_get(0)?), value: Bytes::from(row.try_get::<Vec<u8>, _>(1)?) })
        };
        row.as_ref().map(value).transpose().map_err(|error| self.failed(action, error))
    }

    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError> {
        let action = "read how much state a plugin has";
        let row = self.optional(action, self.statement(USAGE).bind(plugin)).await?;
        let found = row.as_ref().map(usage).transpose().map_err(|error| self.failed(action, error))?;
        Ok(found.map(|found| found.usage).unwrap_or_default())
    }

    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError> {
        let action = "read how much state plugins have";
        let rows = self.all(action, self.statement(USAGES).bind(after.unwrap_or_default()).bind(i64::from(limit))).await?;
        rows.iter().map(usage).collect::<Result<_, _>>().map_err(|error| self.failed(action, error))
    }

    async fn list_state(
        &self,
        plugin: &str,
        prefix: &str,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<StateRecord>, StoreError> {
        let action = "list a plugin's state";
        let statement = self
            .statement(LIST)
            .bind(plugin)
            .bind(prefix)
            .bind(end_of_prefix(prefix))
            .bind(after.unwrap_or_default())
            .bind(i64::from(limit));
        let rows = self.all(action, statement).await?;
        rows.iter().map(record).collect::<Result<_, _>>().map_err(|error| self.failed(action, error))
    }

    async fn get_state(&self, plugin: &str, key: &str) -> Result<Option<StateRecord>, StoreError> {
        let action = "read a plugin's state";
        let row = self.optional(action, self.statement(GET).bind(plugin).bind(key)).await?;
        row.as_ref().map(record).transpose().map_err(|error| self.failed(action, error))
    }

    async fn delete_state(&self, plugin: &str, key: &str, audit: &Audit) -> Result<bool, StoreError> {
        Ok(delete(self, plugin, Deletion::One(key), audit).await? == 1)
    }

    async fn delete_all_state(&self, plugin: &str, limit: u32, audit: &Audit) -> Result<u64, StoreError> {
        delete(self, plugin, Deletion::All(limit), audit).await
    }
}

async fn delete(store: &PostgresStore, plugin: &str, deletion: Deletion<'_>, audit: &Audit) -> Result<u64, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let mut transaction = transaction::begin(&store.host).await?;
    // A statement of its own: what the next one sees has been committed before the lock was given.
    let locked = store.statement(LOCK_USAGE).bind(vec![plugin]).fetch_optional(&mut *transaction).await.map_err(failed)?;
    let Some(locked) = locked else {
        // It has never had state.
        transaction::rollback(transaction).await?;
        return Ok(0);
    };
    let (_, used_keys, used_bytes, revision): (String, i64, i64, i64) = FromRow::from_row(&locked).map_err(failed)?;
    let (key, limit) = deletion.parameters();
    let query = sqlx::query_as(store.text(DELETE)).bind(plugin).bind(key).bind(limit);
    let gone: Vec<(i32,)> = query.fetch_all(&mut *transaction).await.map_err(failed)?;
    let (keys, bytes) = (gone.len() as u64, gone.iter().map(|(bytes,)| unsigned(i64::from(*bytes))).sum::<u64>());
    if keys == 0 {
        transaction::rollback(transaction).await?;
        return Ok(0);
    }
    let after = Used::from((used_keys, used_bytes, revision)).without(keys, bytes);
    let statement = store
        .statement(NOTE_USAGE)
        .bind(vec![plugin])
        .bind(vec![signed(after.usage.keys)])
        .bind(vec![signed(after.usage.bytes)])
        .bind(vec![signed(after.revision)]);
    statement.execute(&mut *transaction).await.map_err(failed)?;
    let statement = noting(store, audit, DELETE_STATE, &deletion.selector(plugin), keys);
    statement.execute(&mut *transaction).await.map_err(failed)?;
    transaction::commit(transaction).await?;
    Ok(keys)
}

fn usage(row: &PgRow) -> Result<PluginUsage, sqlx::Error> {
    let usage = StateUsage { keys: row.count("used_keys")?, bytes: row.count("used_bytes")? };
    Ok(PluginUsage { plugin: row.try_get("plugin")?, usage })
}

fn record(row: &PgRow) -> Result<StateRecord, sqlx::Error> {
    Ok(StateRecord {
        plugin: row.try_get("plugin")?,
        key: row.try_get("name")?,
        version: row.count("version")?,
        value_bytes: row.count("value_bytes")?,
        updated_at: row.moment("updated_at")?,
        value: row.try_get::<Option<Vec<u8>>, _>("value")?.map(Bytes::from),
    })
}
