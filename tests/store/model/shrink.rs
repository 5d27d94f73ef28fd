//! A shorter trace that fails too.

use super::parts::{DeadChoice, KeyWork, NewEvent, Outcome, StateWork, WithEffects};
use super::step::Step;

/// Leaves out steps, then parts of steps, as long as what is left fails. `fails` is asked at most `tries` times.
pub(super) fn shrink(mut trace: Vec<Step>, tries: u32, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut left = tries;
    let mut fails = |trace: &[Step]| {
        let may_ask = left > 0;
        left = left.saturating_sub(1);
        may_ask && fails(trace)
    };
    loop {
        let without = leave_out(&trace, &mut fails);
        let simple = simplify(&without, &mut fails);
        // Debug tells all of a step, and steps have no equality of their own.
        if format!("{simple:?}") == format!("{trace:?}") {
            return trace;
        }
        trace = simple;
    }
}

/// Leaves out as many steps as it can, large pieces first.
fn leave_out(trace: &[Step], fails: &mut impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut trace = trace.to_vec();
    let mut size = trace.len();
    while size > 0 {
        let mut at = 0;
        while at < trace.len() {
            let mut without = trace.clone();
            without.drain(at..trace.len().min(at + size));
            if fails(&without) { trace = without } else { at += size }
        }
        size /= 2;
    }
    trace
}

/// Puts simpler steps in place of others.
fn simplify(trace: &[Step], fails: &mut impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut trace = trace.to_vec();
    for at in 0..trace.len() {
        while let Some(better) = simpler(&trace[at]).into_iter().find_map(|step| {
            let mut other = trace.clone();
            other[at] = step;
            fails(&other).then_some(other)
        }) {
            trace = better;
        }
    }
    trace
}

/// Steps that do less than this one.
fn simpler(step: &Step) -> Vec<Step> {
    match step {
        Step::Write { events, owner, lease, by } => {
            let with = |events| Step::Write { events, owner: *owner, lease: *lease, by: *by };
            simpler_events(events).into_iter().map(with).collect()
        }
        Step::Insert { transaction, events, owner, lease } => {
            let with = |events| Step::Insert { transaction: *transaction, events, owner: *owner, lease: *lease };
            simpler_events(events).into_iter().map(with).collect()
        }
        Step::Settle { outcomes } => shorter(outcomes).map(|outcomes| Step::Settle { outcomes }).collect(),
        Step::SettleLocked { outcomes, touched, meanwhile } => {
            let with = |outcomes, touched, meanwhile| Step::SettleLocked { outcomes, touched, meanwhile };
            let fewer = shorter(outcomes).map(|outcomes| with(outcomes, *touched, meanwhile.clone()));
            let less = shorter(meanwhile).map(|meanwhile| with(outcomes.clone(), *touched, meanwhile));
            let untouched = touched.then(|| with(outcomes.clone(), false, meanwhile.clone()));
            let apart = Step::Settle { outcomes: outcomes.clone() };
            [apart].into_iter().chain(untouched).chain(fewer).chain(less).collect()
        }
        Step::SettleWithEffects { items } => {
            simpler_items(items).into_iter().map(|items| Step::SettleWithEffects { items }).collect()
        }
        Step::Renew { fences, lease } => shorter(fences).map(|fences| Step::Renew { fences, lease: *lease }).collect(),
        Step::Unpark { routes, limit } => shorter(routes).map(|routes| Step::Unpark { routes, limit: *limit }).collect(),
        Step::Remember { routes } => shorter(routes).map(|routes| Step::Remember { routes }).collect(),
        Step::ReplayBatch { filter, limit } if !matches!(filter, DeadChoice { event_type: None, error: None, .. }) => {
            vec![Step::ReplayBatch { filter: DeadChoice::default(), limit: *limit }]
        }
        Step::Read { owner, partitions, with_some_in_hand, busy, order, .. } if order.is_some() || !busy.is_empty() => {
            vec![Step::Read {
                owner: *owner,
                partitions: *partitions,
                limit: 100,
                max_bytes: 1 << 20,
                skip_recent: 0,
                with_some_in_hand: *with_some_in_hand,
                busy: Vec::new(),
                order: None,
            }]
        }
        _ => Vec::new(),
    }
}

/// A list without each of its things, none of them empty.
fn shorter<T: Clone>(things: &[T]) -> impl Iterator<Item = Vec<T>> {
    (0..things.len()).filter(|_| things.len() > 1).map(|at| {
        let mut without = things.to_vec();
        without.remove(at);
        without
    })
}

fn simpler_items(items: &[WithEffects]) -> Vec<Vec<WithEffects>> {
    let mut lists: Vec<_> = shorter(items).collect();
    for (at, item) in items.iter().enumerate() {
        lists.extend(simpler_item(item).into_iter().map(|item| {
            let mut list = items.to_vec();
            list[at] = item;
            list
        }));
    }
    lists
}

/// With less of each of its parts.
fn simpler_item(item: &WithEffects) -> Vec<WithEffects> {
    let mut simpler = Vec::new();
    if !item.emitted.is_empty() {
        simpler.push(WithEffects { emitted: Vec::new(), ..item.clone() });
        simpler.extend(simpler_events(&item.emitted).into_iter().map(|emitted| WithEffects { emitted, ..item.clone() }));
    }
    if item.emits_refused {
        simpler.push(WithEffects { emits_refused: false, ..item.clone() });
    }
    if !matches!(item.outcome, Outcome::Done) {
        simpler.push(WithEffects { outcome: Outcome::Done, ..item.clone() });
    }
    if let Some(state) = &item.state {
        let with = |state| WithEffects { state, ..item.clone() };
        simpler.push(with(None));
        if state.writes_refused {
            simpler.push(with(Some(StateWork { writes_refused: false, ..state.clone() })));
        }
        simpler.extend(shorter(&state.keys).map(|keys| with(Some(StateWork { keys, ..state.clone() }))));
        for (at, key) in state.keys.iter().enumerate() {
            let less = [key.read.map(|_| KeyWork { read: None, ..*key }), key.write.map(|_| KeyWork { write: None, ..*key })];
            simpler.extend(less.into_iter().flatten().map(|key| {
                let mut keys = state.keys.clone();
                keys[at] = key;
                with(Some(StateWork { keys, ..state.clone() }))
            }));
        }
    }
    simpler
}

fn simpler_events(events: &[NewEvent]) -> Vec<Vec<NewEvent>> {
    let mut lists: Vec<_> = shorter(events).collect();
    for (at, event) in events.iter().enumerate() {
        let changes = [
            NewEvent { again: None, ..event.clone() },
            NewEvent { claimed: false, ..event.clone() },
            NewEvent { occurred: 0, ..event.clone() },
            NewEvent { delay: 0, ..event.clone() },
            NewEvent { expires: None, ..event.clone() },
            NewEvent { payload_bytes: 10, tenant: false, header: false, ..event.clone() },
        ];
        let changed = changes.into_iter().filter(|change| change != event);
        lists.extend(changed.map(|change| {
            let mut list = events.to_vec();
            list[at] = change;
            list
        }));
    }
    lists
}

#[test]
fn a_shrunk_trace_has_only_the_steps_that_matter() {
    let beats_then_leaves = |trace: &[Step]| {
        let beat = trace.iter().position(|step| matches!(step, Step::Heartbeat { .. }));
        let leave = trace.iter().rposition(|step| matches!(step, Step::Leave { .. }));
        beat.zip(leave).is_some_and(|(beat, leave)| beat < leave)
    };
    let failing = (0..).map(super::chance::trace).find(|trace| beats_then_leaves(trace)).expect("some seed makes one");

    let shrunk = shrink(failing, 1_000, beats_then_leaves);

    assert!(matches!(shrunk.as_slice(), [Step::Heartbeat { .. }, Step::Leave { .. }]), "{shrunk:?}");
}

#[test]
fn a_shrunk_step_has_only_the_parts_that_matter() {
    let writes_a_claimed_event = |trace: &[Step]| {
        trace.iter().any(|step| matches!(step, Step::Write { events, .. } if events.iter().any(|event| event.claimed)))
    };
    let failing = (0..).map(super::chance::trace).find(|trace| writes_a_claimed_event(trace)).expect("some seed makes one");

    let shrunk = shrink(failing, 1_000, writes_a_claimed_event);

    let [Step::Write { events, .. }] = shrunk.as_slice() else { panic!("{shrunk:?}") };
    let [NewEvent { again: None, claimed: true, delay: 0, expires: None, tenant: false, .. }] = events.as_slice() else {
        panic!("{events:?}")
    };
}
