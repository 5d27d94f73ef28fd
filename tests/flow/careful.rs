//! Events of partitions whose last owner died. The next owner claims as many of them as the last one can have had in flight, so that
//! it finds an event that kills its hosts.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::poller::PollerConfig;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{NewRow, Node, NodeStore as _, Ownership, PARTITIONS, PartitionStore as _, WriteStore as _};
use outbox::{Envelope, Mode, Outbox, OutboxBuilder, PostgresStore, Registration};
use support::{Database, Harness, MySql, Postgres, Recorder, eventually};

use crate::common::{HOUR, ROUTE, done, eager, orders};

const BATCH: u32 = 5;

/// A host that reads few events at once, and may have ten in flight.
fn host<D: Database>(store: D::Store, mode: Mode, recorder: &Recorder) -> OutboxBuilder<D::Store> {
    let poller = PollerConfig { batch_size: BATCH, drain_batch_size: BATCH, ..eager() };
    let dispatcher = DispatcherConfig { workers: 1, cold_queue: 4, ..DispatcherConfig::default() };
    Outbox::builder(store).mode(mode).poller(poller).dispatcher(dispatcher).listener(ROUTE, recorder.listener())
}

/// Events that only a poller can find, in partitions that their owner has left.
async fn left_behind<D: Database>(db: &D, count: u32) {
    leave_behind(db, &orders(count)).await;
}

async fn leave_behind<D: Database>(db: &D, envelopes: &[Envelope]) {
    let (store, gone) = (db.another().await, OwnerId::generate("gone"));
    let node = Node::new(gone.clone(), "gone", "multi_node", "1");
    store.heartbeat(&node, Duration::from_millis(1)).await.expect("writes a heartbeat");
    store.keep_partitions(&gone, PARTITIONS, PARTITIONS).await.expect("takes");
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    store.write(&rows, &Ownership { owner: gone, lease: HOUR }).await.expect("writes");
}

/// How many events were claimed before their outcome.
async fn claimed(db: &impl Database) -> i64 {
    db.number("SELECT count(*) FROM outbox_event WHERE claim_seq > 1").await
}

pub(crate) async fn a_host_claims_as_many_events_as_the_last_owner_can_have_had_in_flight<D: Database>(db: &D) {
    for mode in [Mode::SingleNode, Mode::MultiNode, Mode::Ordered, Mode::OrderedByAggregate] {
        left_behind(db, 40).await;
        let recorder = Recorder::done();

        let host = host::<D>(db.another().await, mode, &recorder).start().await.expect("starts");

        done(db, 40).await;
        let claimed = claimed(db).await;
        assert!((10..40).contains(&claimed), "{mode:?}: {claimed} of 40 events were claimed");
        assert_eq!(recorder.count(), 40, "{mode:?}: each once");
        host.shutdown().await;
        db.execute("DELETE FROM outbox_event").await;
    }
}

/// More events of the slow listener wait in the table than any host has in flight, in front of the others.
pub(crate) async fn events_behind_those_of_a_slow_listener_are_claimed<D: Database>(db: &D) {
    let others = (0..5).map(|number| Envelope::new("Other").json(&number).expect("a good envelope"));
    leave_behind(db, &orders(100).into_iter().chain(others).collect::<Vec<_>>()).await;
    let (slow, quick) = (Recorder::held(), Recorder::done());
    let poller = PollerConfig { batch_size: BATCH, drain_batch_size: BATCH, ..eager() };
    let (deadline, lease) = (HOUR, HOUR * 2);
    let dispatcher = DispatcherConfig { workers: 16, cold_queue: 4, deadline, lease, ..DispatcherConfig::default() };
    let one_call = Registration::new(ROUTE.try_into().expect("good names"), slow.listener()).concurrency(1);
    let host = Outbox::builder(db.another().await).mode(Mode::MultiNode).poller(poller).dispatcher(dispatcher);

    let host = host.registration(one_call).listener("Other", quick.listener()).start().await.expect("starts");

    done(db, 5).await;
    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE status = 1 AND claim_seq > 1").await, 5);
    assert_eq!((slow.count(), quick.count()), (1, 5));
    slow.finish(100);
    host.shutdown().await;
}

/// The first 20 of 40 events are locked, more than the last owner can have had in flight.
async fn goes_on_behind_locked_events<D: Database>(db: &D, unlocked: impl Future<Output = ()>) {
    let recorder = Recorder::done();

    let host = host::<D>(db.another().await, Mode::MultiNode, &recorder).start().await.expect("starts");

    done(db, 20).await;
    let while_locked = claimed(db).await;
    assert!((10..=20).contains(&while_locked), "{while_locked} of 20 events were claimed");
    unlocked.await;
    done(db, 40).await;
    assert_eq!(recorder.count(), 40, "each once");
    host.shutdown().await;
}

const FIRST: &str = "SELECT seq FROM outbox_event ORDER BY seq LIMIT 20 FOR UPDATE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_behind_locked_ones_of_a_host_that_is_gone_are_claimed_and_delivered_on_postgres() {
    let db = Postgres::fresh().await;
    left_behind(&db, 40).await;
    let mut other = sqlx::PgPool::connect(db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(FIRST).execute(&mut *other).await.expect("locks");

    goes_on_behind_locked_events(&db, async { other.rollback().await.expect("unlocks") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_behind_locked_ones_of_a_host_that_is_gone_are_claimed_and_delivered_on_mysql() {
    let db = MySql::fresh().await;
    left_behind(&db, 40).await;
    let mut other = sqlx::MySqlPool::connect(&db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(FIRST).execute(&mut *other).await.expect("locks");

    goes_on_behind_locked_events(&db, async { other.rollback().await.expect("unlocks") }).await;
}

/// A trigger needs a lock for one row alone, so that the row itself is free. Other events of its batch are claimed all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_whose_claim_waits_for_another_tables_lock_holds_up_no_other_on_postgres() {
    let db = Postgres::fresh().await;
    left_behind(&db, 40).await;
    let held = format!("{}.held", db.schema());
    db.execute(&format!("CREATE TABLE {held} (id integer PRIMARY KEY); INSERT INTO {held} VALUES (1)")).await;
    let body = format!("BEGIN PERFORM id FROM {held} FOR SHARE; RETURN NEW; END");
    db.execute(&format!("CREATE FUNCTION share() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
    let when = "FOR EACH ROW WHEN (OLD.aggregate_id = '3') EXECUTE FUNCTION share()";
    db.execute(&format!("CREATE TRIGGER shares BEFORE UPDATE ON outbox_event {when}")).await;
    let mut other = sqlx::PgPool::connect(db.url()).await.expect("connects").begin().await.expect("begins");
    db.run_on(&mut other, &format!("SELECT id FROM {held} FOR UPDATE")).await;
    let mut options = PostgresOptions::from_url(db.url()).expect("good");
    options.lock_timeout = Duration::from_millis(100);
    let store = PostgresStore::connect_with(options).await.expect("connects");
    let recorder = Recorder::done();

    let host = host::<Postgres>(store, Mode::MultiNode, &recorder).start().await.expect("starts");

    done(&db, 39).await;
    assert_eq!(recorder.count(), 39, "the locked one is not delivered without a claim");
    other.rollback().await.expect("unlocks");
    done(&db, 40).await;
    assert_eq!(recorder.count(), 40, "each once");
    host.shutdown().await;
}

/// The first event of one queue is locked while the host reads carefully: it is claimed as soon as it is free.
async fn claims_a_front_that_was_locked<D: Database>(db: &D, unlocked: impl Future<Output = ()>) {
    let recorder = Recorder::done();
    let host = host::<D>(db.another().await, Mode::Ordered, &recorder).start().await.expect("starts");
    let owned = "SELECT count(*) FROM outbox_event_partition WHERE epoch = 2";
    eventually("it has taken the partitions over", async || db.number(owned).await == 256).await;
    let reads = || {
        let counts = host.metrics().counts();
        counts.reads_full + counts.reads_partial
    };
    eventually("it has read the front", async || reads() >= 3).await;

    unlocked.await;

    done(db, 3).await;
    assert_eq!(claimed(db).await, 3);
    assert_eq!(recorder.count(), 3);
    host.shutdown().await;
}

const FRONT: &str = "SELECT seq FROM outbox_event ORDER BY seq LIMIT 1 FOR UPDATE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_front_of_a_host_that_is_gone_is_claimed_once_it_is_free_on_postgres() {
    let db = Postgres::fresh().await;
    left_behind(&db, 3).await;
    let mut other = sqlx::PgPool::connect(db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(FRONT).execute(&mut *other).await.expect("locks");

    claims_a_front_that_was_locked(&db, async { other.rollback().await.expect("unlocks") }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_front_of_a_host_that_is_gone_is_claimed_once_it_is_free_on_mysql() {
    let db = MySql::fresh().await;
    left_behind(&db, 3).await;
    let mut other = sqlx::MySqlPool::connect(&db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(FRONT).execute(&mut *other).await.expect("locks");

    claims_a_front_that_was_locked(&db, async { other.rollback().await.expect("unlocks") }).await;
}
