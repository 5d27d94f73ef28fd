//! What all hosts of a run share: the tables, the database's clock, who holds which lock, and what has happened.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use outbox::event::Fence;
use outbox::store::{PARTITIONS, Record};
use outbox::time::{Timestamp, system_clock};
use outbox::{Envelope, EventId, Mode, Route};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::again;
use crate::calls::Calls;
use crate::chance::Chance;
use crate::plan::{Faults, Plan, Relays};
use crate::table::{Table, is_unfinished};

/// The world, as each host and each writer holds it.
pub(crate) type Shared = Arc<Mutex<World>>;

/// No two things happen at the same time for the database.
const TICK: Duration = Duration::from_micros(1);
/// Most lines that are kept.
const LINES: usize = 20_000;

/// A host from its start until it is gone.
#[derive(Debug)]
pub(crate) struct Life {
    /// Which of the hosts: those of a place come one after the other.
    pub(crate) place: usize,
    /// What stands in the table; known once it has started.
    pub(crate) owner: Option<String>,
    /// Whether it was killed: nothing of it happens any more.
    pub(crate) killed: bool,
    /// Whether it was told to stop: what it has read then is free for the next, with or without an outcome.
    pub(crate) stops: bool,
    /// When the database last failed it, or was slow.
    pub(crate) failed_at: Option<Instant>,
    /// Whether it has no listener for the last route.
    pub(crate) lacks_route: bool,
}

/// A session that has an owner's lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) id: u64,
    /// Whether its connection is gone.
    pub(crate) broken: bool,
    /// When the server notices that.
    pub(crate) until: Option<Instant>,
}

/// A part of a statement that the database may refuse for some rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Outcome,
    Claim,
    Renewal,
    /// No change: the payload is returned.
    Payload,
    /// The row is deleted.
    Purge,
}

/// The rows for which the database refuses such a part: the first rows of the first such statements.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// How many there are at most.
    most: usize,
    rows: Vec<u64>,
}

impl Refusals {
    /// Whether one of these rows is refused.
    fn concern(&mut self, rows: &[u64]) -> bool {
        let is_chosen = rows.iter().any(|row| self.rows.contains(row));
        if !is_chosen && self.rows.len() < self.most {
            self.rows.extend(rows.first());
            return !rows.is_empty();
        }
        is_chosen
    }
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) table: Table,
    pub(crate) chance: Chance,
    /// Whether faults are over. Whatever takes long ends with them.
    pub(crate) healed: watch::Sender<bool>,
    pub(crate) lives: Vec<Life>,
    /// Rows that somebody else has locked, and until when.
    pub(crate) locked: BTreeMap<u64, Instant>,
    /// By kind of change.
    pub(crate) refusals: [Refusals; 5],
    /// The session that holds each owner's lock.
    pub(crate) sessions: HashMap<String, Held>,
    pub(crate) next_session: u64,
    pub(crate) next_seq: u64,
    /// Every event that was ever inserted, committed or not.
    pub(crate) envelopes: HashMap<EventId, Envelope>,
    /// At which of the database's moments each row was committed, and from when on it can be seen by the database's clock.
    pub(crate) seen_since: BTreeMap<u64, (u64, Timestamp)>,
    /// The rows that hosts have deleted, as they were.
    pub(crate) purged: BTreeMap<u64, Record>,
    /// The number of moments of the database. It grows even if the clock is set backwards.
    pub(crate) moment: u64,
    /// How often the database's clock was set.
    clock_steps: usize,
    /// The times after that: leases end early, or events written before wait longer.
    unsettled: Vec<(Instant, Instant)>,
    pub(crate) calls: Calls,
    /// The routes that only relays have answered: the column `only_relayed`.
    pub(crate) only_relayed: BTreeSet<Route>,
    /// Since when the table knows that the last route has a listener.
    pub(crate) had_listener_since: Option<Instant>,
    pub(crate) wake_ups: broadcast::Sender<()>,
    /// How often each host asked for what, since somebody began to count.
    pub(crate) asked: BTreeMap<(usize, &'static str), u32>,
    /// The first thing that must not be.
    pub(crate) violation: Option<String>,
    history: Vec<String>,
    /// A sum over the whole history, to see whether two runs were the same.
    pub(crate) sum: u64,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Shared {
        let now = Timestamp::from_micros(i64::try_from(again::BEGINNING * 1_000_000).expect("not so far away"));
        let keys = (0..plan.aggregates).map(|number| (number.to_string(), partition_of(plan.seed, &number.to_string())));
        let table = Table::new(now, 0, keys.collect());
        let chance = Chance::of(plan.seed, 2);
        let (wake_ups, _) = broadcast::channel(16);
        let Faults { refused, unclaimable, unrenewable, damaged, undeletable, .. } = plan.faults;
        let refusals =
            [refused, unclaimable, unrenewable, damaged, undeletable].map(|most| Refusals { most, rows: Vec::new() });
        Arc::new(Mutex::new(Self {
            plan,
            table,
            chance,
            healed: watch::Sender::new(false),
            lives: Vec::new(),
            locked: BTreeMap::new(),
            refusals,
            sessions: HashMap::new(),
            next_session: 1,
            next_seq: 1,
            envelopes: HashMap::new(),
            seen_since: BTreeMap::new(),
            purged: BTreeMap::new(),
            moment: 0,
            clock_steps: 0,
            unsettled: Vec::new(),
            calls: Calls::default(),
            only_relayed: BTreeSet::new(),
            had_listener_since: None,
            wake_ups,
            asked: BTreeMap::new(),
            violation: None,
            history: Vec::new(),
            sum: 0,
        }))
    }

    pub(crate) fn is_healed(&self) -> bool {
        *self.healed.borrow()
    }

    pub(crate) fn is_asked(&mut self, life: usize, name: &'static str) {
        *self.asked.entry((life, name)).or_default() += 1;
    }

    /// Moves the database's clock to the present; later at every call, unless it was set.
    pub(crate) fn tick(&mut self) -> Timestamp {
        let (elapsed, clock) = (again::elapsed(), self.plan.database_clock);
        let beginning = i64::try_from(again::BEGINNING * 1_000_000).expect("not so far away");
        let now = Timestamp::from_micros(beginning + clock.reading(elapsed));
        let time_of_day = Timestamp::from_micros(beginning + self.plan.time_of_day.reading(elapsed));
        let shown = system_clock().now();
        if shown != time_of_day {
            self.violated(format!("the hosts' clock shows {shown}, and the time of day is {time_of_day}"));
        }
        let steps = clock.steps_until(elapsed).count();
        self.table.now = if steps > self.clock_steps { now } else { self.table.now.plus(TICK).max(now) };
        self.moment += 1;
        if steps > self.clock_steps {
            self.clock_steps = steps;
            self.clock_was_set();
        }
        self.table.now
    }

    /// The database's clock was set. Forwards, every lease may have ended, and no host knows; backwards, events written before are not
    /// there for some time, and may be overtaken. What hosts do by what they knew ends within two leases of that time.
    fn clock_was_set(&mut self) {
        let now = Instant::now();
        let wrong_for = 2 * self.plan.database_clock.error(again::elapsed());
        self.unsettled.push((now, now + wrong_for + 2 * self.plan.lease));
        for life in 0..self.lives.len() {
            self.failed(life);
        }
        self.calls.lose_all();
        let line = format!("the database's clock was set, to {}", self.table.now);
        self.note(line);
    }

    /// Whether a host may have been wrong about its leases at this time, because the database's clock was set.
    pub(crate) fn is_unsettled(&self, at: Instant) -> bool {
        self.unsettled.iter().any(|(from, to)| (*from..*to).contains(&at))
    }

    /// By how much two clocks of this run may differ, or have differed before.
    pub(crate) fn clock_error(&self) -> Duration {
        let elapsed = again::elapsed();
        self.plan.database_clock.error(elapsed) + self.plan.time_of_day.error(elapsed)
    }

    /// Whether somebody else has locked a row.
    pub(crate) fn is_locked(&self, seq: u64) -> bool {
        self.locked.get(&seq).is_some_and(|until| *until > Instant::now())
    }

    /// When none of these rows is locked any more, unless others are by then; `None` when none is.
    pub(crate) fn locked_until(&self, rows: &[u64]) -> Option<Instant> {
        rows.iter().filter(|seq| self.is_locked(**seq)).filter_map(|seq| self.locked.get(seq)).max().copied()
    }

    /// Does something that steps over locked rows, as `SKIP LOCKED` does: for that long they look as if somebody had claimed them.
    pub(crate) fn past_locked<T>(&mut self, does: impl FnOnce(&mut Self) -> T) -> T {
        let far = self.table.now.plus(Duration::from_secs(1_000_000));
        let locked: Vec<u64> = self.locked.keys().copied().filter(|seq| self.is_locked(*seq)).collect();
        let mut before = Vec::new();
        for seq in locked {
            if let Some(row) = self.table.rows.get_mut(&seq) {
                before.push((seq, row.lease_end.replace(far)));
            }
        }
        let done = does(self);
        for (seq, lease_end) in before {
            if let Some(row) = self.table.rows.get_mut(&seq) {
                row.lease_end = lease_end;
            }
        }
        done
    }

    /// Makes rows visible.
    pub(crate) fn commit(&mut self, rows: Vec<Record>) {
        let now = self.tick();
        for row in &rows {
            if row.aggregate_id.is_none() {
                self.table.learn(row.event_id, partition_of(self.plan.seed, row.event_id.as_str()));
            }
            self.seen_since.insert(row.seq, (self.moment, row.available_at));
            let key = row.aggregate_id.as_deref().unwrap_or("-");
            let delay = row.available_at.since(now);
            let line = format!("committed {} {} key {key} claim {:?} delay {delay:?}", row.seq, row.event_id, row.locked_by);
            self.note(line);
        }
        self.table.commit(rows);
    }

    /// Breaks the connection of an owner's session, if it is this one still. The server notices soon.
    pub(crate) fn break_session(&mut self, owner: &str, id: Option<u64>) {
        let notices = Instant::now() + self.chance.millis(0..4_000);
        if let Some(held) = self.sessions.get_mut(owner).filter(|held| !held.broken && id.is_none_or(|id| id == held.id)) {
            (held.broken, held.until) = (true, Some(notices));
        }
    }

    /// Writes a line into the history.
    pub(crate) fn note(&mut self, line: impl AsRef<str>) {
        let mut whole = String::new();
        let _ = write!(whole, "{:>11.6} {}", again::elapsed().as_secs_f64(), line.as_ref());
        for byte in whole.bytes() {
            self.sum = (self.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.history.len() < LINES {
            self.history.push(whole);
        }
    }

    /// Notes that something has happened that must not. The first one counts.
    pub(crate) fn violated(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.note(format!("!!! {what}"));
        self.violation.get_or_insert(what);
    }

    pub(crate) fn history(&self) -> &[String] {
        &self.history
    }

    /// Who a life is in the history.
    pub(crate) fn name(&self, life: usize) -> String {
        format!("host{}.{life}", self.lives[life].place)
    }

    /// The life that has this owner.
    pub(crate) fn life_of(&self, owner: &str) -> Option<usize> {
        self.lives.iter().position(|life| life.owner.as_deref() == Some(owner))
    }

    /// Whether the database refuses this for these rows, because of one of them.
    pub(crate) fn refuses(&mut self, change: Change, rows: &[u64]) -> bool {
        // The host also tries the statement on no row, to learn whether rows are the reason.
        if self.is_healed() || !rows.iter().any(|row| self.table.rows.contains_key(row)) {
            return false;
        }
        self.refusals[change as usize].concern(rows)
    }

    /// The rows for which the database refuses this, as far as they are chosen.
    pub(crate) fn refused_rows(&self, change: Change) -> &[u64] {
        &self.refusals[change as usize].rows
    }

    /// Finds an event that has been due for long, though nothing is wrong but the outcomes of others, one host, and the listener of one
    /// host, and calls are short.
    pub(crate) fn check_progress(&mut self) {
        const LONG: Duration = Duration::from_secs(60);
        const SHORT: Duration = Duration::from_secs(1);
        let Plan { mode, deadline, ref listeners, ref faults, .. } = self.plan;
        // Where order is kept, events wait behind one whose outcome, claim or payload is refused, or that waits for a deploy.
        let keeps_order = matches!(mode, Mode::Ordered | Mode::OrderedByAggregate);
        let lacks_route = self.lives.iter().any(|life| life.lacks_route);
        let waits_behind = keeps_order && (faults.refused + faults.unclaimable + faults.damaged > 0 || lacks_route);
        let breaks_at = listeners.breaks.map(|breaks| breaks.host);
        // A host stands aside only for one with the same listeners. A relay's name and its pattern differ.
        let listeners_differ = lacks_route || self.plan.relays == Relays::Everywhere;
        let nobody_helps = (faults.sick.is_some() || breaks_at.is_some()) && listeners_differ;
        // Calls that are cut off by their deadline keep the workers of a host.
        let is_long = listeners.longest > SHORT || (listeners.troubled > 0 && deadline > SHORT);
        if waits_behind || nobody_helps || !self.plan.has_only_mild_faults() || breaks_at == Some(None) || is_long {
            return;
        }
        let before = self.table.now.minus(LONG);
        let refused = [Change::Outcome, Change::Claim, Change::Payload].map(|change| self.refused_rows(change));
        let is_refused = |seq: &u64| refused.iter().any(|rows| rows.contains(seq));
        let is_late =
            |row: &&Record| is_unfinished(row) && !is_refused(&row.seq) && row.due_at.is_some_and(|due| due <= before);
        if let Some(row) = self.table.rows.values().find(is_late) {
            let sick = self.plan.faults.sick;
            let fault = format!(
                "{} has been due for {LONG:?}, though only outcomes, claims and payloads of {refused:?} are refused, the only sick host is \
                 {sick:?}, and a listener breaks only at host {:?}",
                row.seq,
                breaks_at.flatten()
            );
            self.violated(fault);
        }
    }

    /// Notes that the database failed a host, or was slow.
    pub(crate) fn failed(&mut self, life: usize) {
        self.lives[life].failed_at = Some(Instant::now());
    }

    /// The partition of a row, and its epoch.
    pub(crate) fn place_of(&self, row: &Record) -> (u16, u32) {
        (self.table.partition(row), self.table.epoch(row))
    }
}

pub(crate) fn lock(world: &Shared) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Any function will do; a few partitions have all keys, so that hosts meet.
fn partition_of(seed: u64, key: &str) -> u16 {
    let mixed = key.bytes().fold(seed, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    u16::try_from(Chance::of(mixed, 3).next() % u64::from(PARTITIONS)).expect("a partition")
}

/// A fence as the history shows it: row, epoch, claim.
pub(crate) fn shown(fence: Fence) -> String {
    format!("{}@{}.{}", fence.sequence, fence.claim >> 32, fence.claim & 0xffff_ffff)
}
