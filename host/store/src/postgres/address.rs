//! Addresses of PostgreSQL servers: several hosts, and no parameter without effect.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Postgres, Row};
use url::Url;

use crate::address::{Habit, hosts, unknown_parameter, with_hosts};
use crate::connector::Servers;
use crate::{StoreError, hide_password};

const PARAMETERS: [&str; 11] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "target_session_attrs",
    "host",
    "port",
    "dbname",
    "user",
    "application_name",
    "options",
];
/// Other names of these, and those that few people want.
const MORE_PARAMETERS: [&str; 8] =
    ["ssl-mode", "ssl-root-cert", "ssl-ca", "ssl-cert", "ssl-key", "hostaddr", "password", "statement-cache-capacity"];

const HABITS: [Habit; 9] = [
    (&["schema", "currentSchema", "search_path"], "write options[search_path]=NAME, or set database.schema"),
    (&["channel_binding"], "the driver has no channel binding; leave it out and write sslmode=verify-full"),
    (&["service", "servicefile"], "no pg_service.conf is read; write host, user and database into the address"),
    (
        &["ssl", "useSSL", "requiressl", "tls", "sslaccept", "sslfactory"],
        "write sslmode=require, or sslmode=verify-full to check the server's certificate",
    ),
    (&["targetServerType"], "write target_session_attrs=read-write or target_session_attrs=primary"),
    (
        &["connect_timeout", "connectTimeout", "loginTimeout", "socketTimeout"],
        "leave it out: one host has 10 s to answer, each of several has 3 s",
    ),
    (&["connection_limit", "pool_size", "pool_max_conns", "maximumPoolSize"], "leave it out and set database.max_connections"),
    (&["pgbouncer", "prepareThreshold", "prepared_statements"], "leave it out: a pooler is recognised by itself"),
    (&["sslnegotiation", "gssencmode", "require_auth", "load_balance_hosts"], "leave it out: the driver lacks it"),
];

const LIKE: &str = "write it like postgres://user:password@host:5432/database";

/// The servers of an address, and which of them is used.
#[derive(Clone)]
pub(super) struct PostgresServers {
    each: Vec<PgConnectOptions>,
    attributes: SessionAttributes,
}

/// `target_session_attrs`, by libpq's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionAttributes {
    /// `any`
    Any,
    /// `read-write`
    ReadWrite,
    /// `primary`
    Primary,
}

impl PostgresServers {
    /// A server with the driver's own options.
    pub(super) fn one(connect: PgConnectOptions) -> Self {
        Self { each: vec![connect], attributes: SessionAttributes::Any }
    }

    pub(super) fn map(self, change: impl Fn(PgConnectOptions) -> PgConnectOptions) -> Self {
        Self { each: self.each.into_iter().map(change).collect(), ..self }
    }

    pub(super) fn first(&self) -> &PgConnectOptions {
        &self.each[0]
    }

    pub(super) fn is_one(&self) -> bool {
        self.each.len() == 1
    }
}

impl Servers for PostgresServers {
    type Database = Postgres;

    fn of_url(url: &str) -> Result<Self, StoreError> {
        let wrong = |hint: String| StoreError::Url { url: hide_password(url), hint };
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(wrong(LIKE.to_owned()));
        }
        let hosts: Vec<&str> = hosts(url).split(',').collect();
        if hosts.len() > 1 && hosts.iter().any(|host| host.is_empty()) {
            return Err(wrong("one of its hosts is empty; write them like a:5432,b:5432".to_owned()));
        }
        let servers: Vec<_> = hosts.iter().map(|host| server(url, host, hosts.len() > 1)).collect::<Result<_, _>>()?;
        // The outbox writes: of several servers, one that takes no writes is of no use.
        let usual = if hosts.len() > 1 { SessionAttributes::ReadWrite } else { SessionAttributes::Any };
        let attributes = servers[0].1.unwrap_or(usual);
        Ok(Self { each: servers.into_iter().map(|(connect, _)| connect).collect(), attributes }.map(prepared))
    }

    fn each(&self) -> &[PgConnectOptions] {
        &self.each
    }

    fn label(server: &PgConnectOptions) -> String {
        match server.get_socket() {
            Some(socket) => socket.display().to_string(),
            None if server.get_host().contains(':') => format!("[{}]:{}", server.get_host(), server.get_port()),
            None => format!("{}:{}", server.get_host(), server.get_port()),
        }
    }

    fn is_login_refused(error: &sqlx::Error) -> bool {
        super::error::is_login_refused(error)
    }

    /// As libpq: a server that cannot take connections now is passed over, one that refuses the login is not.
    fn may_be_elsewhere(error: &sqlx::Error) -> bool {
        match error {
            sqlx::Error::Database(error) => error.code().as_deref() == Some("57P03"),
            _ => true,
        }
    }

    async fn check(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.attributes == SessionAttributes::Any {
            return Ok(());
        }
        match obstacle(connection).await? {
            Some(why) if why == STANDBY || self.attributes == SessionAttributes::ReadWrite => Err(not_suitable(why)),
            _ => Ok(()),
        }
    }

    async fn obstacle(&self, connection: &mut PgConnection) -> Result<Option<&'static str>, sqlx::Error> {
        // The check has found none otherwise.
        if self.attributes == SessionAttributes::ReadWrite { Ok(None) } else { obstacle(connection).await }
    }
}

const STANDBY: &str = "it is a standby";

/// Why a server takes no writes of this session; `None` if it takes them.
async fn obstacle(connection: &mut PgConnection) -> Result<Option<&'static str>, sqlx::Error> {
    let sql = "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on'";
    let row = sqlx::raw_sql(sql).fetch_one(connection).await?;
    let (is_standby, is_read_only): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    Ok(if is_standby { Some(STANDBY) } else { is_read_only.then_some("its sessions are read-only") })
}

fn not_suitable(why: &'static str) -> sqlx::Error {
    std::io::Error::new(std::io::ErrorKind::NotConnected, why).into()
}

/// One host of an address, and the attributes that the address names.
fn server(whole: &str, host: &str, is_of_several: bool) -> Result<(PgConnectOptions, Option<SessionAttributes>), StoreError> {
    let wrong = |hint: String| StoreError::Url { url: hide_password(whole), hint };
    let unreadable =
        |error: &dyn std::fmt::Display| wrong(format!("{error}; in a password, write @ : / ? # % as %40 %3A %2F %3F %23 %25"));
    let mut url = Url::parse(&with_hosts(whole, host)).map_err(|error| unreadable(&error))?;
    let (mut attributes, mut trusts_system, mut mode) = (None, false, None);
    let mut kept = Vec::new();
    for (name, value) in url.query_pairs() {
        let is_option = name.strip_prefix("options[").is_some_and(|rest| rest.ends_with(']'));
        if !is_option && !PARAMETERS.contains(&&*name) && !MORE_PARAMETERS.contains(&&*name) {
            return Err(unknown_parameter(whole, &name, &PARAMETERS, &HABITS));
        }
        match (&*name, &*value) {
            ("target_session_attrs", value) => {
                attributes = Some(match value {
                    "any" => SessionAttributes::Any,
                    "read-write" => SessionAttributes::ReadWrite,
                    "primary" => SessionAttributes::Primary,
                    _ => {
                        return Err(wrong(format!(
                            "target_session_attrs is `{value}`, but the outbox needs a server that takes writes; write read-write, primary or any"
                        )));
                    }
                });
                continue;
            }
            ("sslrootcert" | "ssl-root-cert" | "ssl-ca", "system") => {
                trusts_system = true;
                continue;
            }
            ("sslmode" | "ssl-mode", value) if value.eq_ignore_ascii_case("allow") => {
                return Err(wrong("sslmode is `allow`, which the driver lacks; write prefer, require or disable".to_owned()));
            }
            ("sslmode" | "ssl-mode", value) => mode = Some(value.to_owned()),
            ("host" | "hostaddr" | "port", _) if is_of_several => {
                return Err(wrong(format!("`{name}` cannot be beside several hosts; write host and port before the database")));
            }
            _ => {}
        }
        kept.push((name.into_owned(), value.into_owned()));
    }
    // As libpq: the system's certificates, which the driver trusts unless a file is named, are for the strictest mode alone.
    if trusts_system {
        match mode.as_deref() {
            None => kept.push(("sslmode".to_owned(), "verify-full".to_owned())),
            Some("verify-full") => {}
            Some(mode) => return Err(wrong(format!("sslrootcert=system needs sslmode=verify-full, but sslmode is `{mode}`"))),
        }
    }
    url.set_query(None);
    if !kept.is_empty() {
        url.query_pairs_mut().extend_pairs(kept);
    }
    let connect = PgConnectOptions::from_str(url.as_str()).map_err(|error| unreadable(&error))?;
    if connect.get_host().contains(',') {
        let hint = "several hosts are written before the database, like postgres://a:5432,b:5432/database, not as `host=` or in PGHOST";
        return Err(wrong(hint.to_owned()));
    }
    // In an address an IPv6 literal has brackets; the driver connects to the text as it is.
    let bare = connect.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
    Ok((bare.iter().fold(connect, |connect, host| connect.host(host)), attributes))
}

/// Adds the options that every connection of the store needs.
pub(super) fn prepared(connect: PgConnectOptions) -> PgConnectOptions {
    // Not sent: poolers refuse it, and no number is read as text here.
    let connect = connect.extra_float_digits(None).disable_statement_logging();
    if connect.get_application_name().is_none() { connect.application_name("outbox") } else { connect }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(url: &str) -> Vec<String> {
        PostgresServers::of_url(url).expect(url).each().iter().map(PostgresServers::label).collect()
    }

    fn refusal(url: &str) -> String {
        PostgresServers::of_url(url).err().expect(url).to_string()
    }

    #[test]
    fn hosts_are_read_in_their_order_and_ipv6_literals_without_brackets() {
        assert_eq!(labels("postgres://u:p@[::1]:5433/db"), ["[::1]:5433"]);
        assert_eq!(labels("postgres://u@a:5432,b,[fe80::2]:5434/db"), ["a:5432", "b:5432", "[fe80::2]:5434"]);
        assert_eq!(labels("postgres:///db?host=::1&port=5433"), ["[::1]:5433"]);
        let servers = PostgresServers::of_url("postgres://u:p%40@a,[::1]:1/db?sslmode=require").expect("good");
        assert_eq!(servers.each()[1].get_host(), "::1");
        assert!(servers.each().iter().all(|one| one.get_username() == "u" && one.get_database() == Some("db")));
    }

    #[test]
    fn a_server_that_takes_writes_is_asked_for_if_there_are_several() {
        let attributes = |url: &str| PostgresServers::of_url(url).expect(url).attributes;
        assert_eq!(attributes("postgres://a/db"), SessionAttributes::Any);
        assert_eq!(attributes("postgres://a,b/db"), SessionAttributes::ReadWrite);
        assert_eq!(attributes("postgres://a,b/db?target_session_attrs=any"), SessionAttributes::Any);
        assert_eq!(attributes("postgres://a/db?target_session_attrs=primary"), SessionAttributes::Primary);
        for refused in ["read-only", "standby", "prefer-standby"] {
            let error = refusal(&format!("postgres://u:s3cret@a,b/db?target_session_attrs={refused}"));
            assert!(error.contains(refused) && error.contains("read-write") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_parameter_without_effect_is_refused_by_its_name_with_what_to_write() {
        for (parameter, hint) in [
            ("schema=app", "options[search_path]=NAME"),
            ("currentSchema=app", "options[search_path]=NAME"),
            ("service=shop", "pg_service.conf"),
            ("useSSL=true", "sslmode=require"),
            ("channel_binding=require", "sslmode=verify-full"),
            ("connect_timeout=10", "leave it out"),
            ("sslmod=require", "`sslmode`"),
            ("frobnicate=1", "target_session_attrs"),
            ("sslmode=allow", "prefer"),
            ("sslrootcert=system&sslmode=require", "verify-full"),
            ("host=a,b", "before the database"),
        ] {
            let error = refusal(&format!("postgres://u:s3cret@db/shop?{parameter}"));
            let name = parameter.split('=').next().expect("one part");
            assert!(error.contains(name) && error.contains(hint) && !error.contains("s3cret"), "{error}");
        }
        assert!(refusal("postgres://a,b/shop?port=1").contains("`port`"));
        assert!(refusal("postgres://a,,b/shop").contains("empty"));
    }

    #[test]
    fn the_certificates_of_the_system_are_for_full_verification() {
        let servers = PostgresServers::of_url("postgres://db/shop?sslrootcert=system").expect("good");
        assert!(matches!(servers.first().get_ssl_mode(), sqlx::postgres::PgSslMode::VerifyFull));
    }
}
