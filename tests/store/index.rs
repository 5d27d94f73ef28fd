//! Indexes that only some hosts need.

use std::time::Duration;

use outbox::store::mysql::MySqlOptions;
use outbox::store::{Expectations, Filter, Index, SchemaStore, Settlement, Severity};
use outbox::{Envelope, MySqlStore, PostgresStore, StoreError, TransactionalStore};
use support::{Database, Harness, MySql, Postgres};

use crate::common::{expectations, finished, plains, write};

const ALL: [Index; 3] = [Index::Ordered, Index::OrderedByAggregate, Index::Aggregate];

/// The tables without the indexes that tests have for all modes.
async fn anew(db: &dyn Harness) {
    while db.store().migrate_down().await.expect("migrates down").is_some() {}
    db.store().migrate_up().await.expect("migrates up");
}

pub(crate) async fn an_index_is_there_once_it_was_added(db: &dyn Harness) {
    anew(db).await;
    write(db, &plains(db, 3).await).await;
    for index in ALL {
        let is_needed = db.store().kind() != "mysql" || index != Index::Ordered;
        let missing = db.store().check_index(index).await;
        if is_needed {
            let error = missing.expect_err("it is not there");
            assert!(matches!(&error, StoreError::NoIndex { index: name, .. } if *name == index.as_str()), "{error:?}");
            let fix = format!("`outbox migrate add-index {}`", index.as_str());
            assert!(error.to_string().contains(&fix), "it says what to do: {error}");
        } else {
            missing.expect("the primary key does its work");
        }

        assert_eq!(db.store().add_index(index).await.expect("adds it"), is_needed, "{index:?}");
        assert!(!db.store().add_index(index).await.expect("nothing to do"), "{index:?}");

        db.store().check_index(index).await.expect("it is there");
    }
}

pub(crate) async fn two_programs_may_add_an_index_at_once(db: &dyn Harness) {
    anew(db).await;
    let (one, two) = (db.store(), db.store());

    let (first, second) = tokio::join!(one.add_index(Index::Aggregate), two.add_index(Index::Aggregate));

    assert!(first.expect("adds it") ^ second.expect("adds it"), "one of the two did it");
    one.check_index(Index::Aggregate).await.expect("it is there");
}

pub(crate) async fn an_index_of_another_table_is_not_taken_for_ours(db: &dyn Harness) {
    let other = db.other_table("elsewhere").await;
    other.migrate_up().await.expect("migrates");

    other.check_index(Index::OrderedByAggregate).await.expect_err("only the first table has it");
    assert!(other.add_index(Index::OrderedByAggregate).await.expect("adds it"));

    other.check_index(Index::OrderedByAggregate).await.expect("it is there");
    db.store().check_index(Index::OrderedByAggregate).await.expect("and still in the first one");
}

pub(crate) async fn without_further_indexes_every_statement_of_a_host_without_order_uses_its_index(db: &dyn Harness) {
    anew(db).await;
    for _ in 0..20 {
        finished(db, Settlement::Done).await;
    }
    write(db, &plains(db, 20).await).await;

    let plans = db.store().plans().await.expect("explains");

    let bad: Vec<_> = plans.iter().filter(|plan| !plan.good).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let names: Vec<_> = plans.iter().map(|plan| plan.statement).collect();
    for statement in ["read", "next to read", "claim", "settle", "renew", "purge", "dead", "retry now", "unpark", "unblock"] {
        assert!(names.contains(&statement), "{statement}: {names:?}");
    }
}

pub(crate) async fn doctor_tells_of_the_index_that_the_mode_needs(db: &dyn Harness) {
    anew(db).await;
    let wanted = Expectations { index: Some(Index::OrderedByAggregate), ..expectations() };
    let of_indexes = async || {
        let findings = db.store().diagnose(&wanted).await.expect("looks");
        findings.into_iter().filter(|finding| finding.check == "indexes").collect::<Vec<_>>()
    };

    let found = of_indexes().await;
    let faults: Vec<_> = found.iter().filter(|finding| finding.severity == Severity::Fault).collect();
    assert_eq!(faults.len(), 1, "{found:#?}");
    assert_eq!(faults[0].fix.as_deref(), Some("outbox migrate add-index ordered_by_aggregate"));

    db.store().add_index(Index::OrderedByAggregate).await.expect("adds it");
    let found = of_indexes().await;
    assert!(found.iter().all(|finding| finding.severity == Severity::Good), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_was_hidden_is_found_by_doctor_on_mysql() {
    let db = MySql::fresh().await;
    let wanted = Expectations { index: Some(Index::OrderedByAggregate), ..expectations() };
    let faults = async || {
        let findings = db.store().diagnose(&wanted).await.expect("looks");
        let of_indexes = findings.into_iter().filter(|finding| finding.check == "indexes");
        of_indexes.filter(|finding| finding.severity == Severity::Fault).map(|finding| finding.found).collect::<Vec<_>>()
    };
    assert_eq!(faults().await, Vec::<String>::new());
    let is_mariadb = db.number("SELECT VERSION() LIKE '%MariaDB%'").await == 1;
    let (hidden, shown) = if is_mariadb { ("IGNORED", "NOT IGNORED") } else { ("INVISIBLE", "VISIBLE") };

    for index in ["outbox_due", "outbox_key"] {
        db.execute(&format!("ALTER TABLE outbox_event ALTER INDEX {index} {hidden}")).await;
        let found = faults().await;
        assert_eq!(found.len(), 1, "{index}: {found:#?}");
        db.execute(&format!("ALTER TABLE outbox_event ALTER INDEX {index} {shown}")).await;
    }

    assert_eq!(faults().await, Vec::<String>::new());
}

pub(crate) async fn a_search_by_aggregate_finds_the_same_with_and_without_its_index(db: &dyn Harness) {
    anew(db).await;
    let envelope =
        |aggregate: u32| Envelope::new("OrderPlaced").aggregate("Order", aggregate.to_string()).json(&1).expect("good");
    write(db, &(0..300).map(|number| envelope(number % 30)).collect::<Vec<_>>()).await;
    let search = async |newest_first| {
        let filter = Filter { aggregate_id: Some("1".to_owned()), newest_first, ..Filter::default() };
        let found = db.store().list(&filter, 4).await.expect("lists");
        found.into_iter().map(|record| record.seq).collect::<Vec<_>>()
    };

    let without = (search(false).await, search(true).await);
    db.store().add_index(Index::Aggregate).await.expect("adds it");
    let with = (search(false).await, search(true).await);

    let plans = db.store().plans().await.expect("explains");
    let plan = plans.iter().find(|plan| plan.statement == "events of an aggregate").expect("it is explained");
    assert!(plan.good, "{plan:#?}");
    assert_eq!(without, with);
    assert_eq!(without.0.len(), 4);
    assert!(without.0.is_sorted() && without.1.iter().rev().is_sorted(), "{without:?}");
}

/// More than a table may have whose writers wait.
async fn large() -> Postgres {
    let db = Postgres::fresh().await;
    anew(&db).await;
    db.execute(
        "INSERT INTO outbox_event (event_type, aggregate_id, payload)
         SELECT 'X', n % 100, decode(repeat('ab', 1500), 'hex') FROM generate_series(1, 20000) AS n",
    )
    .await;
    assert!(db.number("SELECT pg_relation_size('outbox_event')").await > 32 << 20);
    db
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_write_while_an_index_is_added_to_a_large_table_on_postgres() {
    let db = large().await;
    let store = db.typed();
    let mut open = store.begin().await.expect("begins");
    db.run_on(&mut open, "INSERT INTO outbox_event (event_type, payload) VALUES ('X', 'x')").await;

    let adding = tokio::spawn({
        let store = store.clone();
        async move { store.add_index(Index::OrderedByAggregate).await }
    });
    is_being_built(&db, &adding).await;
    write(&db, &plains(&db, 3).await).await;
    PostgresStore::commit(open).await.expect("commits");

    assert!(adding.await.expect("ends").expect("adds it"));
    store.check_index(Index::OrderedByAggregate).await.expect("it is whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_programs_may_add_an_index_to_a_large_table_at_once_on_postgres() {
    let db = large().await;
    let (one, two) = (db.another().await, db.another().await);

    let (first, second) = tokio::join!(one.add_index(Index::Aggregate), two.add_index(Index::Aggregate));

    assert!(first.expect("adds it") ^ second.expect("adds it"), "one of the two did it");
    one.check_index(Index::Aggregate).await.expect("it is there");
}

/// Waits until an index is built beside others.
async fn is_being_built(db: &Postgres, adding: &tokio::task::JoinHandle<Result<bool, StoreError>>) {
    while db.number("SELECT count(*) FROM pg_stat_progress_create_index WHERE relid = 'outbox_event'::regclass").await == 0 {
        assert!(!adding.is_finished(), "it does not wait");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_transaction_stays_open_fails_no_index_of_a_small_table_on_postgres() {
    let db = Postgres::fresh().await;
    anew(&db).await;
    let store = db.typed();
    let mut open = store.begin().await.expect("begins");
    db.run_on(&mut open, "INSERT INTO outbox_event (event_type, payload) VALUES ('X', 'x')").await;

    let adding = tokio::spawn({
        let store = store.clone();
        async move { store.add_index(Index::Ordered).await }
    });
    is_being_built(&db, &adding).await;
    write(&db, &plains(&db, 3).await).await;
    PostgresStore::commit(open).await.expect("commits");

    assert!(adding.await.expect("ends").expect("adds it"));
    store.check_index(Index::Ordered).await.expect("it is whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_are_serializable_by_default_do_not_stop_an_index_on_postgres() {
    let db = large().await;
    let url = format!("{}%20-cdefault_transaction_isolation%3Dserializable", db.url());
    let store = PostgresStore::connect(&url).await.expect("connects");

    let added = support::in_time("the index is added", store.add_index(Index::Aggregate)).await;

    assert!(added.expect("adds it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_statement_of_a_host_does_not_bound_an_index_on_mysql() {
    const LONGEST: Duration = Duration::from_secs(1);
    let db = MySql::fresh().await;
    anew(&db).await;
    let mut options = MySqlOptions::from_url(&db.url()).expect("an address");
    (options.statement_timeout, options.lock_timeout) = (LONGEST, LONGEST * 30);
    let store = MySqlStore::connect_with(options).await.expect("connects");
    // An index waits for transactions that have read the table.
    let mut open = db.mysql().begin().await.expect("begins");
    db.run_on(&mut open, "SELECT count(*) FROM outbox_event").await;

    let adding = tokio::spawn({
        let store = store.clone();
        async move { store.add_index(Index::Aggregate).await }
    });
    let waits = format!(
        "SELECT count(*) FROM information_schema.processlist WHERE db = '{}' AND state LIKE '%metadata lock%' AND time > {}",
        db.name(),
        LONGEST.as_secs()
    );
    while db.number(&waits).await == 0 {
        assert!(!adding.is_finished(), "it does not wait");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    MySqlStore::commit(open).await.expect("commits");

    assert!(adding.await.expect("ends").expect("adds it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_was_not_built_to_its_end_is_built_anew_on_postgres() {
    let db = Postgres::fresh().await;
    db.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_event_open'::regclass").await;

    db.store().check_index(Index::Ordered).await.expect_err("no statement uses it");
    let findings = db.store().diagnose(&expectations()).await.expect("looks");
    let told =
        findings.iter().any(|finding| finding.severity == Severity::Fault && finding.found.contains("outbox_event_open"));
    assert!(told, "{findings:#?}");
    assert!(db.store().add_index(Index::Ordered).await.expect("builds it"));

    db.store().check_index(Index::Ordered).await.expect("it is whole");
    let left = db.number("SELECT count(*) FROM pg_index WHERE indrelid = 'outbox_event'::regclass AND NOT indisvalid").await;
    assert_eq!(left, 0, "nothing is left of the one before");
}
