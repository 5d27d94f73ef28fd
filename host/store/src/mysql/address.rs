//! Addresses of MySQL and MariaDB servers: one host, and no parameter without effect.

use sqlx::MySql;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use url::Url;

use super::error::number;
use crate::address::{Habit, hosts, unknown_parameter};
use crate::connector::Servers;
use crate::{StoreError, hide_password};

const PARAMETERS: [&str; 8] =
    ["ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket", "charset", "collation", "enable-cleartext-plugin"];
/// Other names of these, and one that few people want.
const MORE_PARAMETERS: [&str; 5] = ["sslmode", "sslca", "sslcert", "sslkey", "statement-cache-capacity"];

const HABITS: [Habit; 6] = [
    (
        &["useSSL", "requireSSL", "ssl", "tls", "verifyServerCertificate", "trustServerCertificate", "sslaccept"],
        "write ssl-mode=REQUIRED, or ssl-mode=VERIFY_IDENTITY to check the server's certificate",
    ),
    (
        &["timezone", "time-zone", "serverTimezone", "connectionTimeZone", "loc", "parseTime", "useLegacyDatetimeCode"],
        "leave it out: the outbox sets its sessions to UTC",
    ),
    (&["characterEncoding", "useUnicode"], "leave it out: the driver uses utf8mb4"),
    (&["allowPublicKeyRetrieval", "autoReconnect", "failOverReadOnly", "rewriteBatchedStatements"], "leave it out"),
    (&["connectTimeout", "connect_timeout", "socketTimeout", "timeout"], "leave it out: the server has 10 s to answer"),
    (&["connection_limit", "pool_size", "connectionLimit", "maximumPoolSize"], "leave it out and set database.max_connections"),
];

const LIKE: &str = "write it like mysql://user:password@host:3306/database";

/// The server of an address.
#[derive(Clone)]
pub(super) struct MySqlServers([MySqlConnectOptions; 1]);

impl MySqlServers {
    pub(super) fn one(connect: MySqlConnectOptions) -> Self {
        Self([connect])
    }
}

impl Servers for MySqlServers {
    type Database = MySql;

    fn of_url(url: &str) -> Result<Self, StoreError> {
        let wrong = |hint: &str| StoreError::Url { url: hide_password(url), hint: hint.to_owned() };
        let rest = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://")).ok_or_else(|| wrong(LIKE))?;
        if hosts(url).contains(',') {
            return Err(wrong(
                "name one host: several are supported for PostgreSQL alone; use a proxy, a virtual IP address or a DNS name that \
                 leads to the primary",
            ));
        }
        let unreadable = || wrong("it cannot be read; in a password, write @ : / ? # % as %40 %3A %2F %3F %23 %25");
        let mut parsed = Url::parse(&format!("mysql://{rest}")).map_err(|_| unreadable())?;
        let mut sends_password = false;
        let mut kept = Vec::new();
        for (name, value) in parsed.query_pairs() {
            if !PARAMETERS.contains(&&*name) && !MORE_PARAMETERS.contains(&&*name) {
                return Err(unknown_parameter(url, &name, &PARAMETERS, &HABITS));
            }
            match (&*name, &*value) {
                ("enable-cleartext-plugin", "true" | "1") => sends_password = true,
                ("enable-cleartext-plugin", "false" | "0") => {}
                ("enable-cleartext-plugin", _) => return Err(wrong("enable-cleartext-plugin is true or false")),
                _ => kept.push((name.into_owned(), value.into_owned())),
            }
        }
        parsed.set_query(None);
        if !kept.is_empty() {
            parsed.query_pairs_mut().extend_pairs(kept);
        }
        let connect: MySqlConnectOptions = parsed.as_str().parse().map_err(|_| unreadable())?;
        if connect.get_database().is_none() {
            return Err(wrong("name a database after the host, like mysql://user:password@host:3306/database"));
        }
        let is_checked = matches!(connect.get_ssl_mode(), MySqlSslMode::VerifyCa | MySqlSslMode::VerifyIdentity);
        if sends_password && !is_checked {
            return Err(wrong(
                "enable-cleartext-plugin sends the password as it is, so the server must be checked; write ssl-mode=VERIFY_IDENTITY, or VERIFY_CA",
            ));
        }
        // In an address an IPv6 literal has brackets; the driver connects to the text as it is.
        let bare = connect.get_host().strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        let connect = bare.iter().fold(connect, |connect, host| connect.host(host));
        Ok(Self::one(prepared(connect.enable_cleartext_plugin(sends_password))))
    }

    fn each(&self) -> &[MySqlConnectOptions] {
        &self.0
    }

    fn label(server: &MySqlConnectOptions) -> String {
        match server.get_socket() {
            Some(socket) => socket.display().to_string(),
            None if server.get_host().contains(':') => format!("[{}]:{}", server.get_host(), server.get_port()),
            None => format!("{}:{}", server.get_host(), server.get_port()),
        }
    }

    fn is_login_refused(error: &sqlx::Error) -> bool {
        number(error).is_some_and(|number| super::error::REFUSED_LOGIN.contains(&number))
    }

    fn may_be_elsewhere(_: &sqlx::Error) -> bool {
        false
    }

    async fn check(&self, _: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        Ok(())
    }
}

/// Adds the options that every connection of the store needs.
pub(super) fn prepared(connect: MySqlConnectOptions) -> MySqlConnectOptions {
    // Pipes stay what the server makes of them: the connection is the caller's too, in a transaction.
    connect.pipes_as_concat(false).timezone(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        MySqlServers::of_url(url).err().expect(url).to_string()
    }

    #[test]
    fn an_ipv6_literal_is_connected_to_without_brackets() {
        let servers = MySqlServers::of_url("mysql://u:p@[::1]:3307/shop").expect("good");
        assert_eq!(servers.each()[0].get_host(), "::1");
        assert_eq!(MySqlServers::label(&servers.each()[0]), "[::1]:3307");
    }

    #[test]
    fn several_hosts_are_refused_with_what_to_do() {
        let error = refusal("mysql://u:s3cret@a:3306,b:3306/shop");
        assert!(error.contains("name one host") && error.contains("proxy") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn a_parameter_without_effect_is_refused_by_its_name_with_what_to_write() {
        for (parameter, hint) in [
            ("useSSL=true", "ssl-mode=REQUIRED"),
            ("serverTimezone=UTC", "UTC"),
            ("timezone=UTC", "UTC"),
            ("allowPublicKeyRetrieval=true", "leave it out"),
            ("ssl-mod=REQUIRED", "`ssl-mode`"),
            ("frobnicate=1", "ssl-ca"),
            ("enable-cleartext-plugin=true&ssl-mode=REQUIRED", "ssl-mode=VERIFY_IDENTITY"),
        ] {
            let error = refusal(&format!("mysql://u:s3cret@db/shop?{parameter}"));
            let name = parameter.split('=').next().expect("one part");
            assert!(error.contains(name) && error.contains(hint) && !error.contains("s3cret"), "{error}");
        }
    }
}
