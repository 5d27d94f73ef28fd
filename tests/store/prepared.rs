//! Statements that were prepared before the table was altered, or that the server has forgotten.

use outbox::store::{NewRow, Settlement};
use outbox::{Envelope, PostgresStore, Status, StoreError, TransactionalStore};
use sqlx::PgConnection;
use support::{Harness, MySql, Postgres};
use tokio::task::JoinSet;

use crate::common::{LEASE, claim_due, claim_one, ownership, plain, row, settle, status, write, write_one};

pub(crate) async fn a_column_that_is_added_under_a_running_host_disturbs_nobody(db: &dyn Harness) {
    let walk = async || {
        let id = write_one(db).await;
        write(db, &[plain(db).await, plain(db).await]).await;
        let fences: Vec<_> = crate::common::claim(db, 10).await.iter().map(|claimed| claimed.fence).collect();
        assert_eq!(db.store().renew(&fences, LEASE).await.expect("renews").held.len(), 3);
        for fence in fences {
            assert_eq!(settle(db, fence, Settlement::Done).await, 0);
        }
        assert_eq!(status(db, id).await, Status::Done);
    };
    walk().await;

    db.execute("ALTER TABLE outbox_event ADD COLUMN note INTEGER").await;

    walk().await;
    write_one(db).await;
    claim_one(db).await;
}

/// Claims at the same time, so that several connections have prepared the statement.
async fn claim_side_by_side(store: &PostgresStore) -> Vec<StoreError> {
    let mut claims = JoinSet::new();
    for _ in 0..16 {
        let store = store.clone();
        claims.spawn(async move { claim_due(&store, 1).await });
    }
    claims.join_all().await.into_iter().filter_map(Result::err).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_whose_type_changes_costs_postgres_one_call_that_may_be_repeated() {
    let db = Postgres::fresh().await;
    let store = db.postgres();
    assert!(claim_side_by_side(&store).await.is_empty());

    db.execute("DROP VIEW outbox_event_readable; ALTER TABLE outbox_event ALTER COLUMN tenant_id TYPE varchar(64)").await;
    let error = claim_due(&store, 1).await.expect_err("the plan of before is of no use");
    let id = write_one(&db).await;

    assert!(matches!(error, StoreError::Outdated { .. }) && error.is_transient(), "{error:?}");
    assert!(claim_side_by_side(&store).await.is_empty(), "no other connection repeats the error");
    assert_eq!(row(&db, id).await.claims, 1);
}

async fn insert(store: &PostgresStore, connection: &mut PgConnection, envelope: &Envelope) -> Result<(), StoreError> {
    store.insert(connection, &[NewRow { envelope, claimed: false }], &ownership()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_goes_on_after_the_server_has_forgotten_its_prepared_statements() {
    let db = Postgres::fresh().await;
    let store = db.postgres();
    // A pool of the caller's with one connection: nobody replaces it.
    let own = db.other_program();
    let mut transaction = own.begin().await.expect("begins");
    insert(&store, &mut transaction, &plain(&db).await).await.expect("inserts");
    transaction.commit().await.expect("commits");
    db.execute("DEALLOCATE ALL").await;
    let envelope = plain(&db).await;

    let mut transaction = own.begin().await.expect("begins");
    let error = insert(&store, &mut transaction, &envelope).await.expect_err("the statement is gone");
    transaction.rollback().await.expect("rolls back");
    let mut transaction = own.begin().await.expect("begins");
    insert(&store, &mut transaction, &envelope).await.expect("it is prepared again");
    transaction.commit().await.expect("commits");

    assert!(matches!(error, StoreError::Outdated { .. }) && error.is_transient(), "{error:?}");
    assert_eq!(status(&db, envelope.id()).await, Status::New);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_whose_statements_mysql_cannot_prepare_again_is_replaced() {
    let db = MySql::fresh().await;
    let id = write_one(&db).await;
    // The server says so when a table is altered again and again; here the table itself says it.
    db.execute(
        "CREATE TRIGGER outdated BEFORE UPDATE ON outbox_event FOR EACH ROW
         SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1615, MESSAGE_TEXT = 'Prepared statement needs to be re-prepared'",
    )
    .await;
    let newest = db.number("SELECT MAX(id) FROM information_schema.processlist WHERE db = DATABASE()").await;

    let error = claim_due(&db.mysql(), 1).await.expect_err("refused");
    db.execute("DROP TRIGGER outdated").await;
    claim_one(&db).await;

    assert!(matches!(error, StoreError::Outdated { .. }) && error.is_transient(), "{error:?}");
    let newer = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id > {newest}");
    assert!(db.number(&newer).await > 0, "the claim went over another connection");
    assert_eq!(row(&db, id).await.claims, 1);
}
