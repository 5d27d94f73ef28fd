//! Optional indexes: each serves one mode or search.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Row};

use super::ddl::{prepare, run};
use super::{PostgresStore, Run, TransactionalStore};
use crate::row::Named;
use crate::{Index, SchemaStore, StoreError};

/// A table of this size is read in a moment: an index is created under the lock that keeps writers away.
const SMALL: i64 = 32 << 20;
/// How often to look whether another program still creates an index.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// $1 the index.
const FIND: &str = "
SELECT relnamespace::regnamespace::text || '.' || quote_ident(relname) AS name, indisvalid AND indisready AS valid
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indrelid = 'outbox_event'::regclass AND relname = $1::text";
const SIZE: &str = "SELECT pg_relation_size('outbox_event'::regclass) AS bytes";
/// Polled, not waited for: CREATE INDEX CONCURRENTLY waits for all older statements, so a waiting program and the building one would
/// block each other.
const TRY_LOCK: &str = "SELECT pg_try_advisory_xact_lock(hashtextextended('outbox_event_index', 0)) AS locked";
/// With a longer-lived snapshot, the build would wait for this transaction.
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// The transaction with the lock is idle during the build.
const MAY_REST: &str = "SELECT set_config('idle_in_transaction_session_timeout', '0', true)";
const NO_HURRY: &str = "SELECT set_config('statement_timeout', '0', false), set_config('lock_timeout', '0', false)";

const ACTION: &str = "create an index";

/// The name of an index, and what it is on.
const fn definition(index: Index) -> (&'static str, &'static str) {
    match index {
        Index::OrderedByAggregate => (
            "outbox_event_key",
            "(aggregate_type, aggregate_id, seq) WHERE aggregate_id IS NOT NULL AND (status IN (0, 2) OR blocks = 1)",
        ),
        // Not defined by status: statements that look for a seq and a status would use this index instead of the primary key.
        Index::Ordered => ("outbox_event_open", "(seq) WHERE done_at IS NULL"),
        Index::Aggregate => ("outbox_event_aggregate", "(aggregate_id, seq) WHERE aggregate_id IS NOT NULL"),
    }
}

/// The statement that creates it. Without the schema, where the table is found without it.
pub(super) fn sql(index: Index) -> String {
    let (name, on) = definition(index);
    format!("CREATE INDEX {name} ON outbox_event {on}")
}

/// An index that is there.
struct Found {
    /// With its schema.
    name: String,
    is_valid: bool,
}

impl PostgresStore {
    /// Its name on the server, which knows names that are not quoted in lower case.
    pub(super) fn index_name(&self, index: Index) -> String {
        self.table.unqualified(definition(index).0).to_ascii_lowercase()
    }

    async fn find_index(&self, connection: &mut PgConnection, index: Index) -> Result<Option<Found>, StoreError> {
        let row = self.statement(FIND).bind(self.index_name(index)).fetch_optional(connection).await;
        row.and_then(|row| row.as_ref().map(found).transpose()).map_err(|error| self.failed(ACTION, error))
    }
}

fn found(row: &PgRow) -> Result<Found, sqlx::Error> {
    Ok(Found { name: row.string("name")?, is_valid: row.try_get("valid")? })
}

pub(super) async fn is_valid(store: &PostgresStore, index: Index) -> Result<bool, StoreError> {
    let statement = store.statement(FIND).bind(store.index_name(index));
    let found = store.read_optional("look for an index", statement, found).await?;
    Ok(found.is_some_and(|found| found.is_valid))
}

pub(super) async fn add(store: &PostgresStore, index: Index) -> Result<bool, StoreError> {
    let mut transaction = store.transaction().await?;
    prepare(store, &mut transaction).await?;
    let found = store.find_index(&mut transaction, index).await?;
    if found.as_ref().is_some_and(|found| found.is_valid) {
        return Ok(false);
    }
    let size = store.statement(SIZE).fetch_one(&mut *transaction).await.and_then(|row| row.try_get::<i64, _>("bytes"));
    if found.is_none() && size.map_err(|error| store.failed(ACTION, error))? <= SMALL {
        match run(store, &mut transaction, &sql(index)).await {
            // Writers have open transactions: the way beside writers waits for these.
            Err(StoreError::InUse { .. }) => {}
            created => {
                created?;
                PostgresStore::commit(transaction).await?;
                return Ok(true);
            }
        }
    }
    PostgresStore::rollback(transaction).await?;
    add_beside_writers(store, index).await
}

/// Creates an index while others write, or one anew that was not built to its end.
async fn add_beside_writers(store: &PostgresStore, index: Index) -> Result<bool, StoreError> {
    let table = store.table_in_full().await?;
    let mut lock = store.transaction().await?;
    let failed = |error| store.failed(ACTION, error);
    store.statement(READ_COMMITTED).execute(&mut *lock).await.map_err(failed)?;
    store.statement(MAY_REST).execute(&mut *lock).await.map_err(failed)?;
    loop {
        let locked = store.statement(TRY_LOCK).fetch_one(&mut *lock).await.and_then(|row| row.try_get("locked"));
        if locked.map_err(failed)? {
            break;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let (name, on) = definition(index);
    let mut statements = Vec::new();
    match store.find_index(&mut lock, index).await? {
        Some(Found { is_valid: true, .. }) => return Ok(false),
        // Not REINDEX: each time that it is cut off, it leaves one more index, which every insert writes.
        Some(Found { name, .. }) => statements.push(format!("DROP INDEX CONCURRENTLY {name}")),
        None => {}
    }
    statements.push(format!("CREATE INDEX CONCURRENTLY {} ON {table} {on}", store.table.unqualified(name)));
    // A connection of its own: it keeps its settings, and no call of the host waits for it. Behind a pooler, its `search_path` is unknown.
    let mut connection = store.connector.connect().await.map_err(failed)?;
    if !store.is_pooled(ACTION).await? {
        sqlx::raw_sql(NO_HURRY).execute(&mut connection).await.map_err(failed)?;
    }
    let mut created = Ok(());
    for statement in statements {
        // Safe: the only text put in is checked identifiers, and a name that the server has quoted.
        created = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.map(drop);
        if created.is_err() {
            break;
        }
    }
    // That it can be closed politely or not changes nothing.
    let _ = connection.close().await;
    created.map(|()| true).map_err(failed)
}
