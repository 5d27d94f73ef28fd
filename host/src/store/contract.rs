//! What the host asks of a database.

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    ClaimRequest, Claimed, DeadFilter, Filter, Migration, PurgeBatch, PurgeRequest, Record, Settled, Stats, StoreError,
};
use crate::event::{Envelope, EventId, Fence, OwnerId, Route};
use crate::time::Timestamp;

/// An event on its way into the table.
#[derive(Clone, Copy, Debug)]
pub struct NewRow<'a> {
    /// The event.
    pub envelope: &'a Envelope,
    /// Whether the row is inserted already claimed, because its writer hands the event on itself after the commit.
    pub claimed: bool,
}

/// For whom rows are inserted as claimed, and for how long.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// Who holds them.
    pub owner: OwnerId,
    /// How long.
    pub lease: Duration,
}

/// What the host asks of a database. Every call is whole: it has happened, or an error is returned and nothing has.
///
/// Calls must not be cancelled: run them in a task of their own where the caller may be dropped.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The kind of database: `sqlite`, `postgres`, `mysql`.
    fn kind(&self) -> &'static str;

    /// Checks that the schema is there and of our version.
    ///
    /// # Errors
    /// [`StoreError::NoSchema`], [`StoreError::SchemaOlder`], [`StoreError::SchemaNewer`], or the database's own.
    async fn check_schema(&self) -> Result<(), StoreError>;

    /// The time by the clock that decides what is due.
    ///
    /// # Errors
    /// The database's own.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Every step of the schema, applied or not, in order.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], or the database's own.
    async fn migrations(&self) -> Result<Vec<Migration>, StoreError>;

    /// Applies every step that is missing, each in one transaction; safe to repeat and to race. Returns those applied.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], or the database's own.
    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError>;

    /// Takes back the newest step **with its data**. Returns it, or `None` when there is none.
    ///
    /// # Errors
    /// [`StoreError::SchemaNewer`], or the database's own.
    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError>;

    /// The text of every step, as a DBA would run it.
    fn migration_sql(&self) -> String;

    /// Inserts rows in a transaction of their own. One number for each row, in order: its `seq`, or `None` when its id is
    /// there already and nothing was inserted for it.
    ///
    /// # Errors
    /// The database's own. A repeat is safe: rows that came in are reported as duplicates.
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError>;

    /// Takes those that have been due longest, in the order of their `seq`. Choosing and locking are one: no two owners ever
    /// hold the same event.
    ///
    /// # Errors
    /// The database's own.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError>;

    /// Writes outcomes, each under its fence, all or none. Returns how many were dropped because somebody else holds the
    /// event by now, or it is finished.
    ///
    /// # Errors
    /// The database's own. A repeat is safe: what was written is fenced off.
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError>;

    /// Makes claims hold for `lease` from now. Returns the `seq` of each that is still ours.
    ///
    /// # Errors
    /// The database's own.
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Vec<u64>, StoreError>;

    /// How long until the next event is due: zero when one is, `None` when none waits.
    ///
    /// # Errors
    /// The database's own.
    async fn next_due(&self) -> Result<Option<Duration>, StoreError>;

    /// Lets parked events of these routes wait for time only again; at most `limit`. Returns how many.
    ///
    /// # Errors
    /// The database's own.
    async fn unpark(&self, routes: &[Route], limit: u32) -> Result<u64, StoreError>;

    /// The routes that ever had a listener.
    ///
    /// # Errors
    /// The database's own.
    async fn known_routes(&self) -> Result<Vec<Route>, StoreError>;

    /// Notes that these routes have a listener.
    ///
    /// # Errors
    /// The database's own.
    async fn remember_routes(&self, routes: &[Route]) -> Result<(), StoreError>;

    /// How many events stand where.
    ///
    /// # Errors
    /// The database's own; a number that cannot be had is never shown as 0.
    async fn stats(&self) -> Result<Stats, StoreError>;

    /// Rows by filter, in order of insertion, without payloads; at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn list(&self, filter: &Filter, limit: u32) -> Result<Vec<Record>, StoreError>;

    /// One row with its payload; `None` when there is none.
    ///
    /// # Errors
    /// The database's own.
    async fn get(&self, id: EventId) -> Result<Option<Record>, StoreError>;

    /// How many dead events match.
    ///
    /// # Errors
    /// The database's own.
    async fn count_dead(&self, filter: &DeadFilter) -> Result<u64, StoreError>;

    /// Sets one dead event back to NEW with no attempts; its fence goes on. False when it is not there or not dead.
    ///
    /// # Errors
    /// The database's own.
    async fn replay(&self, id: EventId) -> Result<bool, StoreError>;

    /// Sets matching dead events back to NEW, oldest first, at most `limit`. Returns how many.
    ///
    /// # Errors
    /// The database's own.
    async fn replay_batch(&self, filter: &DeadFilter, limit: u32) -> Result<u64, StoreError>;

    /// Deletes one dead event. False when it is not there or not dead.
    ///
    /// # Errors
    /// The database's own.
    async fn discard(&self, id: EventId) -> Result<bool, StoreError>;

    /// Deletes finished rows, oldest first, at most `limit`.
    ///
    /// # Errors
    /// The database's own.
    async fn purge(&self, request: PurgeRequest) -> Result<PurgeBatch, StoreError>;

    /// How many rows [`purge`](Self::purge) would delete without a limit.
    ///
    /// # Errors
    /// The database's own.
    async fn count_purgeable(&self, request: PurgeRequest) -> Result<u64, StoreError>;

    /// Closes all connections after what is under way.
    async fn close(&self);
}

/// A store that can write inside the caller's own transaction.
pub trait TransactionalStore: Store {
    /// The driver's connection.
    type Connection: Send;
    /// A transaction that the store began; rolled back when dropped.
    type Transaction: AsMut<Self::Connection> + Send;

    /// Begins a transaction that may write.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Commits.
    fn commit(transaction: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls back.
    fn rollback(transaction: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether a transaction is open on the connection. Looks, sends nothing.
    fn is_in_transaction(connection: &mut Self::Connection) -> bool;

    /// Inserts rows in the transaction that is open on the connection; as [`Store::write`].
    fn insert(
        &self,
        connection: &mut Self::Connection,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
    ) -> impl Future<Output = Result<Vec<Option<u64>>, StoreError>> + Send;

    /// Deletes rows that this transaction inserted.
    fn take_back(
        &self,
        connection: &mut Self::Connection,
        sequences: &[u64],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}
