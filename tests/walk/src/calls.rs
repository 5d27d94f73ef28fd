//! Every call of a listener, held against the tables: whether it may begin, and whether what is stored is what it answered.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use outbox::event::Fence;
use outbox::store::{Record, Settled, Settlement};
use outbox::time::Timestamp;
use outbox::{Event, Mode, Status};
use tokio::time::Instant;

use crate::again;
use crate::plan::{Breaks, Plan, Relays};
use crate::table::is_unfinished;
use crate::world::{World, shown};

/// How often an event may stop its host before it is dead: the host's own number.
const MAX_STARTS: u32 = 5;
/// The part of a fence that is the row's own.
const LOWER: u64 = 0xffff_ffff;
/// More often than this within this time no event is parked, set aside or given back without a call: whoever does that goes
/// round in circles.
const PUT_BACK: (usize, Duration) = (20, Duration::from_secs(2));
/// How long a host takes at most to learn that a route has a listener, if nothing fails.
const LEARNED_WITHIN: Duration = Duration::from_secs(12);

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) life: usize,
    pub(crate) fence: Fence,
    began_at: Instant,
    pub(crate) end: Option<End>,
    /// Whether an outcome was stored under its fence.
    pub(crate) stored: bool,
    /// Whether its host has lost the event since it began: another host may have it, or the same one again.
    lost: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered(Answer),
    /// The host let go of it.
    CutOff {
        deadline_over: bool,
    },
    /// Its host was killed.
    Died,
}

/// What a listener answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Failed,
    Panicked,
    Deferred,
    Dead,
}

/// When the database showed a row.
#[derive(Clone, Copy, Debug)]
struct Shown {
    at: Instant,
    /// Which of the database's moments it was, and when by its clock.
    moment: u64,
    now: Timestamp,
    /// Since when the row was due.
    due_at: Timestamp,
}

#[derive(Default)]
pub(crate) struct Calls {
    pub(crate) all: Vec<Call>,
    by_fence: HashMap<Fence, usize>,
    of_row: HashMap<u64, Vec<usize>>,
    /// When the database last showed a row to a host under a fence.
    shown: HashMap<(usize, Fence), Shown>,
    /// Fences whose outcomes were refused, or whose answers were lost.
    refused: HashSet<Fence>,
    /// Those of them whose listener had done something beside.
    refused_effects: HashSet<Fence>,
    /// How many failures were stored that count.
    pub(crate) counted: HashMap<u64, u32>,
    /// How many calls each life has begun of the route whose listener breaks, while it did.
    while_broken: HashMap<usize, u32>,
    /// When each row was last put back without a call.
    put_back: HashMap<u64, VecDeque<Instant>>,
}

impl Calls {
    /// How many calls of the same event came before this one.
    pub(crate) fn nth(&self, number: usize) -> u64 {
        self.of_row.get(&self.all[number].fence.sequence).map_or(0, |calls| calls.len() as u64 - 1)
    }

    /// Each host may have lost every event that has a call without an outcome.
    pub(crate) fn lose_all(&mut self) {
        self.all.iter_mut().filter(|call| !call.stored).for_each(|call| call.lost = true);
    }

    /// How many calls came after another of the same event that has no outcome.
    pub(crate) fn repeats(&self) -> usize {
        let without = |calls: &Vec<usize>| calls.iter().rev().skip(1).filter(|number| !self.all[**number].stored).count();
        self.of_row.values().map(without).sum()
    }
}

impl World {
    /// Notes that a host was given an event.
    pub(crate) fn showed(&mut self, life: usize, fence: Fence) {
        let now = self.table.now;
        let due_at = self.table.rows.get(&fence.sequence).and_then(|row| row.due_at).unwrap_or(now);
        self.calls.shown.insert((life, fence), Shown { at: Instant::now(), moment: self.moment, now, due_at });
    }

    /// Notes that outcomes were not stored, or that nobody was told.
    pub(crate) fn refused(&mut self, fences: impl Iterator<Item = Fence>) {
        self.calls.refused.extend(fences);
    }

    /// The same for outcomes with effects. What the database does not take of these is no answer any more: the listener failed,
    /// or is asked again.
    pub(crate) fn refused_effects(&mut self, fences: impl Iterator<Item = Fence>) {
        let fences: Vec<Fence> = fences.collect();
        self.calls.refused.extend(fences.iter().copied());
        self.calls.refused_effects.extend(fences);
    }

    /// A listener is called. Returns the number of the call.
    pub(crate) fn call_begins(&mut self, life: usize, event: &Event) -> usize {
        let now = self.tick();
        let fence = Fence { sequence: event.sequence(), claim: event.fence() };
        let name = self.name(life);
        self.note(format!("{name} calls for {} attempt {}", shown(fence), event.attempt()));
        for fault in self.faults_of_call(life, event, fence, now) {
            self.violated(format!("{name}, call for {}: {fault}", shown(fence)));
        }
        let number = self.calls.all.len();
        let began_at = Instant::now();
        let lost = self.may_be_lost(life, fence, began_at);
        self.calls.all.push(Call { life, fence, began_at, end: None, stored: false, lost });
        self.calls.by_fence.insert(fence, number);
        self.calls.of_row.entry(fence.sequence).or_default().push(number);
        number
    }

    fn faults_of_call(&self, life: usize, event: &Event, fence: Fence, now: Timestamp) -> Vec<String> {
        let mut faults = Vec::new();
        // A row that was purged is finished.
        let row = self.table.rows.get(&fence.sequence).or_else(|| self.purged.get(&fence.sequence));
        let Some(row) = row.filter(|row| row.event_id == event.id()) else {
            return vec![format!("{} is not committed", event.id())];
        };
        if self.may_be_lost(life, fence, Instant::now()) {
            return faults;
        }
        if !is_unfinished(row) {
            faults.push(format!("the event is {:?} already", row.status));
        } else if let Some(fault) = self.not_owned(life, row, fence, now) {
            faults.push(fault);
        }
        if event.attempt() != row.attempts + 1 {
            faults.push(format!("it is attempt {}, after {} counted failures", event.attempt(), row.attempts));
        }
        let before = self.calls.of_row.get(&fence.sequence).into_iter().flatten().map(|number| &self.calls.all[*number]);
        for before in before {
            if before.fence.claim >= fence.claim {
                faults.push(format!("its number is not larger than that of the call for {}", shown(before.fence)));
            }
            if let Some(fault) = self.not_explained(life, before) {
                faults.push(format!("the call for {} by {} {fault}", shown(before.fence), self.name(before.life)));
            }
        }
        faults.extend(self.out_of_order(life, row, fence));
        faults
    }

    /// Whether the host could not know, at the begin of a call, if it had the event still, or which events were before it: the database's
    /// clock had been set a short while ago.
    fn may_be_lost(&self, life: usize, fence: Fence, began_at: Instant) -> bool {
        let shown_at = self.calls.shown.get(&(life, fence)).map(|shown| shown.at);
        self.is_unsettled(began_at) || shown_at.is_some_and(|at| self.is_unsettled(at))
    }

    /// Why the host does not own the event by the database's clock.
    fn not_owned(&self, life: usize, row: &Record, fence: Fence, now: Timestamp) -> Option<String> {
        let owner = self.lives[life].owner.as_deref().unwrap_or_default();
        let (partition, epoch) = self.place_of(row);
        let is_claimed = row.locked_by.as_deref() == Some(owner) && row.lease_end > Some(now);
        let was_read = row.locked_by.is_none() && fence.claim >> 32 == u64::from(epoch) && self.table.holds(owner, partition);
        if row.claim_seq & LOWER == fence.claim & LOWER && (is_claimed || was_read) {
            return None;
        }
        let holder = &self.table.partitions[usize::from(partition)];
        Some(format!(
            "the host does not own it: the row is at {epoch}.{}, claimed by {:?} until {:?}; partition {partition} is held by \
             {holder:?}; it is {now}",
            row.claim_seq, row.locked_by, row.lease_end
        ))
    }

    /// Why an earlier call of the same event forbids another.
    fn not_explained(&self, life: usize, before: &Call) -> Option<String> {
        if before.stored {
            return None;
        }
        let failed_lately = self.lives[before.life].failed_at.is_some_and(|at| at + 12 * self.plan.lease >= before.began_at);
        match before.end {
            None if before.life == life => Some("is still at work there".to_owned()),
            None if self.keeps_order() => Some("is still at work".to_owned()),
            _ if before.lost => None,
            Some(End::Answered(_)) if self.calls.refused.contains(&before.fence) => None,
            // What a stop does not end in time is free for the next: nothing was begun, or the database kept its outcome waiting.
            Some(End::CutOff { .. }) if failed_lately || self.lives[before.life].stops => None,
            Some(End::Answered(_)) if failed_lately && self.lives[before.life].stops => None,
            ref end => Some(format!("({end:?}) has no outcome, and no fault explains that")),
        }
    }

    fn keeps_order(&self) -> bool {
        matches!(self.plan.mode, Mode::Ordered | Mode::OrderedByAggregate)
    }

    /// Earlier events of its queue that it should have waited for, and calls of its queue that are at work.
    fn out_of_order(&self, life: usize, row: &Record, fence: Fence) -> Vec<String> {
        let mut faults = Vec::new();
        let in_its_queue = |other: &Record| match self.plan.mode {
            Mode::Ordered => true,
            Mode::OrderedByAggregate => {
                let key = |row: &Record| (row.aggregate_type.clone(), row.aggregate_id.clone());
                row.aggregate_id.is_some() && key(other) == key(row)
            }
            _ => false,
        };
        if !self.keeps_order() {
            return faults;
        }
        let Some(showing) = self.calls.shown.get(&(life, fence)).copied() else {
            return vec!["the database never showed it to this host so".to_owned()];
        };
        let overtakes_failed = self.plan.mode == Mode::OrderedByAggregate && !self.plan.order.stop_on_first_failure;
        for (seq, earlier) in self.table.rows.range(..row.seq).filter(|(_, earlier)| in_its_queue(earlier)) {
            let is_in_the_way = match earlier.status {
                Status::New => true,
                Status::Retry => !overtakes_failed,
                Status::Dead => earlier.blocks,
                Status::Done => false,
            };
            let is_visible =
                |(moment, available_at): &(u64, Timestamp)| *moment <= showing.moment && *available_at <= showing.now;
            let was_seen = self.seen_since.get(seq).is_some_and(is_visible);
            // One that its writer put off takes its place when its time comes: what was due before that may go first.
            let comes_late = self.plan.mode == Mode::OrderedByAggregate && earlier.available_at > earlier.created_at;
            if is_in_the_way && was_seen && !(comes_late && showing.due_at < earlier.available_at) {
                faults.push(format!("the earlier event {seq} is {:?}", earlier.status));
            }
        }
        for other in self.calls.all.iter().filter(|call| call.end.is_none() && call.fence.sequence != row.seq) {
            let is_in_its_queue = self.table.rows.get(&other.fence.sequence).is_some_and(in_its_queue);
            if is_in_its_queue && !self.may_be_lost(other.life, other.fence, other.began_at) {
                faults.push(format!("the call for {} is at work in its queue", shown(other.fence)));
            }
        }
        faults
    }

    /// A call of the first route begins. While its listener breaks with every call, its breaker lets few of them through: those
    /// that open it, those that had begun by then, and one after each pause.
    pub(crate) fn calls_while_broken(&mut self, life: usize) {
        let (host, now) = (self.lives[life].place, again::elapsed());
        let Some(Breaks { from, to, .. }) = self.plan.listeners.breaks.filter(|breaks| breaks.concern(host, now)) else {
            return;
        };
        let calls = self.calls.while_broken.entry(life).or_default();
        *calls += 1;
        let Plan { breaker_threshold, breaker_pause, workers, .. } = self.plan;
        let trials = (to - from).as_secs() / breaker_pause.as_secs() + 2;
        let most = u64::from(2 * breaker_threshold) + workers as u64 + trials;
        if u64::from(*calls) > most {
            let fault = format!("{} calls of a listener that breaks each time, though a breaker lets {most} through", *calls);
            self.violated(fault);
        }
    }

    /// A relay is called. Its pattern takes no events of a route that has a listener on another host, once its host knows.
    pub(crate) fn relay_is_called(&mut self, life: usize) {
        let is_known = self.had_listener_since.is_some_and(|since| since.elapsed() > LEARNED_WITHIN);
        if is_known && self.plan.relays == Relays::WithoutListener && self.plan.is_quiet() {
            let fault =
                format!("{} relays an event of a route that has had a listener for {LEARNED_WITHIN:?}", self.name(life));
            self.violated(fault);
        }
    }

    /// A call ends.
    pub(crate) fn call_ends(&mut self, number: usize, end: End) {
        let call = &mut self.calls.all[number];
        if call.end.is_none() {
            call.end = Some(end);
            let (life, fence) = (call.life, call.fence);
            let line = format!("{} ended the call for {}: {end:?}", self.name(life), shown(fence));
            self.note(line);
        }
    }

    /// All calls of a host end with it.
    pub(crate) fn life_ends(&mut self, life: usize) {
        let at_work = self.calls.all.iter().enumerate().filter(|(_, call)| call.life == life && call.end.is_none());
        let at_work: Vec<usize> = at_work.map(|(number, _)| number).collect();
        for number in at_work {
            self.call_ends(number, End::Died);
        }
    }

    /// Whoever had these rows may have lost them.
    pub(crate) fn lost(&mut self, is_lost: impl Fn(&Self, &Record) -> bool) {
        let rows: Vec<u64> = self.table.rows.values().filter(|row| is_lost(self, row)).map(|row| row.seq).collect();
        for number in rows.iter().filter_map(|seq| self.calls.of_row.get(seq)).flatten() {
            self.calls.all[*number].lost = true;
        }
    }

    /// A row is put back without a call.
    fn put_back(&mut self, seq: u64) {
        let (most, within) = PUT_BACK;
        let times = self.calls.put_back.entry(seq).or_default();
        times.push_back(Instant::now());
        if times.len() > most {
            let first = times.pop_front().expect("there are some");
            if first.elapsed() < within {
                self.violated(format!("row {seq} was put back {most} times and more in {:?}, without a call", first.elapsed()));
            }
        }
    }

    /// An outcome is stored for a row as it was before.
    pub(crate) fn stores(&mut self, settled: &Settled, before: &Record) {
        let fence = settled.fence;
        let number = self.calls.by_fence.get(&fence).copied();
        let end = number.map(|number| self.calls.all[number].end);
        let not_taken = self.calls.refused_effects.contains(&fence);
        // Each host judges by its own clocks whether an event has expired since it was read.
        let latest = self.table.now.plus(self.clock_error());
        if let Some(fault) = unlike_the_answer(&self.plan, settled, before, (end, not_taken), latest) {
            self.violated(format!("the outcome {:?} of {} is not what came of it: {fault}", settled.settlement, shown(fence)));
        }
        match number {
            Some(number) => self.calls.all[number].stored = true,
            None if is_put_back(&settled.settlement) => self.put_back(fence.sequence),
            None => {}
        }
        if matches!(settled.settlement, Settlement::Retry { .. } | Settlement::Dead { counted: true, .. }) {
            *self.calls.counted.entry(fence.sequence).or_default() += 1;
        }
    }
}

fn is_put_back(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Parked { .. } | Settlement::Behind { .. } | Settlement::Released { .. })
}

/// Why this is not the outcome of a call that ended so: `None` for no call, `Some(None)` for one that goes on; and whether the
/// database did not take what it had done beside.
fn unlike_the_answer(
    plan: &Plan,
    settled: &Settled,
    before: &Record,
    (end, not_taken): (Option<Option<End>>, bool),
    now: Timestamp,
) -> Option<String> {
    use Answer::{Dead, Deferred, Done, Failed, Panicked};
    let not_taken = not_taken && end == Some(Some(End::Answered(Done)));
    let failed = not_taken || matches!(end, Some(Some(End::Answered(Failed | Panicked) | End::CutOff { deadline_over: true })));
    let max_attempts = if plan.mode == Mode::Ordered { 1 } else { plan.max_attempts };
    let is_last = before.attempts + 1 >= max_attempts;
    let is_right = match &settled.settlement {
        Settlement::Done | Settlement::Erased => end == Some(Some(End::Answered(Done))),
        Settlement::Retry { .. } => failed && !is_last,
        Settlement::Deferred { .. } => end == Some(Some(End::Answered(Deferred))) && before.deferrals < plan.max_deferrals,
        Settlement::Dead { counted: true, .. } => failed && is_last,
        Settlement::Dead { .. } => match end {
            Some(Some(End::Answered(Dead))) => true,
            Some(Some(End::Answered(Deferred))) => before.deferrals >= plan.max_deferrals,
            None => before.starts >= MAX_STARTS || before.expires_at.is_some_and(|expires_at| expires_at <= now),
            _ => false,
        },
        Settlement::Parked { .. } | Settlement::Behind { .. } => end.is_none(),
        Settlement::Released { .. } => not_taken || matches!(end, None | Some(Some(End::CutOff { .. }))),
    };
    (!is_right).then(|| format!("the call: {end:?}; {} failures before, {} deferrals", before.attempts, before.deferrals))
}
