//! The schema, step by step.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row};

use super::row::time;
use super::time::Moment;
use super::{PostgresStore, transaction};
use crate::store::{Migration, StoreError, TableName};
use crate::time::Timestamp;

struct Step {
    version: u32,
    name: &'static str,
    up: &'static str,
    down: &'static str,
}

/// Every step, in order. A step that was published is never changed.
const STEPS: &[Step] = &[Step {
    version: 1,
    // Until a version is published, the name changes with the text: a table of an earlier build is told apart by it.
    name: "outbox-2",
    up: include_str!("../../../migrations/postgres/0001_outbox_event.sql"),
    down: include_str!("../../../migrations/postgres/0001_outbox_event.down.sql"),
}];

const HISTORY: &str = "
CREATE TABLE IF NOT EXISTS outbox_event_migration
  (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL)";
const EXISTS: &str = "SELECT to_regclass('outbox_event_migration') IS NOT NULL AS there";
const APPLIED: &str = "SELECT version, applied_at, name FROM outbox_event_migration ORDER BY version";
const RECORD: &str = "
INSERT INTO outbox_event_migration (version, name, applied_at) VALUES ($1::integer, $2::text, now()) RETURNING applied_at";
const NOTE: &str = "INSERT INTO outbox_event_migration (version, name, applied_at)";
const FORGET: &str = "DELETE FROM outbox_event_migration WHERE version = $1::integer";
const FORGET_ALL: &str = "DROP TABLE outbox_event_migration";

/// Held until the transaction ends: of two programs that start together, the second one finds the work done. The number is that
/// of the text, so that other users of advisory locks are not met.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('outbox_event_migration', 0))";
/// An index on a large table takes its time, and so may the lock.
const NO_HURRY: &str = "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)";
/// $1 the schema.
const LOOK_IN: &str = "SELECT set_config('search_path', lower($1::text), true)";
/// $1 the schema.
const SCHEMA_EXISTS: &str = "SELECT to_regnamespace($1::text) IS NOT NULL AS there";

fn wanted() -> u32 {
    STEPS.last().map_or(0, |step| step.version)
}

/// The whole schema as text, with the notes of what was applied: run by hand, it is a schema that `check` accepts.
pub(super) fn text(table: &TableName) -> String {
    let mut text = String::from("BEGIN;\n");
    if let Some(schema) = table.schema() {
        text.push_str(&format!("SET LOCAL search_path = {schema};\n"));
    }
    text.push_str(&format!("{};\n", table.unqualified(HISTORY).trim_end()));
    for Step { version, name, up, .. } in STEPS {
        let (up, note) = (table.unqualified(up), table.unqualified(NOTE));
        text.push_str(&format!("\n{}\n\n{note} VALUES ({version}, '{name}', now());\n", up.trim_end()));
    }
    text.push_str("COMMIT;\n");
    text
}

pub(super) async fn check(store: &PostgresStore) -> Result<(), StoreError> {
    let mut connection = store.connection("read the schema's version").await?;
    let found = applied(store, &mut connection).await?.last().map_or(0, |(version, _)| *version);
    let table = store.table.to_string();
    match found {
        0 => Err(StoreError::NoSchema { table }),
        found if found < wanted() => Err(StoreError::SchemaOlder { table, found, wanted: wanted() }),
        found if found > wanted() => Err(StoreError::SchemaNewer { table, found, wanted: wanted() }),
        _ => Ok(()),
    }
}

pub(super) async fn list(store: &PostgresStore) -> Result<Vec<Migration>, StoreError> {
    let mut connection = store.connection("read the schema's version").await?;
    let applied = known(store, &mut connection).await?;
    Ok(STEPS
        .iter()
        .map(|step| Migration {
            version: step.version,
            name: step.name,
            applied_at: applied.iter().find(|(version, _)| *version == step.version).map(|(_, time)| *time),
        })
        .collect())
}

/// All missing steps in one transaction under a lock.
pub(super) async fn up(store: &PostgresStore) -> Result<Vec<Migration>, StoreError> {
    let action = "migrate the schema";
    let mut transaction = transaction::begin(&store.host).await?;
    prepare(store, &mut transaction).await?;
    run(store, &mut transaction, HISTORY).await?;
    let applied = known(store, &mut transaction).await?;
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|step| applied.iter().all(|(version, _)| *version != step.version)) {
        run(store, &mut transaction, step.up).await?;
        let note = store.statement(RECORD).bind(signed(step.version)).bind(step.name).fetch_one(&mut *transaction).await;
        let applied_at = note.and_then(|row| time(&row, "applied_at")).map_err(|error| store.failed(action, error))?;
        done.push(Migration { version: step.version, name: step.name, applied_at: Some(applied_at) });
    }
    transaction::commit(transaction).await?;
    Ok(done)
}

pub(super) async fn down(store: &PostgresStore) -> Result<Option<Migration>, StoreError> {
    let action = "take back a step of the schema";
    let mut transaction = transaction::begin(&store.host).await?;
    prepare(store, &mut transaction).await?;
    let applied = known(store, &mut transaction).await?;
    let Some((version, applied_at)) = applied.last().copied() else {
        return Ok(None);
    };
    let step = STEPS.iter().find(|step| step.version == version).expect("known() refuses versions that we do not know");
    run(store, &mut transaction, step.down).await?;
    if applied.len() == 1 {
        run(store, &mut transaction, FORGET_ALL).await?;
    } else {
        let forget = store.statement(FORGET).bind(signed(version)).execute(&mut *transaction).await;
        forget.map_err(|error| store.failed(action, error))?;
    }
    transaction::commit(transaction).await?;
    Ok(Some(Migration { version, name: step.name, applied_at: Some(applied_at) }))
}

/// The steps name tables and indexes without their schema, which names of indexes cannot carry.
async fn prepare(store: &PostgresStore, connection: &mut PgConnection) -> Result<(), StoreError> {
    let failed = |error| store.failed("migrate the schema", error);
    sqlx::query(NO_HURRY).execute(&mut *connection).await.map_err(failed)?;
    if let Some(schema) = store.table.schema() {
        let row = sqlx::query(SCHEMA_EXISTS).bind(schema).fetch_one(&mut *connection).await.map_err(failed)?;
        if !row.try_get::<bool, _>("there").map_err(failed)? {
            return Err(StoreError::NoNamespace { schema: schema.to_owned() });
        }
        sqlx::query(LOOK_IN).bind(schema).execute(&mut *connection).await.map_err(failed)?;
    }
    sqlx::query(LOCK).execute(connection).await.map_err(failed)?;
    Ok(())
}

async fn run(store: &PostgresStore, connection: &mut PgConnection, text: &'static str) -> Result<(), StoreError> {
    // Safe: the only text put in is checked identifiers.
    sqlx::raw_sql(AssertSqlSafe(store.table.unqualified(text)))
        .execute(connection)
        .await
        .map_err(|error| store.failed("migrate the schema", error))?;
    Ok(())
}

/// The applied steps, refused when one of them is newer than this program.
async fn known(store: &PostgresStore, connection: &mut PgConnection) -> Result<Vec<(u32, Timestamp)>, StoreError> {
    let applied = applied(store, connection).await?;
    match applied.last() {
        Some((found, _)) if *found > wanted() => {
            Err(StoreError::SchemaNewer { table: store.table.to_string(), found: *found, wanted: wanted() })
        }
        _ => Ok(applied),
    }
}

async fn applied(store: &PostgresStore, connection: &mut PgConnection) -> Result<Vec<(u32, Timestamp)>, StoreError> {
    let failed = |error| store.failed("read the schema's version", error);
    let there = store.statement(EXISTS).fetch_one(&mut *connection).await;
    if !there.and_then(|row| row.try_get::<bool, _>("there")).map_err(failed)? {
        return Ok(Vec::new());
    }
    let rows = store.statement(APPLIED).fetch_all(connection).await.map_err(failed)?;
    let is_other = |row: &PgRow| {
        let (version, name) = (number(row)?, row.try_get::<String, _>(2)?);
        Ok(STEPS.iter().any(|step| step.version == version && step.name != name))
    };
    let others: Vec<bool> = rows.iter().map(is_other).collect::<Result<_, sqlx::Error>>().map_err(failed)?;
    if others.contains(&true) {
        return Err(StoreError::EarlierBuild { table: store.table.to_string() });
    }
    rows.iter()
        .map(|row| Ok((number(row)?, row.try_get::<Moment, _>("applied_at")?.0)))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(failed)
}

/// The version of a note.
fn number(row: &PgRow) -> Result<u32, sqlx::Error> {
    row.try_get::<i32, _>(0).map(|version| u32::try_from(version).unwrap_or(u32::MAX))
}

/// A version as its column counts.
fn signed(version: u32) -> i32 {
    i32::try_from(version).unwrap_or(i32::MAX)
}
