//! SQLite has no clock of its own, so it matters when the store looks at its clock: while it waits for the one connection that
//! writes, time goes by.
use std::time::Duration;

use outbox::SqliteStore;
use outbox::TransactionalStore;
use outbox::store::{ClaimStore, LeaseStore, Node, NodeStore, SettleStore};
use outbox::time::Timestamp;
use support::{Harness, Sqlite};

use crate::common::{LEASE, claim_due, owner, row, write_one};

/// Runs `call` while another transaction has the writer for a minute. On one thread, so that the call has come as far as it can
/// before the time goes by. Returns what the call came to.
async fn after_a_minute<T: Send + 'static>(db: &Sqlite, call: impl AsyncFnOnce(SqliteStore) -> T + Send + 'static) -> T {
    let store = db.sqlite();
    let busy = store.begin().await.expect("begins");
    let called = async {
        let call = tokio::task::spawn_local(call(store));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        db.let_pass(Duration::from_secs(60)).await;
        SqliteStore::rollback(busy).await.expect("rolls back");
        call.await.expect("no panic")
    };
    tokio::task::LocalSet::new().run_until(called).await
}

fn whole_lease_from(now: Timestamp) -> Option<Timestamp> {
    Some(now.plus(LEASE))
}

#[tokio::test]
async fn a_claim_holds_for_its_whole_lease_though_it_waited_for_the_writer() {
    let db = Sqlite::fresh().await;
    let id = write_one(&db).await;

    let due = support::due(&db.sqlite(), 1).await.expect("looks");
    let claim = async move |store: SqliteStore| store.claim(&owner("host"), LEASE, &due).await.expect("claims");
    let claimed = after_a_minute(&db, claim).await;

    assert_eq!(claimed.len(), 1);
    assert_eq!(row(&db, id).await.lease_end, whole_lease_from(db.now().await));
}

#[tokio::test]
async fn a_renewal_holds_for_its_whole_lease_though_it_waited_for_the_writer() {
    let db = Sqlite::fresh().await;
    let id = write_one(&db).await;
    let held = vec![claim_due(&db.sqlite(), 1).await.expect("claims")[0].fence];

    after_a_minute(&db, async move |store| store.renew(&held, LEASE).await.expect("renews")).await;

    assert_eq!(row(&db, id).await.lease_end, whole_lease_from(db.now().await));
}

#[tokio::test]
async fn a_host_is_alive_for_a_whole_lease_though_its_heartbeat_waited_for_the_writer() {
    let db = Sqlite::fresh().await;
    let node = Node::new(owner("host"), "host 1", "ordered", "1");

    after_a_minute(&db, async move |store| store.heartbeat(&node, LEASE).await.expect("says that it is alive")).await;
    let alive = db.sqlite().nodes().await.expect("lists")[0].alive_until;
    assert_eq!(Some(alive), whole_lease_from(db.now().await));
}

#[tokio::test]
async fn a_delay_counts_from_when_its_outcome_is_stored() {
    let db = Sqlite::fresh().await;
    let id = write_one(&db).await;
    let fence = claim_due(&db.sqlite(), 1).await.expect("claims")[0].fence;
    let settlement = outbox::store::Settlement::Deferred { after: LEASE };
    let settled = [outbox::store::Settled::new(fence, settlement)];

    after_a_minute(&db, async move |store| store.settle(&settled).await.expect("stores")).await;

    assert_eq!(row(&db, id).await.due_at, whole_lease_from(db.now().await));
}
