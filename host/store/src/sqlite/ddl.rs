//! Statements that change the schema.

use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::error::failed;
use crate::StoreError;

pub(super) async fn run(store: &SqliteStore, connection: &mut SqliteConnection, text: &'static str) -> Result<(), StoreError> {
    let result = sqlx::raw_sql(store.table.sql(text)).execute(connection).await;
    result.map(drop).map_err(|error| failed("migrate the schema", error))
}
