//! Somebody who watches hosts from outside, through the table alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use outbox::event::OwnerId;
use outbox::store::{Filter, PARTITIONS, ReadEvent, ReadRequest, Record};
use outbox::time::{Clock, SystemClock};
use outbox::{EventId, MySqlStore, PostgresStore, SqliteStore, Status, Store};
use tokio::runtime::Runtime;

use crate::history::{Fault, FaultKind, Held, Journal, Row, Step};

/// An event, and the `claim_seq` under which it is held.
type Claim = (EventId, u64);

/// Looks at a database that hosts work on, and keeps a journal of what is done to them: `witness.jsonl`.
pub struct Witness {
    store: Arc<dyn Store>,
    journal: Journal,
    clock: SystemClock,
    /// What the connections live on.
    runtime: Runtime,
}

/// What is being done to a host.
#[must_use]
#[derive(Debug)]
pub struct Trouble {
    host: String,
    kind: FaultKind,
    from: i64,
    held: Held,
    /// Of these, what it may have read, of partitions that it held.
    readable: BTreeSet<EventId>,
    /// The process, when it can be looked at again.
    process: Option<u32>,
}

impl Trouble {
    /// How many events the host holds, as far as anybody could look.
    #[must_use]
    pub fn held(&self) -> usize {
        match &self.held {
            Held::Claims(claims) => claims.len(),
            Held::Unseen => 0,
        }
    }

    /// When it came, in microseconds since 1970.
    #[must_use]
    pub const fn from(&self) -> i64 {
        self.from
    }

    /// The events of the host's partitions that it may have read when it came, as far as anybody could look.
    #[must_use]
    pub const fn readable(&self) -> &BTreeSet<EventId> {
        &self.readable
    }
}

impl Witness {
    /// Of the database of this address; its journal goes into the directory. Not for use inside of a tokio runtime.
    ///
    /// # Panics
    /// When the database does not answer.
    #[must_use]
    pub fn of(url: &str, directory: &Path) -> Self {
        let runtime = Runtime::new().expect("threads can be started");
        let store = runtime.block_on(open(url));
        let journal = Journal::open(&directory.join("witness.jsonl"), "witness");
        Self { store, journal, clock: SystemClock, runtime }
    }

    /// Something is done to a host by `act`, from now on until [`over`](Self::over). What the host holds is looked at
    /// afterwards, when it can change nothing any more.
    pub fn trouble(&self, host: &str, kind: FaultKind, process: u32, act: impl FnOnce()) -> Trouble {
        let from = self.clock.now().as_micros();
        act();
        let (claimed, read) = self.held(process);
        let readable = read.iter().map(|(event, _)| *event).collect();
        let held = Held::Claims([claimed, read].concat());
        Trouble { host: host.to_owned(), kind, from, held, readable, process: Some(process) }
    }

    /// The same, while the database itself is away.
    pub fn unseen(&self, host: &str, kind: FaultKind, act: impl FnOnce()) -> Trouble {
        let from = self.clock.now().as_micros();
        act();
        Trouble { host: host.to_owned(), kind, from, held: Held::Unseen, readable: BTreeSet::new(), process: None }
    }

    /// The trouble ends: call it just before it does. Returns how many events the host held.
    pub fn over(&self, mut trouble: Trouble) -> usize {
        if let (Held::Claims(claims), Some(process)) = (&mut trouble.held, trouble.process)
            && trouble.kind == FaultKind::CutOff
        {
            // It went on meanwhile, as far as it could.
            let (claimed, read) = self.held(process);
            claims.extend([claimed, read].concat());
            claims.sort_unstable();
            claims.dedup();
        }
        let held = trouble.held();
        let Trouble { host, kind, from, held: claims, .. } = trouble;
        self.journal.record(Step::Fault(Fault { host, kind, from, held: claims }));
        held
    }

    /// Writes down the whole table.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn record_table(&self) {
        let rows = self.rows(&Filter::default()).iter().map(Row::from).collect();
        self.journal.record(Step::Table { rows });
    }

    /// The rows that a filter lets through, in the order of insertion.
    ///
    /// # Panics
    /// When they cannot be read.
    #[must_use]
    pub fn rows(&self, filter: &Filter) -> Vec<Record> {
        self.runtime.block_on(self.store.list(filter, u32::MAX)).expect("the table can be read")
    }

    /// The store that it looks through.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// Runs something on the threads of its store.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// How long the lease of a host of this process lasts; zero if it holds no lease. The database is on this machine and has the same clock.
    ///
    /// # Panics
    /// When the hosts cannot be listed.
    #[must_use]
    pub fn lease_left(&self, process: u32) -> Duration {
        let nodes = self.runtime.block_on(self.store.nodes()).expect("the hosts can be listed");
        let ends = nodes.iter().filter(|node| ends_with(&node.label, process)).map(|node| node.alive_until);
        ends.max().map_or(Duration::ZERO, |ends| ends.since(self.clock.now()))
    }

    /// The events that hosts of this process have claimed, and those that they may have read, each with its claim. A host that
    /// is not in the list of hosts yet may be of this process.
    fn held(&self, process: u32) -> (Vec<Claim>, Vec<Claim>) {
        let nodes = self.runtime.block_on(self.store.nodes()).expect("the hosts can be listed");
        let theirs =
            |owner: &str| nodes.iter().find(|node| node.owner == owner).is_none_or(|node| ends_with(&node.label, process));
        let unfinished = [Status::New, Status::Retry].map(|status| Filter { status: Some(status), ..Filter::default() });
        let rows = unfinished.iter().flat_map(|filter| self.rows(filter));
        let claimed = rows.filter(|row| row.locked_by.as_deref().is_some_and(theirs)).map(|row| (row.event_id, row.claim_seq));
        let read = nodes.iter().filter(|node| theirs(&node.owner)).flat_map(|node| self.readable(&node.owner));
        (claimed.collect(), read.collect())
    }

    /// What a host may have read: nothing of that is written in the table.
    fn readable(&self, owner: &str) -> Vec<Claim> {
        let request = ReadRequest {
            owner: OwnerId::known(owner),
            partitions: (0..PARTITIONS).collect(),
            after: None,
            held: Vec::new(),
            busy: Vec::new(),
            limit: u32::MAX,
            max_bytes: usize::MAX,
            skip_recent: Duration::ZERO,
            order: None,
        };
        let read = self.runtime.block_on(self.store.read(&request)).expect("the table can be read");
        let id = |read: &ReadEvent| read.event.event.as_ref().ok().map(|event| event.id());
        read.iter().filter_map(|read| Some((id(read)?, read.event.fence.claim & 0xffff_ffff))).collect()
    }
}

/// A host's label ends with the number of its process.
fn ends_with(label: &str, process: u32) -> bool {
    label.rsplit(' ').next() == Some(&process.to_string())
}

async fn open(url: &str) -> Arc<dyn Store> {
    let there = "the database is there";
    match url.split(':').next().unwrap_or_default() {
        "sqlite" => Arc::new(SqliteStore::open(url).await.expect(there)),
        "postgres" => Arc::new(PostgresStore::connect(url).await.expect(there)),
        "mysql" => Arc::new(MySqlStore::connect(url).await.expect(there)),
        scheme => panic!("no store for {scheme}"),
    }
}
