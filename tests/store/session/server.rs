//! Sessions that end with their connection: killed, cut off, or of a runtime that is gone.

use std::net::SocketAddr;

use outbox::store::{NodeStore, PARTITIONS, SchemaStore, SessionStore};
use outbox::{MySqlStore, PostgresStore, Store, StoreError, TransactionalStore};
use support::{Database, Harness, MySql, Network, Postgres, Proxy, Sqlite, eventually, in_time};

use super::{free, held, names, says, serving, taken};
use crate::common::owner;

/// A process that is gone has no runtime, and its connections are closed.
async fn a_session_of_a_runtime_that_ended_is_free<D: Database>(db: &D) {
    let store = db.store();
    let one = serving(&*store, "one", 2).await;
    let session = std::thread::scope(|scope| {
        let holding = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async { db.another().await.hold_session(&one).await }).expect("asks").expect("there are locks")
        });
        holding.join().expect("the runtime ends while the session is there")
    });
    assert!(free(&*store).await.is_empty(), "its connection is open still");

    drop(session);

    eventually("the lock is free", async || free(&*store).await == names(&[&one])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_no_runtime_from_ending_on_postgres() {
    a_session_of_a_runtime_that_ended_is_free(&Postgres::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_no_runtime_from_ending_on_mysql() {
    a_session_of_a_runtime_that_ended_is_free(&MySql::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_no_runtime_from_ending_on_sqlite() {
    a_session_of_a_runtime_that_ended_is_free(&Sqlite::fresh().await).await;
}

/// Its session was ended by the server: it knows, others see it, and it comes back.
async fn a_lost_session_is_noticed_and_replaced<D: Database>(db: &D, kill: impl AsyncFn()) {
    let store = db.typed();
    let all = db.store();
    let one = serving(&*all, "one", 2).await;
    let mut session = held(&store, &one).await;
    session.prove().await.expect("it holds the lock");

    kill().await;

    let error = session.prove().await.expect_err("it is gone");
    assert!(matches!(error, StoreError::Disconnected { .. }) && error.is_transient(), "{error:?}");
    session.prove().await.expect_err("and does not come back");
    eventually("the lock is free", async || free(&*all).await == names(&[&one])).await;
    session.end().await;
    let mut session = held(&store, &one).await;
    session.prove().await.expect("another one holds it");
    assert!(free(&*all).await.is_empty());
    store.nodes().await.expect("the other connections are as they were");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_postgres_ended_is_noticed() {
    let db = Postgres::fresh().await;
    let kill = async || {
        let killed = db
            .number(&format!(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_locks
                 WHERE locktype = 'advisory' AND classid::bigint << 32 | objid::bigint IN
                   (SELECT hashtextextended('outbox_event_node'::regclass::oid || '/' || owner, 0) FROM {}.outbox_event_node)",
                db.schema()
            ))
            .await;
        assert_eq!(killed, 1);
    };
    a_lost_session_is_noticed_and_replaced(&db, kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_mysql_ended_is_noticed() {
    let db = MySql::fresh().await;
    let kill = async || {
        let lock = format!(
            "SELECT CAST(IS_USED_LOCK(CONCAT('outbox/', SHA2(CONCAT('{}.outbox_event_node/', owner), 224))) AS SIGNED)
             FROM outbox_event_node",
            db.name()
        );
        let connection = db.number(&lock).await;
        db.execute(&format!("KILL {connection}")).await;
    };
    a_lost_session_is_noticed_and_replaced(&db, kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_postgres_no_longer_looks_at_is_not_proven() {
    let db = Postgres::fresh().await;
    let store = db.postgres();
    let mut session = held(&store, &owner("one")).await;

    // Made anew, the table has another number, and so have its locks.
    while store.migrate_down().await.expect("takes a step back").is_some() {}
    store.migrate_up().await.expect("and up again");

    let error = session.prove().await.expect_err("others look at another lock");
    assert!(matches!(error, StoreError::SessionLost { .. }) && error.is_transient(), "{error:?}");
}

/// The cable of the host is out, and its session cannot know whether it still holds the lock.
async fn a_session_that_gets_no_answer_is_not_proven(store: &dyn Store, network: Proxy) {
    let mut session = held(store, &owner("one")).await;
    session.prove().await.expect("it holds the lock");

    network.set(Network::HalfOpen);

    let error = in_time("it gives up", session.prove()).await.expect_err("nobody answers");
    assert!(matches!(error, StoreError::Disconnected { .. }) && error.is_transient(), "{error:?}");
    in_time("an end waits for nobody", session.end()).await;
    let error = in_time("another one gives up", store.hold_session(&owner("two"))).await.err().expect("nobody answers");
    assert!(error.is_transient(), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_gets_no_answer_of_postgres_is_not_proven() {
    let db = Postgres::fresh().await;
    let network = Proxy::in_front_of(address(db.url())).await;
    let store = PostgresStore::connect(&network.url(db.url())).await.expect("connects");
    a_session_that_gets_no_answer_is_not_proven(&store, network).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_gets_no_answer_of_mysql_is_not_proven() {
    let db = MySql::fresh().await;
    let network = Proxy::in_front_of(address(&db.url())).await;
    let store = MySqlStore::connect(&network.url(&db.url())).await.expect("connects");
    a_session_that_gets_no_answer_is_not_proven(&store, network).await;
}

/// Where the server of a URL listens.
fn address(url: &str) -> SocketAddr {
    let (_, rest) = url.rsplit_once('@').expect("the URL names an account");
    let (place, _) = rest.split_once('/').expect("the URL names a database");
    place.parse().expect("the servers of the tests are named by number")
}

/// Its word comes while somebody abandons it, who has looked already.
async fn an_owner_that_says_so_just_now_is_not_abandoned<D: Database>(db: &D, waits: impl AsyncFnMut() -> bool) {
    let (store, all) = (db.typed(), db.store());
    let one = serving(&*all, "one", 2).await;
    let mut transaction = store.begin().await.expect("begins");
    db.run_on(transaction.as_mut(), "UPDATE outbox_event_node SET session = 0").await;

    let abandoning = tokio::spawn({
        let (all, one) = (all.clone(), one.clone());
        async move { all.abandon(one.as_str()).await }
    });
    eventually("it waits for the row", waits).await;
    D::Store::commit(transaction).await.expect("commits");

    assert!(!abandoning.await.expect("ends").expect("looks"));
    assert!(all.nodes().await.expect("lists")[0].alive);
    assert!(taken(&*all, &owner("two"), PARTITIONS, 2).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_tells_postgres_just_now_that_it_has_no_session_is_not_abandoned() {
    let db = Postgres::fresh().await;
    let waiting = format!(
        "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = pg_locks.relation
         WHERE locktype = 'tuple' AND relnamespace = '{}'::regnamespace",
        db.schema()
    );
    an_owner_that_says_so_just_now_is_not_abandoned(&db, async || db.number(&waiting).await > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_tells_mysql_just_now_that_it_has_no_session_is_not_abandoned() {
    let db = MySql::fresh().await;
    an_owner_that_says_so_just_now_is_not_abandoned(&db, async || db.waits_for_a_row().await).await;
}

/// The locks of one owner in two tables.
async fn sessions_of_two_tables_do_not_meet(db: &impl Harness) {
    let (store, other) = (db.store(), db.other_table("shop").await);
    other.migrate_up().await.expect("migrates");
    let one = serving(&*store, "one", 2).await;
    says(&*other, &one, true).await;
    taken(&*other, &one, 2, PARTITIONS).await;

    let session = held(&*store, &one).await;
    assert!(free(&*store).await.is_empty());
    assert_eq!(free(&*other).await, names(&[&one]));
    let theirs = held(&*other, &one).await;
    session.end().await;

    assert_eq!(free(&*store).await, names(&[&one]));
    assert!(free(&*other).await.is_empty());
    theirs.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_two_tables_of_one_postgres_do_not_meet() {
    sessions_of_two_tables_do_not_meet(&Postgres::fresh().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_two_tables_of_one_mysql_do_not_meet() {
    sessions_of_two_tables_do_not_meet(&MySql::fresh().await).await;
}

/// As a migration or a `VACUUM FULL` locks them, for longer than a proof may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_proven_while_what_it_looks_at_is_locked() {
    let db = Postgres::fresh().await;
    let store = db.store();
    let one = serving(&*store, "one", 2).await;
    let mut session = held(&*store, &one).await;
    let mut other = db.postgres().begin().await.expect("begins");
    for table in ["outbox_event_node", "outbox_event_partition", "outbox_event_route", "outbox_event_pause"] {
        db.run_on(&mut other, &format!("LOCK TABLE {table}")).await;
    }

    let seen = in_time("a proof waits for no table", session.prove_with_overview()).await.expect("it holds the lock");

    assert_eq!(seen, None, "nothing else is known");
    other.rollback().await.expect("unlocks");
    assert!(session.prove_with_overview().await.expect("it still holds the lock").is_some());
}
