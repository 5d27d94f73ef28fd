//! The schema.

use std::time::Duration;

use outbox::event::{Cost, Fence, OwnerId};
use outbox::store::{AttemptCost, Filter, Migration, PARTITIONS, ReadEvent, ReadRequest, Settled, Settlement};
use outbox::time::{Clock, SystemClock};
use outbox::{EventId, Status, StoreError};
use support::{Harness, eventually};

use crate::common::{
    LEASE, by_hand, claim_due, claim_one, dead, event, finished, keep, owner, ownership, plain, retry, row, settle, snapshot,
    status, write, write_one,
};
use crate::effects::{commit, effects, set, value};

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
    let list = db.store().migrations().await.expect_err("newer");

    for error in [check, up, down, list] {
        let refused =
            matches!(&error, StoreError::SchemaNewer { found: 99, wanted: known, .. } if usize::try_from(*known) == Ok(wanted));
        assert!(refused, "{error:?}");
    }
    write_one(db).await;
}

pub(crate) async fn a_table_of_an_earlier_build_is_refused(db: &dyn Harness) {
    // Its first step had another name, and made other columns.
    db.execute("UPDATE outbox_event_migration SET name = 'outbox_event' WHERE version = 1").await;

    let check = db.store().check_schema().await.expect_err("another schema");
    let up = db.store().migrate_up().await.expect_err("another schema");
    let down = db.store().migrate_down().await.expect_err("another schema");

    for error in [check, up, down] {
        assert!(matches!(&error, StoreError::EarlierBuild { table } if table.ends_with("outbox_event")), "{error:?}");
    }
    write_one(db).await;
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
    let row = outbox::store::NewRow { envelope: &theirs, claimed: false };
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

    db.execute(&store.migration_sql()).await;

    store.check_schema().await.expect("what a DBA ran by hand is a schema");
    assert!(store.migrate_up().await.expect("nothing is missing").is_empty());
}

/// What the tables keep of events, in a form that can be compared.
async fn contents(db: &dyn Harness) -> Vec<String> {
    let store = db.store();
    let mut contents = Vec::new();
    for record in store.list(&Filter::default(), 100).await.expect("lists") {
        contents.push(snapshot(db, record.event_id).await);
    }
    contents.push(format!("{:?}", value(db, "sums", "total").await));
    contents.push(format!("{} notes", store.audit(100).await.expect("reads").len()));
    contents
}

/// The steps after this one are taken back.
async fn down_to(db: &dyn Harness, version: u32) {
    let is_later = |step: &Migration| step.version > version && step.applied_at.is_some();
    while db.store().migrations().await.expect("lists").iter().any(is_later) {
        db.store().migrate_down().await.expect("takes a step back");
    }
}

async fn owned(db: &dyn Harness) -> i64 {
    db.number("SELECT count(*) FROM outbox_event_partition WHERE owner IS NOT NULL").await
}

/// Takes what partitions are free, and reads everything.
async fn keep_and_read(db: &dyn Harness, owner: &OwnerId) -> Vec<ReadEvent> {
    let store = db.store();
    let held = keep(&*store, owner, PARTITIONS, PARTITIONS).await;
    let request = ReadRequest {
        owner: owner.clone(),
        partitions: held.iter().map(|held| held.number).collect(),
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 100,
        max_bytes: 64 << 20,
        skip_recent: Duration::ZERO,
        order: None,
    };
    store.read(&request).await.expect("reads")
}

fn done(fence: Fence) -> Settled {
    Settled::new(fence, Settlement::Done)
}

pub(crate) async fn rows_in_every_state_of_the_schema_before_are_kept_up_and_down_and_delivered(db: &dyn Harness) {
    let (store, gone, host) = (db.store(), owner("gone"), owner("host"));
    let finished = async |settlement| finished(db, settlement).await;
    let over = finished(Settlement::Done).await;
    let died = finished(Settlement::Dead { error: "no luck".to_owned(), counted: true, blocks: true }).await;
    let retried = finished(retry(LEASE)).await;
    let deferred = finished(Settlement::Deferred { after: LEASE }).await;
    let parked = finished(Settlement::Parked { reason: "nobody answers".to_owned() }).await;
    let replayed = finished(dead("no luck")).await;
    let waiting = finished(Settlement::Behind { sequence: row(db, died).await.seq }).await;
    let with_state = write_one(db).await;
    let kept = effects(Vec::new(), "sums", &[("total", None, set("9.5"))]);
    let cost = Cost { took: Duration::from_millis(5), events: 1, guest: None };
    let cost = AttemptCost::new(1, &retry(LEASE), cost).map(Box::new);
    commit(db, &[(claim_one(db).await, Settlement::Deferred { after: LEASE }, kept)]).await;
    let costly = write_one(db).await;
    let settled = Settled { cost, ..Settled::new(claim_one(db).await, retry(LEASE)) };
    store.settle(&[settled]).await.expect("is stored");
    let claimed = write_one(db).await;
    let claim = claim_one(db).await;
    store.replay(replayed, &by_hand()).await.expect("replays");
    let fresh = write_one(db).await;
    let later = event(db, "OrderPlaced").await.available_at(db.now().await.plus(LEASE)).json(&1).expect("a good envelope");
    write(db, std::slice::from_ref(&later)).await;
    keep(&*store, &gone, 100, PARTITIONS).await;
    let before = contents(db).await;

    for version in [1, 2, 3] {
        down_to(db, version).await;
        assert_eq!((contents(db).await, owned(db).await), (before.clone(), 100), "taken back to {version}");

        store.migrate_up().await.expect("goes up again");

        assert_eq!((contents(db).await, owned(db).await), (before.clone(), 100), "up from {version}");
        assert!(store.partition_faults().await.expect("looks").is_empty(), "up from {version}");
    }

    let early = keep_and_read(db, &gone).await;
    let epoch = early.last().expect("some are due").event.fence.claim >> 32;
    assert!(epoch > 1_000_000, "no epoch of before comes again: {epoch}");
    let second = SystemClock::default().now().plus(Duration::from_secs(2));
    eventually("the clock has gone on", async || SystemClock::default().now() > second).await;
    down_to(db, 1).await;
    store.migrate_up().await.expect("goes up again");
    db.let_pass(LEASE * 2).await;

    let due = keep_and_read(db, &host).await;
    let ids: Vec<EventId> = due.iter().map(|due| due.event.event.as_ref().expect("readable").id()).collect();
    let mut wanted = vec![retried, deferred, replayed, with_state, costly, claimed, fresh, later.id()];
    wanted.sort_unstable();
    let mut found = ids.clone();
    found.sort_unstable();
    assert_eq!(found, wanted, "what is due in the end, and nothing else");
    assert!(due.iter().all(|due| due.event.fence.claim >> 32 > epoch), "epochs go on from {epoch}: {due:?}");
    let late: Vec<Settled> = early.iter().map(|early| done(early.event.fence)).collect();
    assert_eq!(store.settle(&late).await.expect("answers"), late.len() as u64, "no fence of before counts");
    assert_eq!(
        settle(db, claim, Settlement::Done).await,
        0,
        "but the claim of one that is only slow, since nobody has taken it"
    );
    let rest: Vec<Settled> =
        due.iter().filter(|due| due.event.fence.sequence != claim.sequence).map(|due| done(due.event.fence)).collect();
    assert_eq!(store.settle(&rest).await.expect("answers"), 0, "each is delivered");
    assert_eq!((status(db, over).await, status(db, died).await), (Status::Done, Status::Dead));
    assert_eq!(row(db, parked).await.parked.as_deref(), Some("nobody answers"));
    assert_eq!(row(db, waiting).await.behind, Some(row(db, died).await.seq));
    assert!(store.skip(died, &by_hand()).await.expect("skips"), "what was dead blocked still");
}
