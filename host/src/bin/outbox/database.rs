//! Opening the database of the configuration: the one file of the program that tells kinds of databases apart.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use outbox::store::mysql::MySqlOptions;
use outbox::store::postgres::PostgresOptions;
use outbox::store::sqlite::SqliteOptions;
use outbox::store::{TableName, hide_password};
use outbox::{MySqlStore, PostgresStore, SqliteStore, Store, StoreError};

use crate::config::{Config, DatabaseConfig};
use crate::failure::{Exit, Failure};

/// Connections that a host needs beside its workers, which hold none while a listener runs: poller, outcomes, leases, questions.
const LEAST_CONNECTIONS: u32 = 4;

/// A kind of database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A file
    #[default]
    Sqlite,
    /// A PostgreSQL server
    Postgres,
    /// A MySQL or MariaDB server
    Mysql,
}

impl Kind {
    /// The kind that an address asks for; `None` when it is the address of none.
    pub(crate) fn of(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::Mysql),
            _ => None,
        }
    }

    /// Its name, as its makers write it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::Mysql => "MySQL",
        }
    }

    /// What an address of it looks like.
    const fn example(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite:outbox.db",
            Self::Postgres => "postgres://user:password@host:5432/database",
            Self::Mysql => "mysql://user:password@host:3306/database",
        }
    }
}

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
    match kind(&database.url)? {
        Kind::Sqlite => {
            let mut options = sqlite(database)?;
            options.create = missing == Missing::Create;
            Ok(Arc::new(SqliteStore::open_with(options).await.map_err(|error| followed(error, config))?))
        }
        Kind::Postgres => Ok(Arc::new(PostgresStore::connect_with(postgres(database)?).await?)),
        Kind::Mysql => Ok(Arc::new(MySqlStore::connect_with(mysql(database)?).await?)),
    }
}

/// The file of the configuration's database, when it has one and that is not there yet.
pub(crate) fn missing_file(config: &Config) -> Option<PathBuf> {
    let database = &config.database;
    let file = (kind(&database.url).ok()? == Kind::Sqlite).then(|| sqlite(database))?.ok()?.file;
    (!file.exists()).then_some(file)
}

/// How many connections a host of this configuration may open in all.
pub(crate) fn most_connections(config: &Config) -> Result<u32, Failure> {
    let database = &config.database;
    Ok(match kind(&database.url)? {
        Kind::Sqlite => sqlite(database)?.most_connections(),
        Kind::Postgres => postgres(database)?.most_connections(),
        Kind::Mysql => mysql(database)?.most_connections(),
    })
}

fn sqlite(database: &DatabaseConfig) -> Result<SqliteOptions, StoreError> {
    let mut options = SqliteOptions::from_url(&database.url)?.table(database.table.clone());
    options.busy_timeout = database.busy_timeout;
    Ok(options)
}

fn postgres(database: &DatabaseConfig) -> Result<PostgresOptions, StoreError> {
    let mut options = PostgresOptions::from_url(&with_schema(database))?.table(database.table.clone());
    options.connections = database.max_connections.unwrap_or(options.connections);
    Ok(options)
}

fn mysql(database: &DatabaseConfig) -> Result<MySqlOptions, StoreError> {
    let mut options = MySqlOptions::from_url(&database.url)?.table(database.table.clone());
    options.connections = database.max_connections.unwrap_or(options.connections);
    Ok(options)
}

/// The address of a PostgreSQL server, with the schema as the first place where every connection looks for the table. The name
/// was checked when the configuration was read.
fn with_schema(database: &DatabaseConfig) -> String {
    let url = &database.url;
    match &database.schema {
        None => url.clone(),
        Some(schema) => format!("{url}{}options[search_path]={schema}", if url.contains('?') { '&' } else { '?' }),
    }
}

/// The schema as SQL, without a connection.
pub(crate) fn schema_sql(kind: Kind, table: &TableName) -> String {
    match kind {
        Kind::Sqlite => SqliteStore::schema_sql(table),
        Kind::Postgres => PostgresStore::schema_sql(table),
        Kind::Mysql => MySqlStore::schema_sql(table),
    }
}

/// What the driver says of an address of its kind.
fn checked(kind: Kind, url: &str) -> Result<(), StoreError> {
    match kind {
        Kind::Sqlite => SqliteOptions::from_url(url).map(drop),
        Kind::Postgres => PostgresOptions::from_url(url).map(drop),
        Kind::Mysql => MySqlOptions::from_url(url).map(drop),
    }
}

/// Opens the database, whose schema must be ours.
pub(crate) async fn ready(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    let store = open(config, Missing::Refuse).await?;
    store.check_schema().await.map_err(|error| followed(error, config))?;
    Ok(store)
}

/// Where `outbox migrate up` is what helps, with the flags that it needs to meet the same database.
fn followed(error: StoreError, config: &Config) -> Failure {
    let is_absent =
        matches!(error, StoreError::NoSchema { .. } | StoreError::SchemaOlder { .. }) || missing_file(config).is_some();
    let failure = Failure::from(error);
    if !is_absent || config.flags.is_empty() {
        return failure;
    }
    failure.details(vec![format!("with the flags of this call: {}", config.flags.command("outbox migrate up"))])
}

/// Tells the hosts that there is something to do. A hint: what was done is done, and their polls find it.
pub(crate) async fn tell_hosts(store: &dyn Store) {
    if let Err(error) = store.notify().await {
        tracing::warn!(error = %outbox::chain(&error), "the hosts could not be told; they see it at their next poll");
    }
}

/// The kind of the configuration's database. An address of none was refused when the configuration was read.
pub(crate) fn kind(url: &str) -> Result<Kind, Failure> {
    Kind::of(url).ok_or_else(|| Failure::new(Exit::Config, no_address(url)))
}

fn no_address(url: &str) -> String {
    let examples: Vec<&str> = Kind::value_variants().iter().map(|kind| kind.example()).collect();
    format!("database.url is `{}`, which is no database address; write it like {}", hide_password(url), examples.join(" or "))
}

/// Everything that is wrong with these values; `is_set` tells which keys somebody set.
pub(crate) fn faults(database: &DatabaseConfig, is_set: &dyn Fn(&str) -> bool) -> Vec<String> {
    let url = &database.url;
    let Some(kind) = Kind::of(url) else { return vec![no_address(url)] };
    let mut faults: Vec<String> = checked(kind, url).err().map(|error| unreadable(url, &error)).into_iter().collect();
    faults.extend(misfits(kind, database, is_set));
    faults
}

/// What the driver says of an address; of one with a password, also where it can be written as it is.
fn unreadable(url: &str, error: &StoreError) -> String {
    let hint = if url.contains('@') { "; or set database.password, where it is written as it is" } else { "" };
    format!("database.url: {error}{hint}")
}

/// Settings that mean nothing for this kind: somebody expects something of them that does not happen.
fn misfits(kind: Kind, database: &DatabaseConfig, is_set: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut faults = Vec::new();
    match (kind, &database.schema) {
        (_, None) => {}
        (Kind::Postgres, Some(schema)) => {
            faults.extend(
                TableName::new(schema).err().map(|why| format!("database.schema: {}", why.replace("a table", "a schema"))),
            );
        }
        (Kind::Sqlite, Some(_)) => {
            faults.push("database.schema is set, but SQLite has no schemas; take it out, or name another file".to_owned());
        }
        (Kind::Mysql, Some(_)) => faults
            .push("database.schema is set, but MySQL's schemas are databases; name one at the end of database.url".to_owned()),
    }
    match (kind, database.max_connections) {
        (_, None) => {}
        (Kind::Sqlite, Some(_)) => faults.push(
            "database.max_connections is set, but a SQLite file has one writer and a few readers, whatever is set; take it out"
                .to_owned(),
        ),
        (_, Some(most)) if most < LEAST_CONNECTIONS => faults.push(format!(
            "database.max_connections is {most}; poller, outcomes, leases and questions need {LEAST_CONNECTIONS} beside each other"
        )),
        (_, Some(_)) => {}
    }
    if kind != Kind::Sqlite && is_set("database.busy_timeout") {
        let name = kind.name();
        faults.push(format!("database.busy_timeout is set, which is SQLite's; take it out, {name} has its own lock timeout"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_an_address_tells_the_kind() {
        assert_eq!(Kind::of("sqlite:outbox.db"), Some(Kind::Sqlite));
        assert_eq!(Kind::of("postgresql://db/shop"), Some(Kind::Postgres));
        assert_eq!(Kind::of("mariadb://db/shop"), Some(Kind::Mysql));
        assert_eq!((Kind::of("outbox.db"), Kind::of("oracle://db")), (None, None));
    }

    #[test]
    fn a_schema_is_where_every_connection_looks_first() {
        let schema = Some("app".to_owned());
        let database = |url: &str| DatabaseConfig { url: url.to_owned(), schema: schema.clone(), ..DatabaseConfig::default() };
        assert_eq!(with_schema(&database("postgres://db/shop")), "postgres://db/shop?options[search_path]=app");
        let url = with_schema(&database("postgres://db/shop?sslmode=require"));
        assert_eq!(url, "postgres://db/shop?sslmode=require&options[search_path]=app");
        assert!(checked(Kind::Postgres, &url).is_ok());
        let bad = DatabaseConfig { schema: Some("app; DROP".to_owned()), ..DatabaseConfig::default() };
        assert!(misfits(Kind::Postgres, &bad, &|_| false)[0].contains("is not a schema name"));
    }

    #[test]
    fn settings_that_do_not_fit_the_kind_are_told() {
        let database = DatabaseConfig { schema: Some("app".to_owned()), max_connections: Some(2), ..DatabaseConfig::default() };
        let said = |kind, is_set: &dyn Fn(&str) -> bool| misfits(kind, &database, is_set).join("\n");
        let sqlite = said(Kind::Sqlite, &|_| true);
        assert!(sqlite.contains("SQLite has no schemas") && sqlite.contains("one writer"), "{sqlite}");
        let postgres = said(Kind::Postgres, &|_| true);
        assert!(postgres.contains("database.max_connections is 2") && postgres.contains("busy_timeout"), "{postgres}");
        assert!(!postgres.contains("database.schema") && !said(Kind::Postgres, &|_| false).contains("busy_timeout"));
        assert!(said(Kind::Mysql, &|_| false).contains("at the end of database.url"));
    }
}
