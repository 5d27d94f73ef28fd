//! `[database]`: an address, its parts where they are given alone, and what fits the kind of database.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use outbox::StoreError;
use outbox::store::{AddressSource, TableName, hide_password, hosts, with_hosts};
use outbox::units::duration;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

use super::kind::Kind;
use crate::failure::{Exit, Failure};

/// Connections that a host needs beside its workers, which hold none while a listener runs: poller, outcomes, leases, questions.
const LEAST_CONNECTIONS: u32 = 4;

/// Where the events are.
#[derive(Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct DatabaseConfig {
    /// The address. Whole once the configuration was read: the parts below were put into it.
    pub(crate) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<String>,
    /// A program and its arguments, which prints the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password_command: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) table: TableName,
    /// The schema that holds the table, where the database has schemas; `None` for the user's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schema: Option<String>,
    /// Most connections for what a host does by itself; `None` for the store's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_connections: Option<u32>,
    #[serde(with = "duration")]
    pub(crate) busy_timeout: Duration,
    /// Reads the address again; `None` for one that does not change.
    #[serde(skip)]
    pub(crate) changing: Option<Arc<dyn AddressSource>>,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            url: "sqlite:outbox.db".to_owned(),
            user: None,
            password: None,
            password_command: None,
            host: None,
            port: None,
            name: None,
            table: TableName::default(),
            schema: None,
            max_connections: None,
            busy_timeout: Duration::from_secs(5),
            changing: None,
        }
    }
}

impl std::fmt::Debug for DatabaseConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let url = hide_password(&self.url);
        f.debug_struct("DatabaseConfig").field("url", &url).field("table", &self.table).finish_non_exhaustive()
    }
}

/// The keys that are parts of an address, in the order in which they are put in: without a host there can be no user.
const PARTS: [&str; 5] = ["host", "port", "user", "password", "name"];

/// Everything but letters, digits and the marks that mean nothing anywhere in an address.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Whether this key holds what nobody may see.
pub(super) fn is_secret(key: &[String]) -> bool {
    key == ["database", "password"]
}

/// The parts that an address says itself; a SQLite file says that there are none.
pub(super) fn parts_of(address: &str) -> impl Iterator<Item = &'static str> {
    let (is_file, url) = (address.starts_with("sqlite:"), parsed(address));
    PARTS.into_iter().filter(move |part| is_file || url.as_ref().is_some_and(|url| has_part(address, url, part)))
}

/// An address with one host in the place of its own, which may be several; `None` if it is no address.
fn parsed(address: &str) -> Option<Url> {
    if !address.contains("://") {
        return None;
    }
    Url::parse(&with_hosts(address, "host")).ok()
}

fn has_part(address: &str, url: &Url, part: &str) -> bool {
    // For the driver, a parameter overrides the other parts of the address.
    let has_parameter = |names: &[&str]| url.query_pairs().any(|(name, _)| names.contains(&&*name));
    match part {
        "user" => !url.username().is_empty() || has_parameter(&["user"]),
        "password" => url.password().is_some() || has_parameter(&["password"]),
        "host" => !hosts(address).is_empty(),
        "port" => hosts(address).split(',').any(has_port) || has_parameter(&["port"]),
        _ => url.path().len() > 1 || has_parameter(&["dbname"]),
    }
}

/// Whether a host of an address has a port. An IPv6 literal has brackets there.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, rest)| rest).contains(':')
}

/// A host as an address needs it; `None` if it cannot be part of one.
fn host_of_address(host: &str) -> Option<String> {
    let host = host.trim();
    // A directory of sockets is a host only when it is escaped.
    let host = match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) if host.starts_with('/') => utf8_percent_encode(host, ESCAPED).to_string(),
        Err(_) => host.to_owned(),
    };
    let url = Url::parse(&format!("host://{host}")).ok()?;
    let is_host = !host.is_empty()
        && url.username().is_empty()
        && url.password().is_none()
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && !host.ends_with('/');
    is_host.then_some(host)
}

impl DatabaseConfig {
    /// Puts the parts into the address, escaped: a person writes them as they are. An address of which only `postgres:` or
    /// `mysql:` is given leads to this machine, unless a host is set.
    ///
    /// # Errors
    /// Every part that stands in the address already, or that a file does not have.
    pub(crate) fn put_parts_into_url(&mut self) -> Result<(), Vec<String>> {
        let given =
            [&self.host, &self.port.map(|port| port.to_string()), &self.user, &self.password, &self.name].map(Clone::clone);
        let given: Vec<(&str, String)> =
            PARTS.into_iter().zip(given).filter_map(|(part, value)| Some((part, value?))).collect();
        let command = self.password_command.as_ref().map(|_| "password_command");
        if given.is_empty() && command.is_none() {
            return Ok(());
        }
        if self.url.starts_with("sqlite:") {
            let keys: Vec<String> =
                given.iter().map(|(part, _)| *part).chain(command).map(|part| format!("database.{part}")).collect();
            return Err(vec![format!(
                "{} is set, but database.url is a SQLite file, which needs no server or login; write database.url = \
                 \"postgres:\" or \"mysql:\", or remove it",
                keys.join(", ")
            )]);
        }
        let base = match self.url.trim_end_matches('/').split_once(':') {
            Some((scheme, "")) => format!("{scheme}://localhost"),
            _ => self.url.clone(),
        };
        let names_host = base == self.url;
        // What is no address is told by the driver, with its own words.
        let Some(mut url) = parsed(&base) else { return Ok(()) };
        let mut faults = Vec::new();
        if command.is_some() && (self.password.is_some() || has_part(&base, &url, "password")) {
            let password =
                if self.password.is_some() { "database.password is set too" } else { "database.url holds a password too" };
            faults.push(format!("database.password_command is set, but {password}; remove one of them"));
        }
        if self.password_command.as_ref().is_some_and(Vec::is_empty) {
            faults.push(
                "database.password_command is empty; write the program and its arguments: [\"program\", \"argument\"]"
                    .to_owned(),
            );
        }
        let mut places: Vec<String> = hosts(&base).split(',').map(str::to_owned).collect();
        for (part, value) in given {
            let is_there = has_part(&base, &url, part) && (names_host || part != "host");
            let escaped = utf8_percent_encode(&value, ESCAPED).to_string();
            let fits = match part {
                "user" => has_host(&places) && url.set_username(&escaped).is_ok(),
                "password" => has_host(&places) && url.set_password(Some(&escaped)).is_ok(),
                "host" => match value.split(',').map(host_of_address).collect::<Option<_>>() {
                    Some(named) => {
                        places = named;
                        true
                    }
                    None => false,
                },
                "port" if is_there || !has_host(&places) || places.iter().any(|host| has_port(host)) => false,
                "port" => {
                    places.iter_mut().for_each(|host| *host = format!("{host}:{value}"));
                    true
                }
                _ => {
                    url.set_path(&escaped);
                    true
                }
            };
            if is_there {
                faults.push(format!("database.{part} is set, but database.url has one as well; keep one of them"));
            } else if !fits {
                faults.push(format!("database.{part} cannot be part of an address; write what database.url needs there"));
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        self.url = with_hosts(url.as_str(), &places.join(","));
        Ok(())
    }

    /// A table in the configured schema, if one is configured. No `search_path` of the address names the schema: a pooler may drop it.
    #[cfg(feature = "postgres")]
    pub(crate) fn in_schema(&self, table: TableName) -> TableName {
        match &self.schema {
            None => table,
            Some(schema) => table.in_schema(schema).expect("it was checked when the configuration was read"),
        }
    }

    /// The kind of the database. An address of none was refused when the configuration was read.
    pub(crate) fn kind(&self) -> Result<Kind, Failure> {
        Kind::of(&self.url).ok_or_else(|| Failure::new(Exit::Config, no_address(&self.url)))
    }

    /// Everything that is wrong with these values; `is_set` tells which keys somebody set.
    pub(super) fn faults(&self, is_set: &dyn Fn(&str) -> bool) -> Vec<String> {
        let url = &self.url;
        let Some(kind) = Kind::of(url) else { return vec![no_address(url)] };
        let mut faults: Vec<String> = kind.checked(url).err().map(|error| unreadable(url, &error)).into_iter().collect();
        faults.extend(misfits(kind, self, is_set));
        faults
    }
}

fn has_host(places: &[String]) -> bool {
    places.iter().all(|host| !host.is_empty())
}

/// The change that an address of another program needs.
fn habit(url: &str) -> Option<&'static str> {
    if url.starts_with("jdbc:") {
        return Some("that is a JDBC address: remove `jdbc:`, and write user and password before the host");
    }
    match url.split_once("://") {
        Some((scheme, _)) if scheme.contains('+') => Some("remove the `+` and the driver name after it"),
        None if ["host=", "server=", "dbname="].iter().any(|key| url.to_ascii_lowercase().contains(key)) => {
            Some("`key=value` pairs are not supported; set database.host, database.user and database.name")
        }
        _ => None,
    }
}

fn no_address(url: &str) -> String {
    let habit = habit(url).map_or_else(String::new, |habit| format!("{habit}: "));
    let examples: Vec<&str> = Kind::value_variants().iter().map(|kind| kind.example()).collect();
    format!(
        "database.url is `{}`, which is not a database address; {habit}write it like {}",
        hide_password(url),
        examples.join(" or ")
    )
}

/// What the driver says of an address; of one with a password, also where it can be written as it is.
fn unreadable(url: &str, error: &StoreError) -> String {
    let hint = if url.contains('@') && matches!(error, StoreError::Url { .. }) {
        "; or set database.password, which needs no escaping"
    } else {
        ""
    };
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
            faults.push("database.schema is set, but SQLite has no schemas; remove it, or name another file".to_owned());
        }
        (Kind::Mysql, Some(_)) => faults
            .push("database.schema is set, but MySQL's schemas are databases; name one at the end of database.url".to_owned()),
    }
    match (kind, database.max_connections) {
        (_, None) => {}
        (Kind::Sqlite, Some(_)) => faults.push(
            "database.max_connections is set, but a SQLite file always has one writer and a few readers; remove it".to_owned(),
        ),
        (_, Some(most)) if most < LEAST_CONNECTIONS => faults.push(format!(
            "database.max_connections is {most}; poller, outcomes, leases and queries need at least {LEAST_CONNECTIONS} \
             together"
        )),
        (_, Some(_)) => {}
    }
    if kind != Kind::Sqlite && is_set("database.busy_timeout") {
        let name = kind.name();
        faults
            .push(format!("database.busy_timeout is set, but only SQLite has it; remove it, {name} has its own lock timeout"));
    }
    faults
}

#[cfg(all(test, feature = "mysql", feature = "postgres"))]
mod tests {
    use outbox::store::mysql::MySqlOptions;
    use outbox::store::postgres::PostgresOptions;

    use super::*;

    fn whole(url: &str, parts: [Option<&str>; 4], port: Option<u16>) -> Result<String, Vec<String>> {
        let [user, password, host, name] = parts.map(|part| part.map(str::to_owned));
        let mut config = DatabaseConfig { url: url.to_owned(), user, password, host, port, name, ..DatabaseConfig::default() };
        config.put_parts_into_url().map(|()| config.url)
    }

    #[test]
    fn a_part_is_written_as_it_is_and_escaped_in_the_address() {
        let url = whole("postgres://db/shop", [Some("o'neil@shop"), Some("p@s:s/w?r#d%41"), None, None], None).unwrap();
        assert_eq!(url, "postgres://o%27neil%40shop:p%40s%3As%2Fw%3Fr%23d%2541@db/shop");
        assert!(PostgresOptions::from_url(&url).is_ok());
        let url = whole("mysql:", [Some("app"), Some("a b"), Some("db.example.com"), Some("shop/1")], Some(3307)).unwrap();
        assert_eq!(url, "mysql://app:a%20b@db.example.com:3307/shop%2F1");
        assert!(MySqlOptions::from_url(&url).is_ok());
        let url = whole("postgres://?sslmode=require", [Some("app"), None, Some("db"), Some("shop")], None).unwrap();
        assert_eq!(url, "postgres://app@db/shop?sslmode=require");
        assert_eq!(whole("postgres:", [None, None, None, Some("shop")], None).unwrap(), "postgres://localhost/shop");
        let url = whole("postgres:", [None, None, Some("/run/postgresql"), Some("shop")], None).unwrap();
        assert_eq!(url, "postgres://%2Frun%2Fpostgresql/shop");
        assert_eq!(whole("sqlite:a.db", [None; 4], None).unwrap(), "sqlite:a.db");
    }

    #[test]
    fn ipv6_literals_and_several_hosts_are_parts_as_any_host() {
        let url = whole("postgres:", [Some("app"), Some("p@ss"), Some("::1"), Some("shop")], Some(5433)).unwrap();
        assert_eq!(url, "postgres://app:p%40ss@[::1]:5433/shop");
        let url = whole("postgres://a:5432,b/shop?sslmode=require", [Some("app"), Some("x"), None, None], None).unwrap();
        assert_eq!(url, "postgres://app:x@a:5432,b/shop?sslmode=require");
        let url = whole("postgres:", [None, None, Some("a, fe80::2"), Some("shop")], Some(5433)).unwrap();
        assert_eq!(url, "postgres://a:5433,[fe80::2]:5433/shop");
        assert_eq!(whole("postgres:", [None, None, Some("a:1,b:2"), None], None).unwrap(), "postgres://a:1,b:2");
        for wrong in ["a b", "joe@db", "db/shop", "db?x", "a,,b", ""] {
            let faults = whole("postgres:", [None, None, Some(wrong), None], None).unwrap_err();
            assert!(faults[0].starts_with("database.host cannot be"), "{wrong}: {faults:?}");
        }
        let faults = whole("postgres://a:1,b/shop", [None; 4], Some(5)).unwrap_err();
        assert!(faults[0].starts_with("database.port is set, but database.url has one"), "{faults:?}");
    }

    #[test]
    fn an_address_of_another_program_is_refused_with_what_to_change_and_without_its_password() {
        for (url, hint) in [
            ("jdbc:postgresql://db/shop?user=app&password=s3cret", "remove `jdbc:`"),
            ("postgresql+psycopg2://app:s3cret@db/shop", "remove the `+`"),
            ("host=db user=app password=s3cret", "database.host"),
            ("Server=db;Uid=app;Pwd=s3cret", "database.host"),
        ] {
            let fault = no_address(url);
            assert!(fault.contains(hint) && !fault.contains("s3cret"), "{fault}");
        }
    }

    #[test]
    fn a_command_beside_a_password_or_a_file_is_refused() {
        let command = |url: &str, password: Option<&str>, command: &[&str]| {
            let mut config = DatabaseConfig {
                url: url.to_owned(),
                password: password.map(str::to_owned),
                password_command: Some(command.iter().map(|part| (*part).to_owned()).collect()),
                ..DatabaseConfig::default()
            };
            config.put_parts_into_url().unwrap_err().join(" ")
        };
        assert!(command("postgres://app:s3cret@db/shop", None, &["x"]).starts_with("database.password_command is set"));
        assert!(command("postgres://app@db/shop", Some("s3cret"), &["x"]).starts_with("database.password_command is set"));
        assert!(command("postgres://app@db/shop", None, &[]).starts_with("database.password_command is empty"));
        assert!(
            command("sqlite:a.db", None, &["x"]).starts_with("database.password_command is set, but database.url is a SQLite")
        );
    }

    #[test]
    fn a_table_is_in_the_configured_schema() {
        let config = DatabaseConfig { schema: Some("app".to_owned()), ..DatabaseConfig::default() };

        assert_eq!(config.in_schema(config.table.clone()).to_string(), "app.outbox_event");
        assert_eq!(DatabaseConfig::default().in_schema(config.table).to_string(), "outbox_event");
    }

    #[test]
    fn a_part_that_the_address_has_already_is_refused_by_its_key() {
        let faults = whole("postgres://app:s3cret@db:5432/shop", [Some("a"), Some("hunter2"), Some("b"), Some("c")], Some(1))
            .unwrap_err();
        let keys: Vec<_> = faults.iter().map(|fault| fault.split(' ').next().unwrap()).collect();
        assert_eq!(keys, ["database.host", "database.port", "database.user", "database.password", "database.name"]);
        let said = faults.join("\n");
        assert!(!said.contains("s3cret") && !said.contains("hunter2"), "{said}");
        let faults = whole("sqlite:outbox.db", [Some("app"), Some("x"), None, None], None).unwrap_err();
        assert!(faults.len() == 1 && faults[0].starts_with("database.user, database.password is set"), "{faults:?}");
    }

    #[test]
    fn a_debug_print_shows_no_password() {
        let config = DatabaseConfig {
            url: "postgres://app:s3cret@db/shop".to_owned(),
            password: Some("s3cret".to_owned()),
            ..DatabaseConfig::default()
        };
        assert!(!format!("{config:?}").contains("s3cret"));
    }
    #[test]
    fn a_schema_is_checked_as_a_table_is() {
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
