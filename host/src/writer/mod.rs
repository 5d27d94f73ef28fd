//! Envelopes into rows, inside the caller's transaction, and on to the hot queue after its commit.

mod hook;
mod hot;
mod receipt;
mod transaction;

use std::sync::Arc;

pub use hook::{HookError, WriterHook};
pub(crate) use hot::HotPath;
pub use receipt::Receipt;
pub use transaction::OutboxTransaction;

use receipt::Written;

use crate::event::{Envelope, EnvelopeError, EventId, Keeping};
use crate::store::{NewRow, Ownership, StoreError, TransactionalStore};

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
    /// A hook refused the events.
    #[error("a writer hook refused the events")]
    Hook(#[source] HookError),
    /// The database did not take them.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What becomes of an event whose id was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDuplicate {
    Refuse,
    Skip,
}

/// Writes events inside the caller's transaction. Source: specification 7.
pub struct Writer<S> {
    store: S,
    ownership: Ownership,
    hooks: Arc<[Arc<dyn WriterHook>]>,
    hot: Arc<HotPath>,
}

impl<S: Clone> Clone for Writer<S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), ownership: self.ownership.clone(), hooks: self.hooks.clone(), hot: self.hot.clone() }
    }
}

impl<S> std::fmt::Debug for Writer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("ownership", &self.ownership).finish_non_exhaustive()
    }
}

impl<S> Writer<S> {
    pub(crate) fn new(store: S, ownership: Ownership, hooks: Vec<Arc<dyn WriterHook>>, hot: Arc<HotPath>) -> Self {
        Self { store, ownership, hooks: hooks.into(), hot }
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

    /// The rows of the events that are stored, claimed as far as the hot queue has room for them.
    fn rows<'a>(&self, envelopes: &'a [Envelope]) -> Vec<NewRow<'a>> {
        let mut room = self.hot.room();
        let stored = envelopes.iter().filter(|envelope| envelope.keeping() == Keeping::Stored);
        stored
            .map(|envelope| {
                let claimed = room > 0 && !envelope.is_delayed();
                room -= usize::from(claimed);
                NewRow { envelope, claimed }
            })
            .collect()
    }

    /// Pairs the events with what the store said of their rows; those that were there before are left out.
    fn written(&self, envelopes: Vec<Envelope>, claimed: &[bool], sequences: &[Option<u64>]) -> Written {
        let mut rows = claimed.iter().zip(sequences);
        let mut written = Vec::with_capacity(envelopes.len());
        for envelope in envelopes {
            if envelope.keeping() == Keeping::Excluded {
                written.push((envelope, hot::Row::None));
            } else if let Some((claimed, Some(sequence))) = rows.next().map(|(claimed, sequence)| (*claimed, *sequence)) {
                written.push((envelope, if claimed { hot::Row::Ours(sequence) } else { hot::Row::Free }));
            }
        }
        Written::new(written, self.hooks.clone(), self.hot.clone(), &self.ownership)
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

    /// Writes events in the transaction that is open on `connection`, in a few statements however many there are.
    ///
    /// Call [`Receipt::committed`] after your commit, and the events are delivered at once; otherwise the poller takes them.
    ///
    /// # Errors
    /// See [`WriteError`]. Nothing was written; your transaction is as usable as before.
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
    ) -> Result<Written, WriteError> {
        if !S::is_in_transaction(connection) {
            return Err(WriteError::NoTransaction);
        }
        let envelopes = self.before_write(envelopes)?;
        let rows = self.rows(&envelopes);
        let sequences =
            if rows.is_empty() { Vec::new() } else { self.store.insert(connection, &rows, &self.ownership).await? };
        if on_duplicate == OnDuplicate::Refuse
            && let Some(error) = duplicates(&rows, &sequences)
        {
            let inserted: Vec<u64> = sequences.into_iter().flatten().collect();
            // A writer with the right to INSERT alone meets its own duplicate without having to delete anything.
            if !inserted.is_empty() {
                self.store.take_back(connection, &inserted).await?;
            }
            return Err(error);
        }
        let claimed: Vec<bool> = rows.iter().map(|row| row.claimed).collect();
        let written = self.written(envelopes, &claimed, &sequences);
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
        let envelopes = self.before_write(envelopes)?;
        let rows = self.rows(&envelopes);
        let sequences = if rows.is_empty() { Vec::new() } else { self.store.shared().write(&rows, &self.ownership).await? };
        let claimed: Vec<bool> = rows.iter().map(|row| row.claimed).collect();
        let written = self.written(envelopes, &claimed, &sequences);
        written.after_write();
        let ids = written.ids();
        written.committed();
        Ok(ids)
    }
}

fn duplicates(rows: &[NewRow<'_>], sequences: &[Option<u64>]) -> Option<WriteError> {
    let ids: Vec<EventId> =
        rows.iter().zip(sequences).filter(|(_, sequence)| sequence.is_none()).map(|(row, _)| row.envelope.id()).collect();
    (!ids.is_empty()).then_some(WriteError::Duplicate { ids })
}
