//! Outcomes of what was read, while partitions are kept, given back and taken by others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::event::{Fence, OwnerId};
use outbox::store::{HeldPartition, PARTITIONS, PartitionStore as _, ReadRequest, Settled, Settlement};
use outbox::{Envelope, Status, Store, TransactionalStore};
use sqlx::{AssertSqlSafe, Executor};
use support::{Database, Harness, MySql, Postgres, eventually, in_time};
use tokio::task::{JoinHandle, JoinSet};

use crate::common::{self, LEASE, MOMENT, dead, event, of_epoch, owner, retry, row, write};

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

/// Keeps all partitions that it can have.
async fn keep(store: &dyn Store, owner: &OwnerId) -> Vec<HeldPartition> {
    common::keep(store, owner, PARTITIONS, PARTITIONS).await
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

/// Lets the leases of all hosts end: `now` is the time in SQL.
async fn end_leases(db: &dyn Harness, now: &str) {
    db.execute(&format!("UPDATE outbox_event_node SET alive_until = {now}")).await;
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
    let held = common::keep(store, owner, 0, PARTITIONS).await;
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

pub(crate) async fn missing_and_surplus_partitions_are_found_and_restored(db: &dyn Harness) {
    let (store, host) = (db.store(), owner("host"));
    let before = keep(&*store, &host).await;
    assert!(store.partition_faults().await.expect("looks").is_empty());
    db.execute("DELETE FROM outbox_event_partition WHERE partition_id >= 128").await;
    db.execute("INSERT INTO outbox_event_partition (partition_id, owner) VALUES (512, NULL), (-5, NULL)").await;

    let faults = store.partition_faults().await.expect("looks");
    assert_eq!((faults.missing, faults.surplus), (128, 2));
    assert_eq!(
        faults.to_string(),
        "128 of 256 partitions have no row, so no host reads their events; 2 rows belong to no partition"
    );
    assert_eq!(store.restore_partitions().await.expect("restores"), faults);

    assert!(store.restore_partitions().await.expect("restores").is_empty(), "nothing is left to restore");
    let after = keep(&*store, &host).await;
    assert_eq!(after[..128], before[..128], "existing rows stay as they were");
    assert_eq!(after.len(), 256);
    assert!(after[128..].iter().all(|held| held.abandoned && held.epoch > 1_000_000), "no earlier fence counts: {after:?}");
}

/// The same epochs come again, unless a second passes in between.
pub(crate) async fn partitions_that_were_deleted_twice_within_a_second_have_no_owner_of_before(db: &dyn Harness) {
    let (store, first, second) = (db.store(), owner("first"), owner("second"));
    let events = spread(db, 20).await;
    let begin_anew = async || {
        db.execute("DELETE FROM outbox_event_partition").await;
        store.restore_partitions().await.expect("restores");
    };
    begin_anew().await;
    keep(&*store, &first).await;
    let of_first = read(&*store, &first).await;
    begin_anew().await;

    let taken = keep(&*store, &second).await;

    assert_eq!((taken.len(), of_first.len()), (256, events.len()));
    assert!(taken.iter().all(|held| held.abandoned), "the host claims what it reads of them: {taken:?}");
    let of_second = read(&*store, &second).await;
    let claimed = store.claim(&second, LEASE, &of_second).await.expect("claims");
    assert_eq!(claimed.len(), events.len());
    let done: Vec<Settled> = of_first.iter().map(|fence| Settled::new(*fence, Settlement::Done)).collect();
    assert_eq!(store.settle(&done).await.expect("answers"), 20, "no outcome of the first host counts");
    let done: Vec<Settled> = claimed.iter().map(|claimed| Settled::new(claimed.fence, Settlement::Done)).collect();
    assert_eq!(store.settle(&done).await.expect("answers"), 0, "those of the second host do");
}

/// The host `late` comes back to life while `heir` takes its partitions: each of them belongs to one of the two, and both know.
async fn revived_during_a_takeover(db: &impl Database, under_way: impl AsyncFnOnce()) {
    let (late, heir) = (owner("late"), owner("heir"));
    let before = keep(&*db.store(), &late).await;
    db.let_pass(LEASE + MOMENT).await;
    common::beat(&*db.store(), &heir).await;

    // Each store has one connection for this.
    let (store, taker) = (db.another().await, heir.clone());
    let taking = tokio::spawn(async move { store.keep_partitions(&taker, PARTITIONS, PARTITIONS).await });
    under_way().await;
    let held = keep(&*db.store(), &late).await;

    let taken = taking.await.expect("does not panic").expect("takes");
    let mut numbers: Vec<u16> = held.iter().chain(&taken).map(|held| held.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, all(), "each belongs to one of the two");
    assert!(held.iter().all(|held| before.contains(held)), "what it still has, it has under the same epoch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_heartbeat_waits_for_a_takeover_that_takes_its_time() {
    const SLOW: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE UPDATE ON outbox_event_partition FOR EACH ROW
WHEN (NEW.partition_id = 255 AND NEW.owner LIKE 'heir%') EXECUTE FUNCTION slow()";
    let db = Postgres::fresh().await;
    let sleeps = format!(
        "SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid)
         WHERE wait_event = 'PgSleep' AND relation = '{}.outbox_event_partition'::regclass",
        db.schema()
    );
    db.execute(SLOW).await;
    revived_during_a_takeover(&db, async || eventually("it takes", async || db.number(&sleeps).await > 0).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_a_heartbeat_waits_for_a_takeover_that_takes_its_time() {
    const SLOW: &str = "
CREATE TRIGGER slow BEFORE UPDATE ON outbox_event_partition FOR EACH ROW
IF NEW.partition_id = 255 AND NEW.owner LIKE 'heir%' THEN DO SLEEP(1); END IF";
    const SLEEPS: &str = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User sleep'";
    let db = MySql::fresh().await;
    db.execute(SLOW).await;
    revived_during_a_takeover(&db, async || eventually("it takes", async || db.number(SLEEPS).await > 0).await).await;
}
