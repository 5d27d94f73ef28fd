//! The schema, step by step.

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;

use super::ddl::run;
use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore, index};
use crate::row::Named;
use crate::schema::{self, EMPTY, FORGET_ALL, History, Step, has_lost_notes, has_notes, of_another_build};
use crate::{Index, Migration, PartitionStore, SchemaStore, StoreError, TableName};

#[async_trait]
impl SchemaStore for SqliteStore {
    async fn table_in_full(&self) -> Result<String, StoreError> {
        Ok(self.table.to_string())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self.reading(READING).await?;
        let history = history(self, &mut connection).await?;
        let objects = count(self, &mut connection, OBJECTS).await?;
        if has_lost_notes(&history, objects) {
            return Err(StoreError::NoVersion { table: self.table.to_string() });
        }
        history.refuse_foreign(objects)?;
        history.check()
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        let mut connection = self.reading(READING).await?;
        Ok(history(self, &mut connection).await?.known()?.migrations())
    }

    /// All missing steps in one transaction that holds the write lock: two programs that start together do it once.
    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        let mut transaction = self.begin().await?;
        let done = apply_missing(self, &mut transaction).await?;
        self.finish(transaction).await?;
        self.restore_partitions().await?;
        Ok(done)
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        let mut transaction = self.begin().await?;
        let history = history(self, &mut transaction).await?.known()?;
        let Some((step, migration, is_only)) = history.newest() else {
            return Ok(None);
        };
        run(self, &mut transaction, step.down).await?;
        let forget = if is_only { self.statement(FORGET_ALL) } else { self.statement(FORGET).bind(i64::from(step.version)) };
        forget.execute(&mut *transaction).await.map_err(|error| failed("take back a step of the schema", error))?;
        self.finish(transaction).await?;
        Ok(Some(migration))
    }

    async fn migrate_reset(&self) -> Result<Vec<Migration>, StoreError> {
        let mut transaction = self.begin().await?;
        if !has_notes(history(self, &mut transaction).await)? && count(self, &mut transaction, OBJECTS).await? > 0 {
            return Err(StoreError::NotOurs { table: self.table.to_string() });
        }
        for step in STEPS.iter().rev() {
            run(self, &mut transaction, step.down).await?;
        }
        run(self, &mut transaction, FORGET_ALL).await?;
        let done = apply_missing(self, &mut transaction).await?;
        self.finish(transaction).await?;
        Ok(done)
    }

    async fn empty_tables(&self) -> Result<u64, StoreError> {
        let mut transaction = self.begin().await?;
        let deleted = self.statement(EMPTY_EVENTS).execute(&mut *transaction).await;
        let deleted = deleted.map_err(|error| failed(EMPTY, error))?.rows_affected();
        run(self, &mut transaction, EMPTY_OTHERS).await?;
        for sql in [FREE_PARTITIONS, FORGET_HOSTS] {
            let changed = self.statement(sql).bind(self.now_micros()).execute(&mut *transaction).await;
            changed.map_err(|error| failed(EMPTY, error))?;
        }
        self.finish(transaction).await?;
        Ok(deleted)
    }

    async fn add_index(&self, index: Index) -> Result<bool, StoreError> {
        index::add(self, index).await
    }

    async fn check_index(&self, index: Index) -> Result<(), StoreError> {
        if index::exists(self, index).await? {
            return Ok(());
        }
        Err(StoreError::NoIndex { table: self.table.to_string(), index: index.as_str() })
    }

    fn migration_sql(&self, index: Option<Index>) -> String {
        text(&self.table, index)
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
    name: "outbox-8",
    up: include_str!("../../migrations/sqlite/0001_outbox_event.sql"),
    down: include_str!("../../migrations/sqlite/0001_outbox_event.down.sql"),
    probe: "SELECT listeners FROM outbox_event_node WHERE 1 = 0",
}];

const HISTORY: &str = "
CREATE TABLE IF NOT EXISTS outbox_event_migration (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)";
const EXISTS: &str = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'outbox_event_migration'";
/// How many of the tables, or of other things with the name of one, are there. SQLite compares names without case.
const OBJECTS: &str = "
SELECT count(*) FROM sqlite_master
WHERE name COLLATE NOCASE IN ('outbox_event', 'outbox_event_route', 'outbox_event_pause', 'outbox_event_node', 'outbox_event_partition',
                              'outbox_event_audit', 'outbox_event_state', 'outbox_event_state_usage', 'outbox_event_readable')";
/// The driver reads text as the file has it, so it would misread every name in another encoding.
const IS_UTF_8: &str = "SELECT encoding = 'UTF-8' FROM pragma_encoding";
const APPLIED: &str = "SELECT version, applied_at, name FROM outbox_event_migration ORDER BY version";
const RECORD: &str = "INSERT INTO outbox_event_migration (version, name, applied_at) VALUES (?1, ?2, ?3)";
const NOW: &str = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000";
const FORGET: &str = "DELETE FROM outbox_event_migration WHERE version = ?1";

const EMPTY_EVENTS: &str = "DELETE FROM outbox_event";
const EMPTY_OTHERS: &str = "
DELETE FROM outbox_event_route;
DELETE FROM outbox_event_pause;
DELETE FROM outbox_event_audit;
DELETE FROM outbox_event_state;
DELETE FROM outbox_event_state_usage";
/// Live hosts keep their partitions. ?1 now.
const FREE_PARTITIONS: &str = "
UPDATE outbox_event_partition SET owner = NULL
WHERE owner NOT IN (SELECT owner FROM outbox_event_node WHERE alive_until > ?1)";
/// ?1 now.
const FORGET_HOSTS: &str = "DELETE FROM outbox_event_node WHERE alive_until <= ?1";

const READING: &str = "read the schema's version";

pub(super) fn text(table: &TableName, index: Option<Index>) -> String {
    let index = index.map(index::sql).map(|sql| table.sql(sql).as_str().to_owned());
    schema::text(STEPS, index, HISTORY, NOW, |sql| table.sql(sql).as_str().to_owned())
}

async fn apply_missing(store: &SqliteStore, connection: &mut SqliteConnection) -> Result<Vec<Migration>, StoreError> {
    run(store, connection, HISTORY).await?;
    let history = history(store, connection).await?.known()?;
    let objects = count(store, connection, OBJECTS).await?;
    history.refuse_foreign(objects)?;
    let lost_notes = has_lost_notes(&history, objects);
    if lost_notes && let Some(last) = history.last() {
        let probe = store.statement(last.probe).execute(&mut *connection).await;
        probe.map_err(|error| of_another_build(&store.table, failed(READING, error)))?;
    }
    let now = store.clock.now();
    let mut done = Vec::new();
    for step in history.missing() {
        if !lost_notes {
            run(store, connection, step.up).await?;
        }
        let record = store.statement(RECORD).bind(i64::from(step.version)).bind(step.name).bind(now.as_micros());
        record.execute(&mut *connection).await.map_err(|error| failed("migrate the schema", error))?;
        done.push(Migration { version: step.version, name: step.name, applied_at: Some(now) });
    }
    Ok(done)
}

async fn count(store: &SqliteStore, connection: &mut SqliteConnection, sql: &'static str) -> Result<u64, StoreError> {
    let count = store.statement(sql).fetch_one(connection).await.and_then(|row| row.number(0));
    count.map_err(|error| failed(READING, error))
}

async fn history<'s>(store: &'s SqliteStore, connection: &mut SqliteConnection) -> Result<History<'s>, StoreError> {
    if count(store, connection, IS_UTF_8).await? == 0 {
        let why = "its text is UTF-16 (PRAGMA encoding), and the outbox reads UTF-8 only; use another file, \
                   or copy the tables to a new file";
        return Err(StoreError::Unreachable { database: store.file.to_string(), why: why.to_owned(), source: None });
    }
    let failed = |error| failed(READING, error);
    let there = count(store, connection, EXISTS).await? > 0;
    let notes = if there { store.statement(APPLIED).fetch_all(connection).await.map_err(failed)? } else { Vec::new() };
    History::read(STEPS, &store.table, &notes).map_err(failed)?
}
