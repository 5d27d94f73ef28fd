//! Events that wait for a listener.

use outbox::store::Settlement;
use outbox::{Route, Status};
use support::Harness;

use crate::common::{claim, event, ids, plains, row, settle, write};

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

    let unparked = db.store().unpark(&[route("Order", "OrderPlaced"), route("No", "Such")], 100).await.expect("unparks");

    assert_eq!(unparked, 1);
    let record = row(db, wanted.id()).await;
    assert_eq!((record.parked, record.due_at, record.status), (None, Some(record.available_at), Status::New));
    assert_eq!(ids(&claim(db, 10).await), [wanted.id()], "a name that differs by case is another name");
    assert!(row(db, twin.id()).await.parked.is_some() && row(db, other.id()).await.parked.is_some());
    assert_eq!(db.store().unpark(&[], 100).await.expect("nothing to do"), 0);
}

pub(crate) async fn unparking_goes_in_batches(db: &dyn Harness) {
    write(db, &plains(db, 25).await).await;
    park_all(db).await;
    let routes = [route("Order", "OrderPlaced")];

    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(db.store().unpark(&routes, 10).await.expect("unparks"));
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
    store.unpark(&wanted, 100).await.expect("unparks");
    assert_eq!(store.parked_route(None).await.expect("reads"), None);
}

pub(crate) async fn routes_that_had_a_listener_are_remembered_once(db: &dyn Harness) {
    let (first, twin, second) = (route("Order", "OrderPlaced"), route("order", "OrderPlaced"), route("Order", "OrderPaid"));
    assert!(db.store().routes().await.expect("reads").is_empty());

    db.store().remember_routes(&[first.clone(), twin.clone()]).await.expect("notes");
    db.store().remember_routes(&[second.clone(), first.clone()]).await.expect("a repeat is safe");
    db.store().remember_routes(&[]).await.expect("nothing to do");

    let known = db.store().routes().await.expect("reads");
    assert!(known.iter().all(|known| known.first_seen_at.is_some() && known.paused_at.is_none()), "{known:?}");
    assert_eq!(known.into_iter().map(|known| known.route).collect::<Vec<_>>(), [second, first, twin], "byte by byte");
}
