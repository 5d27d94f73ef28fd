//! The schema.

use outbox::StoreError;
use outbox::store::{AuditFilter, Filter, HeldPartition, NewRow, Node, PARTITIONS, Severity};
use support::{Harness, Sqlite};

use crate::common::{LEASE, MOMENT, by_hand, claim_due, expectations, keep, owner, ownership, plain, write_one};

pub(crate) async fn migrating_twice_is_migrating_once(db: &dyn Harness) {
    let id = write_one(db).await;

    let applied = db.store().migrate_up().await.expect("nothing to do");

    assert!(applied.is_empty(), "{applied:?}");
    assert!(db.store().get(id).await.expect("reads").is_some(), "rows stay");
    let steps = db.store().migrations().await.expect("lists");
    assert_eq!(steps.first().map(|step| step.version), Some(1));
    assert!(steps.iter().all(|step| step.applied_at.is_some()), "{steps:?}");
    db.store().check_schema().await.expect("the schema is ours");
}

pub(crate) async fn two_programs_may_migrate_at_once(db: &dyn Harness) {
    let (one, two) = (db.other_table("racing").await, db.other_table("racing").await);

    let (first, second) = tokio::join!(one.migrate_up(), two.migrate_up());

    let applied = first.expect("migrates").len() + second.expect("migrates").len();
    assert_eq!(applied, one.migrations().await.expect("lists").len(), "each step once");
    two.check_schema().await.expect("the schema is there");
}

pub(crate) async fn a_missing_schema_is_named(db: &dyn Harness) {
    let store = db.other_table("not_there").await;

    let error = store.check_schema().await.expect_err("nothing is there");

    assert!(matches!(&error, StoreError::NoSchema { table } if table == "not_there"), "{error:?}");
    assert!(error.to_string().contains("outbox migrate up"), "it says what to do: {error}");
    assert!(!error.is_transient());
    let steps = store.migrations().await.expect("lists");
    assert!(!steps.is_empty() && steps.iter().all(|step| step.applied_at.is_none()), "{steps:?}");
    assert!(claim_due(&*store, 1).await.is_err(), "no table is not an empty table");
}

pub(crate) async fn a_schema_whose_version_was_deleted_by_hand_is_named_and_recovered(db: &dyn Harness) {
    let id = write_one(db).await;
    db.execute("DELETE FROM outbox_event_partition").await;
    db.execute("DELETE FROM outbox_event_migration").await;

    let error = db.store().check_schema().await.expect_err("its version is unknown");

    assert!(matches!(&error, StoreError::NoVersion { table } if table.ends_with("outbox_event")), "{error:?}");
    let found = db.store().diagnose(&expectations()).await.expect("looks");
    let schema = found.iter().find(|finding| finding.check == "schema").expect("is looked at");
    assert_eq!((schema.severity, schema.fix.as_deref()), (Severity::Fault, Some("outbox migrate up")));
    let applied = db.store().migrate_up().await.expect("notes the steps");
    assert_eq!(applied, db.store().migrations().await.expect("lists"));
    db.store().check_schema().await.expect("the version is known");
    assert!(db.store().partition_faults().await.expect("looks").is_empty());
    assert!(db.store().get(id).await.expect("reads").is_some(), "rows stay");
}

pub(crate) async fn tables_of_an_earlier_build_are_not_taken_for_ours_if_their_version_was_deleted(db: &dyn Harness) {
    db.execute("ALTER TABLE outbox_event_node RENAME COLUMN listeners TO stalled").await;
    db.execute("DELETE FROM outbox_event_migration").await;

    let error = db.store().migrate_up().await.expect_err("it lacks a column");

    assert!(matches!(error, StoreError::EarlierBuild { .. }), "{error:?}");
}

pub(crate) async fn a_newer_schema_is_refused(db: &dyn Harness) {
    let wanted = db.store().migrations().await.expect("lists").len();
    // A later program was here: it left one step more.
    db.execute(
        "INSERT INTO outbox_event_migration (version, name, applied_at) SELECT 99, 'from_the_future', applied_at
         FROM outbox_event_migration WHERE version = 1",
    )
    .await;

    let check = db.store().check_schema().await.expect_err("newer");
    let up = db.store().migrate_up().await.expect_err("newer");
    let down = db.store().migrate_down().await.expect_err("newer");
    let reset = db.store().migrate_reset().await.expect_err("newer");
    let list = db.store().migrations().await.expect_err("newer");

    for error in [check, up, down, reset, list] {
        let refused =
            matches!(&error, StoreError::SchemaNewer { found: 99, wanted: known, .. } if usize::try_from(*known) == Ok(wanted));
        assert!(refused, "{error:?}");
    }
    write_one(db).await;
}

pub(crate) async fn a_table_of_an_earlier_build_is_refused_until_it_is_reset(db: &dyn Harness) {
    write_one(db).await;
    // Its first step had another name, and it had other tables.
    db.execute("UPDATE outbox_event_migration SET name = 'outbox_event' WHERE version = 1").await;
    db.execute("DROP TABLE outbox_event_state").await;

    let check = db.store().check_schema().await.expect_err("another schema");
    let up = db.store().migrate_up().await.expect_err("another schema");
    let down = db.store().migrate_down().await.expect_err("another schema");

    for error in [check, up, down] {
        assert!(matches!(&error, StoreError::EarlierBuild { table } if table.ends_with("outbox_event")), "{error:?}");
        assert!(error.to_string().contains("`outbox migrate reset`"), "{error}");
    }
    write_one(db).await;
    let applied = db.store().migrate_reset().await.expect("resets");
    assert_eq!(applied, db.store().migrations().await.expect("lists"));
    db.store().check_schema().await.expect("the schema is of this build");
    assert!(db.store().list(&Filter::default(), 10).await.expect("lists").is_empty());
}

pub(crate) async fn a_reset_deletes_everything_and_leaves_an_empty_schema(db: &dyn Harness) {
    let store = db.other_table("resettable").await;
    store.migrate_reset().await.expect("creates the tables, as nothing is there");
    let envelope = plain(db).await;
    store.write(&[NewRow { envelope: &envelope, claimed: false }], &ownership()).await.expect("writes");
    store.pause(envelope.route(), &by_hand()).await.expect("pauses");
    keep(&*store, &owner("host"), PARTITIONS, PARTITIONS).await;
    let ours = write_one(db).await;

    store.migrate_reset().await.expect("resets");

    store.check_schema().await.expect("the schema is there");
    assert!(store.get(envelope.id()).await.expect("looks").is_none());
    assert!(store.nodes().await.expect("lists").is_empty() && store.routes().await.expect("lists").is_empty());
    assert!(store.partition_faults().await.expect("looks").is_empty());
    assert!(db.store().get(ours).await.expect("looks").is_some(), "other tables stay");
}

pub(crate) async fn a_table_of_another_program_is_refused_and_left_alone(db: &dyn Harness) {
    for (name, foreign) in [("shop", "shop"), ("orders", "orders_audit"), ("cart", "cart_readable")] {
        let store = db.other_table(name).await;
        db.execute(&format!("CREATE TABLE {foreign} (id integer)")).await;
        db.execute(&format!("INSERT INTO {foreign} VALUES (7)")).await;

        let [check, up, reset] = [
            store.check_schema().await.expect_err("it belongs to another program"),
            store.migrate_up().await.expect_err("it belongs to another program"),
            store.migrate_reset().await.expect_err("it belongs to another program"),
        ];

        for error in [check, up, reset] {
            assert!(matches!(&error, StoreError::NotOurs { table } if table.ends_with(name)), "{error:?}");
        }
        assert_eq!(db.number(&format!("SELECT max(id) FROM {foreign}")).await, 7);
    }
}

pub(crate) async fn emptied_tables_keep_only_live_hosts_with_their_partitions(db: &dyn Harness) {
    let (store, gone, alive) = (db.store(), owner("gone"), owner("alive"));
    let id = write_one(db).await;
    let event = store.get(id).await.expect("reads").expect("is there");
    let route = plain(db).await.route().clone();
    store.remember_routes(std::slice::from_ref(&route), &[]).await.expect("notes");
    store.pause(&route, &by_hand()).await.expect("pauses");
    keep(&*store, &gone, 100, PARTITIONS).await;
    db.let_pass(LEASE + MOMENT).await;
    let node = Node::new(alive.clone(), "here 1", "multi_node", "1.2.3");
    store.heartbeat(&node, LEASE).await.expect("says that it is alive");
    let held = store.keep_partitions(&alive, 50, PARTITIONS).await.expect("keeps");

    assert_eq!(store.empty_tables().await.expect("empties"), 1);

    assert!(store.get(id).await.expect("looks").is_none());
    assert!(store.routes().await.expect("lists").is_empty());
    assert!(store.list_audit(&AuditFilter::default(), 10).await.expect("lists").is_empty());
    let nodes = store.nodes().await.expect("lists");
    let named: Vec<_> = nodes.iter().map(|node| (node.owner.as_str(), node.partitions)).collect();
    assert_eq!(named, [(alive.as_str(), 50)]);
    let held_still: Vec<_> = held.iter().map(|held| HeldPartition { abandoned: false, ..*held }).collect();
    assert_eq!(store.keep_partitions(&alive, 50, PARTITIONS).await.expect("keeps"), held_still);
    assert_eq!(db.number("SELECT count(*) FROM outbox_event_partition WHERE owner IS NOT NULL").await, 50);
    store.check_schema().await.expect("the schema stays");
    let next = store.get(write_one(db).await).await.expect("reads").expect("is there");
    assert!(next.seq > event.seq, "no number is used again");
}

/// On PostgreSQL the sequence stays behind: see `doctor_finds_a_sequence_that_is_behind_its_table_and_its_statement_mends_it`.
pub(crate) async fn numbers_go_on_behind_rows_that_were_copied_in(db: &dyn Harness) {
    let id = write_one(db).await;
    let first = db.store().get(id).await.expect("reads").expect("is there").seq;
    db.execute(&format!("INSERT INTO outbox_event (seq, event_type, payload) VALUES ({}, 'Copied', '')", first + 1_000)).await;
    if db.store().kind() == "sqlite" {
        db.execute("DELETE FROM sqlite_sequence").await;
    }

    let next = write_one(db).await;

    let next = db.store().get(next).await.expect("reads").expect("is there").seq;
    assert_eq!(next, first + 1_001);
}

pub(crate) async fn taking_the_schema_back_leaves_nothing(db: &dyn Harness) {
    write_one(db).await;

    while db.store().migrate_down().await.expect("takes a step back").is_some() {}

    assert!(matches!(db.store().check_schema().await, Err(StoreError::NoSchema { .. })));
    assert_eq!(db.store().migrate_down().await.expect("nothing left"), None);
    db.store().migrate_up().await.expect("and up again");
    assert!(db.store().list(&Filter::default(), 10).await.expect("lists").is_empty(), "with an empty table");
}

pub(crate) async fn a_custom_table_lives_beside_the_default_one(db: &dyn Harness) {
    let store = db.other_table("my_events").await;
    store.migrate_up().await.expect("migrates");
    let ours = write_one(db).await;
    let theirs = plain(db).await;
    let row = NewRow { envelope: &theirs, claimed: false };
    store.write(&[row], &ownership()).await.expect("writes");

    let claimed = claim_due(&*store, 10).await.expect("claims");

    assert_eq!(crate::common::ids(&claimed), [theirs.id()]);
    assert!(store.get(ours).await.expect("looks").is_none());
    assert_eq!(db.number("SELECT count(*) FROM my_events").await, 1);
    while store.migrate_down().await.expect("takes its own tables away").is_some() {}
    db.store().check_schema().await.expect("and only that");
}

pub(crate) async fn the_printed_schema_is_one_that_the_host_accepts(db: &dyn Harness) {
    let store = db.other_table("by_hand").await;

    db.execute(&store.migration_sql(None)).await;

    store.check_schema().await.expect("what a DBA ran by hand is a schema");
    assert!(store.migrate_up().await.expect("nothing is missing").is_empty());
}

#[tokio::test]
async fn sqlite_a_reset_deletes_no_table_whose_name_differs_by_case() {
    let db = Sqlite::fresh().await;
    db.execute("CREATE TABLE shop (id integer)").await;

    let error = db.other_table("Shop").await.migrate_reset().await.expect_err("it belongs to another program");

    assert!(matches!(error, StoreError::NotOurs { .. }), "{error:?}");
    assert_eq!(db.number("SELECT count(*) FROM shop").await, 0);
}
