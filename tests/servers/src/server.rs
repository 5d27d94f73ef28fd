//! A server, from its start to its end.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Child;
use std::time::Duration;

use crate::certificate::Certificate;
use crate::directory::Directory;
use crate::process::{self, Signal};
use crate::program::Account;
use crate::{Database, Durability, Fault, mariadb, postgres};

/// Below what Linux gives to clients (32768 and up). A port from there could be taken by a client while its server is stopped;
/// worse, a client that tries to connect to it may meet itself.
const PORTS: std::ops::Range<u16> = 15_000..30_000;

/// The database that tests find in every server.
const DATABASE: &str = "outbox_test";

/// A private server. Stopped when dropped, and its files with it.
pub struct Server {
    database: Database,
    durability: Durability,
    account: Account,
    access: Access,
    /// `None` while it is stopped.
    child: Option<Child>,
    /// The last field: the files go after the server.
    directory: Directory,
}

/// How a server is reached.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) port: u16,
    pub(crate) password: String,
    pub(crate) database: &'static str,
}

/// How a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Connections are closed, everything is written out.
    Clean,
    /// At once, as in a crash: the next start must recover.
    Crash,
}

impl Server {
    /// Makes a server with an empty database, and starts it. Takes some seconds.
    ///
    /// # Errors
    /// When a program is missing, or does not do what it should; with the last lines of its log.
    pub fn start(database: Database, durability: Durability) -> Result<Self, Fault> {
        let account = Account::of(match database {
            Database::PostgreSql => postgres::ACCOUNT,
            Database::MariaDb => mariadb::ACCOUNT,
        })?;
        let directory = Directory::make(account)?;
        let access = Access { port: free_port()?, password: password(), database: DATABASE };
        match database {
            Database::PostgreSql => postgres::prepare(&directory, account, &access)?,
            Database::MariaDb => mariadb::prepare(&directory, account, &access)?,
        }
        let mut server = Self { database, durability, account, access, child: None, directory };
        server.resume()?;
        Ok(server)
    }

    /// Makes a standby of this PostgreSQL, and starts it. It answers reads, takes no writes, and shows what was committed so much later.
    /// It asks for the password in clear text.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// When this is no PostgreSQL.
    pub fn standby(&self, apply_delay: Duration) -> Result<Self, Fault> {
        assert_eq!(self.database, Database::PostgreSql, "no other server is copied");
        let Self { database, durability, account, .. } = *self;
        let directory = Directory::make(account)?;
        postgres::copy(&directory, account, &self.access, apply_delay)?;
        let access = Access { port: free_port()?, password: self.access.password.clone(), database: DATABASE };
        let mut standby = Self { database, durability, account, access, child: None, directory };
        standby.resume()?;
        Ok(standby)
    }

    /// Makes this MariaDB the first node of a Galera cluster: starts it again. Returns the second node, which starts with a copy of its data
    /// and joins within seconds. A node that was stopped cannot be started again.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    ///
    /// # Panics
    /// If this server is not a MariaDB.
    pub fn second_node(&mut self) -> Result<Self, Fault> {
        assert_eq!(self.database, Database::MariaDb, "no other server has Galera");
        self.stop(Stop::Clean);
        let Self { database, durability, account, .. } = *self;
        let directory = Directory::make(account)?;
        mariadb::copy(&self.directory, &directory, account)?;
        let access = Access { port: free_port()?, password: self.access.password.clone(), database: DATABASE };
        let ports = [free_port()?, free_port()?];
        mariadb::join(&self.directory, account, ports[0], None)?;
        mariadb::join(&directory, account, ports[1], Some(ports[0]))?;
        self.resume()?;
        let mut second = Self { database, durability, account, access, child: None, directory };
        second.resume()?;
        Ok(second)
    }

    /// How to connect, as an account that may do everything. The same after every stop.
    #[must_use]
    pub fn url(&self) -> String {
        let (scheme, user) = match self.database {
            Database::PostgreSql => ("postgres", postgres::USER),
            Database::MariaDb => ("mysql", mariadb::USER),
        };
        let Access { port, password, database } = &self.access;
        format!("{scheme}://{user}:{password}@127.0.0.1:{port}/{database}")
    }

    /// The port, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.access.port
    }

    /// Lets it take encrypted connections from now on, with a certificate for 127.0.0.1: starts it again. Returns the
    /// certificate of the authority that signed it, in PEM.
    ///
    /// # Errors
    /// When `openssl` is missing, or the server does not start; with the last lines of its log.
    pub fn encrypt(&mut self) -> Result<String, Fault> {
        self.stop(Stop::Clean);
        Certificate::make(&self.directory, self.account)?;
        self.resume()?;
        let authority = self.directory.path().join("ca.crt");
        fs::read_to_string(&authority).map_err(|error| Fault::file("read", &authority, &error))
    }

    /// Stops it; returns once it has ended. What was committed stays, but for a crash of a volatile one. Nothing happens when it
    /// is stopped already.
    pub fn stop(&mut self, how: Stop) {
        if let Some(mut child) = self.child.take() {
            process::end(
                &mut child,
                match (how, self.database) {
                    (Stop::Clean, Database::PostgreSql) => Signal::Interrupt, // to this one, "terminate" means "when all have gone"
                    (Stop::Clean, Database::MariaDb) => Signal::Terminate,
                    (Stop::Crash, Database::PostgreSql) => Signal::Quit, // killed outright, it leaves its children behind
                    (Stop::Crash, Database::MariaDb) => Signal::Kill,
                },
            );
        }
    }

    /// Starts it again after a stop, on the same port; returns once it takes connections. Nothing happens when it runs.
    ///
    /// # Errors
    /// When it does not start; with the last lines of its log.
    pub fn resume(&mut self) -> Result<(), Fault> {
        if self.child.is_none() {
            let directory = self.directory.path();
            self.child = Some(match self.database {
                Database::PostgreSql => postgres::start(directory, self.account, &self.access, self.durability)?,
                Database::MariaDb => mariadb::start(directory, self.account, &self.access, self.durability)?,
            });
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop(Stop::Crash); // nobody will look at its files
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("database", &self.database).field("port", &self.access.port).finish_non_exhaustive()
    }
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> Result<u16, Fault> {
    let start = random();
    let count = PORTS.end - PORTS.start;
    (0..count)
        .map(|step| PORTS.start + u16::try_from((start + u64::from(step)) % u64::from(count)).expect("less than a u16"))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or_else(|| Fault::new(format!("no port from {} to {} is free", PORTS.start, PORTS.end)))
}

/// Another user of this machine shall not be the superuser of our server, who may run programs.
pub(crate) fn password() -> String {
    format!("{:016x}{:016x}", random(), random())
}

/// From the keys that the standard library gets of the system for its maps.
fn random() -> u64 {
    RandomState::new().build_hasher().finish() >> 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_none_that_a_client_may_get() {
        let port = free_port().unwrap();

        assert!(PORTS.contains(&port));
    }

    #[test]
    fn no_two_passwords_are_alike() {
        assert_ne!(password(), password());
    }
}
