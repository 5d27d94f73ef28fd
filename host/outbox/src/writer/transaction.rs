//! A transaction that knows the outbox.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use super::receipt::{Witness, WrittenEvents};
use super::{OnDuplicate, WriteError, Writer, joined};
use crate::event::{Envelope, EventId};
use crate::store::{NewRow, StoreError, TransactionalStore};

/// The type of a row that [`mark`] inserts, for whoever sees it in a transaction that is open.
const MARK: &str = "OutboxMark";

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
    /// The rows that stand for events that are in no table. Also those whose insert was dropped: none of them is ever committed.
    marks: Vec<EventId>,
    /// Whether statements of the caller may have come before, and made a savepoint.
    used: bool,
    /// Whether statements of the caller may have come after the events, and taken them back.
    touched: bool,
}

impl<S: TransactionalStore + Clone> OutboxTransaction<S> {
    pub(super) async fn begin(writer: Writer<S>) -> Result<Self, WriteError> {
        let transaction = writer.store.begin().await?;
        let mut begun = Self::adopt(writer, transaction);
        begun.used = false;
        Ok(begun)
    }

    pub(super) fn adopt(writer: Writer<S>, transaction: S::Transaction) -> Self {
        Self { transaction: Some(transaction), writer, written: Vec::new(), marks: Vec::new(), used: true, touched: false }
    }

    /// The driver's own transaction, for functions that take one. Nobody may end it but [`commit`](Self::commit) and
    /// [`rollback`](Self::rollback).
    pub fn inner_mut(&mut self) -> &mut S::Transaction {
        self.lend()
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
        let (store, marks, touched) = (self.writer.store.clone(), std::mem::take(&mut self.marks), self.touched);
        // In a task of its own: whoever drops this future, what follows from the commit happens.
        joined(tokio::spawn(async move {
            let held = match before_commit(&store, transaction.as_mut(), &written, &marks, touched).await {
                Ok(held) => held,
                Err(error) => {
                    // That this fails as well changes nothing: a connection that is lost takes its transaction along.
                    let _ = S::rollback(transaction).await;
                    written.into_iter().for_each(WrittenEvents::rolled_back);
                    return Err(error.into());
                }
            };
            let (held, taken_back) = match held {
                Some(held) => split_taken_back(written, held),
                None => (written, Vec::new()),
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
        let mut written = self.writer.insert(transaction.as_mut(), envelopes, on_duplicate).await?;
        if self.used && written.are_excluded() {
            match mark(&self.writer, transaction.as_mut(), &mut self.marks).await {
                Ok(witness) => written.witnessed_by(witness),
                Err(error) => {
                    written.refused();
                    return Err(error);
                }
            }
        }
        let ids = written.ids();
        // What had happened before is as it was.
        self.touched = touched && !self.written.is_empty();
        self.written.push(written);
        Ok(ids)
    }
}

impl<S: TransactionalStore> OutboxTransaction<S> {
    /// The transaction is in the caller's hands now.
    fn lend(&mut self) -> &mut S::Transaction {
        self.used = true;
        self.touched = !self.written.is_empty();
        self.transaction.as_mut().expect(OPEN)
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
        self.lend()
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

/// Inserts a row that stands for events that are in no table: it is there as long as no savepoint takes them back. Claimed, so
/// that it is no event of anybody's; it is deleted before the commit.
async fn mark<S: TransactionalStore>(
    writer: &Writer<S>,
    connection: &mut S::Connection,
    marks: &mut Vec<EventId>,
) -> Result<Witness, WriteError> {
    let envelope = Envelope::new(MARK).json(&())?;
    // Noted first: a caller that drops its write may leave the row behind.
    marks.push(envelope.id());
    let row = NewRow { envelope: &envelope, claimed: true };
    let inserted = writer.store.insert(connection, &[row], &writer.ownership).await?;
    let sequence = inserted.into_iter().flatten().next().expect("a row with a new id comes in");
    Ok((sequence, envelope.id()))
}

/// Takes the marks away. Returns which witnesses the transaction still holds, the `seq` of each by its id; `None` when no
/// statement of the caller came after the events.
async fn before_commit<S: TransactionalStore>(
    store: &S,
    connection: &mut S::Connection,
    written: &[WrittenEvents],
    marks: &[EventId],
    touched: bool,
) -> Result<Option<HashMap<EventId, u64>>, StoreError> {
    let mut held = None;
    if touched && !written.is_empty() {
        let sequences: Vec<u64> = written.iter().filter_map(WrittenEvents::witness).map(|(sequence, _)| sequence).collect();
        // Asked without any as well: a transaction that the database has ended says so.
        let found = store.find(connection, &sequences).await?;
        held = Some(found.into_iter().map(|(sequence, id)| (id, sequence)).collect());
    }
    if !marks.is_empty() {
        store.delete_inserted(connection, marks).await?;
    }
    if !written.is_empty() {
        store.check_before_commit()?;
    }
    Ok(held)
}

/// Splits the writes into those that the transaction still holds and those that a savepoint took back, each in their order.
/// `held` has the witnesses that are in the table: the `seq` of each by its id.
fn split_taken_back(written: Vec<WrittenEvents>, mut held: HashMap<EventId, u64>) -> (Vec<WrittenEvents>, Vec<WrittenEvents>) {
    let (mut kept, mut taken_back) = (Vec::new(), Vec::new());
    // Newest first: SQLite reuses the numbers of rolled-back rows, so a row in the table belongs to the last write of its id.
    for written in written.into_iter().rev() {
        let is_held = written.witness().is_none_or(|(sequence, id)| held.get(&id) == Some(&sequence));
        if is_held {
            for row in written.rows() {
                held.remove(&row.envelope.id());
            }
            kept.push(written);
        } else {
            taken_back.push(written);
        }
    }
    kept.reverse();
    taken_back.reverse();
    (kept, taken_back)
}
