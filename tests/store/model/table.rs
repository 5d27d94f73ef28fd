//! What is in the tables, in memory, and what writing does to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use outbox::store::{Audit, ListenerReport, NewRow, Ownership, PARTITIONS, Record};
use outbox::time::Timestamp;
use outbox::{EventId, Route, Status};

use super::effects::Values;

/// How a database and its specification differ, in words.
pub(super) type Fault = String;

/// The tables of an outbox.
///
/// Three things are the database's own business, and are told to the table rather than computed by it: which number a row gets,
/// which partition a key falls into, and which of several equal rows a limit leaves out.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The time by the clock that decides what is due. No two calls happen at the same time.
    pub(super) now: Timestamp,
    /// All committed events, by their `seq`.
    pub(super) rows: BTreeMap<u64, Record>,
    /// The owner of each partition.
    pub(super) partitions: Vec<Option<String>>,
    /// How often each has got another owner.
    pub(super) epochs: Vec<u32>,
    /// All hosts, by their owner.
    pub(super) nodes: BTreeMap<String, NodeRow>,
    /// The owners whose sessions hold their locks.
    pub(super) sessions: BTreeSet<String>,
    /// Routes that ever had a listener.
    pub(super) remembered: BTreeSet<Route>,
    /// Routes that are paused, by whom and why.
    pub(super) paused: BTreeMap<Route, Audit>,
    /// What plugins keep, by plugin.
    pub(super) kept: BTreeMap<String, Values>,
    /// What was done by hand, oldest first.
    pub(super) notes: Vec<Note>,
    /// The greatest number of a committed row, whether it is still there or not.
    newest: u64,
    /// The partition of each aggregate id, and of the id of each event without one.
    partition_of: HashMap<String, u16>,
}

/// A host, as it stands in its table.
#[derive(Clone, Debug)]
pub(super) struct NodeRow {
    pub(super) mode: &'static str,
    pub(super) room: u32,
    pub(super) session: bool,
    pub(super) listeners: ListenerReport,
    pub(super) started_at: Timestamp,
    pub(super) alive_until: Timestamp,
}

/// Something that was done by hand.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) audit: Audit,
    pub(super) action: &'static str,
    pub(super) selector: serde_json::Value,
    pub(super) count: u64,
}

/// Rows that nobody else sees before the commit.
pub(super) type Uncommitted = Vec<Record>;

impl Table {
    /// An empty table. `newest` is the greatest number that the database ever gave to a committed row.
    pub(super) fn new(now: Timestamp, newest: u64, partition_of: HashMap<String, u16>) -> Self {
        Self {
            now,
            rows: BTreeMap::new(),
            partitions: vec![None; usize::from(PARTITIONS)],
            epochs: vec![0; usize::from(PARTITIONS)],
            nodes: BTreeMap::new(),
            sessions: BTreeSet::new(),
            remembered: BTreeSet::new(),
            paused: BTreeMap::new(),
            kept: BTreeMap::new(),
            notes: Vec::new(),
            newest,
            partition_of,
        }
    }

    /// Inserts events in a transaction. `numbers` are what the database answered: a `seq` for each, larger than every one
    /// before, or `None` for an id that is there already.
    pub(super) fn insert(
        &self,
        transaction: &mut Uncommitted,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
        numbers: &[Option<u64>],
    ) -> Result<(), Fault> {
        if rows.len() != numbers.len() {
            return Err(format!("{} rows were written and {} numbers came back", rows.len(), numbers.len()));
        }
        for (row, number) in rows.iter().zip(numbers) {
            let id = row.envelope.id();
            let there = self.has(id) || transaction.iter().any(|row| row.event_id == id);
            let newest = transaction.last().map_or(self.newest, |last| last.seq.max(self.newest));
            match number {
                None if there => {}
                Some(seq) if !there && *seq > newest => transaction.push(self.new_row(*seq, row, ownership)),
                _ => return Err(format!("{id} got the number {number:?} (there already: {there}, newest number: {newest})")),
            }
        }
        Ok(())
    }

    /// Makes rows visible to everybody.
    pub(super) fn commit(&mut self, transaction: Uncommitted) {
        for row in transaction {
            self.newest = self.newest.max(row.seq);
            self.rows.insert(row.seq, row);
        }
    }

    /// The greatest number of a committed row.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether an event of this id is there.
    pub(super) fn has(&self, id: EventId) -> bool {
        self.rows.values().any(|row| row.event_id == id)
    }

    /// Learns the partition of an event without an aggregate.
    pub(super) fn learn(&mut self, event: EventId, partition: u16) {
        self.partition_of.insert(event.as_str().to_owned(), partition);
    }

    /// The partition that an event belongs to: that of its aggregate, or of its own id when it has none.
    pub(super) fn partition(&self, row: &Record) -> u16 {
        let key = row.aggregate_id.as_deref().unwrap_or(row.event_id.as_str());
        self.partition_of[key]
    }

    /// A row that is inserted as claimed is due now, so that others may have it as soon as the lease is over.
    fn new_row(&self, seq: u64, row: &NewRow<'_>, ownership: &Ownership) -> Record {
        let mut record = Record::inserted(seq, row.envelope, self.now);
        if row.claimed {
            (record.claims, record.claim_seq, record.due_at) = (1, 1, Some(self.now));
            record.locked_by = Some(ownership.owner.as_str().to_owned());
            (record.locked_at, record.lease_end) = (Some(self.now), Some(self.now.plus(ownership.lease)));
        }
        record
    }
}

/// Whether the event is neither finished nor given up.
pub(super) fn is_unfinished(row: &Record) -> bool {
    matches!(row.status, Status::New | Status::Retry)
}

/// The route of an event.
pub(super) fn route(row: &Record) -> Route {
    Route::new(&row.aggregate_type, &row.event_type).expect("the names were checked when they were written")
}
