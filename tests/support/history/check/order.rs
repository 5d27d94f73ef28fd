//! The order in which writers wrote, against the order in which listeners were called.

use std::collections::{BTreeMap, BTreeSet};

use outbox::EventId;

use super::written::Transactions;
use super::{Order, Report};
use crate::history::calls::Call;
use crate::history::report::Reordered;
use crate::history::step::{Aggregate, Ending};

/// What must come in order, one call at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    /// The events of one aggregate.
    Aggregate(&'a Aggregate),
    /// All of them.
    Everything,
}

/// Where an event stands among those of its key: by the count of its writer, and nothing that the outbox said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    place: (usize, u64),
    delayed: bool,
}

pub(super) fn places(transactions: &Transactions<'_>, order: Order) -> BTreeMap<EventId, Place> {
    let mut places = BTreeMap::new();
    for transaction in transactions.values() {
        for (number, event) in (0..).zip(transaction.events) {
            // One writer announces one transaction after the other; of several nobody knows who was first.
            let place = if order == Order::Total { (transaction.line, number) } else { (0, event.place) };
            places.insert(event.event_id, Place { place, delayed: event.not_before.is_some() });
        }
    }
    places
}

/// The key of a call; `None` when its event may come at any time.
pub(super) fn key<'a>(call: &Call<'a>, places: &BTreeMap<EventId, Place>, order: Order) -> Option<Key<'a>> {
    if order == Order::Total {
        return places.contains_key(&call.delivery.event_id).then_some(Key::Everything);
    }
    call.delivery.aggregate.as_ref().map(Key::Aggregate)
}

pub(super) fn check(calls: &[Call<'_>], transactions: &Transactions<'_>, order: Order, report: &mut Report) {
    if order == Order::Any {
        return;
    }
    let writers: BTreeSet<&str> = transactions.values().map(|one| one.writer).collect();
    assert!(
        order != Order::Total || writers.len() <= 1,
        "one order of all events can be proved of one writer alone: {writers:?}"
    );
    let places = places(transactions, order);
    // Of each key the last event that was delivered; of each event whether it has come to its end.
    let mut last: BTreeMap<Key<'_>, ((usize, u64), EventId)> = BTreeMap::new();
    let mut ended: BTreeMap<EventId, bool> = BTreeMap::new();
    for call in calls {
        let id = call.delivery.event_id;
        // What nobody wrote is a ghost.
        let Some(Place { place, delayed: false }) = places.get(&id).copied() else { continue };
        let Some(key) = key(call, &places, order) else { continue };
        let last = last.entry(key).or_insert((place, id));
        let is_a_retry = ended.get(&id) == Some(&false);
        if place < last.0 && !(is_a_retry && order == Order::FailuresMayBeOvertaken) {
            let aggregate = call.delivery.aggregate.clone().filter(|_| order != Order::Total);
            report.reordered.push(Reordered { later: last.1, earlier: id, aggregate });
        }
        *last = (*last).max((place, id));
        *ended.entry(id).or_default() |= call.ending().is_some_and(Ending::is_final);
    }
}
