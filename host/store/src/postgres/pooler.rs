//! Whether a pooler in transaction mode stands between the host and its server.
//!
//! Such a pooler gives a connection of the server to a client for one transaction. What a session keeps is lost, or meets
//! somebody else's statements: prepared statements, settings, locks, LISTEN. So behind one each statement of the host runs in a
//! transaction of its own, which carries its settings, and is not kept prepared; nobody listens, and no session is held: leases
//! alone tell who is gone.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions, Connection, Row};
use tokio::sync::Mutex;

use super::address::PostgresServers;
use super::settings::Settings;
use crate::connector::Connector;
use crate::run::within;

/// How often two connections are asked which backend they meet. While others use the pooler, each of the two may meet the same one
/// again by chance.
const ROUNDS: usize = 12;
/// How long finding it out may take.
const PATIENCE: Duration = Duration::from_secs(10);

const UNKNOWN: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// What is known of it: asked before the first statement, and again after a statement has met another session than its own.
#[derive(Debug)]
pub(super) struct Pooler {
    known: AtomicU8,
    asking: Mutex<()>,
    /// Begins a transaction with the settings of the host.
    begin: String,
}

impl Pooler {
    /// A transaction behind a pooler begins with these settings.
    pub(super) fn new(settings: &Settings) -> Self {
        Self { known: AtomicU8::new(UNKNOWN), asking: Mutex::default(), begin: settings.begin() }
    }

    /// Whether there is one, as far as is known.
    pub(super) fn is_present(&self) -> bool {
        self.known.load(Ordering::Relaxed) == PRESENT
    }

    /// What begins a transaction with the settings of the host.
    pub(super) fn begin(&self) -> &str {
        &self.begin
    }

    /// Something has met another session than its own: there may be one now.
    pub(super) fn forget(&self) {
        self.known.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Whether there is one; asks when nothing is known.
    pub(super) async fn find(&self, connector: &Connector<PostgresServers>) -> Result<bool, sqlx::Error> {
        if self.known.load(Ordering::Relaxed) == UNKNOWN {
            let _asking = self.asking.lock().await;
            if self.known.load(Ordering::Relaxed) == UNKNOWN {
                // Boxed: every statement's future contains this, and it runs once.
                Box::pin(within(PATIENCE, async { self.find_by(connector.connect().await?, connector).await })).await?;
            }
        }
        Ok(self.is_present())
    }

    /// The same with a connection that is open already, which it closes.
    pub(super) async fn find_by(&self, first: PgConnection, connector: &Connector<PostgresServers>) -> Result<(), sqlx::Error> {
        let is_between = is_between(first, connector).await?;
        self.known.store(if is_between { PRESENT } else { ABSENT }, Ordering::Relaxed);
        Ok(())
    }
}

/// Needs two connections, as a host does: whether there is a pooler cannot be told by one.
async fn is_between(mut first: PgConnection, connector: &Connector<PostgresServers>) -> Result<bool, sqlx::Error> {
    let mut second = connector.current().connect().await?;
    let is_between = share_backends(&mut first, &mut second).await?;
    // That they can be closed politely or not changes nothing.
    let _ = (first.close().await, second.close().await);
    Ok(is_between)
}

/// Two connections that are open at once have a backend each, and keep it, unless they share what a pooler has. One that hands
/// out the backend that was free last shows the same one to both; one that deals them out in turn shows two to the first.
async fn share_backends(first: &mut PgConnection, second: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let (of_first, of_second) = (backend(first).await?, backend(second).await?);
    if of_first == of_second {
        return Ok(true);
    }
    for _ in 0..ROUNDS {
        // The first by itself, then both at once: an even rhythm might meet that of others who use the pooler each time.
        let by_itself = backend(first).await?;
        let (at_once, other) = tokio::try_join!(backend(first), backend(second))?;
        if by_itself != of_first || at_once != of_first || other != of_second {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Without a prepared statement, which might not be found again.
async fn backend(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}
