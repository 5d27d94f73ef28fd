//! Envelopes into rows, inside the caller's transaction, and on to the hot queue after its commit.

mod abandoned;
mod hook;
mod hot;
mod receipt;
mod transaction;

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use abandoned::Abandoned;
pub use hook::{HookError, WriterHook};
pub(crate) use hot::HotPath;
pub use receipt::Receipt;
pub use transaction::OutboxTransaction;

use hot::{Lease, Row};
use receipt::WrittenEvents;

use crate::event::{Envelope, EnvelopeError, EventId, Keeping, TraceParent};
use crate::partition::own_lease_end;
use crate::store::{NewRow, Ownership, StoreError, TransactionalStore};
use crate::telemetry::{Caller, Spans};

/// Why events were not written. Nothing of the call was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The connection has no open transaction that its driver knows of.
    #[error(
        "there is no open transaction on this connection; begin one, so that the events commit or vanish with your data, and by \
         the driver's begin() or begin_with(\"BEGIN …\"): one that was begun by a statement of your own cannot be seen"
    )]
    NoTransaction,
    /// The host was stopped.
    #[error("the outbox is stopped; start it again before writing")]
    Stopped,
    /// Some of the ids are in the table, or twice in the call.
    #[error("{} of the events have an id that was written before, the first is {}; leave them out, or use write_new", ids.len(), ids[0])]
    Duplicate {
        /// Those ids; at least one.
        ids: Vec<EventId>,
    },
    /// An envelope could not be built.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// An event that is excluded from the store cannot be kept in memory either.
    #[error("event {id} is excluded from the store, and {why}; store it, by leaving out excluded()")]
    NotKept {
        /// The first such event.
        id: EventId,
        /// Why it cannot be kept.
        why: &'static str,
    },
    /// A hook refused the events.
    #[error("a writer hook refused the events")]
    Hook(#[source] HookError),
    /// The database did not take them.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What became of events that were written in a transaction of their own.
#[doc(hidden)] // for our own HTTP API
#[derive(Debug)]
pub struct Emitted {
    /// The ids that were not there before, in order.
    pub written: Vec<EventId>,
    /// The ids that the hooks left, in order; the others were suppressed.
    pub let_through: Vec<EventId>,
}

/// What becomes of an event whose id was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDuplicate {
    Refuse,
    Skip,
}

/// Writes events inside the caller's transaction.
///
/// Where a transaction cannot become an [`OutboxTransaction`], the events are written through its connection, and their
/// [`Receipt`] says when it has committed:
///
/// ```
/// use outbox::sqlx::SqlitePool;
/// use outbox::{Envelope, Outbox, SqliteStore, sqlx};
///
/// async fn place_order(outbox: &Outbox<SqliteStore>, pool: &SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
///     let mut tx = pool.begin().await?;
///     sqlx::query("INSERT INTO orders VALUES (42)").execute(&mut *tx).await?;
///     let envelope = Envelope::new("OrderPlaced").aggregate("Order", "42").json(&99.5)?;
///     let receipt = outbox.writer().write(&mut tx, envelope).await?;
///     tx.commit().await?;
///     receipt.committed(); // goes to its listener at once; a receipt that is dropped leaves its events to the poller
///     Ok(())
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let test = outbox::testing::start().await?;
/// # sqlx::query("CREATE TABLE orders (id INTEGER)").execute(test.pool()).await?;
/// # place_order(&test, test.pool()).await?;
/// # test.written("OrderPlaced").one().await?;
/// # Ok(())
/// # }
/// ```
pub struct Writer<S> {
    store: S,
    ownership: Ownership,
    hooks: Arc<[Arc<dyn WriterHook>]>,
    hot: Arc<HotPath>,
    spans: Spans,
}

impl<S: Clone> Clone for Writer<S> {
    fn clone(&self) -> Self {
        let Self { store, ownership, hooks, hot, spans } = self;
        Self {
            store: store.clone(),
            ownership: ownership.clone(),
            hooks: hooks.clone(),
            hot: hot.clone(),
            spans: spans.clone(),
        }
    }
}

impl<S> std::fmt::Debug for Writer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("ownership", &self.ownership).finish_non_exhaustive()
    }
}

impl<S> Writer<S> {
    pub(crate) fn new(
        store: S,
        ownership: Ownership,
        hooks: Vec<Arc<dyn WriterHook>>,
        hot: Arc<HotPath>,
        spans: Spans,
    ) -> Self {
        Self { store, ownership, hooks: hooks.into(), hot, spans }
    }

    /// Runs the hooks before the write; what they leave is written.
    fn before_write(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>, WriteError> {
        if self.hot.is_stopped() {
            return Err(WriteError::Stopped);
        }
        self.hooks.iter().try_fold(envelopes, |envelopes, hook| {
            if envelopes.is_empty() { Ok(envelopes) } else { hook.before_write(envelopes).map_err(WriteError::Hook) }
        })
    }

    /// Events on their way into the table: claimed as far as the hot queue has room for them, which is kept from now on.
    fn begin_insert(&self, envelopes: Vec<Envelope>) -> Result<WrittenEvents, WriteError> {
        let excluded = || envelopes.iter().filter(|envelope| is_excluded(envelope));
        let hot = envelopes.iter().filter(|envelope| !is_excluded(envelope) && !envelope.is_delayed());
        // Those that are in no table come first: they have no other way.
        let room = self.hot.reserve(excluded().chain(hot).map(Envelope::size_bytes));
        self.check_excluded(excluded(), room.events())?;
        let mut claims = if self.hot.may_claim() { room.events() - excluded().count() } else { 0 };
        let events = envelopes.into_iter().map(|envelope| {
            let row = match envelope.keeping() {
                Keeping::Excluded => Row::None,
                Keeping::Stored if claims > 0 && !envelope.is_delayed() => {
                    claims -= 1;
                    Row::Asked
                }
                Keeping::Stored => Row::Free,
            };
            (envelope, row)
        });
        let Ownership { owner, lease: length } = &self.ownership;
        let lease = Lease { owner: owner.clone(), end: own_lease_end(Instant::now(), *length), length: *length };
        Ok(WrittenEvents::new(events.collect(), self.hooks.clone(), self.hot.clone(), lease, room))
    }

    /// Refuses events that are to be kept in memory alone, and cannot be.
    fn check_excluded<'e>(
        &self,
        mut excluded: impl Iterator<Item = &'e Envelope> + Clone,
        room: usize,
    ) -> Result<(), WriteError> {
        let refused = |envelope: &Envelope, why| Err(WriteError::NotKept { id: envelope.id(), why });
        if let Some(delayed) = excluded.clone().find(|envelope| envelope.is_delayed()) {
            return refused(delayed, "is to be delivered later, which only the store remembers");
        }
        match excluded.nth(room) {
            Some(first) if self.hot.queue.is_none() => refused(first, "this outbox delivers from the store alone"),
            Some(first) => refused(first, "the hot queue has no room for it just now"),
            None => Ok(()),
        }
    }
}

fn is_excluded(envelope: &Envelope) -> bool {
    envelope.keeping() == Keeping::Excluded
}

impl<S: TransactionalStore + Clone> Writer<S> {
    /// Begins a transaction that knows the outbox.
    ///
    /// # Errors
    /// The database's own.
    pub async fn begin(&self) -> Result<OutboxTransaction<S>, WriteError> {
        OutboxTransaction::begin(self.clone()).await
    }

    /// Makes a transaction of the driver's, begun on a pool of the application, know the outbox. It must be one of the database
    /// that the outbox is in. What was done in it before stays; from here on the returned transaction ends it.
    ///
    /// On MySQL let the futures of its writes end: a connection on which the driver was cut off while it prepared a statement
    /// answers no more. A transaction by [`begin`](Self::begin) has them prepared.
    pub fn adopt(&self, transaction: S::Transaction) -> OutboxTransaction<S> {
        OutboxTransaction::adopt(self.clone(), transaction)
    }
}

impl<S: TransactionalStore> Writer<S> {
    /// Writes one event in the transaction that is open on `connection`; see [`write_all`](Self::write_all).
    ///
    /// # Errors
    /// See [`WriteError`]. Nothing was written.
    pub async fn write(&self, connection: &mut S::Connection, envelope: Envelope) -> Result<Receipt, WriteError> {
        self.write_all(connection, vec![envelope]).await
    }

    /// Writes an event of this type with this value as JSON: the short form; see [`write_all`](Self::write_all).
    ///
    /// # Errors
    /// See [`WriteError`]. Nothing was written.
    pub async fn write_json<T: serde::Serialize + ?Sized>(
        &self,
        connection: &mut S::Connection,
        event_type: impl AsRef<str>,
        payload: &T,
    ) -> Result<Receipt, WriteError> {
        self.write(connection, Envelope::new(event_type).json(payload)?).await
    }

    /// Writes events in the transaction that is open on `connection`, in a few statements however many there are. The driver
    /// must have begun it: by its `begin()`, or by `begin_with("BEGIN …")` for one with settings of its own.
    ///
    /// Call [`Receipt::committed`] after your commit, and the events are delivered at once; otherwise the poller takes them.
    /// When this future is dropped before it has ended, some of the events may be in your transaction; those that you commit
    /// are delivered. On MySQL let it end, unless the store began the transaction: a connection on which the driver was cut off
    /// while it prepared a statement answers no more.
    ///
    /// # Errors
    /// See [`WriteError`]. Nothing was written, and your transaction is as usable as before; but when it was the database that
    /// failed ([`WriteError::Store`]), it may have ended the transaction, and PostgreSQL always has: roll it back.
    pub async fn write_all(&self, connection: &mut S::Connection, envelopes: Vec<Envelope>) -> Result<Receipt, WriteError> {
        self.insert(connection, envelopes, OnDuplicate::Refuse).await.map(Receipt::new)
    }

    /// As [`write_all`](Self::write_all), but events whose id was written before are skipped.
    ///
    /// # Errors
    /// See [`WriteError`], except [`WriteError::Duplicate`].
    pub async fn write_new(&self, connection: &mut S::Connection, envelopes: Vec<Envelope>) -> Result<Receipt, WriteError> {
        self.insert(connection, envelopes, OnDuplicate::Skip).await.map(Receipt::new)
    }

    async fn insert(
        &self,
        connection: &mut S::Connection,
        envelopes: Vec<Envelope>,
        on_duplicate: OnDuplicate,
    ) -> Result<WrittenEvents, WriteError> {
        if !S::is_in_transaction(connection) {
            return Err(WriteError::NoTransaction);
        }
        let mut envelopes = self.before_write(envelopes)?;
        let span = self.spans.send(&self.spans.caller(), &mut envelopes);
        let written = self.insert_now(connection, envelopes, on_duplicate).await;
        span.end(written.as_ref().err());
        written
    }

    async fn insert_now(
        &self,
        connection: &mut S::Connection,
        envelopes: Vec<Envelope>,
        on_duplicate: OnDuplicate,
    ) -> Result<WrittenEvents, WriteError> {
        // Dropped before the insert has ended, it gives back what may have come in.
        let mut written = self.begin_insert(envelopes)?;
        let rows = written.rows();
        let inserted =
            if rows.is_empty() { Ok(Vec::new()) } else { self.store.insert(connection, &rows, &self.ownership).await };
        let sequences = match inserted {
            Ok(sequences) => sequences,
            Err(error) => {
                drop(rows);
                written.refused();
                return Err(error.into());
            }
        };
        if on_duplicate == OnDuplicate::Refuse
            && let Some(error) = duplicates(&rows, &sequences)
        {
            let inserted = rows.iter().zip(&sequences).filter(|(_, sequence)| sequence.is_some());
            let inserted: Vec<EventId> = inserted.map(|(row, _)| row.envelope.id()).collect();
            drop(rows);
            // A writer with the right to INSERT alone meets its own duplicate without having to delete anything.
            if !inserted.is_empty() {
                self.store.delete_inserted(connection, &inserted).await?;
            }
            written.refused();
            return Err(error);
        }
        drop(rows);
        written.inserted(&sequences);
        written.after_write();
        Ok(written)
    }
}

impl<S: crate::store::SharedStore> Writer<S> {
    /// Writes events in a transaction of their own, commits it and hands them on: for programs without one, such as a command
    /// line. Events whose id was written before are skipped; the ids of the others are returned, in order.
    ///
    /// # Errors
    /// See [`WriteError`]. Nothing was written, unless the commit's result is unknown; a repeat skips what came in.
    pub async fn emit(&self, envelopes: Vec<Envelope>) -> Result<Vec<EventId>, WriteError> {
        self.emit_for(self.spans.caller(), envelopes).await.map(|emitted| emitted.written)
    }

    /// As [`emit`](Self::emit), in the trace of a request; `None` without one. Returns also which events the hooks let through.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    #[doc(hidden)] // for our own HTTP API
    pub async fn emit_from_request(&self, trace: Option<TraceParent>, envelopes: Vec<Envelope>) -> Result<Emitted, WriteError> {
        self.emit_for(trace.map_or(Caller::Nobody, Caller::Elsewhere), envelopes).await
    }

    async fn emit_for(&self, caller: Caller, envelopes: Vec<Envelope>) -> Result<Emitted, WriteError> {
        let writer = self.clone();
        // In a task of its own: whoever drops this future, what follows from the write happens.
        joined(tokio::spawn(async move {
            let mut envelopes = writer.before_write(envelopes)?;
            let let_through = envelopes.iter().map(Envelope::id).collect();
            let span = writer.spans.send(&caller, &mut envelopes);
            let written = writer.emit_now(envelopes).await;
            span.end(written.as_ref().err());
            Ok(Emitted { written: written?, let_through })
        }))
        .await
    }

    async fn emit_now(&self, envelopes: Vec<Envelope>) -> Result<Vec<EventId>, WriteError> {
        let mut written = self.begin_insert(envelopes)?;
        let rows = written.rows();
        let store = self.store.shared();
        let sequences = if rows.is_empty() { Vec::new() } else { store.write(&rows, &self.ownership).await? };
        drop(rows);
        written.inserted(&sequences);
        written.after_write();
        let ids = written.ids();
        written.committed();
        Ok(ids)
    }
}

/// What a task came to that ends whoever waits for it.
async fn joined<T>(task: JoinHandle<Result<T, WriteError>>) -> Result<T, WriteError> {
    match task.await {
        Ok(result) => result,
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(StoreError::Closed { action: "write events" }.into()),
    }
}

fn duplicates(rows: &[NewRow<'_>], sequences: &[Option<u64>]) -> Option<WriteError> {
    let ids: Vec<EventId> =
        rows.iter().zip(sequences).filter(|(_, sequence)| sequence.is_none()).map(|(row, _)| row.envelope.id()).collect();
    (!ids.is_empty()).then_some(WriteError::Duplicate { ids })
}
