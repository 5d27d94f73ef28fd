//! Histories in which all went well, as chance would have it: failures, deferrals, kills and stalls included.

use std::time::Duration;

use outbox::{EventId, Status};
use proptest::prelude::*;

use crate::history::check::{Order, Rules};
use crate::history::{Aggregate, Delivery, Ended, Ending, Fault, FaultKind, Held, Line, Row, Step, Written};

pub(super) const MAX_ATTEMPTS: u32 = 6;
pub(super) const RETRY: Duration = Duration::from_micros(20);

/// How long a call takes, in microseconds; and how long nothing happens between two.
pub(super) const CALL: i64 = 10;
const REST: i64 = 2;

pub(super) fn rules(order: Order) -> Rules {
    Rules { order, max_attempts: MAX_ATTEMPTS, max_starts: 3, retry: RETRY }
}

/// One call before the last one of an event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Visit {
    Failed,
    /// Failed, and asked for a rest of its own.
    FailedForLonger,
    Deferred,
    /// Its host was killed in the middle.
    Killed,
    /// Its host was killed before the outcome was stored.
    Unstored(Ending),
    /// Its host slept in the middle, and another one took the event over.
    Slept,
}

/// How an event ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Done,
    Dead,
    /// By as many failures as are allowed.
    Exhausted,
}

#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) delayed: bool,
    pub(super) visits: Vec<Visit>,
    pub(super) end: End,
}

/// The lives of the events of each aggregate, in order.
pub(super) type Plan = Vec<Vec<Life>>;

fn visit() -> impl Strategy<Value = Visit> {
    use Visit::{Deferred, Failed, FailedForLonger, Killed, Slept, Unstored};
    let ending = prop::sample::select(vec![Ending::Done, Ending::Dead, Ending::Failed, Ending::Deferred]);
    prop_oneof![prop::sample::select(vec![Failed, FailedForLonger, Deferred, Killed, Slept]), ending.prop_map(Unstored),]
}

fn life() -> impl Strategy<Value = Life> {
    let end = prop::sample::select(vec![End::Done, End::Done, End::Dead, End::Exhausted]);
    (prop::bool::weighted(0.2), prop::collection::vec(visit(), 0..4), end).prop_map(|(delayed, visits, end)| Life {
        delayed,
        visits,
        end,
    })
}

/// Lives by chance, behind one aggregate that has something of everything.
pub(super) fn plan() -> impl Strategy<Value = Plan> {
    prop::collection::vec(prop::collection::vec(life(), 1..5), 0..4).prop_map(|mut plan| {
        let life = |visits: &[Visit]| Life { delayed: false, visits: visits.to_vec(), end: End::Done };
        let everything = vec![
            life(&[]),
            life(&[Visit::Failed, Visit::Failed]),
            life(&[Visit::Deferred]),
            life(&[Visit::Unstored(Ending::Done)]),
            life(&[]),
            Life { end: End::Dead, ..life(&[]) },
            Life { end: End::Exhausted, ..life(&[]) },
            Life { delayed: true, ..life(&[]) },
            life(&[]),
            life(&[]),
        ];
        plan.insert(0, everything);
        plan
    })
}

/// The history of a plan in the making.
#[derive(Default)]
struct World {
    lines: Vec<Line>,
    rows: Vec<Row>,
    sequence: u64,
    hosts: u32,
    duplicates: usize,
}

/// What happens when all goes as planned: every line, and how many calls a fault repeats.
pub(super) fn history(plan: &Plan, order: Order) -> (Vec<Line>, usize) {
    let mut world = World::default();
    for (key, lives) in plan.iter().enumerate() {
        world.write(key, lives);
    }
    let start = world.now();
    let mut at = start;
    for (key, lives) in plan.iter().enumerate() {
        // Aggregates go their ways at the same time, unless there is one order of all.
        at = if order == Order::Total { at } else { start + i64::try_from(key).expect("small") };
        for (number, life) in lives.iter().enumerate() {
            at = world.live(key, number, life, at);
        }
    }
    let end = world.lines.iter().map(|line| line.at).max().unwrap_or_default() + 1;
    let rows = std::mem::take(&mut world.rows);
    world.say(end, "test", Step::Table { rows });
    world.lines.sort_by_key(|line| line.at);
    (world.lines, world.duplicates)
}

pub(super) fn event(key: usize, number: usize) -> EventId {
    format!("e-{key}-{number}").parse().expect("an id")
}

pub(super) fn aggregate(key: usize) -> Aggregate {
    Aggregate { kind: "Order".to_owned(), id: key.to_string() }
}

/// The time before which nothing delayed may come.
const DUE: i64 = 5;

impl World {
    fn now(&self) -> i64 {
        i64::try_from(self.lines.len()).expect("small") + DUE
    }

    fn say(&mut self, at: i64, node: &str, step: Step) {
        self.lines.push(Line { at, node: node.to_owned(), step });
    }

    /// Transactions of two events each, the last of unknown result; one that is rolled back, and one that nobody hears of again.
    fn write(&mut self, key: usize, lives: &[Life]) {
        let written = |number: usize| Written {
            event_id: event(key, number),
            aggregate: Some(aggregate(key)),
            place: number.try_into().expect("small"),
            not_before: lives.get(number).is_some_and(|life| life.delayed).then_some(DUE),
        };
        let numbers: Vec<usize> = (0..lives.len() + 4).collect();
        let (given, others) = numbers.split_at(lives.len());
        let chunks: Vec<&[usize]> = given.chunks(2).chain(others.chunks(2)).collect();
        let kept = chunks.len() - 2;
        for (number, chunk) in chunks.iter().enumerate() {
            let transaction = format!("t-{key}-{number}");
            let events: Vec<Written> = chunk.iter().map(|number| written(*number)).collect();
            self.say(self.now(), "writer", Step::Intent { transaction: transaction.clone(), events });
            let end = if number + 1 < kept {
                Step::Committed { transaction, sequences: chunk.iter().map(|_| self.next_sequence()).collect() }
            } else if number == kept {
                Step::RolledBack { transaction }
            } else {
                Step::Unknown { transaction }
            };
            self.say(self.now(), "writer", end);
        }
    }

    /// Numbers are given in the order of writing; events of unknown transactions are numbered when they come.
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn sequence_of(&mut self, id: EventId) -> u64 {
        let told = self.lines.iter().find_map(|line| match &line.step {
            Step::Intent { transaction, events } => {
                let place = events.iter().position(|event| event.event_id == id)?;
                Some((transaction.clone(), place))
            }
            _ => None,
        });
        let (name, place) = told.expect("it was written");
        let known = self.lines.iter().find_map(|line| match &line.step {
            Step::Committed { transaction, sequences } if *transaction == name => Some(sequences[place]),
            _ => None,
        });
        known.unwrap_or_else(|| 1_000 + self.next_sequence())
    }

    /// Delivers one event from `at` on; returns when the next one may begin.
    fn live(&mut self, key: usize, number: usize, life: &Life, mut at: i64) -> i64 {
        let id = event(key, number);
        let (sequence, aggregate) = (self.sequence_of(id), Some(aggregate(key)));
        let mut delivery = Delivery { event_id: id, aggregate, sequence, fence: 1, attempt: 1 };
        let mut deferrals = 0;
        for visit in life.visits.iter().copied() {
            if delivery.attempt + 1 == MAX_ATTEMPTS && matches!(visit, Visit::Failed | Visit::FailedForLonger) {
                continue;
            }
            at = self.visit(&mut delivery, visit, &mut deferrals, at);
            delivery.fence += 2;
        }
        if matches!(life.end, End::Exhausted) {
            while delivery.attempt < MAX_ATTEMPTS {
                at = self.visit(&mut delivery, Visit::Failed, &mut deferrals, at);
                delivery.fence += 2;
            }
        }
        let (ending, status, attempts) = match life.end {
            End::Done => (Ending::Done, Status::Done, delivery.attempt - 1),
            End::Dead => (Ending::Dead, Status::Dead, delivery.attempt - 1),
            End::Exhausted => (Ending::Failed, Status::Dead, delivery.attempt),
        };
        self.call("host", &delivery, at, Some((ending, None)));
        self.rows.push(Row { event_id: id, sequence, status, attempts, deferrals, fence: delivery.fence });
        at + CALL + REST
    }

    /// One call that is not the last; returns when the next one may begin.
    fn visit(&mut self, delivery: &mut Delivery, visit: Visit, deferrals: &mut u32, at: i64) -> i64 {
        let held = Held::Claims(vec![(delivery.event_id, delivery.fence)]);
        self.hosts += 1;
        let host = format!("host-{}", self.hosts);
        let fault = |kind, from| Step::Fault(Fault { host: host.clone(), kind, from, held: held.clone() });
        let retry = i64::try_from(RETRY.as_micros()).expect("small");
        let end = at + CALL;
        match visit {
            Visit::Failed => {
                self.call("host", delivery, at, Some((Ending::Failed, None)));
                delivery.attempt += 1;
                end + retry
            }
            Visit::FailedForLonger => {
                self.call("host", delivery, at, Some((Ending::Failed, Some(1))));
                delivery.attempt += 1;
                end + 1_000
            }
            Visit::Deferred => {
                self.call("host", delivery, at, Some((Ending::Deferred, Some(1))));
                *deferrals += 1;
                end + 1_000
            }
            Visit::Killed => {
                self.call(&host, delivery, at, None);
                self.say(end, "test", fault(FaultKind::Killed, at + CALL / 2));
                self.duplicates += 1;
                end
            }
            Visit::Unstored(ending) => {
                // So soon that it is no deferral and no retry.
                self.call(&host, delivery, at, Some((ending, Some(1))));
                self.say(end + 1, "test", fault(FaultKind::Killed, end + 1));
                self.duplicates += 1;
                end + REST
            }
            Visit::Slept => {
                self.call_for(&host, delivery, at, 5 * CALL, Some((Ending::Done, None)));
                self.say(at + 4 * CALL, "test", fault(FaultKind::Stalled, at + 1));
                self.duplicates += 1;
                at + 2
            }
        }
    }

    fn call(&mut self, host: &str, delivery: &Delivery, at: i64, end: Option<(Ending, Option<u64>)>) {
        self.call_for(host, delivery, at, CALL, end);
    }

    fn call_for(&mut self, host: &str, delivery: &Delivery, at: i64, takes: i64, end: Option<(Ending, Option<u64>)>) {
        let (event_id, fence) = (delivery.event_id, delivery.fence);
        self.say(at, host, Step::Began(delivery.clone()));
        if let Some((ending, after_ms)) = end {
            self.say(at + takes, host, Step::Ended(Ended { event_id, fence, ending, after_ms }));
        }
    }
}
