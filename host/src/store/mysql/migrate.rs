//! The schema, step by step. This database commits every CREATE by itself: a step is not whole by a transaction, but by being
//! safe to repeat, and noted only at its end; a lock of the server's keeps two programs apart.

use sqlx::mysql::{MySqlConnection, MySqlRow};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, MySql, Row};

use super::MySqlStore;
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
    up: include_str!("../../../migrations/mysql/0001_outbox_event.sql"),
    down: include_str!("../../../migrations/mysql/0001_outbox_event.down.sql"),
}];

const HISTORY: &str = "
CREATE TABLE IF NOT EXISTS outbox_event_migration (
  version    INT          NOT NULL PRIMARY KEY,
  name       VARCHAR(128) NOT NULL,
  applied_at DATETIME(6)  NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
const EXISTS: &str = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?";
const APPLIED: &str = "
SELECT version, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', applied_at), name FROM outbox_event_migration ORDER BY version";
const RECORD: &str = "INSERT INTO outbox_event_migration (version, name, applied_at) VALUES (?, ?, UTC_TIMESTAMP(6))";
const NOTE: &str = "INSERT INTO outbox_event_migration (version, name, applied_at)";
const FORGET: &str = "DELETE FROM outbox_event_migration WHERE version = ?";
const FORGET_ALL: &str = "DROP TABLE outbox_event_migration";

/// Such locks belong to the whole server, and their names have at most 64 characters. It ends with the connection at the
/// latest.
const LOCK: &str = "SELECT GET_LOCK(MD5(CONCAT(DATABASE(), '.', ?)), 60)";
const UNLOCK: &str = "DO RELEASE_LOCK(MD5(CONCAT(DATABASE(), '.', ?)))";

const ACTION: &str = "migrate the schema";
const READ_VERSION: &str = "read the schema's version";

fn wanted() -> u32 {
    STEPS.last().map_or(0, |step| step.version)
}

/// The whole schema as text, with the notes of what was applied: run by hand, it is a schema that `check` accepts.
pub(super) fn text(table: &TableName) -> String {
    let mut text = format!("{};\n", table.sql(HISTORY).as_str().trim());
    for Step { version, name, up, .. } in STEPS {
        let (up, note) = (table.sql(up), table.sql(NOTE));
        text.push_str(&format!(
            "\n{}\n\n{} VALUES ({version}, '{name}', UTC_TIMESTAMP(6));\n",
            up.as_str().trim_end(),
            note.as_str()
        ));
    }
    text
}

pub(super) async fn check(store: &MySqlStore) -> Result<(), StoreError> {
    let mut connection = store.pool.acquire().await.map_err(|error| store.failed(READ_VERSION, error))?;
    let found = applied(store, &mut connection).await?.last().map_or(0, |(version, _)| *version);
    let table = store.table.to_string();
    match found {
        0 if exists(store, &mut connection, store.table.as_str()).await? => Err(StoreError::NotOurs { table }),
        0 => Err(StoreError::NoSchema { table }),
        found if found < wanted() => Err(StoreError::SchemaOlder { table, found, wanted: wanted() }),
        found if found > wanted() => Err(StoreError::SchemaNewer { table, found, wanted: wanted() }),
        _ => Ok(()),
    }
}

pub(super) async fn list(store: &MySqlStore) -> Result<Vec<Migration>, StoreError> {
    let mut connection = store.pool.acquire().await.map_err(|error| store.failed(READ_VERSION, error))?;
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

pub(super) async fn up(store: &MySqlStore) -> Result<Vec<Migration>, StoreError> {
    let mut connection = lock(store).await?;
    let done = locked_up(store, &mut connection).await;
    let unlocked = unlock(store, &mut connection).await;
    let done = done?;
    unlocked.map(|()| done)
}

async fn locked_up(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Vec<Migration>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let history = format!("{}_migration", store.table);
    // Our history is made before our table, so one without the other is somebody else's.
    if exists(store, connection, store.table.as_str()).await? && !exists(store, connection, &history).await? {
        return Err(StoreError::NotOurs { table: store.table.to_string() });
    }
    sqlx::query(store.table.sql(HISTORY)).execute(&mut *connection).await.map_err(failed)?;
    let before = known(store, connection).await?;
    let is_new = |version: u32| before.iter().all(|(there, _)| *there != version);
    for step in STEPS.iter().filter(|step| is_new(step.version)) {
        run(store, connection, step.up).await?;
        sqlx::query(store.table.sql(RECORD))
            .bind(i64::from(step.version))
            .bind(step.name)
            .execute(&mut *connection)
            .await
            .map_err(failed)?;
    }
    let after = known(store, connection).await?;
    let new = STEPS.iter().filter(|step| is_new(step.version));
    Ok(new
        .map(|step| Migration {
            version: step.version,
            name: step.name,
            applied_at: after.iter().find(|(version, _)| *version == step.version).map(|(_, time)| *time),
        })
        .collect())
}

pub(super) async fn down(store: &MySqlStore) -> Result<Option<Migration>, StoreError> {
    let mut connection = lock(store).await?;
    let done = locked_down(store, &mut connection).await;
    let unlocked = unlock(store, &mut connection).await;
    let done = done?;
    unlocked.map(|()| done)
}

async fn locked_down(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Option<Migration>, StoreError> {
    let applied = known(store, connection).await?;
    let Some((version, applied_at)) = applied.last().copied() else {
        return Ok(None);
    };
    let step = STEPS.iter().find(|step| step.version == version).expect("known() refuses versions that we do not know");
    run(store, connection, step.down).await?;
    let forget = if applied.len() == 1 {
        sqlx::query(store.table.sql(FORGET_ALL))
    } else {
        sqlx::query(store.table.sql(FORGET)).bind(i64::from(version))
    };
    forget.execute(connection).await.map_err(|error| store.failed("take back a step of the schema", error))?;
    Ok(Some(Migration { version, name: step.name, applied_at: Some(applied_at) }))
}

async fn lock(store: &MySqlStore) -> Result<PoolConnection<MySql>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let mut connection = store.pool.acquire().await.map_err(failed)?;
    let row = sqlx::query(LOCK).bind(store.table.as_str()).fetch_one(&mut *connection).await.map_err(failed)?;
    match row.try_get::<Option<i64>, _>(0).map_err(failed)? {
        Some(1) => Ok(connection),
        _ => Err(StoreError::Locked { action: ACTION, source: sqlx::Error::PoolTimedOut }),
    }
}

async fn unlock(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<(), StoreError> {
    let result = sqlx::query(UNLOCK).bind(store.table.as_str()).execute(connection).await;
    result.map(drop).map_err(|error| store.failed(ACTION, error))
}

async fn run(store: &MySqlStore, connection: &mut MySqlConnection, text: &'static str) -> Result<(), StoreError> {
    let sql = store.table.sql(text);
    sqlx::raw_sql(AssertSqlSafe(sql.as_str().to_owned()))
        .execute(connection)
        .await
        .map_err(|error| store.failed(ACTION, error))?;
    Ok(())
}

/// The applied steps, refused when one of them is newer than this program.
async fn known(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Vec<(u32, Timestamp)>, StoreError> {
    let applied = applied(store, connection).await?;
    match applied.last() {
        Some((found, _)) if *found > wanted() => {
            Err(StoreError::SchemaNewer { table: store.table.to_string(), found: *found, wanted: wanted() })
        }
        _ => Ok(applied),
    }
}

async fn applied(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Vec<(u32, Timestamp)>, StoreError> {
    let failed = |error| store.failed(READ_VERSION, error);
    if !exists(store, connection, &format!("{}_migration", store.table)).await? {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(store.table.sql(APPLIED)).fetch_all(connection).await.map_err(failed)?;
    let is_other = |row: &MySqlRow| {
        let (version, name) = (number(row)?, row.try_get::<String, _>(2)?);
        Ok(STEPS.iter().any(|step| step.version == version && step.name != name))
    };
    let others: Vec<bool> = rows.iter().map(is_other).collect::<Result<_, sqlx::Error>>().map_err(failed)?;
    if others.contains(&true) {
        return Err(StoreError::EarlierBuild { table: store.table.to_string() });
    }
    rows.iter()
        .map(|row| Ok((number(row)?, Timestamp::from_micros(row.try_get(1)?))))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(failed)
}

/// The version of a note.
fn number(row: &MySqlRow) -> Result<u32, sqlx::Error> {
    row.try_get::<i64, _>(0).map(|version| u32::try_from(version).unwrap_or(u32::MAX))
}

pub(super) async fn exists(store: &MySqlStore, connection: &mut MySqlConnection, table: &str) -> Result<bool, StoreError> {
    let row = sqlx::query(EXISTS).bind(table).fetch_one(connection).await;
    let there: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| store.failed(READ_VERSION, error))?;
    Ok(there > 0)
}
