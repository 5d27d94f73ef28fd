//! Programs that write, and leave a record of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use outbox::{Envelope, MySqlStore, Outbox, PostgresStore, SqliteStore, StoreError, TransactionalStore, WriteError};
use rand::RngExt;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use crate::history::{Aggregate, Journal, Step, Written};
use crate::{Gate, Moment, Seed};

/// Writers that work at the same time, each on aggregates of its own.
#[derive(Clone, Copy, Debug)]
pub struct Writers {
    /// How many of them.
    pub writers: usize,
    /// How many events they commit together, at least.
    pub events: usize,
    /// How long each rests after a transaction.
    pub rest: Duration,
    /// How long a listener shall take for each event.
    pub takes: Duration,
    /// Whether the database may fail them.
    pub faults: Faults,
}

/// Programs that write and deliver nothing: what they write is cold. They write until this is dropped or ended.
#[derive(Debug)]
pub struct ColdWriters {
    enough: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ColdWriters {
    /// Ends them between two transactions.
    ///
    /// # Panics
    /// When one of them could not write.
    pub fn end(mut self) {
        self.enough.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is taken here alone");
        thread.join().expect("the writers wrote all");
    }
}

impl Drop for ColdWriters {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

/// Whether the database may fail somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Faults {
    /// What cannot be written is a fault of the test.
    None,
    /// A connection may be lost before the commit: the database ends the session of a process that sleeps.
    SessionsEnd,
    /// What cannot be written is rolled back, and the next transaction is tried.
    Expected,
}

impl Faults {
    /// Whether an error before the commit is one of these.
    fn excuse(self, error: &WriteError) -> bool {
        match self {
            Self::None => false,
            Self::SessionsEnd => matches!(error, WriteError::Store(StoreError::Disconnected { .. })),
            Self::Expected => true,
        }
    }
}

/// How many aggregates a writer has.
const AGGREGATES: usize = 10;

/// One in this many transactions is rolled back, and one is let go without a word, which must come to the same.
const ROLLED_BACK: usize = 4;
const DROPPED: usize = 9;

/// One in this many events fails at first, and one in this many of those a second time: which ones is chance.
const FAILING: u32 = 8;

/// One in this many events is asked for later, and by how much.
const DELAYED: u32 = 20;
const DELAY: Duration = Duration::from_millis(400);

impl Writers {
    /// Starts writing events for the plugin `recorder`; each writer keeps a journal `writer-N.jsonl` in the directory.
    ///
    /// # Panics
    /// On a thread of its own, which ends when all is written: when the database cannot be opened, or fails them without being
    /// expected to.
    #[must_use]
    pub fn start(self, url: &str, directory: &Path) -> JoinHandle<()> {
        self.start_until(url, directory, Arc::new(AtomicBool::new(true)))
    }

    /// Starts writing as [`start`](Self::start) does, until they are ended.
    #[must_use]
    pub fn start_cold(self, url: &str, directory: &Path) -> ColdWriters {
        let enough = Arc::new(AtomicBool::new(false));
        let thread = Some(self.start_until(url, directory, enough.clone()));
        ColdWriters { enough, thread }
    }

    /// As [`start`](Self::start), but goes on after its last event until it is told that this is enough.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_until(self, url: &str, directory: &Path, enough: Arc<AtomicBool>) -> JoinHandle<()> {
        let (url, directory) = (url.to_owned(), directory.to_owned());
        thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("threads can be made");
            runtime.block_on(async {
                let there = "the database is there";
                match url.split(':').next().unwrap_or_default() {
                    "sqlite" => self.write(SqliteStore::open(&url).await.expect(there), &directory, &enough).await,
                    "postgres" => self.write(PostgresStore::connect(&url).await.expect(there), &directory, &enough).await,
                    "mysql" => self.write(MySqlStore::connect(&url).await.expect(there), &directory, &enough).await,
                    scheme => panic!("no store for {scheme}"),
                }
            });
        })
    }

    async fn write<S>(self, store: S, directory: &Path, enough: &Arc<AtomicBool>)
    where
        S: TransactionalStore + Clone + 'static,
    {
        let mut tasks = JoinSet::new();
        for writer in 0..self.writers {
            let name = format!("writer-{writer}");
            let journal = Journal::open(&directory.join(&name).with_extension("jsonl"), &name);
            let outbox = Outbox::writer_only(store.clone()).start().await.expect("the schema is there");
            let enough = enough.clone();
            tasks.spawn(async move {
                self.write_until(&outbox, &name, &journal, &Gate::open(), &enough).await;
                outbox.shutdown().await;
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("the writer wrote all");
        }
    }

    /// Writes as one of them, through somebody's own outbox, until it has committed its share.
    ///
    /// # Panics
    /// When the database fails it without being expected to.
    pub async fn write_one<S: TransactionalStore + Clone>(
        self,
        outbox: &Outbox<S>,
        name: &str,
        journal: &Journal,
        gate: &Gate,
    ) {
        self.write_until(outbox, name, journal, gate, &AtomicBool::new(true)).await;
    }

    async fn write_until<S: TransactionalStore + Clone>(
        self,
        outbox: &Outbox<S>,
        name: &str,
        journal: &Journal,
        gate: &Gate,
        enough: &AtomicBool,
    ) {
        let mut committed = 0;
        let mut chance = Seed::of_this_run().choices_of(name);
        let mut places = Places::default();
        for number in 1.. {
            if committed >= self.events.div_ceil(self.writers) && enough.load(Ordering::Relaxed) {
                return;
            }
            let transaction = format!("{name}/{number}");
            let envelopes: Vec<Envelope> =
                (0..1 + number % 5).map(|part| self.envelope(name, number, part, &mut chance)).collect();
            let events = envelopes.iter().map(|envelope| places.take(envelope)).collect();
            journal.record(Step::Intent { transaction: transaction.clone(), events });

            let begun = match outbox.begin().await {
                Ok(mut open) => open.write_all(envelopes).await.map(|ids| (open, ids.len())),
                Err(error) => Err(error),
            };
            match begun {
                // Nobody asked for a commit.
                Err(error) if self.faults.excuse(&error) => journal.record(Step::RolledBack { transaction }),
                Err(error) => panic!("{transaction} is not written: {error:?}"),
                Ok((open, _)) if number % DROPPED == 0 => {
                    journal.record(Step::RolledBack { transaction });
                    drop(open);
                }
                Ok((open, _)) if number % ROLLED_BACK == 0 => {
                    journal.record(Step::RolledBack { transaction });
                    let ended = open.rollback().await;
                    assert!(ended.as_ref().err().is_none_or(|error| self.faults.excuse(error)), "{ended:?}");
                }
                Ok((open, count)) => {
                    gate.pass(Moment::Inserted).await;
                    journal.record(match open.commit().await {
                        Ok(()) => Step::Committed { transaction, sequences: Vec::new() },
                        Err(_) => Step::Unknown { transaction },
                    });
                    gate.pass(Moment::HandedOver).await;
                    committed += count;
                }
            }
            tokio::time::sleep(self.rest).await;
        }
    }

    /// Event `part` of transaction `number`; the aggregates take turns.
    fn envelope(self, writer: &str, number: usize, part: usize, chance: &mut StdRng) -> Envelope {
        let succeeds_on = match (chance.random_ratio(1, FAILING), chance.random_ratio(1, FAILING)) {
            (true, true) => 3,
            (true, false) => 2,
            (false, _) => 1,
        };
        let payload = json!({ "succeeds_on": succeeds_on, "takes_ms": self.takes.as_millis() });
        let envelope = Envelope::new("Changed").aggregate("Account", format!("{writer}.{}", (number + part) % AGGREGATES));
        let envelope = if chance.random_ratio(1, DELAYED) { envelope.deliver_after(DELAY) } else { envelope };
        envelope.json(&payload).expect("a good envelope")
    }
}

/// What a writer knows of the order of what it writes, aggregate by aggregate.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<Aggregate, u64>);

impl Places {
    /// The record of an event that is written next; the aggregate must be written by nobody else meanwhile.
    pub fn take(&mut self, envelope: &Envelope) -> Written {
        let kind = envelope.aggregate_type().as_str().to_owned();
        let aggregate = envelope.aggregate_id().map(|id| Aggregate { kind, id: id.to_owned() });
        let place = aggregate.clone().map_or(0, |aggregate| {
            let next = self.0.entry(aggregate).or_default();
            *next += 1;
            *next
        });
        let not_before = envelope.is_delayed().then(|| envelope.available_at().as_micros());
        Written { event_id: envelope.id(), aggregate, place, not_before }
    }
}
