//! A PgBouncer in front of a PostgreSQL that is there already.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Child;
use std::time::Duration;

use crate::Fault;
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::{self, Account};
use crate::server::free_port;

const PROGRAM: &str = "pgbouncer";

/// The account that PostgreSQL's package makes, which PgBouncer's needs.
const ACCOUNT: &str = "postgres";

/// A private PgBouncer in transaction mode: each transaction of a client meets any of a few connections of the server. Stopped when
/// dropped.
pub struct Pooler {
    url: String,
    child: Child,
    /// The last field: the files go after the process.
    _directory: Directory,
}

/// Which connection of the server a transaction meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deal {
    /// The one that was free last, as PgBouncer does unless told otherwise.
    Last,
    /// Each in its turn.
    InTurn,
}

impl Pooler {
    /// As people call it.
    pub const NAME: &str = "PgBouncer";

    /// How many sessions of the server it uses for each user and database.
    pub const SESSIONS: usize = 4;

    /// Debian's package of it.
    pub const PACKAGE: &str = "pgbouncer";

    /// Whether this machine has it.
    #[must_use]
    pub fn is_installed() -> bool {
        program::find(PROGRAM).is_some()
    }

    /// Starts one in front of the server and database of an address. It passes on no parameters of the address.
    ///
    /// # Errors
    /// When the address names no user, password, host and database, the program is missing, or does not start.
    pub fn start(url: &str, deal: Deal) -> Result<Self, Fault> {
        let server = Address::of(url)
            .ok_or_else(|| Fault::new("a pooler needs an address like postgres://user:password@host:port/db"))?;
        let account = Account::of(ACCOUNT)?;
        let directory = Directory::make(account)?;
        let port = free_port()?;
        let Address { user, password, host, port: server_port, database } = server;
        let users = directory.write("users.txt", &format!("\"{user}\" \"{password}\"\n"), account)?;
        let mut settings = String::from("[databases]\n");
        writeln!(settings, "{database} = host={host} port={server_port} dbname={database}").expect("written");
        writeln!(settings, "[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =").expect("written");
        writeln!(settings, "auth_type = scram-sha-256\nauth_file = {}", users.display()).expect("written");
        let sessions = Self::SESSIONS;
        writeln!(settings, "pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 200").expect("written");
        writeln!(settings, "server_round_robin = {}", u8::from(deal == Deal::InTurn)).expect("written");
        let settings = directory.write("pgbouncer.ini", &settings, account)?;
        let log = directory.path().join("log");
        let mut command = account.command(PROGRAM, directory.path())?;
        command.arg(&settings);
        let child = process::start(command, &log, Signal::Kill)?;
        let child = process::wait_until(|| listens(port), child, Self::NAME, &log)?;
        Ok(Self { url: format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}"), child, _directory: directory })
    }

    /// How to connect through it, as the user of the address that it was started with.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        process::end(&mut self.child, Signal::Kill);
    }
}

fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1)).is_ok()
}

/// What an address says.
#[derive(Debug, PartialEq, Eq)]
struct Address<'u> {
    user: &'u str,
    password: &'u str,
    host: &'u str,
    port: &'u str,
    database: &'u str,
}

impl<'u> Address<'u> {
    fn of(url: &'u str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (place, _) = rest.split_once('?').unwrap_or((rest, ""));
        let (account, place) = place.rsplit_once('@')?;
        let (user, password) = account.split_once(':')?;
        let (place, database) = place.split_once('/')?;
        let (host, port) = place.split_once(':').unwrap_or((place, "5432"));
        Some(Self { user, password, host, port, database })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart_without_its_parameters() {
        let address = Address::of("postgres://joe:s3cret@127.0.0.1:17000/shop?options=-csearch_path%3Dmine");

        let expected = Address { user: "joe", password: "s3cret", host: "127.0.0.1", port: "17000", database: "shop" };
        assert_eq!(address, Some(expected));
        assert_eq!(Address::of("postgres://joe@127.0.0.1/shop"), None, "no password");
    }
}
