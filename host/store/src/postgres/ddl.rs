//! Transactions that change the schema.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

use super::{PostgresStore, Run};
use crate::StoreError;
use crate::schema::in_use;

/// Held until the transaction ends: of two programs that start together, the second one finds the work done. The number is that
/// of the text, so that other users of advisory locks are not met.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtextextended('outbox_event_migration', 0))";
/// An index on a large table takes its time, and so may another program that is at it.
const NO_HURRY: &str = "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)";
/// A statement that waits for the table blocks all later users of it, so it gives up before a host would.
const NO_QUEUE: &str = "SELECT set_config('lock_timeout', '1500', true)";
/// $1 the schema.
const LOOK_IN: &str = "SELECT set_config('search_path', lower($1::text), true)";
/// $1 the schema.
const SCHEMA_EXISTS: &str = "SELECT to_regnamespace($1::text) IS NOT NULL AS there";

/// The steps name tables and indexes without their schema, which names of indexes cannot carry.
pub(super) async fn prepare(store: &PostgresStore, connection: &mut PgConnection) -> Result<(), StoreError> {
    let failed = |error| store.failed("migrate the schema", error);
    store.plain(NO_HURRY).execute(&mut *connection).await.map_err(failed)?;
    if let Some(schema) = store.table.schema() {
        let row = store.plain(SCHEMA_EXISTS).bind(schema).fetch_one(&mut *connection).await.map_err(failed)?;
        if !row.try_get::<bool, _>("there").map_err(failed)? {
            return Err(StoreError::NoNamespace { schema: schema.to_owned() });
        }
        store.plain(LOOK_IN).bind(schema).execute(&mut *connection).await.map_err(failed)?;
    }
    store.plain(LOCK).execute(&mut *connection).await.map_err(failed)?;
    store.plain(NO_QUEUE).execute(connection).await.map_err(failed)?;
    Ok(())
}

pub(super) async fn run(store: &PostgresStore, connection: &mut PgConnection, text: &str) -> Result<(), StoreError> {
    // Safe: the only text put in is checked identifiers.
    let result = sqlx::raw_sql(AssertSqlSafe(store.table.unqualified(text))).execute(connection).await;
    result.map(drop).map_err(|error| in_use(&store.table, store.failed("migrate the schema", error)))
}
