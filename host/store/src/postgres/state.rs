//! Plugin state: read, listed and deleted.

use async_trait::async_trait;
use outbox_event::{StateUsage, StateValue};
use sqlx::postgres::{PgConnection, PgRow};

use super::audit::noting;
use super::effects::{LOCK_USAGE, NOTE_USAGE};
use super::primary::on_primary;
use super::{PostgresStore, Run};
use crate::effects::UsageRow;
use crate::number::signed;
use crate::row::Named;
use crate::run::commit_if_some;
use crate::state::{DELETE_STATE, Deletion, end_of_prefix};
use crate::{Audit, PluginUsage, StateRecord, StateStore, StoreError, row};

/// $1 the plugin, $2 the key.
const STATE: &str =
    concat!("SELECT version, value FROM outbox_event_state WHERE plugin = $1::text AND name = $2::text AND ", on_primary!());

/// $1 the plugin.
const USAGE: &str =
    concat!("SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage WHERE plugin = $1::text AND ", on_primary!());

/// $1 after which plugin, $2 most plugins.
const USAGES: &str = concat!(
    "
SELECT plugin, used_keys, used_bytes FROM outbox_event_state_usage
WHERE plugin > $1::text AND used_keys > 0 AND ",
    on_primary!(),
    "
ORDER BY plugin LIMIT $2::bigint"
);

/// $1 the plugin, $2 the lowest key, $3 the upper bound (exclusive) or NULL, $4 after which key, $5 most values.
const LIST: &str = concat!(
    "
SELECT plugin, name, version, octet_length(value)::bigint AS value_bytes, updated_at, NULL::bytea AS value
FROM outbox_event_state
WHERE plugin = $1::text AND name >= $2::text AND ($3::text IS NULL OR name < $3::text) AND name > $4::text
  AND ",
    on_primary!(),
    "
ORDER BY name LIMIT $5::bigint"
);

/// $1 the plugin, $2 the key.
const GET: &str = concat!(
    "
SELECT plugin, name, version, octet_length(value)::bigint AS value_bytes, updated_at, value FROM outbox_event_state
WHERE plugin = $1::text AND name = $2::text AND ",
    on_primary!()
);

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
        self.read_optional("read a plugin's state", self.statement(STATE).bind(plugin).bind(key), row::state_value).await
    }

    async fn state_usage(&self, plugin: &str) -> Result<StateUsage, StoreError> {
        let usage =
            self.read_optional("read how much state a plugin has", self.statement(USAGE).bind(plugin), row::state_usage);
        Ok(usage.await?.unwrap_or_default())
    }

    async fn state_usages(&self, after: Option<&str>, limit: u32) -> Result<Vec<PluginUsage>, StoreError> {
        let statement = self.statement(USAGES).bind(after.unwrap_or_default()).bind(i64::from(limit));
        let usage = |row: &PgRow| row::plugin_usage(row, row.string("plugin")?);
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

async fn delete(store: &PostgresStore, plugin: &str, deletion: Deletion<'_>, audit: &Audit) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let deleted = delete_and_note(store, &mut transaction, plugin, deletion, audit).await;
    Ok(commit_if_some(store, transaction, deleted).await?.unwrap_or(0))
}

/// Returns how many keys it deleted; `None` when the plugin has no such state.
async fn delete_and_note(
    store: &PostgresStore,
    connection: &mut PgConnection,
    plugin: &str,
    deletion: Deletion<'_>,
    audit: &Audit,
) -> Result<Option<u64>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    // A statement of its own: what the next one sees has been committed before the lock was given.
    let locked = store.statement(LOCK_USAGE).bind(vec![plugin]).fetch_optional(&mut *connection).await.map_err(failed)?;
    let Some(locked) = locked else {
        // It has never had state.
        return Ok(None);
    };
    let used = UsageRow::read(&locked).map_err(failed)?;
    let (key, limit) = deletion.parameters();
    let statement = store.statement(DELETE).bind(plugin).bind(key).bind(limit);
    let gone = statement.fetch_all(&mut *connection).await.map_err(failed)?;
    if gone.is_empty() {
        return Ok(None);
    }
    let (keys, bytes) = (gone.len() as u64, gone.iter().map(|row| row.number(0)).sum::<Result<u64, _>>().map_err(failed)?);
    let UsageRow { usage, revision } = used.without(keys, bytes);
    let statement = store.statement(NOTE_USAGE).bind(vec![plugin]).bind(vec![signed(usage.keys)]);
    let statement = statement.bind(vec![signed(usage.bytes)]).bind(vec![signed(revision)]);
    statement.execute(&mut *connection).await.map_err(failed)?;
    let statement = noting(store, audit, DELETE_STATE, &deletion.selector(plugin), keys);
    statement.execute(connection).await.map_err(failed)?;
    Ok(Some(keys))
}

fn record(row: &PgRow) -> Result<StateRecord, sqlx::Error> {
    row::state_record(row, row.string("plugin")?, row.string("name")?)
}
