//! Outcomes that the database stores while the connection breaks before its answer.

use std::time::Duration;

use outbox::store::postgres::PostgresOptions;
use outbox::{MySqlStore, Outbox, PostgresStore, Status};
use support::{Database, Harness as _, MySql, Network, Postgres, Proxy, Recorder, Scrape, eventually};

use crate::common::{ROUTE, at_rest, commit, commit_one, drowsy, orders, reaches, row};
use crate::silence::server_of;

/// An outcome is stored at once only on a connection that has stored one before.
const MOST_ROUNDS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_was_stored_without_an_answer_does_not_count_as_dropped_on_postgres() {
    let db = Postgres::fresh().await;
    let proxy = Proxy::in_front_of(server_of(db.url())).await;
    let store = PostgresStore::connect(&proxy.url(db.url())).await.expect("connects");
    does_not_count_as_dropped(&db, store, &proxy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_was_stored_without_an_answer_does_not_count_as_dropped_on_mysql() {
    let db = MySql::fresh().await;
    let proxy = Proxy::in_front_of(server_of(&db.url())).await;
    let store = MySqlStore::connect(&proxy.url(&db.url())).await.expect("connects");
    does_not_count_as_dropped(&db, store, &proxy).await;
}

async fn does_not_count_as_dropped<D: Database>(db: &D, store: D::Store, proxy: &Proxy) {
    let recorder = Recorder::held();
    let host = Outbox::single_node(store).poller(drowsy()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");

    let events = lose_an_answer(db, &host, &recorder, proxy).await;
    proxy.set(Network::Pass);
    at_rest(&host).await;

    assert_eq!(recorder.count(), events, "no event is delivered twice");
    assert_eq!(host.metrics().counts().fenced_outcomes, 0);
    host.shutdown().await;
}

/// Delivers events until an outcome is stored without an answer. The network is cut then. Returns how many events were delivered.
async fn lose_an_answer<D: Database>(db: &D, host: &Outbox<D::Store>, recorder: &Recorder, proxy: &Proxy) -> usize {
    for round in 1..=MOST_ROUNDS {
        // The first of two outcomes prepares the statement.
        for cuts in [false, true] {
            let id = commit_one(host).await;
            recorder.started().await;
            let errors = host.metrics().counts().db_errors;
            if cuts {
                proxy.set(Network::CutAfter(0));
            }
            recorder.finish(1);
            if cuts {
                eventually("a statement fails", async || host.metrics().counts().db_errors > errors).await;
                if row(db, id).await.status == Status::Done {
                    return 2 * round;
                }
                proxy.set(Network::Pass);
            }
            reaches(db, id, Status::Done).await;
            at_rest(host).await;
        }
    }
    panic!("no outcome was stored without an answer");
}

/// The rows change before the outcomes are tried again, as if another host had delivered the events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_outcome_that_is_dropped_after_a_lost_answer_is_counted_on_postgres() {
    const EVENTS: u32 = 40;
    let db = Postgres::fresh().await;
    let proxy = Proxy::in_front_of(server_of(db.url())).await;
    let store = PostgresStore::connect(&proxy.url(db.url())).await.expect("connects");
    let recorder = Recorder::held();
    let host = Outbox::single_node(store).poller(drowsy()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    commit(&host, orders(EVENTS)).await;
    for _ in 0..EVENTS {
        recorder.started().await;
    }

    let errors = host.metrics().counts().db_errors;
    proxy.set(Network::CutAfter(0));
    recorder.finish(usize::try_from(EVENTS).expect("small"));
    eventually("a statement fails", async || host.metrics().counts().db_errors > errors).await;
    db.execute("UPDATE outbox_event SET claim_seq = claim_seq + 5").await;
    proxy.set(Network::Pass);

    let dropped = || host.metrics().counts().fenced_outcomes;
    eventually("all outcomes are dropped", async || dropped() == u64::from(EVENTS)).await;
    host.shutdown().await;
}

/// The outcome waits apart until the lock of the whole table ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_was_stored_without_an_answer_and_waited_for_a_lock_does_not_count_as_dropped_on_postgres() {
    let db = Postgres::fresh().await;
    let proxy = Proxy::in_front_of(server_of(db.url())).await;
    let mut options = PostgresOptions::from_url(&proxy.url(db.url())).expect("good");
    options.lock_timeout = Duration::from_millis(100);
    let (store, recorder) = (PostgresStore::connect_with(options).await.expect("connects"), Recorder::held());
    let host = Outbox::single_node(store).poller(drowsy()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    let locked = || Scrape::of(&host.prometheus()).value("outbox_outcomes_apart{obstacle=\"locked\"}");

    let events = lose_an_answer(&db, &host, &recorder, &proxy).await;
    let mut other = sqlx::PgPool::connect(db.url()).await.expect("connects").begin().await.expect("begins");
    db.run_on(&mut other, "LOCK TABLE outbox_event IN SHARE MODE").await;
    proxy.set(Network::Pass);
    eventually("the outcome waits apart", async || locked() == Some(1.0)).await;
    other.rollback().await.expect("unlocks");
    eventually("no outcome waits apart", async || locked() == Some(0.0)).await;

    at_rest(&host).await;
    assert_eq!(recorder.count(), events, "no event is delivered twice");
    assert_eq!(host.metrics().counts().fenced_outcomes, 0);
    host.shutdown().await;
}
