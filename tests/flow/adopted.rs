//! A service with a pool of its own: transactions that it began itself, and stores over its pool.

use std::sync::{Arc, Mutex, PoisonError};

use outbox::store::InspectStore;
use outbox::writer::{HookError, WriterHook};
use outbox::{Envelope, MySqlStore, Outbox, PostgresStore, SqliteStore, Status, Store, TransactionalStore};
use support::{Database, Harness, MySql, Postgres, Recorder, Sqlite, eventually};

use crate::common::{ROUTE, at_rest, commit_one, done, drowsy, nothing_else_is_delivered, order, outbox, reaches, rows};

/// Remembers which aggregates were committed and rolled back.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<String>>>);

impl Ends {
    fn note(&self, end: &str, events: &[&Envelope]) -> Result<(), HookError> {
        let numbers = events.iter().filter_map(|event| event.aggregate_id());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(numbers.map(|number| format!("{number} {end}")));
        Ok(())
    }

    fn sorted(&self) -> Vec<String> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lines.sort();
        lines
    }
}

impl WriterHook for Ends {
    fn after_commit(&self, events: &[&Envelope]) -> Result<(), HookError> {
        self.note("committed", events)
    }
    fn after_rollback(&self, events: &[&Envelope]) -> Result<(), HookError> {
        self.note("rolled back", events)
    }
}

const INSERT_ORDER: &str = "INSERT INTO orders VALUES (1)";

async fn orders_in(db: &dyn Harness) -> i64 {
    db.number("SELECT count(*) FROM orders").await
}

pub(crate) async fn events_of_an_adopted_transaction_go_straight_to_their_listener_after_its_commit(db: &impl Database) {
    db.execute("CREATE TABLE orders (id INT)").await;
    let recorder = Recorder::done();
    let outbox = outbox(db).poller(drowsy()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut own = db.typed().begin().await.expect("begins");
    db.run_on(&mut own, INSERT_ORDER).await;
    let mut transaction = outbox.adopt(own);
    db.run_on(&mut transaction, INSERT_ORDER).await;
    let first = transaction.write(order(1)).await.expect("writes").expect("not suppressed");
    db.run_on(transaction.inner_mut(), INSERT_ORDER).await;
    let second = transaction.write(order(2)).await.expect("writes").expect("not suppressed");
    transaction.commit().await.expect("commits");

    for id in [first, second] {
        reaches(db, id, Status::Done).await;
    }
    assert_eq!((outbox.metrics().counts().hot_enqueued, recorder.count(), orders_in(db).await), (2, 2, 3));
    at_rest(&outbox).await;
    outbox.shutdown().await;
}

pub(crate) async fn what_a_savepoint_took_back_in_an_adopted_transaction_is_not_delivered(db: &impl Database) {
    let (recorder, ends) = (Recorder::done(), Ends::default());
    let outbox = outbox(db).hook(ends.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut transaction = outbox.adopt(db.typed().begin().await.expect("begins"));
    transaction.write(order(1)).await.expect("writes");
    db.run_on(&mut transaction, "SAVEPOINT mine").await;
    transaction.write(order(2)).await.expect("writes");
    db.run_on(&mut transaction, "ROLLBACK TO SAVEPOINT mine").await;
    transaction.write(order(3)).await.expect("writes");
    db.run_on(transaction.inner_mut(), "SAVEPOINT mine").await;
    transaction.write(order(4)).await.expect("writes");
    db.run_on(transaction.inner_mut(), "ROLLBACK TO SAVEPOINT mine").await;
    transaction.commit().await.expect("commits");

    done(db, 2).await;
    nothing_else_is_delivered(db, &outbox).await;
    let mut delivered: Vec<u32> = recorder.calls().iter().map(|event| event.payload().expect("a number")).collect();
    delivered.sort_unstable();
    assert_eq!(delivered, [1, 3]);
    assert_eq!(ends.sorted(), ["1 committed", "2 rolled back", "3 committed", "4 rolled back"]);
    outbox.shutdown().await;
}

pub(crate) async fn an_adopted_transaction_that_is_rolled_back_or_dropped_leaves_nothing_behind(db: &impl Database) {
    db.execute("CREATE TABLE orders (id INT)").await;
    let (recorder, ends) = (Recorder::done(), Ends::default());
    let outbox = outbox(db).hook(ends.clone()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    for number in [1, 2] {
        let mut own = db.typed().begin().await.expect("begins");
        db.run_on(&mut own, INSERT_ORDER).await;
        let mut transaction = outbox.adopt(own);
        transaction.write(order(number)).await.expect("writes");
        if number == 1 {
            transaction.rollback().await.expect("rolls back");
        } else {
            drop(transaction);
        }
    }

    nothing_else_is_delivered(db, &outbox).await;
    assert_eq!((recorder.count(), rows(db).await, orders_in(db).await), (0, 1, 0), "one row: the sentinel");
    assert_eq!(ends.sorted(), ["1 rolled back", "2 rolled back"]);
    outbox.shutdown().await;
}

/// What a service does that has a pool and functions that take the driver's transaction.
macro_rules! on_the_services_pool {
    ($name:ident, $database:ident, $store:ident, $driver:ty) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            async fn insert_order(transaction: &mut sqlx::Transaction<'_, $driver>) {
                sqlx::query(INSERT_ORDER).execute(&mut **transaction).await.expect("inserts");
            }
            let db = $database::fresh().await;
            db.execute("CREATE TABLE orders (id INT)").await;
            let (pool, recorder) = (db.services_pool(1), Recorder::done());
            let store = $store::new(pool.clone());
            let builder = Outbox::single_node(store.clone()).poller(drowsy());
            let outbox = builder.listener(ROUTE, recorder.listener()).start().await.expect("starts");

            let mut tx = outbox.adopt(pool.begin().await.expect("begins"));
            sqlx::query(INSERT_ORDER).execute(&mut *tx).await.expect("inserts");
            let id = tx.write(order(1)).await.expect("writes").expect("not suppressed");
            insert_order(tx.inner_mut()).await;
            tx.commit().await.expect("commits");
            reaches(&db, id, Status::Done).await;
            let id = commit_one(&outbox).await;
            reaches(&db, id, Status::Done).await;

            // All three transactions had the one connection of the pool, and it is the service's still.
            assert_eq!((pool.size(), recorder.count(), orders_in(&db).await), (1, 2, 2));
            assert_eq!(outbox.metrics().counts().db_errors, 0);
            outbox.shutdown().await;
            store.close().await;
            assert!(store.stats().await.is_err(), "what the store opened is closed");
            insert_order(&mut pool.begin().await.expect("the pool is not closed with the store")).await;
        }
    };
}

on_the_services_pool!(a_store_over_a_services_pool_leaves_it_to_the_service_on_mysql, MySql, MySqlStore, sqlx::MySql);
on_the_services_pool!(
    a_store_over_a_services_pool_leaves_it_to_the_service_on_postgres,
    Postgres,
    PostgresStore,
    sqlx::Postgres
);
on_the_services_pool!(a_store_over_a_services_pool_leaves_it_to_the_service_on_sqlite, Sqlite, SqliteStore, sqlx::Sqlite);

/// With a connection of its own to write on, the host would meet `SQLITE_BUSY`: this pool waits for a lock for 20 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_over_a_services_pool_waits_for_its_turn_instead_of_fighting_for_the_lock_on_sqlite() {
    let db = Sqlite::fresh().await;
    let (pool, recorder) = (db.services_pool(1), Recorder::held());
    let outbox = Outbox::single_node(SqliteStore::new(pool.clone()));
    let outbox = outbox.listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;

    let service = pool.begin_with("BEGIN IMMEDIATE").await.expect("begins");
    recorder.finish(1);
    eventually("its outcome is to be stored", async || outbox.metrics().counts().dispatch_success == 1).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await; // ten times as long as a lock is waited for
    service.commit().await.expect("commits");

    reaches(&db, id, Status::Done).await;
    assert_eq!(outbox.metrics().counts().db_errors, 0);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_in_memory_works_on_the_one_connection_that_it_has() {
    let options = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    let pool = options.connect("sqlite::memory:").await.expect("opens");
    let recorder = Recorder::done();
    let store = SqliteStore::new(pool);
    let outbox = Outbox::single_node(store.clone()).migrate(true).listener(ROUTE, recorder.listener());
    let outbox = outbox.start().await.expect("starts");

    commit_one(&outbox).await;

    eventually("the event is DONE", async || store.stats().await.expect("counts").done == 1).await;
    outbox.shutdown().await;
}
