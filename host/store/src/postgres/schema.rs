//! The schema, step by step.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::ddl::{prepare, run};
use super::grants::GRANTS;
use super::primary::on_primary;
use super::{PostgresStore, Run, TransactionalStore, index};
use crate::row::Named;
use crate::schema::{self, EMPTY, FORGET_ALL, History, Step, has_lost_notes, has_notes, of_another_build};
use crate::{Index, Migration, PartitionStore, SchemaStore, StoreError, TableName};

const TABLE_IN_FULL: &str = "
SELECT format('%I.%I', pg_namespace.nspname, pg_class.relname) AS name
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace
WHERE pg_class.oid = 'outbox_event'::regclass";

#[async_trait]
impl SchemaStore for PostgresStore {
    /// Asked of the server, since only its search path knows the schema of a table that was named without one.
    async fn table_in_full(&self) -> Result<String, StoreError> {
        self.read_one("look up the name of the table", self.statement(TABLE_IN_FULL), |row| row.string("name")).await
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        let mut transaction = self.transaction().await?;
        let history = history(self, &mut transaction).await?;
        let objects = objects(self, &mut transaction).await?;
        if has_lost_notes(&history, objects) {
            return Err(StoreError::NoVersion { table: self.table.to_string() });
        }
        history.refuse_foreign(objects)?;
        history.check()?;
        if exists(self, &mut transaction, HAS_CHILD_TABLES).await? {
            return Err(StoreError::ChildTables { table: self.table.to_string() });
        }
        Ok(())
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        let mut transaction = self.transaction().await?;
        Ok(history(self, &mut transaction).await?.known()?.migrations())
    }

    /// All missing steps in one transaction under a lock.
    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        let mut transaction = self.transaction().await?;
        prepare(self, &mut transaction).await?;
        let done = apply_missing(self, &mut transaction).await?;
        Self::commit(transaction).await?;
        self.restore_partitions().await?;
        Ok(done)
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        let mut transaction = self.transaction().await?;
        prepare(self, &mut transaction).await?;
        let history = history(self, &mut transaction).await?.known()?;
        let Some((step, migration, is_only)) = history.newest() else {
            return Ok(None);
        };
        run(self, &mut transaction, step.down).await?;
        if is_only {
            run(self, &mut transaction, FORGET_ALL).await?;
        } else {
            let forget = self.statement(FORGET).bind(signed(step.version)).execute(&mut *transaction).await;
            forget.map_err(|error| self.failed("take back a step of the schema", error))?;
        }
        Self::commit(transaction).await?;
        Ok(Some(migration))
    }

    async fn migrate_reset(&self) -> Result<Vec<Migration>, StoreError> {
        let mut transaction = self.transaction().await?;
        prepare(self, &mut transaction).await?;
        if !has_notes(history(self, &mut transaction).await)? && objects(self, &mut transaction).await? > 0 {
            return Err(StoreError::NotOurs { table: self.table.to_string() });
        }
        for step in STEPS.iter().rev() {
            run(self, &mut transaction, step.down).await?;
        }
        run(self, &mut transaction, FORGET_ALL).await?;
        let done = apply_missing(self, &mut transaction).await?;
        Self::commit(transaction).await?;
        Ok(done)
    }

    async fn empty_tables(&self) -> Result<u64, StoreError> {
        let mut transaction = self.transaction().await?;
        prepare(self, &mut transaction).await?;
        run(self, &mut transaction, KEEP_WRITERS_OUT).await?;
        let deleted = self.statement(EMPTY_EVENTS).execute(&mut *transaction).await;
        let deleted = deleted.map_err(|error| self.failed(EMPTY, error))?.rows_affected();
        run(self, &mut transaction, EMPTY_OTHERS).await?;
        Self::commit(transaction).await?;
        Ok(deleted)
    }

    async fn add_index(&self, index: Index) -> Result<bool, StoreError> {
        index::add(self, index).await
    }

    async fn check_index(&self, index: Index) -> Result<(), StoreError> {
        if index::is_valid(self, index).await? {
            return Ok(());
        }
        Err(StoreError::NoIndex { table: self.table.to_string(), index: index.as_str() })
    }

    fn migration_sql(&self, index: Option<Index>) -> String {
        text(&self.table, index)
    }

    fn grants_sql(&self) -> String {
        let grants = self.table.unqualified(GRANTS);
        format!("BEGIN;\n{}{}COMMIT;\n", place(&self.table), grants.trim_start_matches('\n'))
    }
}

/// Every step, in order. A step that was published is never changed.
const STEPS: &[Step] = &[Step {
    version: 1,
    // Until a version is published, the name changes with the text: a table of an earlier build is told apart by it.
    name: "outbox-8",
    up: include_str!("../../migrations/postgres/0001_outbox_event.sql"),
    down: include_str!("../../migrations/postgres/0001_outbox_event.down.sql"),
    probe: "SELECT listeners FROM outbox_event_node WHERE 1 = 0",
}];

const HISTORY: &str = "
CREATE TABLE IF NOT EXISTS outbox_event_migration
  (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL)";
/// The first statement of each look at the version: a standby may still lack the table.
const EXISTS: &str = concat!("SELECT to_regclass('outbox_event_migration') IS NOT NULL AS there WHERE ", on_primary!());
/// How many of the tables, or of other things with the name of one, are there.
const OBJECTS: &str = "
SELECT num_nonnulls(to_regclass('outbox_event'), to_regclass('outbox_event_route'), to_regclass('outbox_event_pause'),
                    to_regclass('outbox_event_node'), to_regclass('outbox_event_partition'),
                    to_regclass('outbox_event_audit'), to_regclass('outbox_event_state'),
                    to_regclass('outbox_event_state_usage'), to_regclass('outbox_event_readable'))::bigint";
/// Whether the table is partitioned or has child tables, or is no ordinary table. A statement on it would reach the rows of the child
/// tables, whose `seq` and `ctid` are not unique.
const HAS_CHILD_TABLES: &str = "
SELECT EXISTS (SELECT FROM pg_class
               WHERE oid = to_regclass('outbox_event')
                 AND (relkind <> 'r' OR EXISTS (SELECT FROM pg_inherits WHERE inhparent = pg_class.oid))) AS there";
const APPLIED: &str = "SELECT version, applied_at, name FROM outbox_event_migration ORDER BY version";
const RECORD: &str = "
INSERT INTO outbox_event_migration (version, name, applied_at) VALUES ($1::integer, $2::text, now()) RETURNING applied_at";
const FORGET: &str = "DELETE FROM outbox_event_migration WHERE version = $1::integer";

/// Waits for those who write now, so that no deadlock breaks off what a host does.
const KEEP_WRITERS_OUT: &str = "LOCK TABLE outbox_event IN SHARE ROW EXCLUSIVE MODE";
const EMPTY_EVENTS: &str = "DELETE FROM outbox_event";
/// Live hosts keep their rows and partitions.
const EMPTY_OTHERS: &str = "
DELETE FROM outbox_event_route;
DELETE FROM outbox_event_pause;
DELETE FROM outbox_event_audit;
DELETE FROM outbox_event_state;
DELETE FROM outbox_event_state_usage;
UPDATE outbox_event_partition SET owner = NULL
WHERE owner NOT IN (SELECT owner FROM outbox_event_node WHERE alive_until > now());
DELETE FROM outbox_event_node WHERE alive_until <= now()";

const READING: &str = "read the schema's version";

pub(super) fn text(table: &TableName, index: Option<Index>) -> String {
    let index = index.map(|index| table.unqualified(&index::sql(index)));
    let steps = schema::text(STEPS, index, HISTORY, "now()", |sql| table.unqualified(sql));
    format!("BEGIN;\n{}\n{steps}COMMIT;\n", place(table))
}

/// Where the tables are that statements name without their schema.
fn place(table: &TableName) -> String {
    let quoted = |schema: &str| format!("SET LOCAL search_path = \"{}\";\n", schema.to_ascii_lowercase());
    table.schema().map_or_else(String::new, quoted)
}

async fn apply_missing(store: &PostgresStore, connection: &mut PgConnection) -> Result<Vec<Migration>, StoreError> {
    run(store, connection, HISTORY).await?;
    let history = history(store, connection).await?.known()?;
    let objects = objects(store, connection).await?;
    history.refuse_foreign(objects)?;
    let lost_notes = has_lost_notes(&history, objects);
    if lost_notes && let Some(last) = history.last() {
        let probe = store.statement(last.probe).execute(&mut *connection).await;
        probe.map_err(|error| of_another_build(&store.table, store.failed(READING, error)))?;
    }
    let mut done = Vec::new();
    for step in history.missing() {
        if !lost_notes {
            run(store, connection, step.up).await?;
        }
        let note = store.statement(RECORD).bind(signed(step.version)).bind(step.name).fetch_one(&mut *connection).await;
        let applied_at = note.and_then(|row| row.moment("applied_at"));
        let applied_at = applied_at.map_err(|error| store.failed("migrate the schema", error))?;
        done.push(Migration { version: step.version, name: step.name, applied_at: Some(applied_at) });
    }
    Ok(done)
}

async fn objects(store: &PostgresStore, connection: &mut PgConnection) -> Result<u64, StoreError> {
    let objects = store.statement(OBJECTS).fetch_one(connection).await.and_then(|row| row.number(0));
    objects.map_err(|error| store.failed(READING, error))
}

async fn exists(store: &PostgresStore, connection: &mut PgConnection, sql: &'static str) -> Result<bool, StoreError> {
    let there = store.statement(sql).fetch_one(connection).await.and_then(|row| row.try_get("there"));
    there.map_err(|error| store.failed(READING, error))
}

async fn history<'s>(store: &'s PostgresStore, connection: &mut PgConnection) -> Result<History<'s>, StoreError> {
    let failed = |error| store.failed(READING, error);
    let there = exists(store, connection, EXISTS).await?;
    let notes = if there { store.statement(APPLIED).fetch_all(connection).await.map_err(failed)? } else { Vec::new() };
    History::read(STEPS, &store.table, &notes).map_err(failed)?
}

/// A version as its column counts.
fn signed(version: u32) -> i32 {
    i32::try_from(version).unwrap_or(i32::MAX)
}
