//! Opening the database of the configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "mysql")]
use outbox::MySqlStore;
#[cfg(feature = "postgres")]
use outbox::PostgresStore;
#[cfg(feature = "mysql")]
use outbox::store::mysql::MySqlOptions;
#[cfg(feature = "postgres")]
use outbox::store::postgres::PostgresOptions;
use outbox::store::sqlite::SqliteOptions;
use outbox::store::{TableName, with_hosts};
use outbox::{Mode, SqliteStore, StartError, Store, StoreError};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::config::{Config, DatabaseConfig, FILE, Kind};
use crate::failure::Failure;
use crate::rights;

/// Whether the file may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// A misspelt name must not become a new, empty outbox.
    Refuse,
    /// Made, since the command says so.
    Create,
}

/// How long a statement of a command waits for a lock. A host gives up sooner, since it tries again by itself.
const LOCK_TIMEOUT_OF_COMMANDS: Duration = Duration::from_secs(20);

/// Opens the database for a host, to look at it, or to change its schema.
pub(crate) async fn open(config: &Config, missing: Missing) -> Result<Arc<dyn Store>, Failure> {
    open_with(config, missing, None).await
}

/// Opens the database for a command that reads and changes events.
pub(crate) async fn open_for_command(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    open_with(config, Missing::Refuse, Some(LOCK_TIMEOUT_OF_COMMANDS)).await
}

/// Opens the database. SQLite has its own time for locks, `busy_timeout`.
#[cfg_attr(not(any(feature = "mysql", feature = "postgres")), expect(unused_variables, reason = "SQLite alone"))]
async fn open_with(config: &Config, missing: Missing, lock_timeout: Option<Duration>) -> Result<Arc<dyn Store>, Failure> {
    let database = &config.database;
    match database.kind()? {
        Kind::Sqlite => {
            let mut options = sqlite(database)?;
            options.create = missing == Missing::Create;
            let file = options.file.clone();
            let opened = SqliteStore::open_with(options).await;
            // A file that may be made is not missing: something else is wrong with it.
            let told = |error| {
                let mut lacking =
                    if matches!(error, StoreError::Unreachable { .. }) { rights::to_use(&file) } else { Vec::new() };
                if missing == Missing::Refuse && !file.exists() {
                    lacking.extend(looked_for(&file, config));
                }
                let failure = if missing == Missing::Refuse { followed(error, config) } else { Failure::from(error) };
                lacking.into_iter().fold(failure, Failure::detail)
            };
            Ok(Arc::new(opened.map_err(told)?))
        }
        #[cfg(feature = "postgres")]
        Kind::Postgres => {
            let mut options = postgres(database).await?;
            options.lock_timeout = lock_timeout.unwrap_or(options.lock_timeout);
            Ok(Arc::new(PostgresStore::connect_with(options).await?))
        }
        #[cfg(feature = "mysql")]
        Kind::Mysql => {
            let mut options = mysql(database).await?;
            options.lock_timeout = lock_timeout.unwrap_or(options.lock_timeout);
            Ok(Arc::new(MySqlStore::connect_with(options).await?))
        }
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        kind => Err(left_out(kind)),
    }
}

/// The file of the configuration's database, when it has one and that is not there yet.
pub(crate) fn missing_file(config: &Config) -> Option<PathBuf> {
    let database = &config.database;
    let file = (database.kind().ok()? == Kind::Sqlite).then(|| sqlite(database))?.ok()?.file;
    (!file.exists()).then_some(file)
}

/// How many connections a host of this configuration may open in all.
pub(crate) fn most_connections(config: &Config) -> Result<u32, Failure> {
    let database = &config.database;
    Ok(match database.kind()? {
        Kind::Sqlite => sqlite(database)?.most_connections(),
        #[cfg(feature = "postgres")]
        Kind::Postgres => configured_postgres(PostgresOptions::from_url(&database.url)?, database).most_connections(),
        #[cfg(feature = "mysql")]
        Kind::Mysql => configured_mysql(MySqlOptions::from_url(&database.url)?, database).most_connections(),
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        kind => return Err(left_out(kind)),
    })
}

fn sqlite(database: &DatabaseConfig) -> Result<SqliteOptions, StoreError> {
    let mut options = SqliteOptions::from_url(&database.url)?.table(database.table.clone());
    options.busy_timeout = database.busy_timeout;
    Ok(options)
}

/// The address as it is now: what a file holds, and what a command prints, is read.
#[cfg(all(feature = "mysql", feature = "otel", feature = "postgres"))] // for `outbox bench`
pub(crate) async fn address(database: &DatabaseConfig) -> Result<String, Failure> {
    match &database.changing {
        None => Ok(database.url.clone()),
        Some(changing) => Ok(changing.address(false).await.map_err(StoreError::AddressUnread)?),
    }
}

#[cfg(feature = "postgres")]
async fn postgres(database: &DatabaseConfig) -> Result<PostgresOptions, StoreError> {
    let options = match &database.changing {
        None => PostgresOptions::from_url(&database.url)?,
        Some(changing) => PostgresOptions::from_source(changing.clone()).await?,
    };
    Ok(configured_postgres(options, database))
}

#[cfg(feature = "postgres")]
fn configured_postgres(mut options: PostgresOptions, database: &DatabaseConfig) -> PostgresOptions {
    options.connections = database.max_connections.unwrap_or(options.connections);
    options.table(database.in_schema(database.table.clone()))
}

#[cfg(feature = "mysql")]
async fn mysql(database: &DatabaseConfig) -> Result<MySqlOptions, StoreError> {
    let options = match &database.changing {
        None => MySqlOptions::from_url(&database.url)?,
        Some(changing) => MySqlOptions::from_source(changing.clone()).await?,
    };
    Ok(configured_mysql(options, database))
}

#[cfg(feature = "mysql")]
fn configured_mysql(mut options: MySqlOptions, database: &DatabaseConfig) -> MySqlOptions {
    options.connections = database.max_connections.unwrap_or(options.connections);
    options.table(database.table.clone())
}

/// The schema as SQL, with the index that a mode needs, without a connection.
pub(crate) fn schema_sql(kind: Kind, table: &TableName, mode: Mode) -> Result<String, Failure> {
    Ok(match kind {
        Kind::Sqlite => SqliteStore::schema_sql(table, mode.index()),
        #[cfg(feature = "postgres")]
        Kind::Postgres => PostgresStore::schema_sql(table, mode.index()),
        #[cfg(feature = "mysql")]
        Kind::Mysql => MySqlStore::schema_sql(table, mode.index()),
        #[cfg(not(all(feature = "mysql", feature = "postgres")))]
        kind => return Err(left_out(kind)),
    })
}

/// Refuses a database whose driver this build does not have.
#[cfg(not(all(feature = "mysql", feature = "postgres")))]
fn left_out(kind: Kind) -> Failure {
    let what = format!("this build of outbox has no driver for {}; build outbox-cli with its default features", kind.name());
    Failure::new(crate::failure::Exit::Config, what)
}

/// Opens the database, whose schema must be ours.
pub(crate) async fn ready(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    let store = open_for_command(config).await?;
    store.check_schema().await.map_err(|error| followed(error, config))?;
    Ok(store)
}

/// What lets the user of the configuration's database do what a role may.
pub(crate) fn how_to_grant(role: &str, config: &Config) -> String {
    let user = user(&config.database.url);
    let told = user.as_deref().unwrap_or("the one of this connection; write its name instead of NAME");
    format!(
        "the user is {told}; once a DBA has run those lines, this statement lets the user run the command: \
         {}",
        grant_sql(role, config)
    )
}

/// The SQL that grants a role to the user of the configuration's database; `NAME` stands for one that its address does not name.
pub(crate) fn grant_sql(role: &str, config: &Config) -> String {
    let user = user(&config.database.url);
    if matches!(config.database.kind(), Ok(Kind::Mysql)) {
        let account = mysql_account(user.as_deref().unwrap_or("NAME"));
        return format!(
            "GRANT {role} TO {account}; SET DEFAULT ROLE {role} FOR {account} -- MySQL: write TO instead of FOR; if the account has \
             another host than '%', write that"
        );
    }
    format!("GRANT {role} TO {}", user.as_deref().map_or_else(|| "NAME".to_owned(), quoted))
}

/// The user of an address; `None` where it names none.
pub(crate) fn user(url: &str) -> Option<String> {
    let url = Url::parse(&with_hosts(url, "host")).ok()?;
    let user = percent_decode_str(url.username()).decode_utf8_lossy().into_owned();
    (!user.is_empty()).then_some(user)
}

/// A name as SQL takes it.
pub(crate) fn quoted(user: &str) -> String {
    let is_plain = user.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && user.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { user.to_owned() } else { format!("\"{}\"", user.replace('"', "\"\"")) }
}

/// An account of MySQL and MariaDB, as their SQL has it; from which host it connects is not known here.
fn mysql_account(user: &str) -> String {
    format!("'{}'@'%'", user.replace('\\', "\\\\").replace('\'', "''"))
}

/// Where a command of `outbox migrate` is what helps, with the flags that it needs to meet the same database.
fn followed(error: StoreError, config: &Config) -> Failure {
    let failure = Failure::from(error);
    let add_index = config.mode.index().map(|index| format!("outbox migrate add-index {}", index.as_str()));
    let with_flags = |message: String, command: &str| {
        message.replace(&format!("`{command}`"), &format!("`{}`", config.flags.command(command)))
    };
    let message = [Some(MIGRATE), add_index.as_deref()].into_iter().flatten().fold(failure.message().to_owned(), with_flags);
    failure.named(message)
}

/// The database of `outbox dev`, unless another is named.
pub(crate) const OF_DEV: &str = "sqlite:outbox-dev.db";
/// Its file.
const FILE_OF_DEV: &str = OF_DEV.split_at("sqlite:".len()).1;

/// The command that makes the file and the tables.
const MIGRATE: &str = "outbox migrate up";

/// Why a host, or what writes as one, did not start.
pub(crate) fn not_started(error: StartError, config: &Config) -> Failure {
    match error {
        StartError::Store(error) => followed(error, config),
        error => error.into(),
    }
}

/// Where a file was looked for that nobody named, and where the events may be instead.
fn looked_for(file: &Path, config: &Config) -> Vec<String> {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let mut lines = vec![format!("it was looked for at {}", file.display())];
    if !config.has_file && config.database.url == DatabaseConfig::default().url {
        lines.push(format!(
            "no {FILE} is here either, so the default was used; run the command where your {FILE} is, or add --config FILE"
        ));
        if file.with_file_name(FILE_OF_DEV).exists() {
            let list = format!("outbox event list --database-url {OF_DEV}");
            lines.push(format!("`outbox dev` keeps its events in {FILE_OF_DEV}, which is here; see them with: {list}"));
        }
    }
    lines
}

/// Tells the hosts that there is something to do. A hint: what was done is done, and their polls find it.
pub(crate) async fn tell_hosts(store: &dyn Store) {
    if let Err(error) = store.notify().await {
        tracing::warn!(error = %outbox::chain(&error), "the hosts could not be notified; they see the change at their next \
                                                        poll");
    }
}

#[cfg(all(test, feature = "mysql", feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_told_with_the_user_and_the_role_that_it_needs() {
        let told = |url: &str| {
            let database = DatabaseConfig { url: url.to_owned(), ..DatabaseConfig::default() };
            how_to_grant("outbox_viewer", &Config { database, ..Config::default() })
        };
        let expected = |user: &str, sql: &str| {
            format!("the user is {user}; once a DBA has run those lines, this statement lets the user run the command: {sql}")
        };
        let on_mysql = |user: &str| {
            format!(
                "GRANT outbox_viewer TO '{user}'@'%'; SET DEFAULT ROLE outbox_viewer FOR '{user}'@'%' -- MySQL: write TO instead of \
                 FOR; if the account has another host than '%', write that"
            )
        };
        let unnamed = "the one of this connection; write its name instead of NAME";
        for (url, user, sql) in [
            ("postgres://shop:s3cret@db/shop", "shop", "GRANT outbox_viewer TO shop".to_owned()),
            ("postgres://o%27neil%40shop@db/shop", "o'neil@shop", "GRANT outbox_viewer TO \"o'neil@shop\"".to_owned()),
            ("postgres://shop:s3cret@a:5432,[::1]:5432/shop", "shop", "GRANT outbox_viewer TO shop".to_owned()),
            ("postgres://db/shop", unnamed, "GRANT outbox_viewer TO NAME".to_owned()),
            ("mysql://app@db/shop", "app", on_mysql("app")),
            ("mysql://o%27neil@db/shop", "o'neil", on_mysql("o''neil")),
            ("mysql://db/shop", unnamed, on_mysql("NAME")),
        ] {
            assert_eq!(told(url), expected(user, &sql));
        }
    }
}
