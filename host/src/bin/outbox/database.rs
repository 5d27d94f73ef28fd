//! Opening the database of the configuration.

use std::sync::Arc;

use outbox::store::sqlite::SqliteOptions;
use outbox::{SqliteStore, Store};

use crate::config::Config;
use crate::failure::Failure;

/// Whether the file may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A misspelt name must not become a new, empty outbox.
    Refuse,
    /// Made, since the command says so.
    Create,
}

/// Opens the database.
pub(crate) async fn open(config: &Config, missing: Missing) -> Result<Arc<dyn Store>, Failure> {
    let database = &config.database;
    let mut options = SqliteOptions::from_url(&database.url)?.table(database.table.clone());
    options.busy_timeout = database.busy_timeout;
    options.create = missing == Missing::Create;
    Ok(Arc::new(SqliteStore::open_with(options).await?))
}

/// Opens the database, whose schema must be ours.
pub(crate) async fn ready(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    let store = open(config, Missing::Refuse).await?;
    store.check_schema().await?;
    Ok(store)
}
