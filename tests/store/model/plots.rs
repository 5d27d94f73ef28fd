//! Steps that come one after the other when owners take from each other what they had in hand.

use outbox::store::{ReadOrder, WaitsFor};

use super::chance::{Chance, by_hand, new_event, outcome, read_order, step, whole};
use super::parts::{FenceChoice, Hours, NewEvent, Outcome, Partitions, SessionAct, Writer};
use super::step::Step;

/// How long the lease of an owner holds that is going to lose it.
const SHORT: Hours = 1;
const LONG: Hours = 5;

/// Some steps of a plot, with others in between.
pub(super) fn plot(chance: &mut Chance) -> Vec<Step> {
    let one = chance.owner();
    let other = (one + 1 + chance.below(2)) % 3;
    let plot = chance.weighted(&[
        (3, lost_while_reading as fn(&mut Chance, usize, usize) -> Vec<Step>),
        (3, stalled),
        (3, used_late),
        (2, session_gone),
        (3, behind_a_lock),
        (2, one_queue),
        (2, key_queue),
    ]);
    let mut steps = Vec::new();
    // Somebody else may hold the partitions.
    if chance.percent(60) {
        steps.extend((0..3).filter(|owner| *owner != one).map(|owner| Step::Leave { owner }));
    }
    if chance.percent(80) {
        steps.push(whole(chance));
    }
    for next in plot(chance, one, other) {
        steps.push(next);
        if chance.percent(20) {
            steps.push(step(chance));
        }
    }
    steps
}

fn keep(owner: usize, lease: Hours) -> Step {
    Step::KeepPartitions { owner, lease: Some(lease), most: 256, of: 256 }
}

fn read(owner: usize, order: Option<ReadOrder>) -> Step {
    Step::Read {
        owner,
        partitions: Partitions::All,
        limit: 100,
        max_bytes: 1 << 20,
        skip_recent: 0,
        with_some_in_hand: false,
        busy: Vec::new(),
        order,
    }
}

fn in_hand(chance: &mut Chance, owner: usize) -> Vec<FenceChoice> {
    chance.many(1, 4, |chance| FenceChoice::InHand(owner, chance.below(6)))
}

fn outcomes(chance: &mut Chance, owner: usize) -> Vec<(FenceChoice, Outcome)> {
    in_hand(chance, owner).into_iter().map(|fence| (fence, outcome(chance))).collect()
}

fn settle(chance: &mut Chance, owner: usize) -> Step {
    Step::Settle { outcomes: outcomes(chance, owner) }
}

/// What a host does with what it had in hand, without knowing what became of it.
fn come_back(chance: &mut Chance, owner: usize) -> Step {
    match chance.below(6) {
        0..3 => settle(chance, owner),
        3 => Step::Renew { fences: in_hand(chance, owner), lease: LONG },
        4 => Step::Claim { owner, lease: LONG, fences: in_hand(chance, owner) },
        _ => keep(owner, LONG),
    }
}

/// How partitions come to be free.
fn lose(chance: &mut Chance, owner: usize) -> Step {
    match chance.below(3) {
        0 => Step::ReleasePartitions { owner, partitions: Partitions::All, of_before: false },
        1 => Step::Leave { owner },
        _ => Step::Pass { time: LONG + 1 },
    }
}

/// What was read is another owner's by the time its outcomes come.
fn lost_while_reading(chance: &mut Chance, one: usize, other: usize) -> Vec<Step> {
    let order = chance.maybe(50, read_order);
    let mut steps = vec![keep(one, LONG), read(one, order.clone()), lose(chance, one), keep(other, LONG), read(other, order)];
    let ends = [one, other, one].map(|owner| settle(chance, owner));
    steps.extend(ends);
    if chance.percent(50) {
        steps.extend([lose(chance, other), keep(one, LONG), settle(chance, one)]);
    }
    steps
}

/// A host stands still until its leases are over, and goes on as if nothing had happened.
fn stalled(chance: &mut Chance, one: usize, other: usize) -> Vec<Step> {
    let claim = Step::ClaimDue { owner: one, lease: SHORT, limit: 100 };
    let mut steps = vec![keep(one, SHORT), if chance.percent(70) { claim } else { read(one, None) }, Step::Pass { time: 2 }];
    if chance.percent(70) {
        steps.extend([keep(other, LONG), read(other, chance.maybe(50, read_order))]);
        steps.push(Step::Claim { owner: other, lease: LONG, fences: in_hand(chance, other) });
    }
    steps.extend([come_back(chance, one), come_back(chance, one)]);
    steps.push(settle(chance, other));
    steps.push(come_back(chance, one));
    steps
}

/// An answer of the database is used after others have done something to its events.
fn used_late(chance: &mut Chance, one: usize, _: usize) -> Vec<Step> {
    let mut steps = vec![keep(one, LONG), read(one, chance.maybe(70, read_order))];
    steps.extend(chance.many(1, 3, |chance| {
        match chance.below(4) {
            0 => settle(chance, one),
            1 => Step::Settle {
                outcomes: in_hand(chance, one)
                    .into_iter()
                    .map(|fence| (fence, Outcome::Dead { error: 0, counted: true, blocks: true }))
                    .collect(),
            },
            2 => Step::Unpark { routes: vec![(0, 0), (0, 1), (1, 0), (1, 1)], limit: 100 },
            _ => by_hand(chance),
        }
    }));
    steps.push(Step::Claim { owner: one, lease: LONG, fences: in_hand(chance, one) });
    steps.extend([come_back(chance, one), come_back(chance, one)]);
    steps
}

/// A host whose session is gone is abandoned, and one whose session lives is not.
fn session_gone(chance: &mut Chance, one: usize, other: usize) -> Vec<Step> {
    let beat = Step::Heartbeat { owner: one, lease: LONG, session: true };
    let mut steps = vec![Step::Session { owner: one, act: SessionAct::Hold }, beat, keep(one, LONG), read(one, None)];
    if chance.percent(75) {
        let act = chance.one(&[SessionAct::End, SessionAct::Die]);
        steps.push(Step::Session { owner: one, act });
    }
    steps.extend([Step::Abandon { owner: one }, keep(other, LONG), read(other, None), come_back(chance, one)]);
    steps.extend([settle(chance, other), come_back(chance, one)]);
    steps
}

/// An outcome waits for its row, and its partition does not.
fn behind_a_lock(chance: &mut Chance, one: usize, other: usize) -> Vec<Step> {
    let lease = chance.one(&[SHORT, LONG]);
    let mut steps = vec![keep(one, lease), read(one, chance.maybe(30, read_order))];
    if chance.percent(60) {
        steps.push(Step::Pass { time: 2 });
    }
    let mut meanwhile = chance.many(0, 1, |chance| match chance.below(2) {
        0 => Step::ReleasePartitions { owner: one, partitions: Partitions::All, of_before: false },
        _ => Step::Leave { owner: one },
    });
    meanwhile.push(keep(chance.weighted(&[(3, other), (1, one)]), LONG));
    // Alike, they are one statement.
    let mut outcomes = outcomes(chance, one);
    if chance.percent(60) {
        let all = outcomes[0].1.clone();
        outcomes.iter_mut().for_each(|(_, outcome)| *outcome = all.clone());
    }
    steps.push(Step::SettleLocked { outcomes, touched: chance.percent(50), meanwhile });
    steps.extend([read(other, None), settle(chance, other), come_back(chance, one)]);
    steps
}

/// Several events of one aggregate, of which some may have failed, are read in its order.
fn key_queue(chance: &mut Chance, one: usize, _: usize) -> Vec<Step> {
    let one_key =
        |chance: &mut Chance| NewEvent { again: None, claimed: false, key: Some((0, 0)), delay: 0, ..new_event(chance) };
    let written = Step::Write { events: chance.many(2, 4, one_key), owner: one, lease: LONG, by: Writer::Store };
    let by_aggregate = |waits_for| read(one, Some(ReadOrder::ByAggregate { waits_for, queued: Vec::new() }));
    let mut steps = vec![written, keep(one, LONG), by_aggregate(WaitsFor::Unresolved), settle(chance, one)];
    steps.push(by_aggregate(chance.waits_for()));
    steps
}

/// All events in one order, the host of which changes.
fn one_queue(chance: &mut Chance, one: usize, other: usize) -> Vec<Step> {
    let front = |owner| read(owner, Some(ReadOrder::OneForAll));
    let mut steps = vec![keep(one, LONG), front(one), settle(chance, one)];
    let behind = Step::Read {
        owner: one,
        partitions: Partitions::All,
        limit: 100,
        max_bytes: 1 << 20,
        skip_recent: 0,
        with_some_in_hand: true,
        busy: Vec::new(),
        order: Some(ReadOrder::OneForAll),
    };
    steps.extend([behind, settle(chance, one), lose(chance, one), keep(other, LONG), front(other), settle(chance, one)]);
    steps.extend([settle(chance, other), front(other)]);
    steps
}
