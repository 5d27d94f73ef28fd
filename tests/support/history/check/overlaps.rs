//! Never two listeners at once: not with one event, nor, where order is asked for, with two events of one aggregate.

use std::collections::BTreeMap;

use outbox::EventId;

use super::order::{Key, key};
use super::written::Transactions;
use super::{Order, Report};
use crate::history::calls::{Call, Faults};

pub(super) fn check(
    calls: &[Call<'_>],
    transactions: &Transactions<'_>,
    faults: &Faults<'_>,
    order: Order,
    report: &mut Report,
) {
    let mut by_event: BTreeMap<EventId, Vec<&Call<'_>>> = BTreeMap::new();
    let mut by_key: BTreeMap<Key<'_>, Vec<&Call<'_>>> = BTreeMap::new();
    for call in calls {
        by_event.entry(call.delivery.event_id).or_default().push(call);
    }
    if order != Order::Any {
        let writers = super::order::places(transactions, order);
        for call in calls {
            if let Some(key) = key(call, &writers, order) {
                by_key.entry(key).or_default().push(call);
            }
        }
    }
    for calls in by_event.values() {
        report.at_once.extend(at_once(calls, faults).map(|(one, _)| one.delivery.event_id));
    }
    for calls in by_key.values() {
        let two = at_once(calls, faults).map(|(one, other)| (one.delivery.event_id, other.delivery.event_id));
        report.key_at_once.extend(two.filter(|(one, other)| one != other));
    }
}

/// Every call that begins while another one lasts, behind that other one. A host that sleeps cannot end its calls.
fn at_once<'a, 'b>(
    calls: &'a [&'b Call<'b>],
    faults: &'a Faults<'_>,
) -> impl Iterator<Item = (&'b Call<'b>, &'b Call<'b>)> + 'a {
    let mut open: Vec<&Call<'_>> = Vec::new();
    calls.iter().filter_map(move |call| {
        open.retain(|one| one.until() > call.began);
        let other = open.iter().find(|one| !faults.slept_through(one)).copied();
        open.push(call);
        other.map(|other| (other, *call))
    })
}
