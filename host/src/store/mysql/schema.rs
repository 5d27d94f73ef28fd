//! The schema, step by step. This database commits every CREATE by itself: a step is not whole by a transaction, but by being
//! safe to repeat, and noted only at its end; a lock of the server's keeps two programs apart.

use async_trait::async_trait;
use sqlx::mysql::MySqlConnection;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, MySql, Row};

use super::{MySqlStore, grants};
use crate::store::schema::{History, Step};
use crate::store::{Migration, SchemaStore, StoreError, TableName};

#[async_trait]
impl SchemaStore for MySqlStore {
    async fn table_in_full(&self) -> Result<String, StoreError> {
        Ok(self.table.to_string())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed(READ_VERSION, error))?;
        let history = history(self, &mut connection).await?;
        if history.is_empty() && exists(self, &mut connection, self.table.as_str()).await? {
            return Err(StoreError::NotOurs { table: self.table.to_string() });
        }
        history.check()
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed(READ_VERSION, error))?;
        Ok(history(self, &mut connection).await?.known()?.migrations())
    }

    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        let mut connection = lock(self).await?;
        let done = locked_up(self, &mut connection).await;
        let unlocked = unlock(self, &mut connection).await;
        let done = done?;
        unlocked.map(|()| done)
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        let mut connection = lock(self).await?;
        let done = locked_down(self, &mut connection).await;
        let unlocked = unlock(self, &mut connection).await;
        let done = done?;
        unlocked.map(|()| done)
    }

    fn migration_sql(&self) -> String {
        text(&self.table)
    }

    fn grants_sql(&self) -> String {
        grants::text(&self.table)
    }
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

async fn locked_up(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Vec<Migration>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let notes = format!("{}_migration", store.table);
    // Our history is made before our table, so one without the other is somebody else's.
    if exists(store, connection, store.table.as_str()).await? && !exists(store, connection, &notes).await? {
        return Err(StoreError::NotOurs { table: store.table.to_string() });
    }
    sqlx::query(store.table.sql(HISTORY)).execute(&mut *connection).await.map_err(failed)?;
    let before = history(store, connection).await?.known()?;
    for step in before.missing() {
        run(store, connection, step.up).await?;
        sqlx::query(store.table.sql(RECORD))
            .bind(i64::from(step.version))
            .bind(step.name)
            .execute(&mut *connection)
            .await
            .map_err(failed)?;
    }
    let mut migrations = history(store, connection).await?.known()?.migrations();
    migrations.retain(|migration| before.missing().any(|step| step.version == migration.version));
    Ok(migrations)
}

async fn locked_down(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Option<Migration>, StoreError> {
    let history = history(store, connection).await?.known()?;
    let Some((step, migration, is_only)) = history.newest() else {
        return Ok(None);
    };
    run(store, connection, step.down).await?;
    let forget = if is_only {
        sqlx::query(store.table.sql(FORGET_ALL))
    } else {
        sqlx::query(store.table.sql(FORGET)).bind(i64::from(step.version))
    };
    forget.execute(connection).await.map_err(|error| store.failed("take back a step of the schema", error))?;
    Ok(Some(migration))
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

async fn history<'s>(store: &'s MySqlStore, connection: &mut MySqlConnection) -> Result<History<'s>, StoreError> {
    let failed = |error| store.failed(READ_VERSION, error);
    let there = exists(store, connection, &format!("{}_migration", store.table)).await?;
    let notes =
        if there { sqlx::query(store.table.sql(APPLIED)).fetch_all(connection).await.map_err(failed)? } else { Vec::new() };
    History::read(STEPS, &store.table, &notes).map_err(failed)?
}

pub(super) async fn exists(store: &MySqlStore, connection: &mut MySqlConnection, table: &str) -> Result<bool, StoreError> {
    let row = sqlx::query(EXISTS).bind(table).fetch_one(connection).await;
    let there: i64 = row.and_then(|row| row.try_get(0)).map_err(|error| store.failed(READ_VERSION, error))?;
    Ok(there > 0)
}
