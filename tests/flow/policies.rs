//! Row-level policies of PostgreSQL that apply to the user of a host. They do not apply to the superuser of the tests.

use std::collections::BTreeSet;

use outbox::event::OwnerId;
use outbox::listener::Fixed;
use outbox::store::{NewRow, Ownership};
use outbox::{Outbox, PostgresStore, Status};
use support::{Harness, Postgres, Recorder};

use crate::common::{HOUR, ROUTE, at_rest, done, eager, orders, reaches, row};
use crate::refused::{BAD, only_the_bad_one_waits};

/// A host of this user.
async fn host(url: &str, recorder: &Recorder) -> Outbox<PostgresStore> {
    let store = PostgresStore::connect(url).await.expect("connects");
    let builder = Outbox::single_node(store).poller(eager()).retry(Fixed(HOUR)).listener(ROUTE, recorder.listener());
    builder.start().await.expect("starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_whose_row_a_policy_hides_from_updates_is_not_delivered_in_a_loop() {
    let db = Postgres::fresh().await;
    let (user, url) = db.user("seer").await;
    db.execute(&format!(
        "ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
         CREATE POLICY seen ON outbox_event FOR SELECT USING (true);
         CREATE POLICY written ON outbox_event FOR INSERT WITH CHECK (true);
         CREATE POLICY changed ON outbox_event FOR UPDATE USING (aggregate_id <> '{BAD}')"
    ))
    .await;
    let recorder = Recorder::done();
    let host = host(&url, &recorder).await;

    let bad =
        only_the_bad_one_waits(&db, &host, "left the row as it was or set it back; a trigger, rule or row-level policy").await;

    db.execute("ALTER POLICY changed ON outbox_event USING (true)").await;
    reaches(&db, bad, Status::Done).await;
    at_rest(&host).await;
    let calls = recorder.ids();
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "nothing was delivered twice");
    host.shutdown().await;
    db.drop_user(&user).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_delivers_the_events_that_policies_let_it_see() {
    let db = Postgres::fresh().await;
    let (user, url) = db.user("tenant").await;
    let envelopes = orders(200);
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    db.store().write(&rows, &nobody).await.expect("writes");
    let hidden = envelopes[BAD].id();
    db.execute(&format!(
        "ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
         CREATE POLICY of_one_tenant ON outbox_event USING (aggregate_id <> '{BAD}')"
    ))
    .await;

    let recorder = Recorder::done();
    let host = host(&url, &recorder).await;

    done(&db, 199).await;
    assert_eq!(row(&db, hidden).await.status, Status::New, "the host never saw it");
    assert!(!recorder.ids().contains(&hidden));
    db.execute("ALTER POLICY of_one_tenant ON outbox_event USING (true)").await;
    reaches(&db, hidden, Status::Done).await;
    at_rest(&host).await;
    assert_eq!(recorder.count(), 200, "nothing was delivered twice");
    host.shutdown().await;
    db.drop_user(&user).await;
}
