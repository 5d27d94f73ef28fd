//! How traces come about: which steps, how often, with what.
//!
//! The numbers are drawn here rather than by a crate, so that a seed means the same trace whatever is upgraded.

use outbox::Status;
use outbox::store::{ReadOrder, WaitsFor};

use super::parts::{
    AGES, DeadChoice, End, EventChoice, FenceChoice, Hours, KeyWork, LOOKS, NewEvent, Outcome, Partitions, ReadChoice,
    SessionAct, StateWork, ValueWrite, WithEffects, Writer,
};
use super::plots::plot;
use super::step::Step;

/// Longest trace, in steps, but for the last plot.
const LONGEST: usize = 40;
/// How many of each kind of thing there are to choose from by place.
const PLACES: usize = 12;

/// The trace of a seed, mostly of steps that a host does all day and of plots of several; one in three of a host whose plugins do
/// much beside.
pub(super) fn trace(seed: u64) -> Vec<Step> {
    let mut chance = Chance(seed);
    let length = 1 + chance.below(LONGEST);
    let has_plots = chance.percent(67);
    let mut steps = Vec::with_capacity(length);
    while steps.len() < length {
        match has_plots {
            true if chance.percent(12) => steps.extend(plot(&mut chance)),
            true => steps.push(step(&mut chance)),
            false => steps.push(step_with_effects(&mut chance)),
        }
    }
    steps
}

/// Numbers that look random and follow from the seed: SplitMix64.
pub(super) struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("it is below a usize")
    }

    /// True this many times in a hundred.
    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of some things, all as likely.
    pub(super) fn one<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }

    /// One of some things, each as often as its weight says.
    pub(super) fn weighted<T: Copy>(&mut self, things: &[(usize, T)]) -> T {
        let mut place = self.below(things.iter().map(|(weight, _)| weight).sum());
        for (weight, thing) in things {
            if place < *weight {
                return *thing;
            }
            place -= weight;
        }
        unreachable!("the place is below the sum of all weights")
    }

    /// Between `least` and `most` things.
    pub(super) fn many<T>(&mut self, least: usize, most: usize, mut thing: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = least + self.below(most - least + 1);
        (0..count).map(|_| thing(self)).collect()
    }

    /// Something this many times in a hundred.
    pub(super) fn maybe<T>(&mut self, percent: usize, thing: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(percent).then(|| thing(self))
    }

    fn place(&mut self) -> usize {
        self.below(PLACES)
    }

    pub(super) fn owner(&mut self) -> usize {
        self.below(3)
    }

    /// Zero: over already.
    fn lease(&mut self) -> Hours {
        self.weighted(&[(1, 0), (2, 1), (2, 4)])
    }

    fn limit(&mut self) -> u32 {
        self.weighted(&[(9, 1_000), (2, 0), (2, 1), (2, 2)])
    }

    fn route(&mut self) -> (usize, usize) {
        (self.below(2), self.below(2))
    }

    fn routes(&mut self) -> Vec<(usize, usize)> {
        self.many(0, 3, Self::route)
    }

    pub(super) fn partitions(&mut self) -> Partitions {
        self.weighted(&[(5, Partitions::All), (1, Partitions::Lower), (1, Partitions::Upper), (1, Partitions::None)])
    }

    pub(super) fn waits_for(&mut self) -> WaitsFor {
        self.weighted(&[(3, WaitsFor::Unresolved), (1, WaitsFor::Untried), (1, WaitsFor::Nothing)])
    }

    fn end(&mut self) -> End {
        self.weighted(&[(4, End::Commit), (1, End::RollBack), (1, End::Drop)])
    }

    fn fence(&mut self) -> FenceChoice {
        match self.below(13) {
            0..5 => FenceChoice::Held(self.place()),
            5..8 => FenceChoice::Read(self.place()),
            8..10 => FenceChoice::InHand(self.owner(), self.below(6)),
            10..12 => FenceChoice::Any(self.place()),
            _ => FenceChoice::Never(self.place()),
        }
    }

    fn event(&mut self) -> EventChoice {
        match self.below(9) {
            0..6 => EventChoice::Dead(self.place()),
            6..8 => EventChoice::Any(self.place()),
            _ => EventChoice::Gone,
        }
    }
}

pub(super) fn step(chance: &mut Chance) -> Step {
    let kind = chance.weighted(&[
        (24, writing as fn(&mut Chance) -> Step),
        (14, claim_due),
        (12, read),
        (2, |chance| Step::Claim { owner: chance.owner(), lease: chance.lease(), fences: chance.many(0, 3, Chance::fence) }),
        (20, |chance| Step::Settle { outcomes: chance.many(1, 4, |chance| (chance.fence(), outcome(chance))) }),
        (20, keeping),
        (3, |chance| Step::CountStart { fence: chance.fence() }),
        (2, |chance| Step::UncountStart { fence: chance.fence() }),
        (3, |chance| Step::GiveBack { owner: chance.owner(), events: chance.many(1, 4, Chance::place) }),
        (4, |chance| Step::Renew { fences: chance.many(1, 3, Chance::fence), lease: chance.lease() }),
        (12, partitions_and_blockers),
        (16, by_hand),
        (4, nodes),
        (7, |chance| Step::Look {
            at: chance.one(&LOOKS),
            event: chance.place(),
            waits_for: chance.waits_for(),
            partitions: chance.partitions(),
        }),
        (9, |chance| Step::Pass { time: chance.one(&[1, 2, 5, 30]) }),
    ]);
    kind(chance)
}

/// Events are there to be settled: what a plugin keeps changes again and again.
fn step_with_effects(chance: &mut Chance) -> Step {
    let at_hand = |chance: &mut Chance| NewEvent { claimed: true, again: None, ..new_event(chance) };
    let kind = chance.weighted(&[(5, 0), (1, 1), (10, 2), (2, 3)]);
    match kind {
        0 => {
            Step::Write { events: chance.many(1, 4, at_hand), owner: chance.owner(), lease: chance.lease(), by: Writer::Store }
        }
        1 => Step::ClaimDue { owner: 0, lease: 4, limit: 100 },
        2 => keeping(chance),
        _ => step(chance),
    }
}

fn writing(chance: &mut Chance) -> Step {
    let kind = chance.weighted(&[
        (12, whole as fn(&mut Chance) -> Step),
        (5, |chance| Step::Insert {
            transaction: chance.below(2),
            events: chance.many(1, 3, new_event),
            owner: chance.owner(),
            lease: chance.lease(),
        }),
        (1, |chance| Step::DeleteInserted { transaction: chance.below(2), event: chance.below(4) }),
        (5, |chance| Step::End { transaction: chance.below(2), end: chance.end() }),
        (2, |chance| Step::PlainInsert { event_type: chance.below(2), key: chance.maybe(75, Chance::route) }),
    ]);
    kind(chance)
}

pub(super) fn whole(chance: &mut Chance) -> Step {
    let by = if chance.percent(66) { Writer::Store } else { Writer::Caller(chance.end()) };
    Step::Write { events: chance.many(1, 4, new_event), owner: chance.owner(), lease: chance.lease(), by }
}

pub(super) fn new_event(chance: &mut Chance) -> NewEvent {
    NewEvent {
        again: chance.maybe(15, Chance::place),
        claimed: chance.percent(30),
        event_type: chance.below(2),
        key: chance.maybe(75, Chance::route),
        occurred: chance.weighted(&[(4, 0), (1, -1), (1, 1)]),
        delay: chance.weighted(&[(4, 0), (1, 1), (1, 3)]),
        expires: chance.maybe(20, |chance| chance.one(&[1, 4])),
        payload_bytes: chance.weighted(&[(4, 10), (1, 0), (1, 100), (1, 20_000)]),
        tenant: chance.percent(50),
        header: chance.percent(50),
    }
}

fn claim_due(chance: &mut Chance) -> Step {
    let limit = chance.weighted(&[(9, 100), (2, 1), (2, 2), (2, 3)]);
    Step::ClaimDue { owner: chance.owner(), lease: chance.lease(), limit }
}

pub(super) fn outcome(chance: &mut Chance) -> Outcome {
    let later = chance.weighted(&[(3, 0), (2, 1), (2, 3), (1, AGES)]);
    let text = chance.below(4);
    match chance.below(23) {
        0..3 => Outcome::Done,
        3 => Outcome::Erased,
        4..6 => Outcome::Deferred(later),
        6..10 => Outcome::Retry(later, text),
        10..14 => Outcome::Dead { error: text, counted: chance.percent(50), blocks: chance.percent(70) },
        14..16 => Outcome::Parked(text),
        16..20 => Outcome::Behind(chance.place()),
        _ => Outcome::Released(later, text),
    }
}

fn keeping(chance: &mut Chance) -> Step {
    match chance.below(20) {
        0..14 => Step::SettleWithEffects { items: chance.many(1, 4, with_effects) },
        14..18 => Step::ReadState { plugin: chance.below(2), key: chance.below(3) },
        18 => Step::DeleteState { plugin: chance.below(2), key: chance.below(3) },
        _ => Step::DeleteAllState { plugin: chance.below(2), limit: chance.limit() },
    }
}

fn with_effects(chance: &mut Chance) -> WithEffects {
    // Follow-up events are never inserted as claimed.
    let follow_up = |chance: &mut Chance| NewEvent { claimed: false, ..new_event(chance) };
    WithEffects {
        fence: chance.fence(),
        outcome: outcome(chance),
        emitted: chance.many(0, 2, follow_up),
        emits_refused: chance.percent(2),
        state: chance.maybe(80, state_work),
    }
}

fn state_work(chance: &mut Chance) -> StateWork {
    let read = |chance: &mut Chance| match chance.below(8) {
        0..5 => ReadChoice::Now,
        5..7 => ReadChoice::Earlier(chance.place()),
        _ => ReadChoice::Nothing,
    };
    let write = |chance: &mut Chance| {
        chance.weighted(&[
            (3, ValueWrite::Set(10)),
            (1, ValueWrite::Set(0)),
            (1, ValueWrite::Set(300)),
            (2, ValueWrite::Delete),
        ])
    };
    StateWork {
        plugin: chance.below(2),
        quota: (chance.weighted(&[(3, 100), (1, 2), (1, 1)]), chance.weighted(&[(3, 1_000), (1, 320), (1, 12)])),
        keys: chance.many(0, 3, |chance| KeyWork {
            key: chance.below(3),
            read: chance.maybe(50, read),
            write: chance.maybe(75, write),
        }),
        writes_refused: chance.percent(2),
    }
}

fn read(chance: &mut Chance) -> Step {
    Step::Read {
        owner: chance.owner(),
        partitions: chance.partitions(),
        limit: chance.limit(),
        max_bytes: chance.weighted(&[(6, 1 << 20), (1, 1), (1, 30)]),
        skip_recent: chance.weighted(&[(6, 0), (1, 1)]),
        with_some_in_hand: chance.percent(30),
        busy: if chance.percent(20) { chance.routes() } else { Vec::new() },
        order: chance.maybe(60, read_order),
    }
}

pub(super) fn read_order(chance: &mut Chance) -> ReadOrder {
    if chance.percent(50) {
        ReadOrder::ByAggregate { waits_for: chance.waits_for(), queued: Vec::new() }
    } else {
        ReadOrder::OneForAll
    }
}

fn partitions_and_blockers(chance: &mut Chance) -> Step {
    match chance.below(10) {
        0..5 => Step::KeepPartitions {
            owner: chance.owner(),
            lease: chance.maybe(80, |chance| chance.one(&[1, 5, 5])),
            most: chance.one(&[0, 1, 100, 128, 256]),
            of: chance.weighted(&[(3, 256), (1, 128), (1, 1)]),
        },
        5 => Step::ReleasePartitions { owner: chance.owner(), partitions: chance.partitions(), of_before: chance.percent(20) },
        _ => Step::Unblock { waits_for: chance.waits_for(), limit: chance.limit(), with_others: chance.percent(50) },
    }
}

pub(super) fn by_hand(chance: &mut Chance) -> Step {
    match chance.below(20) {
        0..3 => Step::Replay { event: chance.event() },
        3..5 => Step::ReplayBatch { filter: dead_choice(chance), limit: chance.limit() },
        5..7 => Step::RetryNow {
            max_attempts: chance.maybe(50, |chance| chance.one(&[0, 1, 2])),
            after: chance.one(&[0, 0, 1, 3, 10]),
            limit: chance.limit(),
        },
        7..9 => Step::Discard { event: chance.event() },
        9..11 => Step::Skip { event: chance.event() },
        11..13 => Step::Purge {
            status: chance.one(&[Status::Done, Status::Dead]),
            older_than: chance.one(&[0, 1, 30]),
            limit: chance.limit(),
        },
        13..16 => Step::Unpark { routes: chance.routes(), limit: chance.limit() },
        16 => Step::Pause { route: chance.route(), reason: chance.percent(50) },
        17 => Step::PurgeUndelivered { older_than: chance.one(&[1, 2, 30]), limit: chance.limit() },
        18 => Step::Resume { route: chance.route() },
        _ => Step::Remember { routes: chance.routes() },
    }
}

fn nodes(chance: &mut Chance) -> Step {
    match chance.below(10) {
        0..5 => Step::Heartbeat { owner: chance.owner(), lease: chance.one(&[1, 5]), session: chance.percent(75) },
        5..7 => Step::Leave { owner: chance.owner() },
        7 => Step::Session {
            owner: chance.owner(),
            act: chance.weighted(&[(3, SessionAct::Hold), (1, SessionAct::End), (1, SessionAct::Die)]),
        },
        _ => Step::Abandon { owner: chance.owner() },
    }
}

fn dead_choice(chance: &mut Chance) -> DeadChoice {
    let rarely = |chance: &mut Chance| chance.maybe(20, |chance| chance.below(2));
    DeadChoice {
        event_type: rarely(chance),
        aggregate_type: rarely(chance),
        aggregate_id: rarely(chance),
        tenant: chance.percent(10),
        error: rarely(chance),
        max_attempts: chance.maybe(20, |chance| chance.one(&[0, 1, 2])),
        dead_within: chance.maybe(20, |chance| chance.one(&[0, 1, 2])),
        dead_before: chance.percent(10),
    }
}
