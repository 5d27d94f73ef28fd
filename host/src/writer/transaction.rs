//! A transaction that knows the outbox.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};

use super::receipt::WrittenEvents;
use super::{OnDuplicate, WriteError, Writer, joined};
use crate::event::{Envelope, EventId};
use crate::store::{StoreError, TransactionalStore};

/// Why there is a transaction as long as anybody can ask for it.
const OPEN: &str = "ended only by commit, rollback or drop";

/// A transaction that knows the outbox: the driver's own, and what is owed to the events written in it.
///
/// For statements of your own it is the driver's connection: `sqlx::query(…).execute(&mut *tx)`. Where a function wants the
/// driver's transaction, give it [`inner_mut`](Self::inner_mut). Dropped without a commit, it is rolled back.
///
/// ```
/// use outbox::{Envelope, sqlx, testing};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = testing::start().await?;
/// # sqlx::query("CREATE TABLE orders (id INTEGER)").execute(outbox.pool()).await?;
/// let mut tx = outbox.begin().await?;
/// sqlx::query("INSERT INTO orders VALUES (42)").execute(&mut *tx).await?;
/// tx.write(Envelope::new("OrderPlaced").aggregate("Order", "42").json(&99.5)?).await?;
/// tx.rollback().await?; // neither is there; after commit() both are
///
/// assert!(outbox.written("OrderPlaced").all().await?.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct OutboxTransaction<S: TransactionalStore> {
    /// `None` only while it is being ended.
    transaction: Option<S::Transaction>,
    writer: Writer<S>,
    written: Vec<WrittenEvents>,
    /// Whether statements of the caller may have come after the events, and taken them back.
    touched: bool,
}

impl<S: TransactionalStore + Clone> OutboxTransaction<S> {
    pub(super) async fn begin(writer: Writer<S>) -> Result<Self, WriteError> {
        let transaction = writer.store.begin().await?;
        Ok(Self::adopt(writer, transaction))
    }

    pub(super) fn adopt(writer: Writer<S>, transaction: S::Transaction) -> Self {
        Self { transaction: Some(transaction), writer, written: Vec::new(), touched: false }
    }

    /// The driver's own transaction, for functions that take one. Nobody may end it but [`commit`](Self::commit) and
    /// [`rollback`](Self::rollback).
    pub fn inner_mut(&mut self) -> &mut S::Transaction {
        self.touched = !self.written.is_empty();
        self.transaction.as_mut().expect(OPEN)
    }

    /// Writes one event. Returns its id, or `None` when a hook suppressed it.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub async fn write(&mut self, envelope: Envelope) -> Result<Option<EventId>, WriteError> {
        Ok(self.write_all(vec![envelope]).await?.into_iter().next())
    }

    /// Writes events in a few statements, however many there are. Returns their ids, in order; none when a hook suppressed
    /// them. When this future is dropped before it has ended, some of the events may be in the transaction.
    ///
    /// # Errors
    /// See [`WriteError`]. Nothing was written, and the transaction is as usable as before; but when it was the database that
    /// failed ([`WriteError::Store`]), it may have ended the transaction, and PostgreSQL always has: roll it back.
    pub async fn write_all(&mut self, envelopes: Vec<Envelope>) -> Result<Vec<EventId>, WriteError> {
        self.insert(envelopes, OnDuplicate::Refuse).await
    }

    /// As [`write_all`](Self::write_all), but events whose id was written before are skipped.
    ///
    /// # Errors
    /// See [`WriteError`], except [`WriteError::Duplicate`].
    pub async fn write_new(&mut self, envelopes: Vec<Envelope>) -> Result<Vec<EventId>, WriteError> {
        self.insert(envelopes, OnDuplicate::Skip).await
    }

    /// Writes an event of this type with this value as JSON: the short form.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write_json<T: serde::Serialize + ?Sized>(
        &mut self,
        event_type: impl AsRef<str>,
        payload: &T,
    ) -> Result<Option<EventId>, WriteError> {
        self.write(Envelope::new(event_type).json(payload)?).await
    }

    /// Commits, and sends the events straight to their listeners. Events that a savepoint of yours took back are not sent.
    ///
    /// # Errors
    /// When the database has rolled the transaction back already, after an error in a statement of yours; or when it did not
    /// confirm the commit. Then nobody knows yet whether it happened; if it did, the poller finds the events and they are
    /// delivered.
    pub async fn commit(mut self) -> Result<(), WriteError> {
        let mut transaction = self.transaction.take().expect("ended only here, by rollback, or by drop");
        let written = std::mem::take(&mut self.written);
        let store = (self.touched && !written.is_empty()).then(|| self.writer.store.clone());
        // In a task of its own: whoever drops this future, what follows from the commit happens.
        joined(tokio::spawn(async move {
            let (held, taken_back) = match store {
                None => (written, Vec::new()),
                Some(store) => match held(&store, transaction.as_mut(), &written).await {
                    Ok(held) => sorted(written, &held),
                    Err(error) => {
                        // That this fails as well changes nothing: a connection that is lost takes its transaction along.
                        let _ = S::rollback(transaction).await;
                        written.into_iter().for_each(WrittenEvents::rolled_back);
                        return Err(error.into());
                    }
                },
            };
            // On an error both are dropped, which is what is due where nobody knows.
            S::commit(transaction).await?;
            taken_back.into_iter().for_each(WrittenEvents::rolled_back);
            held.into_iter().for_each(WrittenEvents::committed);
            Ok(())
        }))
        .await
    }

    /// Rolls back: neither your data nor the events ever happened.
    ///
    /// # Errors
    /// When the database did not confirm it; the transaction is gone all the same.
    pub async fn rollback(mut self) -> Result<(), WriteError> {
        let transaction = self.transaction.take().expect("ended only here, by commit, or by drop");
        let written = std::mem::take(&mut self.written);
        joined(tokio::spawn(async move {
            let result = S::rollback(transaction).await;
            written.into_iter().for_each(WrittenEvents::rolled_back);
            Ok(result?)
        }))
        .await
    }

    async fn insert(&mut self, envelopes: Vec<Envelope>, on_duplicate: OnDuplicate) -> Result<Vec<EventId>, WriteError> {
        let transaction = self.transaction.as_mut().expect(OPEN);
        // Until it has gone well: an error or a drop may have done anything to what was written before.
        let touched = std::mem::replace(&mut self.touched, true);
        let written = self.writer.insert(transaction.as_mut(), envelopes, on_duplicate).await?;
        let ids = written.ids();
        // What had happened before is as it was.
        self.touched = touched && !self.written.is_empty();
        self.written.push(written);
        Ok(ids)
    }
}

impl<S: TransactionalStore> Deref for OutboxTransaction<S> {
    type Target = S::Connection;

    fn deref(&self) -> &S::Connection {
        self.transaction.as_ref().expect(OPEN)
    }
}

impl<S: TransactionalStore> DerefMut for OutboxTransaction<S> {
    fn deref_mut(&mut self) -> &mut S::Connection {
        self.touched = !self.written.is_empty();
        self.transaction.as_mut().expect(OPEN)
    }
}

impl<S: TransactionalStore> AsMut<S::Connection> for OutboxTransaction<S> {
    fn as_mut(&mut self) -> &mut S::Connection {
        self
    }
}

impl<S: TransactionalStore> Drop for OutboxTransaction<S> {
    fn drop(&mut self) {
        if self.transaction.take().is_some() {
            self.written.drain(..).for_each(WrittenEvents::rolled_back);
        }
    }
}

impl<S: TransactionalStore> std::fmt::Debug for OutboxTransaction<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutboxTransaction").field("writes", &self.written.len()).finish_non_exhaustive()
    }
}

/// What the transaction still holds, and what a savepoint took back, each in its order. An id that was written again had been taken back
/// by then: only the last row with it is there.
fn sorted(written: Vec<WrittenEvents>, held: &HashSet<EventId>) -> (Vec<WrittenEvents>, Vec<WrittenEvents>) {
    let (mut kept, mut taken_back) = (Vec::new(), Vec::new());
    let mut later: HashSet<EventId> = HashSet::new();
    for written in written.into_iter().rev() {
        let ids = written.ids();
        let is_held = written.witness().is_none_or(|id| held.contains(&id) && !later.contains(&id));
        if is_held {
            kept.push(written)
        } else {
            taken_back.push(written)
        }
        later.extend(ids);
    }
    kept.reverse();
    taken_back.reverse();
    (kept, taken_back)
}

/// Which of the witnesses of written events the transaction still holds.
async fn held<S: TransactionalStore>(
    store: &S,
    connection: &mut S::Connection,
    written: &[WrittenEvents],
) -> Result<HashSet<EventId>, StoreError> {
    let witnesses: Vec<EventId> = written.iter().filter_map(WrittenEvents::witness).collect();
    Ok(store.find(connection, &witnesses).await?.into_iter().collect())
}
