//! The schema, step by step. This database commits every CREATE by itself: a step is not whole by a transaction, but by being
//! safe to repeat, and noted only at its end; a lock of the server's keeps two programs apart.

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::ddl::{ACTION, lock, run, unlock};
use super::error::is_no_such_table;
use super::grants::GRANTS;
use super::patience::patiently;
use super::primary::on_primary;
use super::{MySqlStore, Run, index};
use crate::row::Named;
use crate::run::commit_or_roll_back;
use crate::schema::{self, EMPTY, FORGET_ALL, History, Step, has_lost_notes, has_notes, in_use, of_another_build};
use crate::{Index, Migration, PartitionStore, SchemaStore, StoreError, TableName};

#[async_trait]
impl SchemaStore for MySqlStore {
    async fn table_in_full(&self) -> Result<String, StoreError> {
        Ok(self.table.to_string())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self.connection(READ_VERSION).await?;
        refuse_foreign(self, &mut connection).await?;
        let history = history(self, &mut connection).await?;
        if has_lost_notes(&history, objects(self, &mut connection).await?) {
            return Err(StoreError::NoVersion { table: self.table.to_string() });
        }
        history.check()
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        let mut connection = self.connection(READ_VERSION).await?;
        Ok(history(self, &mut connection).await?.known()?.migrations())
    }

    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        let mut connection = lock(self).await?;
        let done = locked_up(self, &mut connection).await;
        let unlocked = unlock(self, &mut connection).await;
        let done = done.and_then(|done| unlocked.map(|()| done))?;
        drop(connection);
        self.restore_partitions().await?;
        Ok(done)
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        let mut connection = lock(self).await?;
        let done = locked_down(self, &mut connection).await;
        let unlocked = unlock(self, &mut connection).await;
        done.and_then(|done| unlocked.map(|()| done))
    }

    async fn migrate_reset(&self) -> Result<Vec<Migration>, StoreError> {
        let mut connection = lock(self).await?;
        let done = locked_reset(self, &mut connection).await;
        let unlocked = unlock(self, &mut connection).await;
        done.and_then(|done| unlocked.map(|()| done))
    }

    async fn empty_tables(&self) -> Result<u64, StoreError> {
        patiently(self, || try_empty(self)).await.map_err(|error| in_use(&self.table, error))
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
        self.table.sql(GRANTS).as_str().trim_start().to_owned()
    }
}

/// Every step, in order. A step that was published is never changed.
const STEPS: &[Step] = &[Step {
    version: 1,
    // Until a version is published, the name changes with the text: a table of an earlier build is told apart by it.
    name: "outbox-8",
    up: include_str!("../../migrations/mysql/0001_outbox_event.sql"),
    down: include_str!("../../migrations/mysql/0001_outbox_event.down.sql"),
    probe: "SELECT listeners FROM outbox_event_node WHERE 1 = 0",
}];

const HISTORY: &str = "
CREATE TABLE IF NOT EXISTS outbox_event_migration (
  version    INT          NOT NULL PRIMARY KEY,
  name       VARCHAR(128) NOT NULL,
  applied_at DATETIME(6)  NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
/// How many of the tables, or of other things with the name of one, are there.
const OBJECTS: &str = "
SELECT COUNT(*) FROM information_schema.tables
WHERE table_schema = DATABASE()
  AND table_name IN ('outbox_event', 'outbox_event_route', 'outbox_event_pause', 'outbox_event_node', 'outbox_event_partition',
                     'outbox_event_audit', 'outbox_event_state', 'outbox_event_state_usage', 'outbox_event_readable')";
/// Until the tables are created anew, no host may use the schema.
const BEGIN_RESET: &str = "UPDATE outbox_event_migration SET name = 'reset'";
const APPLIED: &str = concat!(
    "
SELECT version, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', applied_at), name FROM outbox_event_migration WHERE ",
    on_primary!(),
    " ORDER BY version"
);
const RECORD: &str = "INSERT INTO outbox_event_migration (version, name, applied_at) VALUES (?, ?, UTC_TIMESTAMP(6))";
const FORGET: &str = "DELETE FROM outbox_event_migration WHERE version = ?";

/// The events first. Live hosts keep their rows and partitions.
const EMPTY_TABLES: [&str; 8] = [
    "DELETE FROM outbox_event",
    "DELETE FROM outbox_event_route",
    "DELETE FROM outbox_event_pause",
    "DELETE FROM outbox_event_audit",
    "DELETE FROM outbox_event_state",
    "DELETE FROM outbox_event_state_usage",
    "UPDATE outbox_event_partition SET owner = NULL
     WHERE owner NOT IN (SELECT node.owner FROM outbox_event_node AS node WHERE node.alive_until > UTC_TIMESTAMP(6))",
    "DELETE FROM outbox_event_node WHERE alive_until <= UTC_TIMESTAMP(6)",
];

const READ_VERSION: &str = "read the schema's version";

pub(super) fn text(table: &TableName, index: Option<Index>) -> String {
    let index = index.and_then(index::sql).map(|sql| table.sql(sql).as_str().to_owned());
    schema::text(STEPS, index, HISTORY, "UTC_TIMESTAMP(6)", |sql| table.sql(sql).as_str().to_owned())
}

async fn locked_up(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Vec<Migration>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    refuse_foreign(store, connection).await?;
    store.statement(HISTORY).execute(&mut *connection).await.map_err(failed)?;
    let before = history(store, connection).await?.known()?;
    let lost_notes = has_lost_notes(&before, objects(store, connection).await?);
    if lost_notes && let Some(last) = before.last() {
        let probe = store.statement(last.probe).execute(&mut *connection).await;
        probe.map_err(|error| of_another_build(&store.table, store.failed(READ_VERSION, error)))?;
    }
    for step in before.missing() {
        if !lost_notes {
            run(store, connection, step.up).await?;
        }
        let record = store.statement(RECORD).bind(i64::from(step.version)).bind(step.name);
        record.execute(&mut *connection).await.map_err(failed)?;
    }
    let mut migrations = history(store, connection).await?.known()?.migrations();
    migrations.retain(|migration| before.missing().any(|step| step.version == migration.version));
    Ok(migrations)
}

/// Drops the notes last. Until then they name no schema of this build, so that hosts tell the operator to repeat a reset that was cut off.
async fn locked_reset(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Vec<Migration>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    if has_notes(history(store, connection).await)? {
        store.statement(BEGIN_RESET).execute(&mut *connection).await.map_err(failed)?;
    } else {
        // A table of notes without a row belongs to a step that was cut off.
        refuse_foreign(store, connection).await?;
    }
    for step in STEPS.iter().rev() {
        run(store, connection, step.down).await?;
    }
    run(store, connection, FORGET_ALL).await?;
    locked_up(store, connection).await
}

async fn objects(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<u64, StoreError> {
    let objects = store.statement(OBJECTS).fetch_one(connection).await.and_then(|row| row.number(0));
    objects.map_err(|error| store.failed(READ_VERSION, error))
}

async fn try_empty(store: &MySqlStore) -> Result<u64, StoreError> {
    let mut transaction = store.transaction().await?;
    let deleted = delete_all(store, &mut transaction).await.map_err(|error| store.failed(EMPTY, error));
    commit_or_roll_back(store, transaction, deleted).await
}

/// Returns how many events were deleted.
async fn delete_all(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<u64, sqlx::Error> {
    let mut deleted = Vec::with_capacity(EMPTY_TABLES.len());
    for sql in EMPTY_TABLES {
        deleted.push(store.statement(sql).execute(&mut *connection).await?.rows_affected());
    }
    Ok(deleted[0])
}

/// The table of notes is created first, so without it the other tables belong to another program.
async fn refuse_foreign(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<(), StoreError> {
    if notes(store, connection).await?.is_none() && objects(store, connection).await? > 0 {
        return Err(StoreError::NotOurs { table: store.table.to_string() });
    }
    Ok(())
}

async fn locked_down(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Option<Migration>, StoreError> {
    let history = history(store, connection).await?.known()?;
    let Some((step, migration, is_only)) = history.newest() else {
        return Ok(None);
    };
    run(store, connection, step.down).await?;
    let forget = if is_only { store.statement(FORGET_ALL) } else { store.statement(FORGET).bind(i64::from(step.version)) };
    forget.execute(connection).await.map_err(|error| store.failed("take back a step of the schema", error))?;
    Ok(Some(migration))
}

async fn history<'s>(store: &'s MySqlStore, connection: &mut MySqlConnection) -> Result<History<'s>, StoreError> {
    let failed = |error| store.failed(READ_VERSION, error);
    let notes = notes(store, connection).await?.unwrap_or_default();
    History::read(STEPS, &store.table, &notes).map_err(failed)?
}

/// The rows of the history; `None` when its table is missing.
async fn notes(store: &MySqlStore, connection: &mut MySqlConnection) -> Result<Option<Vec<MySqlRow>>, StoreError> {
    // information_schema hides tables that this user may not read. Asking the table itself tells a missing table from a missing right.
    match store.statement(APPLIED).fetch_all(connection).await {
        Err(error) if is_no_such_table(&error) => Ok(None),
        notes => notes.map(Some).map_err(|error| store.failed(READ_VERSION, error)),
    }
}
