//! Outcomes that are stored within a limit.

use std::time::Duration;

use outbox::store::{Settled, Settlement};
use outbox::{Status, StoreError};
use support::{Database, Harness, Postgres};

use crate::common::{claim, ids, plains, status, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_that_reach_their_limit_are_rolled_back_and_can_be_stored_at_once() {
    let db = Postgres::fresh().await;
    write(&db, &plains(&db, 3).await).await;
    let claimed = claim(&db, 10).await;
    let kinds = [Settlement::Done, Settlement::Done, Settlement::Erased];
    let settled: Vec<Settled> = claimed.iter().zip(kinds).map(|(one, kind)| Settled::new(one.fence, kind)).collect();
    let body = "BEGIN PERFORM pg_sleep(3600); RETURN NEW; END";
    db.execute(&format!("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
    db.execute("CREATE TRIGGER slow BEFORE UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION slow()").await;

    for settled in [&settled[..1], &settled[..]] {
        let error = db.store().settle_within(settled, Duration::from_millis(100)).await.expect_err("it takes longer");
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error:?}");
    }

    for id in ids(&claimed) {
        assert_eq!(status(&db, id).await, Status::New);
    }
    db.execute("DROP TRIGGER slow ON outbox_event").await;
    assert_eq!(db.store().settle_within(&settled, Duration::from_secs(60)).await.expect("stores"), 0);
    assert_eq!(status(&db, ids(&claimed)[0]).await, Status::Done);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_reaches_its_limit_at_a_lock_is_reported_as_locked() {
    let db = Postgres::fresh().await;
    write(&db, &plains(&db, 1).await).await;
    let settled = [Settled::new(claim(&db, 1).await[0].fence, Settlement::Done)];
    let mut other = db.services_pool(1).begin().await.expect("begins");
    db.run_on(&mut other, "SELECT seq FROM outbox_event FOR UPDATE").await;

    let error = db.store().settle_within(&settled, Duration::from_secs(1)).await.expect_err("the row is locked");

    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
}
