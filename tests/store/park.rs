//! Events that wait for a listener.

use std::time::Duration;

use outbox::event::Fence;
use outbox::store::{MOST_ROUTES, PARTITIONS, ReadRequest, Settlement};
use outbox::{Envelope, Route, Status};
use support::Harness;

use crate::common::{LEASE, claim, event, ids, owner, plains, row, settle, write};

fn route(aggregate_type: &str, event_type: &str) -> Route {
    Route::new(aggregate_type, event_type).expect("good names")
}

async fn park_all(db: &dyn Harness) {
    for claimed in claim(db, 10_000).await {
        settle(db, claimed.fence, Settlement::Parked { reason: "no listener".to_owned() }).await;
    }
}

pub(crate) async fn only_the_named_routes_are_unparked(db: &dyn Harness) {
    let wanted = event(db, "OrderPlaced").await.aggregate_type("Order").json(&1).expect("good");
    let twin = event(db, "OrderPlaced").await.aggregate_type("order").json(&1).expect("good");
    let other = event(db, "OrderPaid").await.aggregate_type("Order").json(&1).expect("good");
    write(db, &[wanted.clone(), twin.clone(), other.clone()]).await;
    park_all(db).await;

    let unparked = db
        .store()
        .unpark(&owner("host"), &[route("Order", "OrderPlaced"), route("No", "Such")], None, 100)
        .await
        .expect("unparks");

    let record = row(db, wanted.id()).await;
    assert_eq!(unparked, [Fence::new(record.seq, 0, record.claim_seq)]);
    assert_eq!((record.parked, record.due_at, record.status), (None, Some(record.available_at), Status::New));
    assert_eq!((record.lease_end, record.claims), (record.locked_at, 0), "under a claim that has ended, and was none");
    assert_eq!(ids(&claim(db, 10).await), [wanted.id()], "a name that differs by case is another name");
    assert!(row(db, twin.id()).await.parked.is_some() && row(db, other.id()).await.parked.is_some());
    assert_eq!(db.store().unpark(&owner("host"), &[], None, 100).await.expect("nothing to do"), []);
}

pub(crate) async fn what_was_unparked_is_claimed_by_its_number_at_once_and_read_as_claimed(db: &dyn Harness) {
    write(db, &plains(db, 3).await).await;
    park_all(db).await;
    let (answers, holds) = (owner("answers"), owner("holds"));
    let store = db.store();
    crate::common::kept(&*store, &holds, PARTITIONS, PARTITIONS).await;

    let asked_for = [route("Order", "OrderPlaced"), route("Order", "OrderPlaced")];
    let unparked = store.unpark(&answers, &asked_for, None, 100).await.expect("unparks");
    assert_eq!(unparked.len(), 3, "each once, though its route is asked for twice");

    let request = ReadRequest {
        owner: holds,
        partitions: (0..PARTITIONS).collect(),
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 100,
        max_bytes: 1_000,
        skip_recent: Duration::ZERO,
        order: None,
    };
    let read = store.read(&request).await.expect("reads");
    assert!(read.len() == 3 && read.iter().all(|read| read.was_claimed), "nobody delivers it without a claim: {read:?}");
    let twice = [&unparked[..], &unparked[..]].concat();
    assert_eq!(store.claim(&answers, LEASE, &twice).await.expect("claims").len(), 3);
    assert!(store.read(&request).await.expect("reads").is_empty());
}

pub(crate) async fn events_of_the_named_partitions_are_unparked(db: &dyn Harness) {
    let mut events = Vec::new();
    for number in 0..50 {
        events.push(event(db, "OrderPlaced").await.aggregate("Order", number.to_string()).json(&1).expect("good"));
    }
    write(db, &events).await;
    park_all(db).await;
    let (store, routes) = (db.store(), [route("Order", "OrderPlaced")]);
    let (even, odd): (Vec<u16>, Vec<u16>) = (0..PARTITIONS).partition(|partition| partition.is_multiple_of(2));

    let of_even = store.unpark(&owner("host"), &routes, Some(&even), 100).await.expect("unparks");
    assert!((1..50).contains(&of_even.len()), "about half of fifty: {of_even:?}");
    assert_eq!(store.unpark(&owner("host"), &routes, Some(&even), 100).await.expect("nothing is left"), []);
    assert_eq!(store.unpark(&owner("host"), &routes, Some(&[]), 100).await.expect("nothing to do"), []);
    let of_odd = store.unpark(&owner("host"), &routes, Some(&odd), 100).await.expect("unparks");
    assert_eq!(of_even.len() + of_odd.len(), 50);
}

pub(crate) async fn unparking_goes_in_batches(db: &dyn Harness) {
    write(db, &plains(db, 25).await).await;
    park_all(db).await;
    let routes = [route("Order", "OrderPlaced")];

    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(db.store().unpark(&owner("host"), &routes, None, 10).await.expect("unparks").len());
    }

    assert_eq!(batches, [10, 10, 5, 0]);
    assert_eq!(claim(db, 100).await.len(), 25);
}

pub(crate) async fn parked_routes_are_found_one_after_the_other_each_once(db: &dyn Harness) {
    let store = db.store();
    assert_eq!(store.parked_route(None).await.expect("reads"), None);
    let mut events = plains(db, 3).await;
    for (aggregate_type, event_type) in [("Order", "OrderPaid"), ("order", "OrderPlaced"), ("A", "Z"), ("Order", "é")] {
        events.push(event(db, event_type).await.aggregate_type(aggregate_type).json(&1).expect("good"));
    }
    write(db, &events).await;
    park_all(db).await;
    // Due, not parked.
    write(db, &[event(db, "Due").await.aggregate_type("Order").json(&1).expect("good")]).await;

    let mut found = Vec::new();
    while let Some(next) = store.parked_route(found.last()).await.expect("reads") {
        assert!(found.len() < 10, "the walk ends: {found:?}");
        found.push(next);
    }

    found.sort();
    let wanted = [("A", "Z"), ("Order", "OrderPaid"), ("Order", "OrderPlaced"), ("Order", "é"), ("order", "OrderPlaced")]
        .map(|(a, b)| route(a, b));
    assert_eq!(found, wanted);
    store.unpark(&owner("host"), &wanted, None, 100).await.expect("unparks");
    assert_eq!(store.parked_route(None).await.expect("reads"), None);
}

pub(crate) async fn of_many_routes_those_that_are_known_are_counted_and_those_with_the_most_events(db: &dyn Harness) {
    let store = db.store();
    let (known, busy) = (route("Zoo", "Opened"), route("Yard", "Swept"));
    store.remember_routes(std::slice::from_ref(&known), &[]).await.expect("notes");
    let now = db.now().await;
    let event = |aggregate_type: &str, event_type: &str| {
        Envelope::new(event_type).now(now).aggregate(aggregate_type, "7").json(&1).expect("good")
    };
    let mut events: Vec<Envelope> = (0..MOST_ROUTES).map(|number| event("Invented", &format!("E{number}"))).collect();
    events.extend((0..2).map(|_| event("Yard", "Swept")));
    for chunk in events.chunks(1_000) {
        write(db, chunk).await;
    }

    let counted = store.count_routes().await.expect("counts");

    assert_eq!(counted.len(), MOST_ROUTES as usize);
    assert!(counted.is_sorted_by(|one, other| one.route < other.route), "by name");
    let waiting = |route| counted.iter().find(|counted| counted.route == route).map(|counted| counted.waiting);
    assert_eq!((waiting(known), waiting(busy)), (Some(0), Some(2)));
}

pub(crate) async fn routes_that_had_a_listener_are_remembered_once(db: &dyn Harness) {
    let (first, twin, second) = (route("Order", "OrderPlaced"), route("order", "OrderPlaced"), route("Order", "OrderPaid"));
    assert!(db.store().routes().await.expect("reads").is_empty());

    db.store().remember_routes(&[first.clone(), twin.clone()], &[]).await.expect("notes");
    db.store().remember_routes(&[second.clone(), first.clone()], &[]).await.expect("a repeat is safe");
    db.store().remember_routes(&[], &[]).await.expect("nothing to do");

    let known = db.store().routes().await.expect("reads");
    assert!(known.iter().all(|known| known.first_seen_at.is_some() && known.paused_at.is_none()), "{known:?}");
    assert_eq!(known.into_iter().map(|known| known.route).collect::<Vec<_>>(), [second, first, twin], "byte by byte");
}

pub(crate) async fn a_route_is_only_relayed_until_it_has_a_listener_of_its_own(db: &dyn Harness) {
    let (placed, pattern) = (route("Order", "OrderPlaced"), route("Order", "*"));
    let only_relayed = async || -> Vec<Route> {
        let known = db.store().routes().await.expect("reads");
        known.into_iter().filter(|known| known.only_relayed).map(|known| known.route).collect()
    };
    let relayed = [placed.clone(), pattern.clone()];

    db.store().remember_routes(&[], &relayed).await.expect("notes");
    assert_eq!(only_relayed().await, [pattern.clone(), placed.clone()]);
    db.store().remember_routes(std::slice::from_ref(&placed), &[]).await.expect("notes");
    assert_eq!(only_relayed().await, std::slice::from_ref(&pattern));
    db.store().remember_routes(&[], &relayed).await.expect("notes");
    assert_eq!(only_relayed().await, [pattern]);
    let counted = db.store().count_routes().await.expect("counts");
    assert!(counted.iter().any(|known| known.route == placed && known.had_own_listener()), "{counted:?}");
}
