//! Tables that are changed by hand, while hosts are at work and before they start.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::WriteStore as _;
use outbox::store::{Audit, NewRow, Ownership};
use outbox::{Envelope, EventId, Failure, Mode, Outbox, OutboxBuilder, Status, Store, StoreError, TransactionalStore};
use support::{Database, Recorder, eventually};

use crate::common::{HOUR, ROUTE, at_rest, commit, done, eager, orders, outbox, reaches, row};

/// Short enough to wait for: for so long nobody takes a partition whose row was missing.
const LEASE: Duration = Duration::from_secs(1);

const MODES: [Mode; 4] = [Mode::SingleNode, Mode::MultiNode, Mode::Ordered, Mode::OrderedByAggregate];

fn host<S: TransactionalStore + Clone>(store: S, mode: Mode, recorder: &Recorder) -> OutboxBuilder<S> {
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 2, ..DispatcherConfig::default() };
    Outbox::builder(store).mode(mode).poller(eager()).dispatcher(config).listener(ROUTE, recorder.listener())
}

/// Inserts events that only a poller can find.
async fn insert(db: &impl Database, count: u32) {
    insert_all(db, &orders(count)).await;
}

async fn insert_all(db: &impl Database, envelopes: &[Envelope]) {
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    // By the clock that hosts go by.
    db.another().await.write(&rows, &nobody).await.expect("writes");
}

/// Every kind of damage at once.
async fn damage(db: &impl Database) {
    for by_hand in [
        "DELETE FROM outbox_event_partition WHERE partition_id = 0 OR partition_id >= 128",
        "INSERT INTO outbox_event_partition (partition_id, owner) VALUES (512, NULL), (-5, NULL)",
        "UPDATE outbox_event_partition SET owner = 'ghost' WHERE partition_id BETWEEN 20 AND 29",
        "DELETE FROM outbox_event_node",
    ] {
        db.execute(by_hand).await;
    }
}

/// A trigger that sets rows back leaves the same row, but does so each time at once.
pub(crate) async fn an_event_that_is_set_back_by_hand_is_delivered_each_time<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit(&host, orders(1)).await[0];
    for calls in 1..=4 {
        eventually("it is called", async || recorder.count() == calls).await;
        reaches(db, id, Status::Done).await;
        // The host may still be looking at the row.
        at_rest(&host).await;

        db.execute("UPDATE outbox_event SET status = 0, due_at = created_at, done_at = NULL").await;
    }

    eventually("it is called once more", async || recorder.count() == 5).await;
    reaches(db, id, Status::Done).await;
    host.shutdown().await;
}

/// An operator replays an event just after it died.
pub(crate) async fn an_event_that_is_replayed_at_once_is_delivered_again<D: Database>(db: &D) {
    let recorder = Recorder::answering(|_| Err(Failure::unrecoverable("no such order")));
    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit(&host, orders(1)).await[0];
    for calls in 1..=3 {
        eventually("it is called", async || recorder.count() == calls).await;
        reaches(db, id, Status::Dead).await;

        assert!(db.store().replay(id, &Audit::by("tester")).await.expect("replays"));
    }

    eventually("it is called once more", async || recorder.count() == 4).await;
    reaches(db, id, Status::Dead).await;
    host.shutdown().await;
}

pub(crate) async fn a_host_restores_the_partition_table_and_goes_on_in_every_mode<D: Database>(db: &D) {
    let mut total = 0;
    for mode in MODES {
        let recorder = Recorder::done();
        let running = host(db.another().await, mode, &recorder).start().await.expect("starts");
        insert(db, 100).await;
        done(db, total + 100).await;

        damage(db).await;
        insert(db, 100).await;

        done(db, total + 200).await;
        running.shutdown().await;
        db.execute("DELETE FROM outbox_event_partition").await;
        insert(db, 100).await;
        let starting = host(db.another().await, mode, &recorder).start().await.expect("starts");
        total += 300;
        done(db, total).await;
        let mut ids = recorder.ids();
        assert_eq!(ids.len(), 300, "{mode:?}: none was in hand when it happened, so none is delivered twice");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 300, "{mode:?}: each once");
        starting.shutdown().await;
        let faults = db.store().partition_faults().await.expect("looks");
        assert!(faults.is_empty(), "{mode:?}: {faults}");
    }
}

/// From now on no host can give a partition back.
async fn refuse_releases(db: &impl Database) {
    db.execute(match db.store().kind() {
        "sqlite" => {
            "CREATE TRIGGER refuse BEFORE UPDATE ON outbox_event_partition WHEN NEW.owner IS NULL
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        }
        "postgres" => {
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON outbox_event_partition FOR EACH ROW WHEN (NEW.owner IS NULL)
             EXECUTE FUNCTION refuse()"
        }
        _ => {
            "CREATE TRIGGER refuse BEFORE UPDATE ON outbox_event_partition FOR EACH ROW
             IF NEW.owner IS NULL THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF"
        }
    })
    .await;
}

pub(crate) async fn a_host_that_cannot_give_partitions_back_is_taken_over<D: Database>(db: &D) {
    let (first_calls, second_calls) = (Recorder::done(), Recorder::done());
    let first = host(db.another().await, Mode::MultiNode, &first_calls).start().await.expect("starts");
    insert(db, 100).await;
    done(db, 100).await;
    refuse_releases(db).await;

    let second = host(db.another().await, Mode::MultiNode, &second_calls).start().await.expect("starts");
    let taken = "SELECT count(*) FROM outbox_event_partition WHERE epoch > 1";
    eventually("the other host takes them", async || db.number(taken).await == 256).await;
    insert(db, 100).await;

    done(db, 200).await;
    // Neither can give any back, so the two take them over from each other.
    assert_eq!(first_calls.count() + second_calls.count(), 200, "each once");
    first.shutdown().await;
    second.shutdown().await;
}

pub(crate) async fn hosts_in_every_two_modes_lose_nothing_and_deliver_nothing_twice<D: Database>(db: &D) {
    let mut total = 0;
    for (one, other) in [
        (Mode::SingleNode, Mode::MultiNode),
        (Mode::MultiNode, Mode::OrderedByAggregate),
        (Mode::Ordered, Mode::OrderedByAggregate),
        (Mode::Ordered, Mode::SingleNode),
    ] {
        let recorder = Recorder::done();
        let first = host(db.another().await, one, &recorder).start().await.expect("starts");
        insert(db, 100).await;
        done(db, total + 100).await;
        let second = host(db.another().await, other, &recorder).start().await.expect("starts");
        insert(db, 100).await;
        done(db, total + 200).await;
        let modes = "SELECT count(DISTINCT mode) FROM outbox_event_node";
        eventually("both are seen, each by its mode", async || db.number(modes).await == 2).await;
        // Hosts of one process have the same name, and are two all the same.
        let names = "SELECT count(DISTINCT owner) * 10 + count(DISTINCT label) FROM outbox_event_node";
        assert_eq!(db.number(names).await, 21);

        first.shutdown().await;
        insert(db, 100).await;

        total += 300;
        done(db, total).await;
        let ids: BTreeSet<_> = recorder.ids().into_iter().collect();
        assert_eq!((ids.len(), recorder.count()), (300, 300), "{one:?} beside {other:?}: each once");
        second.shutdown().await;
        eventually("nobody holds a partition", async || {
            db.number("SELECT count(*) FROM outbox_event_partition WHERE owner IS NOT NULL").await == 0
        })
        .await;
    }
}

const IN_CALLS: u32 = 20;

/// Test suites empty tables between two tests, while calls of the first still run. The numbers begin anew.
pub(crate) async fn an_outcome_is_not_written_to_another_event_that_has_got_the_same_number<D: Database>(db: &D) {
    let recorder = Recorder::held();
    let workers = DispatcherConfig { workers: IN_CALLS as usize, ..DispatcherConfig::default() };
    let host = outbox(db).dispatcher(workers).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let before = commit(&host, orders(IN_CALLS)).await;
    for _ in &before {
        recorder.started().await;
    }
    match db.store().kind() {
        "postgres" => db.execute("TRUNCATE outbox_event RESTART IDENTITY").await,
        "mysql" => db.execute("TRUNCATE TABLE outbox_event").await,
        _ => db.execute("DELETE FROM outbox_event; DELETE FROM sqlite_sequence WHERE name = 'outbox_event'").await,
    };
    let after = commit(&host, orders(IN_CALLS)).await;
    assert_eq!(row(db, after[0]).await.seq, 1, "the numbers begin anew");

    recorder.finish(2 * before.len());
    done(db, u64::from(IN_CALLS)).await;

    let called: BTreeSet<EventId> = recorder.ids().into_iter().collect();
    assert_eq!(called, before.into_iter().chain(after).collect(), "each event was delivered");
    assert_eq!(recorder.count(), called.len(), "nothing was delivered twice");
    host.shutdown().await;
}

/// PostgreSQL's SQLSTATE of a deadlock.
const DEADLOCK_DETECTED: &str = "40P01";

/// Empties every table of the outbox, as test suites do. The numbers of events begin anew.
async fn empty_all_tables(db: &impl Database) {
    let kind = db.store().kind();
    let tables = ["", "_route", "_pause", "_node", "_partition", "_audit", "_state", "_state_usage", "_migration"];
    let tables = tables.map(|suffix| format!("outbox_event{suffix}"));
    if kind == "postgres" {
        let truncate = format!("TRUNCATE {} RESTART IDENTITY", tables.join(", "));
        // It locks the tables one by one, and a host that writes meanwhile may lock them in another order.
        for _ in 0..10 {
            match db.try_execute(&truncate).await {
                Ok(_) => return,
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(DEADLOCK_DETECTED) => {}
                Err(error) => panic!("{truncate}: {error}"),
            }
        }
        panic!("ended by a deadlock ten times: {truncate}");
    }
    for table in tables {
        db.execute(&match kind {
            "mysql" => format!("TRUNCATE TABLE {table}"),
            _ => format!("DELETE FROM {table}; DELETE FROM sqlite_sequence WHERE name = '{table}'"),
        })
        .await;
    }
}

/// Longer than the test waits: nothing that happens once in a lease helps it.
const LONG_LEASE: Duration = Duration::from_secs(100);

pub(crate) async fn a_host_goes_on_after_all_tables_were_emptied_in_every_mode<D: Database>(db: &D) {
    for mode in MODES {
        let (recorder, long) = (Recorder::done(), Recorder::held());
        // In the mode `ordered`, nothing begins beside the call that is under way.
        let config = DispatcherConfig { lease: LONG_LEASE, deadline: LEASE, ..DispatcherConfig::default() };
        let host = host(db.another().await, mode, &recorder).dispatcher(config).listener("Long", long.listener());
        let host = host.start().await.expect("starts");
        insert(db, 100).await;
        done(db, 100).await;

        for round in 2..4 {
            let call = Envelope::new("Long").json(&0).expect("a good envelope");
            insert_all(db, &[call]).await;
            long.started().await;
            empty_all_tables(db).await;
            insert(db, 100).await;
            done(db, 100).await;
            assert_eq!(recorder.count(), round * 100, "{mode:?}: each once");
        }
        assert!(host.readiness().is_ready(), "{mode:?}: {:?}", host.readiness());
        long.finish(2);
        host.shutdown().await;
        db.store().migrate_up().await.expect("restores what is missing");
        db.store().check_schema().await.expect("the version is known");
        empty_all_tables(db).await;
        db.store().migrate_up().await.expect("restores what is missing");
    }
}

pub(crate) async fn hosts_deliver_the_next_event_after_a_test_suite_has_emptied_the_tables<D: Database>(db: &D) {
    for mode in MODES {
        let (recorder, long) = (Recorder::done(), Recorder::held());
        let config = DispatcherConfig { lease: LONG_LEASE, deadline: LEASE, ..DispatcherConfig::default() };
        let host = host(db.another().await, mode, &recorder).dispatcher(config).listener("Long", long.listener());
        let host = host.start().await.expect("starts");
        insert(db, 20).await;
        done(db, 20).await;
        insert_all(db, &[Envelope::new("Long").json(&0).expect("a good envelope")]).await;
        long.started().await;

        for round in 2..5 {
            host.store().empty_tables().await.expect("empties");
            insert(db, 20).await;
            done(db, 20).await;
            assert_eq!(recorder.count(), round * 20, "{mode:?}: each once");
        }
        let epochs = "SELECT count(*) FROM outbox_event_partition WHERE epoch > 4";
        assert_eq!(db.number(epochs).await, 0, "{mode:?}: the host kept its partitions");
        long.finish(1);
        host.shutdown().await;
        let deleted = db.store().empty_tables().await.expect("empties without a host");
        assert_eq!(deleted, 20);
    }
}

/// How often the tables are emptied, as fast as the database does it.
const TIMES: u32 = 30;

/// As a test suite empties the tables: again if a transaction was in its way for too long.
async fn empty(store: &dyn Store) {
    eventually("the tables are emptied", async || match store.empty_tables().await {
        Ok(_) => true,
        Err(StoreError::InUse { .. }) => false,
        Err(error) => panic!("{error:?}"),
    })
    .await;
}

/// Each of these statements meets others: hosts that send heartbeats, keep partitions, read and store outcomes, and writers.
pub(crate) async fn tables_that_are_emptied_again_and_again_beside_busy_hosts_lose_no_later_event<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let (first, second) = (db.another().await, db.another().await);
    let first = host(first, Mode::MultiNode, &recorder).start().await.expect("starts");
    let second = host(second, Mode::MultiNode, &recorder).start().await.expect("starts");
    insert(db, 20).await;
    done(db, 20).await;

    for time in 0..TIMES {
        // Half of the writers are under way meanwhile.
        if time.is_multiple_of(2) {
            insert(db, 20).await;
            empty(&**first.store()).await;
        } else {
            tokio::join!(empty(&**second.store()), insert(db, 20));
        }
    }
    empty(&**first.store()).await;
    let last = orders(50);
    insert_all(db, &last).await;

    done(db, 50).await;
    let calls = recorder.ids();
    let of_last = |id: &EventId| calls.iter().filter(|called| *called == id).count();
    assert!(last.iter().all(|envelope| of_last(&envelope.id()) == 1), "each later event is delivered once");
    let faults = db.store().partition_faults().await.expect("looks");
    assert!(faults.is_empty(), "{faults}");
    for host in [first, second] {
        assert!(host.readiness().is_ready(), "{:?}", host.readiness());
        host.shutdown().await;
    }
}
