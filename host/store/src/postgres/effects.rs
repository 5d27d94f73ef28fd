//! Outcomes with effects: follow-up events and plugins' state.

use async_trait::async_trait;
use bytes::Bytes;
use outbox_event::Settled;
use sqlx::postgres::{PgConnection, PgRow};

use super::settle::{fenced, held, settle_locked};
use super::{PostgresStore, Run, TransactionalStore};
use crate::effects::{Found, Plan, StateKey, StoredValue, UsageRow, decide, keys, plugins, until_written};
use crate::number::signed;
use crate::row::Named;
use crate::run::{answered, commit_if_some};
use crate::{Committed, EffectStore, Ownership, SettledWithEffects, StoreError, row};

/// The events for which these outcomes can still be written, locked in the order in which all statements lock. $1 and $2 the fences,
/// $3 ids.
pub(super) const HELD: &str = concat!(
    "
SELECT seq, settled.fence FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS settled (sequence, fence, id), outbox_event
",
    held!(),
    "
ORDER BY settled.sequence FOR UPDATE"
);

/// $1 plugins, in order.
const OPEN_USAGE: &str = "
INSERT INTO outbox_event_state_usage (plugin) SELECT unnest($1::text[]) ON CONFLICT (plugin) DO NOTHING";

/// One transaction at a time changes the state of a plugin: what is read after this lock stays true until the commit. $1 plugins.
pub(super) const LOCK_USAGE: &str = "
SELECT plugin, used_keys, used_bytes, revision FROM outbox_event_state_usage
WHERE plugin = ANY ($1::text[]) ORDER BY plugin FOR UPDATE";

/// $1 plugins and $2 keys.
const PRESENT: &str = "
SELECT plugin, name, octet_length(name) + octet_length(value) AS bytes, version FROM outbox_event_state
JOIN unnest($1::text[], $2::text[]) AS touched (touched_plugin, touched_name) ON plugin = touched_plugin AND name = touched_name";

/// $1 plugins, $2 keys, $3 values, $4 versions.
const SET: &str = "
INSERT INTO outbox_event_state (plugin, name, value, version, updated_at)
SELECT plugin, name, value, version, now()
FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[]) AS given (plugin, name, value, version)
ON CONFLICT (plugin, name) DO UPDATE SET value = excluded.value, version = excluded.version, updated_at = excluded.updated_at";

/// $1 plugins, $2 keys.
const DELETE: &str = "
DELETE FROM outbox_event_state USING unnest($1::text[], $2::text[]) AS given (given_plugin, given_name)
WHERE plugin = given_plugin AND name = given_name";

/// $1 plugins, $2 keys kept, $3 bytes kept, $4 revisions.
pub(super) const NOTE_USAGE: &str = "
UPDATE outbox_event_state_usage SET used_keys = kept_keys, used_bytes = kept_bytes, revision = given_revision
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS given (given_plugin, kept_keys, kept_bytes, given_revision)
WHERE plugin = given_plugin";

const ACTION: &str = "store outcomes with their effects";

#[async_trait]
impl EffectStore for PostgresStore {
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
        let attempt = || answered(self.longest, try_settle(self, settled), |silence| self.failed(ACTION, silence));
        until_written(settled.len(), ACTION, attempt).await
    }
}

/// `None` when a partition got another owner meanwhile: nothing is written.
async fn try_settle(store: &PostgresStore, items: &[SettledWithEffects<'_>]) -> Result<Option<Vec<Committed>>, StoreError> {
    let mut transaction = store.transaction().await?;
    let written = read_and_write(store, &mut transaction, items).await;
    commit_if_some(store, transaction, written).await
}

async fn read_and_write(
    store: &PostgresStore,
    connection: &mut PgConnection,
    items: &[SettledWithEffects<'_>],
) -> Result<Option<Vec<Committed>>, StoreError> {
    let plan = decide(items, read(store, connection, items).await?);
    Ok(write(store, connection, &plan).await?.then_some(plan.committed))
}

async fn read<'a>(
    store: &PostgresStore,
    connection: &mut PgConnection,
    items: &[SettledWithEffects<'a>],
) -> Result<Found<'a>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let held = fenced(store.statement(HELD), items.iter().map(|item| item.settled));
    let held = held.fetch_all(&mut *connection).await.map_err(failed)?;
    let held = held.iter().map(row::fence).collect::<Result<_, _>>().map_err(failed)?;
    let mut found = Found { held, ..Found::default() };
    let plugins = plugins(items);
    if plugins.is_empty() {
        return Ok(found);
    }
    store.statement(OPEN_USAGE).bind(&plugins[..]).execute(&mut *connection).await.map_err(failed)?;
    let rows = store.statement(LOCK_USAGE).bind(&plugins[..]).fetch_all(&mut *connection).await.map_err(failed)?;
    for row in &rows {
        let (plugin, used) = (row.string("plugin").map_err(failed)?, UsageRow::read(row).map_err(failed)?);
        found.used.extend(plugins.iter().find(|known| **known == plugin).map(|known| (*known, used)));
    }
    let keys = keys(items);
    let (of, names): (Vec<&str>, Vec<&str>) = keys.iter().copied().unzip();
    let rows = store.statement(PRESENT).bind(of).bind(names).fetch_all(&mut *connection).await.map_err(failed)?;
    for row in &rows {
        let (plugin, name, present) = self::present(row).map_err(failed)?;
        let at: Result<usize, usize> = keys.binary_search(&(plugin.as_str(), name.as_str()) as &StateKey<'_>);
        found.present.extend(at.ok().map(|at| (keys[at], present)));
    }
    Ok(found)
}

fn present(row: &PgRow) -> Result<(String, String, StoredValue), sqlx::Error> {
    let present = StoredValue { version: row.count("version")?, bytes: row.count("bytes")? };
    Ok((row.string("plugin")?, row.string("name")?, present))
}

/// False when an outcome was not stored, because its partition got another owner after `read`.
async fn write(store: &PostgresStore, connection: &mut PgConnection, plan: &Plan<'_>) -> Result<bool, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let mut settled: Vec<&Settled> = plan.settled.clone();
    settled.sort_unstable_by_key(|settled| settled.fence.sequence);
    if settle_locked(store, connection, &settled).await? < settled.len() as u64 {
        return Ok(false);
    }
    if !plan.emitted.is_empty() {
        store.insert(connection, &plan.emitted, &Ownership::nobodys()).await?;
    }
    let sets: Vec<(&StateKey<'_>, &Bytes, u64)> =
        plan.writes.iter().filter_map(|(at, write)| write.map(|(value, version)| (at, value, version))).collect();
    if !sets.is_empty() {
        let plugins: Vec<&str> = sets.iter().map(|((plugin, _), ..)| *plugin).collect();
        let names: Vec<&str> = sets.iter().map(|((_, name), ..)| *name).collect();
        let values: Vec<&[u8]> = sets.iter().map(|(_, value, _)| &value[..]).collect();
        let versions: Vec<i64> = sets.iter().map(|(.., version)| signed(*version)).collect();
        let statement = store.statement(SET).bind(plugins).bind(names).bind(values).bind(versions);
        statement.execute(&mut *connection).await.map_err(failed)?;
    }
    let gone = plan.writes.iter().filter(|(_, write)| write.is_none()).map(|(at, _)| *at);
    let (of, names): (Vec<&str>, Vec<&str>) = gone.unzip();
    if !of.is_empty() {
        store.statement(DELETE).bind(of).bind(names).execute(&mut *connection).await.map_err(failed)?;
    }
    if !plan.used.is_empty() {
        let plugins: Vec<&str> = plan.used.keys().copied().collect();
        let number = |of: fn(&UsageRow) -> u64| plan.used.values().map(|used| signed(of(used))).collect::<Vec<i64>>();
        let statement = store
            .statement(NOTE_USAGE)
            .bind(plugins)
            .bind(number(|used| used.usage.keys))
            .bind(number(|used| used.usage.bytes))
            .bind(number(|used| used.revision));
        statement.execute(&mut *connection).await.map_err(failed)?;
    }
    Ok(true)
}
