//! The store in memory: the model's tables behind the host's traits, and a database between them that fails as the seed says.
//!
//! Each call has its effect at one instant. What a call reads is what was there at that instant, however much later the answer comes.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::pending;
use outbox::event::{Fence, OwnerId};
use outbox::sqlx;
use outbox::store::{
    Audit, BlockedKey, Blocker, ClaimRequest, ClaimStore, Claimed, Committed, EffectStore, HeldPartition, KeyStore, LeaseStore,
    LiveNodes, Migration, NewRow, Node, NodeRecord, NodeStore, NotifyStore, Ownership, PartitionFaults, PartitionStore,
    Position, ReadEvent, ReadRequest, ReadStore, Record, Renewed, RouteRecord, RouteStore, SchemaStore, Session, SessionStore,
    SettleStore, Settled, SettledWithEffects, Store, TransactionalStore, Unblocked, WaitsFor, WakeUps, WriteStore,
};
use outbox::time::Timestamp;
use outbox::{Event, EventId, Route, StoreError};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until};

use crate::fate::FateEnd;
use crate::table::route;
use crate::taking::Taken;
use crate::world::{Held, Shared, World, lock, shown};

/// How long a statement waits for a row that somebody else has locked, as on PostgreSQL and MySQL.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a session may take to answer: a store's own promise.
const ANSWER: Duration = Duration::from_secs(1);

/// The database, as one host sees it.
#[derive(Clone)]
pub(crate) struct MemoryStore {
    pub(crate) world: Shared,
    pub(crate) life: usize,
}

impl MemoryStore {
    /// One call that waits for nobody.
    pub(crate) async fn run<T>(&self, name: &str, effect: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        self.run_on(&[], name, effect).await
    }

    /// One call that waits until nobody else has these rows locked.
    async fn run_on<T>(&self, rows: &[u64], name: &str, effect: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        let fate = self.world().fate(self.life);
        if self.is_killed() {
            pending::<()>().await;
        }
        if fate.is_fault() {
            let mut world = self.world();
            let line = format!("{} {name}: {}", world.name(self.life), fate.shown());
            world.note(line);
            world.failed(self.life);
        }
        self.takes(fate.before).await;
        if self.is_killed() && !fate.outlives {
            pending::<()>().await;
        }
        if let FateEnd::Refused(error) = fate.end {
            return self.answer(fate.after, Err(error)).await;
        }
        if let Some(error) = self.wait_for(rows, name).await {
            return self.answer(fate.after, Err(error)).await;
        }
        let done = {
            let mut world = self.world();
            world.tick();
            effect(&mut world)
        };
        let answer = if let FateEnd::Lost(error) = fate.end { Err(error) } else { Ok(done) };
        self.answer(fate.after, answer).await
    }

    /// Lets time pass, until the database is well.
    async fn takes(&self, span: Duration) {
        const WELL: Duration = Duration::from_millis(2);
        let mut healed = self.world().healed.subscribe();
        let _ = tokio::time::timeout(span, healed.wait_for(|healed| *healed && span > WELL)).await;
    }

    async fn answer<T>(&self, after: Duration, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        self.takes(after).await;
        if self.is_killed() {
            pending::<()>().await;
        }
        if answer.is_err() {
            self.world().failed(self.life);
        }
        answer
    }

    /// Waits until nobody else has these rows locked; for too long, the database ends the statement.
    async fn wait_for(&self, rows: &[u64], name: &str) -> Option<StoreError> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let until = self.world().locked_until(rows)?;
            if Instant::now() >= patience {
                let mut world = self.world();
                let line = format!("{} {name}: waited for locked rows of {rows:?} in vain", world.name(self.life));
                world.note(line);
                let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
                return Some(StoreError::Locked { action: "wait for rows", source });
            }
            self.world().failed(self.life);
            sleep_until(until.min(patience)).await;
        }
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        lock(&self.world)
    }

    fn is_killed(&self) -> bool {
        self.world().lives[self.life].killed
    }
}

impl World {
    /// What was claimed, as the host gets it.
    fn claimed(&mut self, life: usize, taken: Taken) -> Claimed {
        let Taken { row, fence, due, behind } = taken;
        self.showed(life, fence);
        let envelope = self.envelopes[&row.event_id].clone();
        let event = Event::of(envelope).sequence(row.seq).attempt(row.attempts + 1).fence(fence.claim).build();
        let mut claimed = Claimed::new(fence, event);
        (claimed.attempts, claimed.deferrals) = (row.attempts, row.deferrals);
        (claimed.claims, claimed.starts) = (row.claims, row.starts);
        claimed.expires_in = row.expires_at.map(|expires_at| expires_at.since(self.table.now));
        (claimed.due, claimed.behind) = (due, behind);
        claimed
    }

    /// Notes what is taken from somebody whose claim has ended.
    fn take_over(&mut self, taken: &[(u64, bool)]) {
        self.lost(|_, row| taken.contains(&(row.seq, true)));
    }

    /// For each row whether a claim of it has ended without an outcome.
    fn ended_claims(&self) -> Vec<(u64, bool)> {
        let now = self.table.now;
        let ended = |row: &Record| row.locked_by.is_some() && row.lease_end.is_some_and(|end| end <= now);
        self.table.rows.values().map(|row| (row.seq, ended(row))).collect()
    }

    fn log_taken(&mut self, life: usize, what: &str, claimed: &[Claimed]) {
        if !claimed.is_empty() {
            let fences: Vec<String> = claimed.iter().map(|claimed| shown(claimed.fence)).collect();
            let line = format!("{} {what} {}", self.name(life), fences.join(" "));
            self.note(line);
        }
    }

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

    /// Whether a session holds an owner's lock.
    fn is_held(&self, owner: &str) -> bool {
        self.sessions.get(owner).is_some_and(|held| held.until.is_none_or(|until| until > Instant::now()))
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.run("now", |world| world.table.now).await
    }

    async fn close(&self) {}
}

#[async_trait]
impl SchemaStore for MemoryStore {
    async fn table_in_full(&self) -> Result<String, StoreError> {
        Ok("outbox_event".to_owned())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        self.run("check_schema", |_| ()).await
    }

    async fn migrations(&self) -> Result<Vec<Migration>, StoreError> {
        unreachable!("nobody migrates what is in memory")
    }

    async fn migrate_up(&self) -> Result<Vec<Migration>, StoreError> {
        unreachable!("nobody migrates what is in memory")
    }

    async fn migrate_down(&self) -> Result<Option<Migration>, StoreError> {
        unreachable!("nobody migrates what is in memory")
    }

    fn migration_sql(&self) -> String {
        unreachable!("nobody migrates what is in memory")
    }

    fn grants_sql(&self) -> String {
        unreachable!("nobody is granted what is in memory")
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

#[async_trait]
impl ClaimStore for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, StoreError> {
        self.run("claim", |world| {
            let ended = world.ended_claims();
            let taken = world.past_locked(|world| world.table.claim(request));
            let seqs: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
            // A host that claims row by row takes what others have read: beside a host of an earlier version.
            let by_row = world.plan.faults.claimer;
            let over = ended.into_iter().filter(|(seq, _)| seqs.contains(seq)).map(|(seq, ended)| (seq, ended || by_row));
            world.take_over(&over.collect::<Vec<_>>());
            let claimed: Vec<Claimed> = taken.into_iter().map(|taken| world.claimed(self.life, taken)).collect();
            world.log_taken(self.life, "claimed", &claimed);
            claimed
        })
        .await
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        self.run("next_due", |world| world.table.next_due()).await
    }
}

#[async_trait]
impl ReadStore for MemoryStore {
    async fn read(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        self.run("read", |world| {
            let taken = world.table.read(request);
            let read: Vec<ReadEvent> = taken
                .into_iter()
                .map(|taken| {
                    let (partition, was_claimed) = (world.table.partition(&taken.row), taken.row.locked_by.is_some());
                    let due_at = taken.row.due_at.expect("it is due");
                    let position = Position { due_at, sequence: taken.row.seq };
                    ReadEvent::new(world.claimed(self.life, taken), partition, position, was_claimed)
                })
                .collect();
            if !read.is_empty() {
                let fences: Vec<String> = read.iter().map(shown_as_read).collect();
                let line = format!("{} read {}", world.name(self.life), fences.join(" "));
                world.note(line);
            }
            read
        })
        .await
    }

    async fn next_to_read(&self, owner: &OwnerId, held: &[u64]) -> Result<Option<Duration>, StoreError> {
        self.run("next_to_read", |world| {
            let (table, now) = (&world.table, world.table.now);
            let its = table
                .rows
                .values()
                .filter(|row| !held.contains(&row.seq) && table.is_owner(owner.as_str(), table.partition(row)));
            let readable = its.filter_map(|row| Some(row.due_at?.max(row.lease_end.unwrap_or(row.due_at?))));
            readable.min().map(|at| at.since(now))
        })
        .await
    }

    async fn claim_these(&self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<Vec<Claimed>, StoreError> {
        self.run("claim_these", |world| {
            let ended = world.ended_claims();
            let taken = world.past_locked(|world| world.table.claim_these(owner, lease, fences));
            let seqs: Vec<u64> = taken.iter().map(|taken| taken.row.seq).collect();
            world.take_over(&ended.into_iter().filter(|(seq, _)| seqs.contains(seq)).collect::<Vec<_>>());
            let claimed: Vec<Claimed> = taken.into_iter().map(|taken| world.claimed(self.life, taken)).collect();
            world.log_taken(self.life, "claimed of what it had read", &claimed);
            claimed
        })
        .await
    }
}

/// What was read, as the history shows it: with the event that it waits behind.
fn shown_as_read(read: &ReadEvent) -> String {
    let behind = read.event.behind.map(|behind| format!(" (behind {behind})")).unwrap_or_default();
    format!("{}{behind}", shown(read.event.fence))
}

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
        self.run("renew", |world| {
            let (locked, free): (Vec<Fence>, Vec<Fence>) = held.iter().partition(|fence| world.is_locked(fence.sequence));
            let held = world.table.renew(&free, lease);
            Renewed { held, locked: locked.into_iter().map(|fence| fence.sequence).collect() }
        })
        .await
    }

    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        self.run("give_back", |world| {
            let locked: Vec<EventId> =
                world.table.rows.values().filter(|row| world.is_locked(row.seq)).map(|row| row.event_id).collect();
            let free: Vec<EventId> = ids.iter().copied().filter(|id| !locked.contains(id)).collect();
            let line = format!("{} gives back {free:?}", world.name(self.life));
            world.note(line);
            world.table.give_back(owner, &free)
        })
        .await
    }

    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError> {
        self.run_on(&[fence.sequence], "count_start", |world| world.table.count_start(fence)).await
    }

    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError> {
        self.run_on(&[sequence], "uncount_start", |world| world.table.uncount_start(sequence)).await
    }
}

impl World {
    /// Notes an outcome that is about to be stored, and whether it is.
    fn settles(&mut self, life: usize, settled: &Settled) {
        let before = self.table.held(settled.fence).map(|row| row.clone());
        let became = if before.is_some() { "stores" } else { "is fenced off with" };
        let line = format!("{} {became} {:?} for {}", self.name(life), settled.settlement, shown(settled.fence));
        self.note(line);
        if let Some(before) = before {
            self.stores(settled, &before);
        }
    }
}

#[async_trait]
impl SettleStore for MemoryStore {
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        let rows: Vec<u64> = settled.iter().map(|settled| settled.fence.sequence).collect();
        let answer = self.run_on(&rows, "settle", |world| {
            let mut dropped = 0;
            for settled in settled {
                world.settles(self.life, settled);
                dropped += world.table.settle(std::slice::from_ref(settled));
            }
            dropped
        });
        let answer = answer.await;
        if answer.is_err() {
            self.world().refused(settled.iter().map(|settled| settled.fence));
        }
        answer
    }

    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        self.run("locked", |world| sequences.iter().copied().filter(|seq| world.is_locked(*seq)).collect()).await
    }
}

#[async_trait]
impl EffectStore for MemoryStore {
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
        let rows: Vec<u64> = settled.iter().map(|item| item.settled.fence.sequence).collect();
        let answer = self.run_on(&rows, "settle_with_effects", |world| {
            let (mut answers, mut emitted) = (Vec::new(), Vec::new());
            for item in settled {
                world.settles(self.life, item.settled);
                let (committed, envelopes) = world.table.settle_with_effects(std::slice::from_ref(item));
                answers.extend(committed);
                emitted.extend(envelopes.into_iter().cloned());
            }
            let nobodys = Ownership { owner: OwnerId::known("nobody"), lease: Duration::ZERO };
            let new: Vec<NewRow<'_>> = emitted.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
            let mut inserted = Vec::new();
            world.insert(&mut inserted, &new, &nobodys);
            world.commit(inserted);
            answers
        });
        let answer = answer.await;
        if answer.is_err() {
            self.world().refused_effects(settled.iter().map(|item| item.settled.fence));
        }
        answer
    }
}

#[async_trait]
impl KeyStore for MemoryStore {
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
        self.run("heads", |world| world.table.heads(events, waits_for)).await
    }

    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
        self.run("blockers", |world| world.table.blockers(partitions, after, limit)).await
    }

    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError> {
        self.run("unblock", |world| {
            let unblocked = world.table.unblock(blockers, waits_for, limit);
            if !unblocked.cleared.is_empty() || !unblocked.left.is_empty() {
                let line = format!("{} lets go from behind {blockers:?}: {unblocked:?}", world.name(self.life));
                world.note(line);
            }
            unblocked
        })
        .await
    }

    async fn blocked_keys(&self, _: u32) -> Result<Vec<BlockedKey>, StoreError> {
        unreachable!("only people ask which keys are blocked")
    }
}

#[async_trait]
impl PartitionStore for MemoryStore {
    async fn keep_partitions(
        &self,
        owner: &OwnerId,
        lease: Duration,
        most: u16,
        of: u16,
    ) -> Result<Vec<HeldPartition>, StoreError> {
        self.run("keep_partitions", |world| {
            let before = world.table.epochs.clone();
            let kept = world.table.keep_partitions(owner.as_str(), lease, most, of);
            let taken: Vec<&HeldPartition> =
                kept.iter().filter(|kept| before[usize::from(kept.number)] != kept.epoch).collect();
            let abandoned: Vec<u16> = taken.iter().filter(|taken| taken.abandoned).map(|taken| taken.number).collect();
            if !taken.is_empty() {
                let line = format!(
                    "{} takes {} partitions, {} of them abandoned",
                    world.name(self.life),
                    taken.len(),
                    abandoned.len()
                );
                world.note(line);
            }
            world.lost(|world, row| row.locked_by.is_none() && abandoned.contains(&world.table.partition(row)));
            kept
        })
        .await
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError> {
        self.run("release_partitions", |world| {
            let line = format!("{} gives back {} partitions", world.name(self.life), partitions.len());
            world.note(line);
            world.table.release_partitions(owner.as_str(), partitions);
        })
        .await
    }

    async fn hand_over(&self, owner: &OwnerId, lease: Duration, partitions: &[u16]) -> Result<bool, StoreError> {
        self.run("hand_over", |world| {
            let line = format!("{} hands {} partitions over", world.name(self.life), partitions.len());
            world.note(line);
            world.table.hand_over(owner.as_str(), lease, partitions).is_some()
        })
        .await
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        self.run("partition_faults", |_| PartitionFaults::default()).await
    }

    async fn mend_partitions(&self, _: &[u16], _: Duration) -> Result<(), StoreError> {
        unreachable!("nobody changes this table by hand")
    }
}

#[async_trait]
impl RouteStore for MemoryStore {
    async fn routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        self.run("routes", |world| {
            let now = world.table.now;
            let record = |(route, row): (Route, crate::looking::RouteRow)| {
                let mut record = RouteRecord::new(route);
                record.first_seen_at = row.remembered.then_some(now);
                record.paused_at = row.paused_by.is_some().then_some(now);
                (record.paused_by, record.pause_reason) = (row.paused_by, row.pause_reason);
                record
            };
            world.table.routes().into_iter().map(record).collect()
        })
        .await
    }

    async fn count_routes(&self) -> Result<Vec<RouteRecord>, StoreError> {
        unreachable!("only people ask how many events a route has")
    }

    async fn parked_route(&self, after: Option<&Route>) -> Result<Option<Route>, StoreError> {
        self.run("parked_route", |world| {
            let parked = world.table.rows.values().filter(|row| row.parked.is_some()).map(route);
            parked.filter(|route| after.is_none_or(|after| route > after)).min()
        })
        .await
    }

    async fn unpark(
        &self,
        owner: &OwnerId,
        routes: &[Route],
        partitions: Option<&[u16]>,
        limit: u32,
    ) -> Result<Vec<Fence>, StoreError> {
        self.run("unpark", |world| {
            let parked = world.table.parked(routes, partitions);
            let freed = &parked[..parked.len().min(limit as usize)];
            world.table.unpark(owner, routes, partitions, limit, freed).expect("the model takes what follows it");
            if !freed.is_empty() {
                let line = format!("{} unparks {freed:?}", world.name(self.life));
                world.note(line);
            }
            freed.iter().map(|seq| Fence::new(*seq, 0, world.table.rows[seq].claim_seq)).collect()
        })
        .await
    }

    async fn remember_routes(&self, routes: &[Route]) -> Result<(), StoreError> {
        self.run("remember_routes", |world| world.table.remembered.extend(routes.iter().cloned())).await
    }

    async fn pause(&self, _: &Route, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people pause a route")
    }

    async fn resume(&self, _: &Route, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people resume a route")
    }

    async fn forget_route(&self, _: &Route, _: &Audit) -> Result<bool, StoreError> {
        unreachable!("only people forget a route")
    }
}

#[async_trait]
impl NodeStore for MemoryStore {
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<LiveNodes, StoreError> {
        self.run("heartbeat", |world| world.table.heartbeat(node, lease)).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        self.run("leave", |world| {
            let line = format!("{} leaves", world.name(self.life));
            world.note(line);
            world.table.leave(owner.as_str());
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        self.run("nodes", |world| {
            let now = world.table.now;
            let nodes = world.table.nodes.iter().map(|(owner, row)| {
                let node = Node { session: row.session, ..Node::new(OwnerId::known(owner), owner, row.mode, "1.0.0") };
                let mut record = NodeRecord::new(&Node { reads: row.reads, ..node }, row.started_at);
                (record.alive_until, record.alive) = (row.alive_until, row.alive_until > now);
                record
            });
            nodes.collect()
        })
        .await
    }
}

#[async_trait]
impl SessionStore for MemoryStore {
    async fn hold_session(&self, owner: &OwnerId) -> Result<Option<Box<dyn Session>>, StoreError> {
        if !self.world().plan.sessions {
            return Ok(None);
        }
        let held = self.run("hold_session", |world| {
            if world.is_held(owner.as_str()) {
                return None;
            }
            let id = world.next_session;
            world.next_session += 1;
            world.sessions.insert(owner.as_str().to_owned(), Held { id, broken: false, until: None });
            let line = format!("{} has session {id}", world.name(self.life));
            world.note(line);
            // Dropped when its answer is lost, as its connection is.
            Some(MemorySession { store: self.clone(), owner: owner.as_str().to_owned(), id })
        });
        match held.await? {
            Some(session) => Ok(Some(Box::new(session))),
            None => {
                let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::WouldBlock));
                Err(StoreError::Locked { action: "take the lock of this host's session", source })
            }
        }
    }

    async fn free_sessions(&self, owner: &OwnerId) -> Result<Vec<String>, StoreError> {
        self.run("free_sessions", |world| {
            let others = world.table.free_sessions(owner.as_str());
            others.into_iter().filter(|other| !world.is_held(other)).collect()
        })
        .await
    }

    async fn abandon(&self, gone: &str) -> Result<bool, StoreError> {
        self.run("abandon", |world| {
            let is_ended = !world.is_held(gone) && world.table.abandon(gone);
            let whose = world.life_of(gone).map_or_else(|| gone.to_owned(), |life| world.name(life));
            let line = format!("{} ends the leases of {whose}: {is_ended}", world.name(self.life));
            world.note(line);
            is_ended
        })
        .await
    }
}

/// The session of a host. Its lock is free when the server notices that the connection is gone.
struct MemorySession {
    store: MemoryStore,
    owner: String,
    id: u64,
}

impl MemorySession {
    fn has_lock(&self, world: &World) -> bool {
        world.sessions.get(&self.owner).is_some_and(|held| held.id == self.id && !held.broken)
    }
}

#[async_trait]
impl Session for MemorySession {
    async fn prove(&mut self) -> Result<(), StoreError> {
        let proven = self.store.run("prove", |world| self.has_lock(world));
        match tokio::time::timeout(ANSWER, proven).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(StoreError::SessionLost { why: "its connection broke".to_owned() }),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.store.world().failed(self.store.life);
                let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
                Err(StoreError::Disconnected { action: "ask for the lock of this host's session", source })
            }
        }
    }

    async fn end(self: Box<Self>) {
        let mut world = self.store.world();
        if world.sessions.get(&self.owner).is_some_and(|held| held.id == self.id) {
            world.sessions.remove(&self.owner);
        }
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        let mut world = self.store.world();
        world.break_session(&self.owner, Some(self.id));
    }
}

#[async_trait]
impl NotifyStore for MemoryStore {
    async fn notify(&self) -> Result<(), StoreError> {
        self.run("notify", |world| {
            let is_there = world.plan.notifies;
            // Nobody has to listen.
            let _ = is_there.then(|| world.wake_ups.send(()));
        })
        .await
    }

    async fn listen(&self) -> Result<Option<Box<dyn WakeUps>>, StoreError> {
        if !self.world().plan.notifies {
            return Ok(None);
        }
        let hints = self.run("listen", |world| {
            let breaks_in = (!world.is_healed() && !world.plan.is_quiet()).then(|| world.chance.millis(1_000..60_000));
            (world.wake_ups.subscribe(), breaks_in)
        });
        let (hints, breaks_in) = hints.await?;
        let breaks_at = breaks_in.map(|breaks_in| Instant::now() + breaks_in);
        Ok(Some(Box::new(Hints { store: self.clone(), hints, breaks_at })))
    }
}

struct Hints {
    store: MemoryStore,
    hints: broadcast::Receiver<()>,
    breaks_at: Option<Instant>,
}

#[async_trait]
impl WakeUps for Hints {
    async fn next(&mut self) -> Result<(), StoreError> {
        let breaks = async {
            match self.breaks_at {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        let is_broken = tokio::select! {
            _ = self.hints.recv() => false,
            () = breaks => true,
        };
        if self.store.is_killed() {
            pending::<()>().await;
        }
        if is_broken {
            let source = sqlx::Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            return Err(StoreError::Disconnected { action: "listen", source });
        }
        Ok(())
    }
}
