//! MySQL and MariaDB: a `seq` beyond all signed numbers, which no CHECK of an AUTO_INCREMENT column may refuse.

use std::time::Duration;

use outbox::store::{Filter, PARTITIONS, ReadOrder, ReadRequest, Settlement, WaitsFor};
use support::{Harness, MySql};

use crate::common::{claim, event, kept, owner, row, settle, write_one};
use crate::read::request;

/// The first number that is not signed.
const FIRST: u64 = 1 << 63;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_number_is_beyond_all_signed_numbers_is_delivered() {
    let (db, host) = (MySql::fresh().await, owner("host"));
    db.execute(&format!(
        "INSERT INTO outbox_event (seq, event_type, aggregate_type, aggregate_id, payload)
         VALUES ({FIRST}, 'OrderPlaced', 'Order', '42', '1')"
    ))
    .await;
    let later = write_one(&db).await;
    let store = db.store();
    let all = kept(&*store, &host, PARTITIONS, PARTITIONS).await;
    assert_eq!(row(&db, later).await.seq, FIRST + 1, "later numbers follow it");

    let by_aggregate = ReadOrder::ByAggregate { waits_for: WaitsFor::Unresolved, queued: Vec::new() };
    for (order, blocker) in [(None, None), (Some(by_aggregate), Some(FIRST)), (Some(ReadOrder::OneForAll), Some(FIRST))] {
        let read = store.read(&ReadRequest { order, ..request(&host) }).await.expect("reads");
        let found: Vec<_> = read.iter().map(|one| (one.position.sequence, one.event.behind)).collect();
        assert_eq!(found, [(FIRST, None), (FIRST + 1, blocker)]);
        assert!(read.iter().all(|one| one.event.event.is_ok()), "{read:?}");
    }
    let first = store.read(&ReadRequest { limit: 1, ..request(&host) }).await.expect("reads").remove(0);
    let rest = store.read(&ReadRequest { after: Some(first.position), ..request(&host) }).await.expect("reads");
    assert_eq!(rest.iter().map(|one| one.position.sequence).collect::<Vec<_>>(), [FIRST + 1]);
    assert!(store.next_to_read(&host, &[FIRST], &[]).await.expect("looks").is_some());

    let fences: Vec<_> = claim(&db, 10).await.into_iter().map(|claimed| claimed.fence).collect();
    assert_eq!(settle(&db, fences[1], Settlement::Behind { sequence: FIRST }).await, 0);
    assert_eq!(row(&db, later).await.behind, Some(FIRST));
    let blockers = store.blockers(&all, 0, 10).await.expect("looks");
    assert_eq!(blockers.iter().map(|blocker| blocker.sequence).collect::<Vec<_>>(), [FIRST]);
    assert_eq!(store.blocked_keys(10).await.expect("lists")[0].seq, FIRST);
    let listed = store.list(&Filter { after: Some(FIRST), ..Filter::default() }, 10).await.expect("lists");
    assert_eq!(listed.iter().map(|record| record.event_id).collect::<Vec<_>>(), [later]);

    let again = Settlement::Deferred { after: Duration::from_secs(3_600) };
    assert_eq!(settle(&db, fences[0], again).await, 0);
    let rows = store.waiting_rows(None, 0, 10).await.expect("chooses");
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [FIRST]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_names_a_blocker_beyond_all_signed_numbers_keeps_no_other_waiting() {
    let db = MySql::fresh().await;
    let envelope = event(&db, "OrderPlaced").await.aggregate("Order", "1").json(&1).expect("good");
    crate::common::write(&db, std::slice::from_ref(&envelope)).await;
    db.execute(&format!("UPDATE outbox_event SET due_at = NULL, behind = {}", u64::MAX)).await;
    let store = db.store();
    let all: Vec<u16> = (0..PARTITIONS).collect();

    let blockers = store.blockers(&all, 0, 10).await.expect("looks");

    assert_eq!(blockers.iter().map(|blocker| blocker.sequence).collect::<Vec<_>>(), [u64::MAX]);
    store.unblock(&[u64::MAX], WaitsFor::Unresolved, 10).await.expect("unblocks it");
    assert_eq!(row(&db, envelope.id()).await.behind, None);
}
