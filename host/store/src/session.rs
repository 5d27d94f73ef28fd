//! The sessions of hosts, which tell a host that is gone from one that is slow.

#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::sync::Arc;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::OwnerId;

use super::StoreError;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use super::connector::{ConnectionOf, Connector, Servers};

/// Whether other hosts are still there. A lease protects a host that is slow, and keeps the others waiting when the host is dead.
/// So each host holds a lock for as long as it lives, which its database lets go when the host is gone.
///
/// An owner says `session` in its [`Node`](super::Node) only while its lock is held: it begins after
/// [`hold_session`](Self::hold_session) has returned, and stops once [`Session::prove`] fails, or before it calls [`Session::end`].
/// When a connection breaks, a lock can be free for a moment though its owner lives: whoever acts on a free lock waits until it has
/// been free for some seconds.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Takes the lock of this owner, on a connection outside of the pools (SQLite: by a file beside the database). `None` where
    /// there is no such lock: a SQLite database in memory, a cluster of MySQL servers each with locks of its own.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while an earlier session of the owner is not yet gone; the database's own. A repeat is safe.
    async fn hold_session(&self, owner: &OwnerId) -> Result<Option<Box<dyn Session>>, StoreError>;

    /// Live owners other than this one that have said that a session of theirs holds their lock, but whose lock is free at this
    /// moment. Writes nothing. One without partitions is among them: as long as it counts as alive, a share of them waits for it.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn free_sessions(&self, owner: &OwnerId) -> Result<Vec<String>, StoreError>;

    /// Owners that said that they have a session, whose leases have ended within the last day, and whose processes hold their locks at this
    /// moment: they cannot write their heartbeats, or are frozen. Writes nothing. Empty if the lock belongs to a connection, because a
    /// server may keep the lock after the process has ended.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn held_without_lease(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// Ends the lease of a host whose lock is free, so that its partitions are free. They keep its name, so that the host that takes them
    /// knows that they were abandoned. Rows that it claimed stay claimed. Does nothing if the lock is held, if the host says by now
    /// that it has no session. Returns whether the lease was ended.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn abandon(&self, gone: &str) -> Result<bool, StoreError>;
}

/// Holds the lock of an owner until it is dropped, or its connection ends. A server may take a moment to notice a drop, and MySQL
/// ends a session that has asked for nothing in 30 s.
#[async_trait]
pub trait Session: Send + Sync {
    /// Asks whether this session still holds the lock. Where statements may reach another connection of the server than the one
    /// that took the lock (a pooler in transaction mode), this fails once they do: then the lock may be let go at any time, and
    /// nobody is told.
    ///
    /// # Errors
    /// [`StoreError::SessionLost`] when it does not hold the lock; [`StoreError::Disconnected`] when it was not answered within a
    /// second; the database's own. Then the owner has no session: drop this one, and hold another.
    async fn prove(&mut self) -> Result<(), StoreError>;

    /// As [`prove`](Self::prove), and returns what the same statement saw of other hosts and of routes: `None` where one statement
    /// cannot tell both, or could not just now. The overview never keeps the proof waiting for long, also when a table is locked.
    ///
    /// # Errors
    /// As [`prove`](Self::prove).
    async fn prove_with_overview(&mut self) -> Result<Option<Overview>, StoreError> {
        self.prove().await?;
        Ok(None)
    }

    /// Lets the lock go at once.
    async fn end(self: Box<Self>);
}

/// What the session of a host sees of other hosts and of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// Owners whose locks nobody holds, as [`SessionStore::free_sessions`] returns them.
    pub free_sessions: Vec<String>,
    /// A digest of what [`RouteStore::routes`](super::RouteStore::routes) returns: another text when that is different.
    pub routes_digest: String,
}

pub(super) const HOLD: &str = "take the lock of this host's session";
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const PROVE: &str = "ask for the lock of this host's session";
pub(super) const LOOK: &str = "look for hosts that are gone";
pub(super) const ABANDON: &str = "end the lease of a host that is gone";

/// The error when the lock of this host is held already: only an earlier session of the host takes it.
pub(super) fn taken() -> StoreError {
    let why = std::io::Error::new(std::io::ErrorKind::WouldBlock, "an earlier session of this host is not yet gone");
    StoreError::Locked { action: HOLD, source: why.into() }
}

/// How long it may take to open a connection and to take the lock on it.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const OPENING: Duration = Duration::from_secs(5);
/// How long a session may take to answer.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) const ANSWER: Duration = Duration::from_secs(1);

/// Opens a connection with the settings of a pool, which no pool has to give back, close or replace.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) async fn opened_as_in<S: Servers>(
    pool: &sqlx::Pool<S::Database>,
    connector: &Arc<Connector<S>>,
) -> Result<ConnectionOf<S>, sqlx::Error> {
    let single = pool.options().clone().max_connections(1).acquire_timeout(OPENING).connect_lazy_with(connector.current());
    Ok(connector.ask_pool(single, |pool| async move { pool.acquire().await }).await?.detach())
}
