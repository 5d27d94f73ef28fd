//! Outcomes that the database stores while the connection breaks before its answer.

use outbox::{MySqlStore, Outbox, PostgresStore, Status};
use support::{Database, MySql, Network, Postgres, Proxy, Recorder, eventually};

use crate::common::{ROUTE, at_rest, commit_one, drowsy, reaches, row};
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
    let (mut rounds, mut is_answer_lost) = (0, false);
    while !is_answer_lost {
        assert!(rounds < MOST_ROUNDS, "no outcome was stored without an answer");
        rounds += 1;
        // The first of two outcomes prepares the statement.
        for cuts in [false, true] {
            let id = commit_one(&host).await;
            recorder.started().await;
            let errors = host.metrics().counts().db_errors;
            if cuts {
                proxy.set(Network::CutAfter(0));
            }
            recorder.finish(1);
            if cuts {
                eventually("a statement fails", async || host.metrics().counts().db_errors > errors).await;
                is_answer_lost = row(db, id).await.status == Status::Done;
                proxy.set(Network::Pass);
            }
            reaches(db, id, Status::Done).await;
            at_rest(&host).await;
        }
    }

    assert_eq!(recorder.count(), 2 * rounds, "no event is delivered twice");
    assert_eq!(host.metrics().counts().fenced_outcomes, 0);
    host.shutdown().await;
}
