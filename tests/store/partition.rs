//! Outcomes of what was read, while partitions are kept, given back and taken by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::event::{Fence, OwnerId};
use outbox::store::{HeldPartition, Node, PARTITIONS, ReadRequest, Settled, Settlement};
use outbox::{Envelope, Status, Store, TransactionalStore};
use sqlx::{AssertSqlSafe, Executor};
use support::{Harness, MySql, Postgres, eventually, in_time};
use tokio::task::{JoinHandle, JoinSet};

use crate::common::{LEASE, dead, event, of_epoch, owner, retry, row, write};

const ROUNDS: usize = 100;
const EVENTS: usize = 120;

fn all() -> Vec<u16> {
    (0..PARTITIONS).collect()
}

/// Each of its own aggregate, so that they are spread over the partitions.
async fn spread(db: &dyn Harness, count: usize) -> Vec<Envelope> {
    let mut envelopes = Vec::with_capacity(count);
    for number in 0..count {
        envelopes.push(event(db, "OrderPlaced").await.aggregate("Order", number.to_string()).json(&1).expect("good"));
    }
    write(db, &envelopes).await;
    envelopes
}

async fn read(store: &dyn Store, owner: &OwnerId) -> Vec<Fence> {
    let request = ReadRequest {
        owner: owner.clone(),
        partitions: all(),
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 1_000,
        max_bytes: 64 << 20,
        skip_recent: Duration::ZERO,
        order: None,
    };
    store.read(&request).await.expect("reads").iter().map(|read| read.event.fence).collect()
}

async fn keep(store: &dyn Store, owner: &OwnerId) -> Vec<HeldPartition> {
    store.keep_partitions(owner, LEASE, PARTITIONS, PARTITIONS).await.expect("keeps, and no deadlock reaches the caller")
}

pub(crate) async fn two_settlers_beside_a_keeper_store_each_outcome_once(db: &dyn Harness) {
    let settled = Arc::new(AtomicBool::new(false));
    let host = owner("host");
    keep(&*db.store(), &host).await;
    spread(db, EVENTS).await;
    let mut settlers = JoinSet::new();
    for half in 0..2 {
        let (store, host) = (db.store(), host.clone());
        settlers.spawn(async move {
            for _ in 0..ROUNDS {
                let read = read(&*store, &host).await;
                let ours = read.into_iter().filter(|fence| fence.sequence % 2 == half);
                let settled: Vec<Settled> = ours.map(|fence| Settled::new(fence, retry(Duration::ZERO))).collect();
                assert_eq!(settled.len(), EVENTS / 2, "all are due again");
                assert_eq!(store.settle(&settled).await.expect("stores, and no deadlock reaches the caller"), 0);
                let again = store.settle(&settled).await.expect("a repeat is safe");
                assert_eq!(again, settled.len() as u64, "each had its outcome");
            }
        });
    }
    let (store, stranger, ended) = (db.store(), owner("stranger"), settled.clone());
    let keeper = tokio::spawn(async move {
        let mut beats = 0_u32;
        while !ended.load(Ordering::Relaxed) || beats < 10 {
            assert!(keep(&*store, &host).await.iter().all(|held| held.epoch == 1), "they were ours all the time");
            store.release_partitions(&stranger, &of_epoch(1, all())).await.expect("gives back what is not its own: nothing");
            store.leave(&stranger).await.expect("leaves");
            beats += 1;
        }
    });

    settlers.join_all().await;
    settled.store(true, Ordering::Relaxed);
    keeper.await.expect("keeps to the end");

    let attempts = format!("SELECT count(*) FROM outbox_event WHERE status = 2 AND attempts = {ROUNDS}");
    assert_eq!(db.number(&attempts).await, i64::try_from(EVENTS).expect("few"), "each outcome was stored once");
}

/// Outcomes of two events that are being stored: the first event's row is changed, and the second's is locked by another program.
struct Waiting {
    host: OwnerId,
    events: Vec<Envelope>,
    stored: JoinHandle<u64>,
}

/// `lock` runs a statement that locks a row, and `waits` says whether a session of this database waits for one.
async fn waiting_outcomes(db: &dyn Harness, lock: impl AsyncFnOnce(String), waits: impl AsyncFnMut() -> bool) -> Waiting {
    let host = owner("host");
    keep(&*db.store(), &host).await;
    let events = spread(db, 2).await;
    let read = read(&*db.store(), &host).await;
    lock(format!("SELECT seq FROM outbox_event WHERE seq = {} FOR UPDATE", read[1].sequence)).await;
    let (store, settled) = (db.store(), [0, 1].map(|at| Settled::new(read[at], Settlement::Done)));
    let stored = tokio::spawn(async move { store.settle(&settled).await.expect("stores when the row is free") });
    eventually("the outcomes wait for the row", waits).await;
    Waiting { host, events, stored }
}

/// Lets the leases of all partitions end: `now` is the time in SQL.
async fn end_leases(db: &dyn Harness, now: &str) {
    db.execute(&format!("UPDATE outbox_event_partition SET lease_end = {now}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_a_partition_gets_no_other_owner_while_an_outcome_of_it_is_stored() {
    let (db, heir) = (MySql::fresh().await, owner("heir"));
    let mut other = db.mysql().begin().await.expect("begins");
    let lock = async |sql: String| {
        other.execute(AssertSqlSafe(sql)).await.expect("locks");
    };
    let Waiting { host, events, stored } = waiting_outcomes(&db, lock, async || db.waits_for_a_row().await).await;

    let renewed = in_time("a renewal waits for no outcome", keep(&*db.store(), &host)).await;
    end_leases(&db, "UTC_TIMESTAMP(6)").await;
    let taken = in_time("nobody who takes partitions waits for an outcome", keep(&*db.store(), &heir)).await;
    other.rollback().await.expect("unlocks");

    assert_eq!((renewed.len(), taken.len()), (256, 255), "all but the one whose outcome was being stored");
    assert_eq!(stored.await.expect("stores"), 1, "the second event's partition was taken before its outcome was stored");
    let found = read(&*db.store(), &heir).await;
    assert_eq!((row(&db, events[0].id()).await.status, found.len()), (Status::Done, 1));
    let done = Settled::new(found[0], Settlement::Done);
    assert_eq!(db.store().settle(&[done]).await.expect("stores"), 0);
    assert_eq!(keep(&*db.store(), &heir).await.len(), 256, "the last is taken the next time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_an_outcome_that_waits_for_a_row_counts_though_its_partition_gets_another_owner() {
    const WAITING: &str = "
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%SET claim_seq%' AND pid IN (
  SELECT pid FROM pg_locks WHERE relation = 'outbox_event'::regclass)";
    let (db, heir) = (Postgres::fresh().await, owner("heir"));
    let mut other = db.postgres().begin().await.expect("begins");
    let lock = async |sql: String| {
        other.execute(AssertSqlSafe(sql)).await.expect("locks");
    };
    let waits = async || db.number(WAITING).await > 0;
    let Waiting { host, events, stored } = waiting_outcomes(&db, lock, waits).await;

    let renewed = in_time("a renewal waits for no outcome", keep(&*db.store(), &host)).await;
    end_leases(&db, "now()").await;
    let taken = in_time("nobody who takes partitions waits for an outcome", keep(&*db.store(), &heir)).await;
    let found = read(&*db.store(), &heir).await;
    other.rollback().await.expect("unlocks");

    assert_eq!((renewed.len(), taken.len(), found.len()), (256, 256, 2));
    assert_eq!(stored.await.expect("stores"), 0, "they are judged by the epochs at which they began");
    let second = found.iter().map(|fence| Settled::new(*fence, dead("a second outcome"))).collect::<Vec<_>>();
    assert_eq!(db.store().settle(&second).await.expect("stores"), 2, "an event ends once");
    for event in events {
        assert_eq!(row(&db, event.id()).await.status, Status::Done);
    }
}

/// The number and epoch of each partition that an owner holds.
async fn held(store: &dyn Store, owner: &OwnerId) -> Vec<(u16, u32)> {
    let held = store.keep_partitions(owner, LEASE, 0, PARTITIONS).await.expect("keeps");
    held.iter().map(|held| (held.number, held.epoch)).collect()
}

pub(crate) async fn a_release_that_arrives_late_gives_nothing_back(db: &dyn Harness) {
    let (store, owner) = (db.store(), owner("host"));
    let before = keep(&*store, &owner).await;
    store.release_partitions(&owner, &before).await.expect("gives back");
    keep(&*store, &owner).await;

    // As the network may deliver it late.
    store.release_partitions(&owner, &before).await.expect("nothing of these epochs is left");

    assert_eq!(held(&*store, &owner).await, all().into_iter().map(|number| (number, 2)).collect::<Vec<_>>());
}

/// A time that no lease can end at, as the database writes it.
fn year_9999(db: &dyn Harness) -> &'static str {
    match db.store().kind() {
        "sqlite" => "253370764800000000",
        _ => "'9999-01-01 00:00:00'",
    }
}

pub(crate) async fn what_somebody_did_to_the_partition_table_is_found_and_mended(db: &dyn Harness) {
    let (store, host, other) = (db.store(), OwnerId::generate("host"), OwnerId::generate("other"));
    store.heartbeat(&Node::new(host.clone(), "host", "multi_node", "0.1.0"), LEASE).await.expect("is seen");
    let before = keep(&*store, &host).await;
    assert!(store.partition_faults().await.expect("looks").is_empty(), "as hosts leave it");
    let far = year_9999(db);
    for by_hand in [
        "DELETE FROM outbox_event_partition WHERE partition_id >= 128",
        "INSERT INTO outbox_event_partition (partition_id, owner) VALUES (512, NULL), (-5, NULL)",
        "UPDATE outbox_event_partition SET epoch = -1 WHERE partition_id = 3",
        "UPDATE outbox_event_partition SET epoch = 2147483647 WHERE partition_id = 4",
        &format!("UPDATE outbox_event_partition SET owner = 'ghost', lease_end = {far} WHERE partition_id = 5"),
        "UPDATE outbox_event_partition SET owner = 'ghost', lease_end = NULL WHERE partition_id = 6",
        "UPDATE outbox_event_partition SET epoch = 0 WHERE partition_id = 7",
    ] {
        db.execute(by_hand).await;
    }

    let faults = store.partition_faults().await.expect("looks");
    assert_eq!((faults.missing, faults.strange, faults.held, faults.epochs), (128, 2, 2, 2), "{faults}");
    assert!(faults.to_string().starts_with("128 of 256 partitions have no row"), "{faults}");
    store.mend_partitions(&[7], LEASE).await.expect("mends");

    let faults = store.partition_faults().await.expect("looks");
    assert!(faults.is_empty(), "{faults}");
    let kept = keep(&*store, &host).await;
    let raised = |number: u16| kept.iter().find(|held| held.number == number).expect("held still").epoch;
    assert_eq!((raised(0), raised(127)), (before[0].epoch, before[127].epoch), "what was right stays as it is");
    assert!([3, 4, 7].iter().all(|number| raised(*number) > 1_000_000), "above all that can have been: {kept:?}");
    assert!([5, 6].iter().all(|number| raised(*number) == 2), "their leases have ended: {kept:?}");
    assert!(kept.iter().all(|held| held.number < 128), "a host may have events of the others in hand: {kept:?}");
    db.let_pass(LEASE + Duration::from_secs(1)).await;
    let taken = keep(&*store, &other).await;
    assert_eq!(taken.len(), 256);
    assert!(taken.iter().all(|held| held.abandoned), "nobody gave them back: {taken:?}");
    assert!(taken[128..].iter().all(|held| held.epoch > 1_000_000), "no fence of before counts: {taken:?}");
}
