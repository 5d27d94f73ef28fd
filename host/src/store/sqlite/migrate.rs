//! The schema, step by step.

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Executor, Row};

use super::SqliteStore;
use super::error::failed;
use super::transaction;
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
    up: include_str!("../../../migrations/sqlite/0001_outbox_event.sql"),
    down: include_str!("../../../migrations/sqlite/0001_outbox_event.down.sql"),
}];

const HISTORY: &str = "
CREATE TABLE IF NOT EXISTS outbox_event_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)";
const EXISTS: &str = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'outbox_event_migration'";
const APPLIED: &str = "SELECT version, applied_at, name FROM outbox_event_migration ORDER BY version";
const RECORD: &str = "INSERT INTO outbox_event_migration (version, name, applied_at) VALUES (?1, ?2, ?3)";
const NOTE: &str = "INSERT INTO outbox_event_migration (version, name, applied_at)";
const NOW: &str = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000";
const FORGET: &str = "DELETE FROM outbox_event_migration WHERE version = ?1";
const FORGET_ALL: &str = "DROP TABLE outbox_event_migration";

fn wanted() -> u32 {
    STEPS.last().map_or(0, |step| step.version)
}

/// The whole schema as text, with the notes of what was applied: run by hand, it is a schema that `check` accepts.
pub(super) fn text(table: &TableName) -> String {
    let mut text = format!("{};\n", table.sql(HISTORY).as_str().trim());
    for Step { version, name, up, .. } in STEPS {
        let (up, note) = (table.sql(up), table.sql(NOTE));
        text.push_str(&format!("\n{}\n\n{} VALUES ({version}, '{name}', {NOW});\n", up.as_str().trim_end(), note.as_str()));
    }
    text
}

pub(super) async fn check(store: &SqliteStore) -> Result<(), StoreError> {
    let mut connection = store.readers.acquire().await.map_err(|error| failed("read the schema's version", error))?;
    let found = applied(store, &mut connection).await?.last().map_or(0, |(version, _)| *version);
    let table = store.table.to_string();
    match found {
        0 => Err(StoreError::NoSchema { table }),
        found if found < wanted() => Err(StoreError::SchemaOlder { table, found, wanted: wanted() }),
        found if found > wanted() => Err(StoreError::SchemaNewer { table, found, wanted: wanted() }),
        _ => Ok(()),
    }
}

pub(super) async fn list(store: &SqliteStore) -> Result<Vec<Migration>, StoreError> {
    let mut connection = store.readers.acquire().await.map_err(|error| failed("read the schema's version", error))?;
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

/// All missing steps in one transaction that holds the write lock: two programs that start together do it once.
pub(super) async fn up(store: &SqliteStore) -> Result<Vec<Migration>, StoreError> {
    let action = "migrate the schema";
    let mut transaction = transaction::begin(store).await?;
    transaction.execute(store.table.sql(HISTORY)).await.map_err(|error| failed(action, error))?;
    let applied = known(store, &mut transaction).await?;
    let now = Timestamp::from_micros(store.now_micros());
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|step| applied.iter().all(|(version, _)| *version != step.version)) {
        run(store, &mut transaction, step.up).await?;
        sqlx::query(store.table.sql(RECORD))
            .bind(i64::from(step.version))
            .bind(step.name)
            .bind(now.as_micros())
            .execute(&mut *transaction)
            .await
            .map_err(|error| failed(action, error))?;
        done.push(Migration { version: step.version, name: step.name, applied_at: Some(now) });
    }
    transaction::commit(transaction).await?;
    Ok(done)
}

pub(super) async fn down(store: &SqliteStore) -> Result<Option<Migration>, StoreError> {
    let action = "take back a step of the schema";
    let mut transaction = transaction::begin(store).await?;
    let applied = known(store, &mut transaction).await?;
    let Some((version, applied_at)) = applied.last().copied() else {
        return Ok(None);
    };
    let step = STEPS.iter().find(|step| step.version == version).expect("known() refuses versions that we do not know");
    run(store, &mut transaction, step.down).await?;
    let forget = if applied.len() == 1 { FORGET_ALL } else { FORGET };
    let mut query = sqlx::query(store.table.sql(forget));
    if applied.len() > 1 {
        query = query.bind(i64::from(version));
    }
    query.execute(&mut *transaction).await.map_err(|error| failed(action, error))?;
    transaction::commit(transaction).await?;
    Ok(Some(Migration { version, name: step.name, applied_at: Some(applied_at) }))
}

async fn run(store: &SqliteStore, connection: &mut SqliteConnection, text: &'static str) -> Result<(), StoreError> {
    let sql = store.table.sql(text);
    sqlx::raw_sql(AssertSqlSafe(sql.as_str().to_owned()))
        .execute(connection)
        .await
        .map_err(|error| failed("migrate the schema", error))?;
    Ok(())
}

/// The applied steps, refused when one of them is newer than this program.
async fn known(store: &SqliteStore, connection: &mut SqliteConnection) -> Result<Vec<(u32, Timestamp)>, StoreError> {
    let applied = applied(store, connection).await?;
    match applied.last() {
        Some((found, _)) if *found > wanted() => {
            Err(StoreError::SchemaNewer { table: store.table.to_string(), found: *found, wanted: wanted() })
        }
        _ => Ok(applied),
    }
}

async fn applied(store: &SqliteStore, connection: &mut SqliteConnection) -> Result<Vec<(u32, Timestamp)>, StoreError> {
    let action = "read the schema's version";
    let there = sqlx::query(store.table.sql(EXISTS)).fetch_one(&mut *connection).await;
    let there: i64 = there.and_then(|row| row.try_get(0)).map_err(|error| failed(action, error))?;
    if there == 0 {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(store.table.sql(APPLIED)).fetch_all(connection).await.map_err(|error| failed(action, error))?;
    let is_other = |row: &SqliteRow| {
        let (version, name) = (number(row)?, row.try_get::<String, _>(2)?);
        Ok(STEPS.iter().any(|step| step.version == version && step.name != name))
    };
    let others: Vec<bool> =
        rows.iter().map(is_other).collect::<Result<_, sqlx::Error>>().map_err(|error| failed(action, error))?;
    if others.contains(&true) {
        return Err(StoreError::EarlierBuild { table: store.table.to_string() });
    }
    rows.iter()
        .map(|row| Ok((number(row)?, Timestamp::from_micros(row.try_get(1)?))))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(|error| failed(action, error))
}

/// The version of a note.
fn number(row: &SqliteRow) -> Result<u32, sqlx::Error> {
    row.try_get::<i64, _>(0).map(|version| u32::try_from(version).unwrap_or(u32::MAX))
}
