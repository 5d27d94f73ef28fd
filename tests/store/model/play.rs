//! Plays a trace on a database and on the table side by side.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use outbox::event::{Fence, OwnerId};
use outbox::store::{Audit, Filter, InspectStore, PARTITIONS, Record, Session, StoreError};
use outbox::time::Timestamp;
use outbox::{Envelope, EventId, Route, Store, TransactionalStore};
use support::Database;

use super::compare::{Times, agree, agree_rows};
use super::late::Late;
use super::parts::{EventChoice, FenceChoice, NewEvent, span};
use super::step::Step;
use super::table::{Fault, Table, is_unfinished};
use super::tally::{Met, Tally};
use super::watch::Watch;

pub(super) const EVENT_TYPES: [&str; 2] = ["Placed", "Paid"];
pub(super) const AGGREGATE_TYPES: [&str; 2] = ["Order", "Cart"];
pub(super) const AGGREGATE_IDS: [&str; 2] = ["1", "2"];
/// Most events that one trace writes.
pub(super) const MOST_EVENTS: usize = 200;
/// No two calls happen at the same time.
const TICK: Duration = Duration::from_micros(1);
/// Farther ahead than the numbers of rows that are not committed yet: an outcome for one of those may have to wait for the
/// commit.
const NOT_SOON: u64 = 1_000_000;
/// How many of the things that it was given an owner may have in hand still.
const IN_HAND: usize = 6;
/// How slow a trace may be. All its spans are whole hours.
const SLACK: Duration = Duration::from_secs(30 * 60);

/// A trace in the making.
pub(super) struct Player<'d, D: Database> {
    pub(super) db: &'d D,
    pub(super) store: D::Store,
    pub(super) table: Table,
    pub(super) times: Times,
    pub(super) owners: [OwnerId; 3],
    /// The locks of the owners' sessions.
    pub(super) sessions: [Option<Box<dyn Session>>; 3],
    /// Every fence that was given out.
    pub(super) fences: Vec<Fence>,
    /// What each owner was given, the last at the end: a host that stalls keeps it, whatever becomes of the rows.
    pub(super) hands: [Vec<Fence>; 3],
    pub(super) watch: Watch,
    pub(super) tally: Tally,
    /// The transaction of another program, which has locked rows.
    pub(super) locker: Option<<D::Store as TransactionalStore>::Transaction>,
    /// The versions of plugins' values that were read, by plugin and key.
    pub(super) seen: HashMap<(&'static str, &'static str), Vec<u64>>,
    /// Transactions that stay open.
    pub(super) late: [Late<D::Store>; 2],
    /// What the ids of its events begin with. No other trace has the same: what is left of a deleted id makes MySQL lock
    /// others.
    name: String,
    /// How many ids were used.
    pub(super) ids: usize,
    /// Ids that were deleted or rolled back at some time.
    pub(super) once_gone: HashSet<EventId>,
    /// Which database.
    pub(super) kind: &'static str,
    /// Whether the database has one writer at a time, and a clock that only the test moves.
    pub(super) one_writer: bool,
}

impl<'d, D: Database> Player<'d, D> {
    pub(super) async fn new(db: &'d D, name: String, newest: u64, partition_of: HashMap<String, u16>) -> Self {
        let store = db.typed();
        let kind = store.kind();
        let one_writer = kind == "sqlite";
        let slack = if one_writer { Duration::ZERO } else { SLACK };
        Self {
            db,
            table: Table::new(db.now().await, newest, partition_of),
            times: Times { passed: Duration::ZERO, slack },
            owners: ["a", "b", "c"].map(OwnerId::generate),
            sessions: [None, None, None],
            fences: Vec::new(),
            hands: [Vec::new(), Vec::new(), Vec::new()],
            watch: Watch::default(),
            tally: Tally::default(),
            locker: None,
            seen: HashMap::new(),
            late: [Late::new(), Late::new()],
            name,
            ids: 0,
            once_gone: HashSet::new(),
            kind,
            one_writer,
            store,
        }
    }

    /// Takes one step, and compares the whole table.
    pub(super) async fn step(&mut self, step: &Step) -> Result<(), Fault> {
        self.take(step).await?;
        let rows = self.list().await?;
        let is_replay = matches!(step, Step::Replay { .. } | Step::ReplayBatch { .. });
        self.watch.after(self.table.now, is_replay, &rows, self.times)?;
        agree_rows(&self.table, rows, self.times)
    }

    async fn take(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::Write { .. }
            | Step::Insert { .. }
            | Step::DeleteInserted { .. }
            | Step::End { .. }
            | Step::PlainInsert { .. } => self.write(step).await,
            Step::ClaimDue { .. }
            | Step::Read { .. }
            | Step::Claim { .. }
            | Step::Renew { .. }
            | Step::CountStart { .. }
            | Step::UncountStart { .. }
            | Step::GiveBack { .. }
            | Step::Settle { .. } => self.hold(step).await,
            Step::SettleLocked { outcomes, touched, meanwhile } => self.settle_locked(outcomes, *touched, meanwhile).await,
            Step::SettleWithEffects { .. }
            | Step::ReadState { .. }
            | Step::DeleteState { .. }
            | Step::DeleteAllState { .. } => self.keep(step).await,
            Step::Unblock { .. }
            | Step::KeepPartitions { .. }
            | Step::ReleasePartitions { .. }
            | Step::Heartbeat { .. }
            | Step::Leave { .. }
            | Step::Session { .. }
            | Step::Abandon { .. } => self.order(step).await,
            Step::Look { at, event, waits_for, partitions } => self.look(*at, *event, *waits_for, *partitions).await,
            Step::Pass { time } => self.pass(span(*time)).await,
            _ => self.by_hand(step).await,
        }
    }

    /// Every row, in the order of their `seq`.
    pub(super) async fn list(&self) -> Result<Vec<Record>, Fault> {
        said("list", self.store.list(&Filter::default(), 100_000).await)
    }

    /// Before every call that something may depend on.
    pub(super) async fn tick(&mut self) {
        self.table.now = self.table.now.plus(TICK);
        if self.one_writer {
            self.db.let_pass(TICK).await;
        }
    }

    /// Rows of an open transaction cannot be moved back, so time stands still meanwhile.
    async fn pass(&mut self, time: Duration) -> Result<(), Fault> {
        if !self.one_writer && self.late.iter().any(Late::is_open) {
            return Ok(());
        }
        self.db.let_pass(time).await;
        self.table.now = self.table.now.plus(time);
        if !self.one_writer {
            self.times.passed += time;
        }
        Ok(())
    }

    /// What the database's clock shows and what the table's does.
    pub(super) async fn clocks(&self) -> (Timestamp, Timestamp) {
        (self.db.now().await, self.table.now)
    }

    /// The id of the n-th event of this trace. A later one sorts behind all before: where a transaction that stays open has
    /// repeated one of its ids, MySQL keeps others from writing any that sort right before it.
    pub(super) fn event_id(&self, number: usize) -> EventId {
        format!("{}{number:03}", self.name).parse().expect("a good id")
    }

    pub(super) fn owner(&self, number: usize) -> OwnerId {
        self.owners[number % self.owners.len()].clone()
    }

    /// The fences that a step names.
    pub(super) fn fence(&self, choice: FenceChoice) -> Fence {
        let nobodys = |number: usize| Fence { sequence: self.table.newest() + NOT_SOON + number as u64, claim: 1 };
        match choice {
            FenceChoice::Held(number) => {
                let held = |row: &&Record| row.locked_by.is_some() && is_unfinished(row);
                let rows: Vec<&Record> = self.table.rows.values().filter(held).collect();
                let row = round(&rows, number);
                row.map_or(nobodys(number), |row| self.table.fence(row))
            }
            FenceChoice::Read(number) => {
                let is_free = |row: &&Record| row.locked_by.is_none() && row.due_at.is_some() && is_unfinished(row);
                let rows: Vec<&Record> = self.table.rows.values().filter(is_free).collect();
                round(&rows, number).map_or(nobodys(number), |row| self.table.fence(row))
            }
            FenceChoice::InHand(owner, number) => {
                let hand = &self.hands[owner % self.hands.len()];
                let last: Vec<Fence> = hand.iter().rev().take(IN_HAND).copied().collect();
                round(&last, number).copied().unwrap_or(nobodys(number))
            }
            FenceChoice::Any(number) => round(&self.fences, number).copied().unwrap_or(nobodys(number)),
            FenceChoice::Never(number) => {
                let rows: Vec<&Record> = self.table.rows.values().collect();
                let row = round(&rows, number);
                row.map_or(nobodys(number), |row| Fence { sequence: row.seq, claim: self.table.fence(row).claim + NOT_SOON })
            }
        }
    }

    /// The event that a step names.
    pub(super) fn event(&self, choice: EventChoice) -> EventId {
        let among = |rows: Vec<&Record>, number| round(&rows, number).map(|row| row.event_id);
        let event = match choice {
            EventChoice::Dead(number) => {
                among(self.table.rows.values().filter(|row| row.status == outbox::Status::Dead).collect(), number)
            }
            EventChoice::Any(number) => among(self.table.rows.values().collect(), number),
            EventChoice::Gone => None,
        };
        event.unwrap_or_else(|| self.event_id(MOST_EVENTS))
    }

    /// The `seq` of some event that is there.
    pub(super) fn some_event(&self, number: usize) -> u64 {
        let rows: Vec<u64> = self.table.rows.keys().copied().collect();
        round(&rows, number).copied().unwrap_or(1)
    }

    /// An error when the owners of partitions in the database are not those in the table.
    pub(super) async fn agree_partitions(&self) -> Result<(), Fault> {
        let of = |owner: Option<&str>| {
            let partitions =
                (0..PARTITIONS).filter(|partition| self.table.partitions[usize::from(*partition)].as_deref() == owner);
            let partitions: Vec<String> = partitions.map(|partition| partition.to_string()).collect();
            let partitions = if partitions.is_empty() { "-1".to_owned() } else { partitions.join(", ") };
            let owner = owner.map_or("owner IS NULL".to_owned(), |owner| format!("owner = '{owner}'"));
            format!("({owner} AND partition_id IN ({partitions}))")
        };
        let owners = self.owners.each_ref().map(|owner| of(Some(owner.as_str()))).join(" OR ");
        let sql = format!("SELECT count(*) FROM outbox_event_partition WHERE {owners} OR {}", of(None));
        let right = self.db.number(&sql).await;
        agree("partitions that their owners hold, and nobody else", i64::from(PARTITIONS), right)
    }

    /// An owner was given something.
    pub(super) fn given(&mut self, owner: &OwnerId, fence: Fence) {
        self.fences.push(fence);
        if let Some(number) = self.owners.iter().position(|known| known == owner) {
            self.hands[number].push(fence);
        }
    }

    /// Counts that a trace came to something that it is there for.
    pub(super) fn meets(&mut self, what: Met, how_often: usize) {
        self.tally.add(what, how_often as u64);
    }

    /// Rolls back what is open, so that nothing of this trace is left.
    pub(super) async fn end(&mut self) {
        if let Some(locker) = self.locker.take() {
            // Best effort: the trace is over.
            let _ = D::Store::rollback(locker).await;
        }
        for session in &mut self.sessions {
            if let Some(session) = session.take() {
                session.end().await;
            }
        }
        for late in &mut self.late {
            late.give_up().await;
        }
    }
}

/// The audit of things done by hand.
pub(super) fn audit(reason: bool) -> Audit {
    Audit { actor: "tester".to_owned(), reason: reason.then(|| "to see".to_owned()) }
}

/// The n-th of some things, counted round.
pub(super) fn round<T>(things: &[T], number: usize) -> Option<&T> {
    if things.is_empty() { None } else { things.get(number % things.len()) }
}

pub(super) fn route((aggregate_type, event_type): (usize, usize)) -> Route {
    Route::new(AGGREGATE_TYPES[aggregate_type], EVENT_TYPES[event_type]).expect("good names")
}

/// An answer, or the error in words.
pub(super) fn said<T>(call: &str, answer: Result<T, StoreError>) -> Result<T, Fault> {
    answer.map_err(|error| format!("{call} failed: {error}: {error:?}"))
}

/// An event by a writer whose clock shows `now`.
pub(super) fn envelope(id: EventId, new: &NewEvent, now: Timestamp) -> Envelope {
    let occurred = match new.occurred {
        0 => now,
        ahead if ahead > 0 => now.plus(span(1)),
        _ => now.minus(span(1)),
    };
    let available = occurred.plus(span(new.delay));
    let mut builder = Envelope::new(EVENT_TYPES[new.event_type]).now(now).id(id).occurred_at(occurred).available_at(available);
    if let Some((kind, key)) = new.key {
        builder = builder.aggregate(AGGREGATE_TYPES[kind], AGGREGATE_IDS[key]);
    }
    if let Some(expires) = new.expires {
        builder = builder.expires_at(available.plus(span(expires)));
    }
    if new.tenant {
        builder = builder.tenant("t1");
    }
    if new.header {
        builder = builder.header("k", "v");
    }
    // The payload tells whose it is.
    let mut payload = id.as_str().as_bytes().to_vec();
    payload.resize(new.payload_bytes, b'.');
    builder.bytes("text/plain", payload).expect("a good envelope")
}
