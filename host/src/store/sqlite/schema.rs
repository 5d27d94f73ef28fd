//! The schema, step by step.

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Executor, Row};

use super::error::failed;
use super::{SqliteStore, transaction};
use crate::store::schema::{History, Step};
use crate::store::{Migration, SchemaStore, StoreError, TableName};
use crate::time::Timestamp;

#[async_trait]
impl SchemaStore for SqliteStore {
    async fn table_in_full(&self) -> Result<String, StoreError> {
        Ok(self.table.to_string())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self.readers.acquire().await.map_err(|error| failed("read the schema's version", error))?;
        history(self, &mut connection).await?.check()
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        let mut connection = self.readers.acquire().await.map_err(|error| failed("read the schema's version", error))?;
        Ok(history(self, &mut connection).await?.known()?.migrations())
    }

    /// All missing steps in one transaction that holds the write lock: two programs that start together do it once.
    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        let action = "migrate the schema";
        let mut transaction = transaction::begin(self).await?;
        transaction.execute(self.table.sql(HISTORY)).await.map_err(|error| failed(action, error))?;
        let history = history(self, &mut transaction).await?.known()?;
        let now = Timestamp::from_micros(self.now_micros());
        let mut done = Vec::new();
        for step in history.missing() {
            run(self, &mut transaction, step.up).await?;
            sqlx::query(self.table.sql(RECORD))
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

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        let action = "take back a step of the schema";
        let mut transaction = transaction::begin(self).await?;
        let history = history(self, &mut transaction).await?.known()?;
        let Some((step, migration, is_only)) = history.newest() else {
            return Ok(None);
        };
        run(self, &mut transaction, step.down).await?;
        let forget = if is_only { FORGET_ALL } else { FORGET };
        let mut query = sqlx::query(self.table.sql(forget));
        if !is_only {
            query = query.bind(i64::from(step.version));
        }
        query.execute(&mut *transaction).await.map_err(|error| failed(action, error))?;
        transaction::commit(transaction).await?;
        Ok(Some(migration))
    }

    fn migration_sql(&self) -> String {
        text(&self.table)
    }

    fn grants_sql(&self) -> String {
        "-- SQLite has no roles: whoever may write the file may do everything. Give the file and its directory to one user.\n"
            .to_owned()
    }
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

/// The whole schema as text, with the notes of what was applied: run by hand, it is a schema that `check` accepts.
pub(super) fn text(table: &TableName) -> String {
    let mut text = format!("{};\n", table.sql(HISTORY).as_str().trim());
    for Step { version, name, up, .. } in STEPS {
        let (up, note) = (table.sql(up), table.sql(NOTE));
        text.push_str(&format!("\n{}\n\n{} VALUES ({version}, '{name}', {NOW});\n", up.as_str().trim_end(), note.as_str()));
    }
    text
}

async fn run(store: &SqliteStore, connection: &mut SqliteConnection, text: &'static str) -> Result<(), StoreError> {
    let sql = store.table.sql(text);
    sqlx::raw_sql(AssertSqlSafe(sql.as_str().to_owned()))
        .execute(connection)
        .await
        .map_err(|error| failed("migrate the schema", error))?;
    Ok(())
}

async fn history<'s>(store: &'s SqliteStore, connection: &mut SqliteConnection) -> Result<History<'s>, StoreError> {
    let failed = |error| failed("read the schema's version", error);
    let there = sqlx::query(store.table.sql(EXISTS)).fetch_one(&mut *connection).await;
    let there: i64 = there.and_then(|row| row.try_get(0)).map_err(failed)?;
    let notes =
        if there > 0 { sqlx::query(store.table.sql(APPLIED)).fetch_all(connection).await.map_err(failed)? } else { Vec::new() };
    History::read(STEPS, &store.table, &notes).map_err(failed)?
}
