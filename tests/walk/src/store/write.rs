//! Writing events: single statements, and transactions, of which the table learns at their commit.

use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use outbox::sqlx;
use outbox::store::{NewRow, Ownership, Record, TransactionalStore, WriteStore};
use outbox::{EventId, StoreError};

use super::MemoryStore;
use crate::world::World;

impl World {
    pub(crate) fn insert(&mut self, rows: &mut Vec<Record>, new: &[NewRow<'_>], ownership: &Ownership) -> Vec<Option<u64>> {
        self.tick();
        let mut numbers = Vec::with_capacity(new.len());
        for row in new {
            let id = row.envelope.id();
            let is_there = self.table.has(id) || rows.iter().any(|row| row.event_id == id);
            let seq = (!is_there).then_some(self.next_seq);
            self.next_seq += u64::from(seq.is_some());
            self.envelopes.entry(id).or_insert_with(|| row.envelope.clone());
            // One by one: an id may be twice among these rows.
            self.table.insert(rows, &[*row], ownership, &[seq]).expect("the model takes what follows it");
            numbers.push(seq);
        }
        numbers
    }
}

#[async_trait]
impl WriteStore for MemoryStore {
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        self.run("write", |world| {
            let mut inserted = Vec::new();
            let numbers = world.insert(&mut inserted, rows, ownership);
            world.commit(inserted);
            numbers
        })
        .await
    }
}

/// What a transaction has inserted.
pub(crate) struct Connection {
    rows: Vec<Record>,
    /// False once the connection broke: the database has rolled back.
    is_open: bool,
}

/// A transaction of a writer.
pub(crate) struct Transaction {
    store: MemoryStore,
    connection: Connection,
}

impl Deref for Transaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl AsMut<Connection> for Transaction {
    fn as_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl TransactionalStore for MemoryStore {
    type Connection = Connection;
    type Transaction = Transaction;

    async fn begin(&self) -> Result<Transaction, StoreError> {
        self.run("begin", |_| ()).await?;
        Ok(Transaction { store: self.clone(), connection: Connection { rows: Vec::new(), is_open: true } })
    }

    async fn commit(transaction: Transaction) -> Result<(), StoreError> {
        let Transaction { store, connection } = transaction;
        if !connection.is_open {
            let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            return Err(StoreError::Disconnected { action: "commit", source });
        }
        store.run("commit", |world| world.commit(connection.rows)).await
    }

    async fn rollback(transaction: Transaction) -> Result<(), StoreError> {
        transaction.store.run("roll back", |_| ()).await
    }

    fn is_in_transaction(connection: &mut Connection) -> bool {
        connection.is_open
    }

    async fn insert(
        &self,
        connection: &mut Connection,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let inserted = &mut connection.rows;
        let numbers = self.run("insert", |world| world.insert(inserted, rows, ownership)).await;
        connection.is_open &= numbers.is_ok();
        numbers
    }

    async fn find(&self, connection: &mut Connection, sequences: &[u64]) -> Result<Vec<(u64, EventId)>, StoreError> {
        let of_row = |row: &Record| (row.seq, row.event_id);
        let own: Vec<_> = connection.rows.iter().map(of_row).collect();
        let found = self.run("find", |world| world.table.rows.values().map(of_row).chain(own).collect::<Vec<_>>()).await;
        connection.is_open &= found.is_ok();
        Ok(found?.into_iter().filter(|(seq, _)| sequences.contains(seq)).collect())
    }

    async fn delete_inserted(&self, connection: &mut Connection, ids: &[EventId]) -> Result<(), StoreError> {
        let rows = &mut connection.rows;
        let deleted = self.run("delete inserted", |_| rows.retain(|row| !ids.contains(&row.event_id))).await;
        connection.is_open &= deleted.is_ok();
        deleted
    }
}
