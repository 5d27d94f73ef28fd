//! Stops that are held up: their outcomes cannot be written at once, or a listener asks for them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{InspectStore, NewRow, Ownership};
use outbox::{DispatchResult, Envelope, Event, EventId, Mode, Outbox, PostgresStore, SqliteStore, Status};
use sqlx::pool::PoolConnection;
use support::{Harness, Postgres, Recorder, Sqlite, eventually, in_time};

use crate::common::{HOUR, ROUTE, commit, commit_one, done, drowsy, eager, one_worker, order, orders, outbox, reaches, row};

/// More than find room on the way to the database: workers wait with the outcomes of calls that ended well.
const EVENTS: u32 = 5_000;

/// A host whose outcomes cannot be written, since somebody has locked the database, until workers wait with them.
async fn stalled(db: &Sqlite, drain_timeout: Duration) -> (Outbox<SqliteStore>, Recorder, PoolConnection<sqlx::Sqlite>) {
    let recorder = Recorder::held();
    let config = DispatcherConfig { hot_queue: 10_000, drain_timeout, ..DispatcherConfig::default() };
    let outbox = Outbox::single_node(db.impatient_store().await)
        .poller(drowsy())
        .dispatcher(config)
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");
    commit(&outbox, orders(EVENTS)).await;
    recorder.started().await;
    let mut other = db.other_program().acquire().await.expect("a connection");
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut *other).await.expect("locks");
    recorder.finish(10_000);
    let mut before = 0;
    eventually("every worker waits for the database", async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::mem::replace(&mut before, recorder.count()) == recorder.count()
    })
    .await;
    assert!((2_048..EVENTS as usize).contains(&recorder.count()), "{} calls", recorder.count());
    (outbox, recorder, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_stores_the_outcomes_that_workers_wait_with() {
    let db = Sqlite::fresh().await;
    let (first, recorder, mut other) = stalled(&db, Duration::from_secs(5)).await;
    let metrics = first.metrics().clone();

    let stopping = tokio::spawn(first.shutdown());
    eventually("the drain is over", async || metrics.counts().dispatch_released > 0).await;
    sqlx::query("COMMIT").execute(&mut *other).await.expect("unlocks");
    drop(other);
    in_time("the shutdown ends", stopping).await.expect("does not panic");

    let stats = db.sqlite().stats().await.expect("counts");
    assert_eq!(stats.done, recorder.count() as u64, "every call that ended well is stored");
    assert_eq!(stats.in_flight, 0, "the rest is given back");
    let next = Recorder::done();
    let second = outbox(&db).listener(ROUTE, next.listener()).start().await.expect("starts");
    done(&db, EVENTS.into()).await;
    assert_eq!(recorder.count() + next.count(), EVENTS as usize, "nothing is delivered twice");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_though_the_database_does_not_answer() {
    let db = Sqlite::fresh().await;
    let (outbox, _, other) = stalled(&db, Duration::from_millis(500)).await;

    in_time("the shutdown ends", outbox.shutdown()).await;

    drop(other);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_may_stop_its_own_outbox_and_its_event_is_done() {
    let db = Sqlite::fresh().await;
    let own = Arc::new(OnceLock::<Outbox<SqliteStore>>::new());
    let listener = {
        let own = own.clone();
        move |_: Arc<Event>| {
            let own = own.clone();
            async move {
                own.get().expect("set before anything is written").shutdown().await;
                Ok(DispatchResult::Done)
            }
        }
    };
    // Whoever waited for himself would wait for an hour.
    let config = DispatcherConfig { drain_timeout: HOUR, ..DispatcherConfig::default() };
    let outbox = outbox(&db).dispatcher(config).listener(ROUTE, listener).start().await.expect("starts");
    own.set(outbox.clone()).expect("nobody has set it");

    let id = commit_one(&outbox).await;

    let monitor = outbox.monitor();
    eventually("the listener has begun a stop", async || !monitor.readiness().is_ready()).await;
    in_time("the stop ends", outbox.shutdown()).await;
    assert_eq!(row(&db, id).await.status, Status::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_waits_for_its_own_stop_through_a_task_is_cut_off_and_its_event_is_delivered_again() {
    let db = Sqlite::fresh().await;
    let own = Arc::new(OnceLock::<Outbox<SqliteStore>>::new());
    let listener = {
        let own = own.clone();
        move |_: Arc<Event>| {
            let own = own.get().expect("set before anything is written").clone();
            async move {
                tokio::spawn(own.shutdown()).await.expect("does not panic");
                Ok(DispatchResult::Done)
            }
        }
    };
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(200), ..DispatcherConfig::default() };
    let first = outbox(&db).dispatcher(config).listener(ROUTE, listener).start().await.expect("starts");
    own.set(first.clone()).expect("nobody has set it");

    let id = commit_one(&first).await;
    eventually("it is in hand", async || first.metrics().counts().dispatch_released > 0).await;
    in_time("the stop ends", first.shutdown()).await;

    let released = row(&db, id).await;
    assert_eq!((released.status, released.attempts, released.locked_by), (Status::New, 0, None));
    let recorder = Recorder::done();
    let second = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    done(&db, 1).await;
    assert_eq!(recorder.ids(), [id]);
    second.shutdown().await;
}

/// A server on which some statements stand for as long as a test wants.
struct Slow {
    db: Postgres,
    /// Of the one that holds them up.
    other: Option<PoolConnection<sqlx::Postgres>>,
}

/// What stands: the update of each row for which the condition holds, while somebody else holds the lock of this schema.
const SLOW: &str = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  PERFORM pg_advisory_xact_lock_shared(hashtext(current_schema())); RETURN NEW; END $$;
CREATE TRIGGER slow BEFORE UPDATE ON outbox_event FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION slow()";
const CLAIMS: &str = "NEW.locked_by IS NOT NULL AND NEW.locked_by IS DISTINCT FROM OLD.locked_by";
const CLAIMS_AND_OUTCOMES: &str = "OLD.locked_by IS DISTINCT FROM NEW.locked_by";
const STANDING: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
  AND objid = hashtext(current_schema())::oid";

impl Slow {
    async fn fresh(condition: &str) -> Self {
        let db = Postgres::fresh().await;
        db.execute(&SLOW.replace("{condition}", condition)).await;
        Self { db, other: None }
    }

    /// A host that waits longer than any test for a statement that stands.
    async fn host(&self, mode: Mode, drain_timeout: Duration, recorder: &Recorder) -> Outbox<PostgresStore> {
        let mut options = PostgresOptions::from_url(self.db.url()).expect("the address is good");
        options.lock_timeout = HOUR;
        options.statement_timeout = HOUR;
        let store = PostgresStore::connect_with(options).await.expect("connects");
        let builder = Outbox::builder(store).mode(mode).poller(eager()).listener(ROUTE, recorder.listener());
        let config = DispatcherConfig { drain_timeout, ..one_worker() };
        builder.dispatcher(config).start().await.expect("starts")
    }

    /// Inserts events that only a poller can find.
    async fn insert(&self, envelopes: &[Envelope]) -> Vec<EventId> {
        self.write(envelopes, false).await
    }

    /// Inserts events whose writer's claim ends at once, so that the poller must claim each of them.
    async fn insert_to_claim(&self, envelopes: &[Envelope]) -> Vec<EventId> {
        self.write(envelopes, true).await
    }

    async fn write(&self, envelopes: &[Envelope], claimed: bool) -> Vec<EventId> {
        let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed }).collect();
        let writer = Ownership { owner: OwnerId::generate("producer"), lease: Duration::from_micros(1) };
        self.db.store().write(&rows, &writer).await.expect("writes");
        envelopes.iter().map(Envelope::id).collect()
    }

    async fn hold_up(&mut self) {
        let mut other = self.db.services_pool(1).acquire().await.expect("a connection");
        sqlx::query("SELECT pg_advisory_lock(hashtext(current_schema()))").execute(&mut *other).await.expect("locks");
        self.other = Some(other);
    }

    async fn let_go(&mut self) {
        let mut other = self.other.take().expect("held up before");
        sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut *other).await.expect("unlocks");
    }

    async fn standing(&self, statements: i64) {
        eventually(&format!("{statements} statements stand"), async || self.db.number(STANDING).await == statements).await;
    }

    /// Waits until these events are as if only their writer had ever claimed them.
    async fn are_given_back(&self, ids: &[EventId]) {
        for id in ids {
            eventually("the event is given back", async || row(&self.db, *id).await.locked_by.is_none()).await;
            let row = row(&self.db, *id).await;
            assert_eq!((row.status, row.attempts, row.claims, row.locked_at), (Status::New, 0, 1, None));
            assert!(row.due_at.expect("it waits") <= self.db.now().await, "due at once");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_drains_while_a_claim_stands_and_gives_that_claim_back() {
    for mode in [Mode::SingleNode, Mode::OrderedByAggregate, Mode::Ordered] {
        let mut slow = Slow::fresh(CLAIMS).await;
        let recorder = Recorder::held();
        let host = slow.host(mode, HOUR, &recorder).await;
        slow.insert_to_claim(&orders(3)).await;
        recorder.started().await;
        eventually("all are in hand", async || slow.db.store().stats().await.expect("counts").in_flight == 3).await;
        slow.hold_up().await;
        // The second aggregate has events in hand already, and two more of it come together.
        let late = slow.insert_to_claim(&[order(1), order(1), order(7), order(7)]).await;
        slow.standing(1).await;

        let stopping = tokio::spawn(host.shutdown());
        eventually("the stop has begun", async || !host.monitor().readiness().is_ready()).await;
        recorder.finish(100);
        match mode {
            // What waits in one queue of all events may not start once the stop has begun.
            Mode::Ordered => done(&slow.db, 1).await,
            _ => done(&slow.db, 3).await,
        }
        slow.standing(1).await;
        assert!(!stopping.is_finished(), "it waits for the claim");
        slow.let_go().await;
        in_time("the stop ends", stopping).await.expect("does not panic");

        slow.are_given_back(&late).await;
        let next = Recorder::done();
        let second = slow.host(mode, HOUR, &next).await;
        done(&slow.db, 7).await;
        assert_eq!(recorder.count() + next.count(), 7, "nothing is delivered twice");
        second.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_cuts_listeners_off_after_the_drain_timeout_though_a_claim_stands() {
    let mut slow = Slow::fresh(CLAIMS).await;
    let recorder = Recorder::held();
    let host = slow.host(Mode::SingleNode, Duration::from_millis(200), &recorder).await;
    let ids = slow.insert_to_claim(&orders(3)).await;
    recorder.started().await;
    eventually("all are in hand", async || slow.db.store().stats().await.expect("counts").in_flight == 3).await;
    slow.hold_up().await;
    let late = slow.insert_to_claim(&orders(2)).await;
    slow.standing(1).await;

    let stopping = tokio::spawn(host.shutdown());
    slow.are_given_back(&ids).await;
    slow.standing(1).await;
    slow.let_go().await;
    in_time("the stop ends", stopping).await.expect("does not panic");

    slow.are_given_back(&late).await;
    assert_eq!(recorder.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_though_its_statements_never_do_and_what_they_took_waits_for_its_lease() {
    let mut slow = Slow::fresh(CLAIMS_AND_OUTCOMES).await;
    let recorder = Recorder::held();
    let first = slow.host(Mode::SingleNode, Duration::from_millis(200), &recorder).await;
    let answered = slow.insert_to_claim(&orders(1)).await;
    recorder.started().await;
    slow.hold_up().await;
    let late = slow.insert_to_claim(&orders(2)).await;
    slow.standing(1).await;
    recorder.finish(1);
    slow.standing(2).await;

    in_time("the stop ends", first.shutdown()).await;

    slow.standing(2).await;
    slow.let_go().await;
    // The statements were not cut off: they end when the database lets them.
    reaches(&slow.db, answered[0], Status::Done).await;
    for id in &late {
        eventually("the claim is made", async || row(&slow.db, *id).await.locked_by.is_some()).await;
    }
    slow.db.let_pass(Duration::from_secs(31)).await;
    let next = Recorder::done();
    let second = slow.host(Mode::SingleNode, HOUR, &next).await;
    done(&slow.db, 3).await;
    assert_eq!((recorder.count(), next.count()), (1, 2), "each once");
    second.shutdown().await;
}

/// Reads that stand, since somebody has locked the table of partitions.
const READS: &str = "SELECT count(*) FROM pg_locks
  WHERE relation = to_regclass('outbox_event_partition') AND mode = 'AccessShareLock' AND NOT granted";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_read_brings_when_the_stop_has_begun_is_left_to_the_next_host() {
    let slow = Slow::fresh(CLAIMS).await;
    let recorder = Recorder::done();
    let host = slow.host(Mode::SingleNode, HOUR, &recorder).await;
    slow.insert(&orders(1)).await;
    done(&slow.db, 1).await;
    let mut other = slow.db.services_pool(1).acquire().await.expect("a connection");
    sqlx::query("BEGIN").execute(&mut *other).await.expect("begins");
    sqlx::query("LOCK TABLE outbox_event_partition IN ACCESS EXCLUSIVE MODE").execute(&mut *other).await.expect("locks");
    slow.insert(&orders(5)).await;
    eventually("a read stands", async || slow.db.number(READS).await > 0).await;

    let stopping = tokio::spawn(host.shutdown());
    eventually("the stop has begun", async || !host.monitor().readiness().is_ready()).await;
    assert!(!stopping.is_finished(), "it waits for the read");
    sqlx::query("ROLLBACK").execute(&mut *other).await.expect("lets go");
    in_time("the stop ends", stopping).await.expect("does not panic");

    assert_eq!(recorder.count(), 1, "nothing begins after the stop has begun");
    let next = Recorder::done();
    let second = slow.host(Mode::SingleNode, HOUR, &next).await;
    done(&slow.db, 6).await;
    assert_eq!((recorder.count(), next.count()), (1, 5), "each once");
    second.shutdown().await;
}
