//! Writing inside the caller's own transaction.

use std::ops::DerefMut;
use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{Envelope, EventId, OwnerId};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use sqlx::ColumnIndex;

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use super::row::{Columns, sequence};
use super::{Store, StoreError};

/// Writing events in a transaction of the store.
#[async_trait]
pub trait WriteStore: Send + Sync {
    /// Inserts rows in a transaction of their own. One number for each row, in order: its `seq`, or `None` when its id is
    /// there already and nothing was inserted for it.
    ///
    /// # Errors
    /// The database's own. A repeat is safe: rows that came in are reported as duplicates.
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError>;
}

/// A store that can write inside the caller's own transaction.
pub trait TransactionalStore: Store {
    /// The driver's connection.
    type Connection: Send;
    /// The driver's transaction, begun by the store or by the application; rolled back when dropped.
    type Transaction: AsMut<Self::Connection> + DerefMut<Target = Self::Connection> + Send + 'static;

    /// Begins a transaction that may write.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Looks whether what is committed now would be seen by others. Between an insert and its commit any time may pass.
    ///
    /// # Errors
    /// [`StoreError::Moved`] where the file of SQLite is no longer where it was opened. Nothing is committed then.
    fn check_before_commit(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Commits.
    fn commit(transaction: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls back.
    fn rollback(transaction: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether a transaction is open on the connection. Looks, sends nothing.
    fn is_in_transaction(connection: &mut Self::Connection) -> bool;

    /// Inserts rows in the transaction that is open on the connection; as [`WriteStore::write`].
    fn insert(
        &self,
        connection: &mut Self::Connection,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
    ) -> impl Future<Output = Result<Vec<Option<u64>>, StoreError>> + Send;

    /// Which of these rows are in the table, as the transaction on the connection sees it: the `seq` of each, and the id of the
    /// event that it holds.
    ///
    /// # Errors
    /// The database's own; PostgreSQL's when it has ended the transaction, though the driver would report its commit as a
    /// success.
    fn find(
        &self,
        connection: &mut Self::Connection,
        sequences: &[u64],
    ) -> impl Future<Output = Result<Vec<(u64, EventId)>, StoreError>> + Send;

    /// Deletes the rows of these events, which this transaction inserted. By their ids: SQLite gives the `seq` of a row that a
    /// savepoint took back to the next one.
    fn delete_inserted(
        &self,
        connection: &mut Self::Connection,
        ids: &[EventId],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// An event on its way into the table.
#[derive(Clone, Copy, Debug)]
pub struct NewRow<'a> {
    /// The event.
    pub envelope: &'a Envelope,
    /// Whether the row is inserted already claimed, because its writer hands the event on itself after the commit.
    pub claimed: bool,
}

/// Most rows in one statement.
const MAX_ROWS: usize = 1_000;

/// How many of these rows go into one statement of about `max_bytes`: bounded, so that a large batch is not in memory twice.
pub(super) fn chunk_len(rows: &[NewRow<'_>], max_bytes: usize) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(MAX_ROWS).take_while(|row| {
        bytes += row.bytes();
        bytes <= max_bytes
    });
    fitting.count().max(1)
}

/// Adds one number for each row. Rows come back with `seq` and id, in the order they went in; missing ones were there already.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn number<R: Columns>(
    rows: &[NewRow<'_>],
    inserted: &[R],
    sequences: &mut Vec<Option<u64>>,
) -> Result<(), StoreError>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    let mut inserted = inserted.iter().peekable();
    for row in rows {
        let id = row.envelope.id();
        let came_in = inserted.next_if(|returned| returned.text("event_id").is_ok_and(|found| found == Some(id.as_str())));
        sequences.push(came_in.map(sequence).transpose()?);
    }
    Ok(())
}

impl NewRow<'_> {
    /// The headers as their column holds them.
    pub(super) fn headers(&self) -> Option<String> {
        let headers = self.envelope.headers();
        (!headers.is_empty()).then(|| serde_json::to_string(headers).expect("a map of strings is JSON"))
    }

    /// About how many bytes a statement has for it: headers are JSON in JSON on some databases, with each quote escaped twice.
    pub(super) fn bytes(&self) -> usize {
        let headers = self.envelope.headers().iter().map(|(key, value)| 2 * (key.len() + value.len()) + 16);
        self.envelope.payload_bytes().len() + headers.sum::<usize>()
    }
}

/// For whom rows are inserted as claimed, and for how long.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// Who holds them.
    pub owner: OwnerId,
    /// How long.
    pub lease: Duration,
}

impl Ownership {
    /// For rows of which none is claimed.
    pub(super) fn nobodys() -> Self {
        Self { owner: OwnerId::generate("nobody"), lease: Duration::ZERO }
    }
}
