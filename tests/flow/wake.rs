//! Wake-ups between hosts by PostgreSQL: hosts that look by themselves once an hour deliver at once what another host commits.

use outbox::{Outbox, PostgresStore};
use support::{Harness, Postgres, Recorder, eventually};

use crate::common::{ROUTE, commit_one, drowsy};

/// More events, one after another, than there are wake-ups by which two hosts try their own hearing: the rest must come from
/// the commits.
const EVENTS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_writer_commits_wakes_the_hosts_and_again_after_their_connections_were_cut() {
    let db = Postgres::fresh().await;
    let recorder = Recorder::done();
    let writer = Outbox::writer_only(db.postgres()).start().await.expect("starts");
    let mut hosts = Vec::new();
    for number in 0..2 {
        let url = format!("{}&application_name={}_host_{number}", db.url(), db.schema());
        let store = PostgresStore::connect(&url).await.expect("connects");
        let host = Outbox::multi_node(store).poller(drowsy()).listener(ROUTE, recorder.listener()).start().await;
        hosts.push(host.expect("starts"));
    }
    both_listen(&db).await;

    events_are_delivered_as_they_are_committed(&writer, &recorder).await;

    assert_eq!(db.execute(&format!("SELECT pg_terminate_backend(pid) {}", listening(&db))).await, 2);
    let meanwhile = commit_one(&writer).await;
    assert_eq!(recorder.started().await.id(), meanwhile, "whoever could not hear looks for what it missed");
    both_listen(&db).await;
    events_are_delivered_as_they_are_committed(&writer, &recorder).await;

    assert_eq!(recorder.count(), 2 * EVENTS + 1, "each by one host, once");
    for outbox in hosts {
        outbox.shutdown().await;
    }
    writer.shutdown().await;
}

/// One after another, so that each needs a wake-up of its own.
async fn events_are_delivered_as_they_are_committed(writer: &Outbox<PostgresStore>, recorder: &Recorder) {
    for _ in 0..EVENTS {
        let id = commit_one(writer).await;
        assert_eq!(recorder.started().await.id(), id);
    }
}

/// The sessions by which this test's hosts hear each other.
fn listening(db: &Postgres) -> String {
    format!("FROM pg_stat_activity WHERE application_name LIKE '{}_host_%' AND query LIKE 'LISTEN %'", db.schema())
}

async fn both_listen(db: &Postgres) {
    let query = format!("SELECT count(*) {}", listening(db));
    eventually("both hosts listen", async || db.number(&query).await == 2).await;
}
