//! Outcomes with effects: everything of one is written, or nothing.

use bytes::Bytes;
use outbox::event::{Effects, Fence, StateChange, StateChanges, StateQuota, StateWrite};
use outbox::store::{Committed, Settled, SettledWithEffects, Settlement};
use outbox::{Envelope, Status, StoreError};
use support::Harness;

use crate::common::{LEASE, MOMENT, claim, claim_one, plain, plains, row, settle, write, write_one};

pub(crate) const QUOTA: StateQuota = StateQuota { keys: 3, bytes: 1_000 };

/// What a plugin reads (the version) and writes of its keys.
pub(crate) type Change<'a> = (&'a str, Option<u64>, Option<StateWrite>);

pub(crate) fn set(value: &str) -> Option<StateWrite> {
    Some(StateWrite::Set(Bytes::copy_from_slice(value.as_bytes())))
}

pub(crate) fn effects(emitted: Vec<Envelope>, plugin: &str, changes: &[Change<'_>]) -> Effects {
    let change = |(key, read, write): &Change<'_>| ((*key).to_owned(), StateChange { read: *read, write: write.clone() });
    let keys = changes.iter().map(change).collect();
    Effects { emitted, state: Some(StateChanges { plugin: plugin.to_owned(), quota: QUOTA, keys }) }
}

fn emits(emitted: Vec<Envelope>) -> Effects {
    Effects { emitted, state: None }
}

pub(crate) async fn commit(db: &dyn Harness, items: &[(Fence, Settlement, Effects)]) -> Vec<Committed> {
    let settled: Vec<Settled> = items.iter().map(|(fence, settlement, _)| Settled::new(*fence, settlement.clone())).collect();
    let with: Vec<_> =
        settled.iter().zip(items).map(|(settled, (.., effects))| SettledWithEffects { settled, effects }).collect();
    db.store().settle_with_effects(&with).await.expect("they are written")
}

pub(crate) async fn value(db: &dyn Harness, plugin: &str, key: &str) -> Option<(u64, String)> {
    let value = db.store().state(plugin, key).await.expect("reads");
    value.map(|value| (value.version, String::from_utf8(value.value.to_vec()).expect("text")))
}

pub(crate) async fn usage(db: &dyn Harness, plugin: &str) -> (u64, u64) {
    let usage = db.store().state_usage(plugin).await.expect("reads");
    (usage.keys, usage.bytes)
}

pub(crate) async fn an_outcome_its_events_and_its_state_come_together(db: &dyn Harness) {
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    let follow_ups = plains(db, 2).await;
    let ids: Vec<_> = follow_ups.iter().map(Envelope::id).collect();
    let changes = [("total", None, set("9.5")), ("näme", None, set(""))];

    let committed = commit(db, &[(fence, Settlement::Done, effects(follow_ups, "sums", &changes))]).await;

    assert_eq!(committed, [Committed::Stored]);
    assert_eq!(row(db, id).await.status, Status::Done);
    let claimed = claim(db, 10).await;
    assert_eq!(crate::common::ids(&claimed), ids, "follow-up events are due, in their order");
    assert_eq!(value(db, "sums", "total").await.expect("it is kept").1, "9.5");
    assert_eq!(value(db, "sums", "näme").await.expect("an empty value is one").1, "");
    assert_eq!(value(db, "other", "total").await, None, "each plugin has its own");
    assert_eq!(usage(db, "sums").await, (2, 5 + 3 + 5));
    assert_eq!(usage(db, "other").await, (0, 0));
}

pub(crate) async fn effects_come_with_every_kind_of_answer(db: &dyn Harness) {
    let dead = Settlement::Dead { error: "no".to_owned(), counted: false, blocks: false };
    for (number, settlement) in [Settlement::Deferred { after: LEASE }, dead, Settlement::Erased].into_iter().enumerate() {
        write_one(db).await;
        let fence = claim_one(db).await;
        let key = format!("key {number}");

        let committed =
            commit(db, &[(fence, settlement.clone(), effects(vec![], "p", &[(key.as_str(), None, set("x"))]))]).await;

        assert_eq!(committed, [Committed::Stored], "{settlement:?}");
        assert!(value(db, "p", &key).await.is_some(), "{settlement:?}");
        assert!(claim(db, 1).await.is_empty(), "{settlement:?}");
    }
}

pub(crate) async fn an_outcome_that_is_fenced_off_leaves_nothing_behind(db: &dyn Harness) {
    let id = write_one(db).await;
    let late = claim_one(db).await;
    db.let_pass(LEASE + MOMENT).await;
    let fence = claim_one(db).await;
    let theirs = plain(db).await;

    let committed = commit(db, &[(late, Settlement::Done, effects(vec![theirs], "p", &[("k", None, set("late"))]))]).await;

    assert_eq!(committed, [Committed::Fenced]);
    assert_eq!((row(db, id).await.status, value(db, "p", "k").await), (Status::New, None));
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 1);
    // And what was written is fenced off the second time.
    let mine = || (fence, Settlement::Done, effects(vec![], "p", &[("k", None, set("mine"))]));
    assert_eq!(commit(db, &[mine()]).await, [Committed::Stored]);
    let first = value(db, "p", "k").await;
    assert_eq!(commit(db, &[mine()]).await, [Committed::Fenced]);
    assert_eq!(value(db, "p", "k").await, first);
}

pub(crate) async fn two_outcomes_of_one_event_are_told_apart_by_their_fences(db: &dyn Harness) {
    let id = write_one(db).await;
    let late = claim_one(db).await;
    db.let_pass(LEASE + MOMENT).await;
    let fence = claim_one(db).await;
    let done = |fence, value| (fence, Settlement::Done, effects(vec![], "p", &[("k", None, set(value))]));

    let committed = commit(db, &[done(late, "late"), done(fence, "mine")]).await;

    assert_eq!(committed, [Committed::Fenced, Committed::Stored]);
    assert_eq!(row(db, id).await.status, Status::Done);
    assert_eq!(value(db, "p", "k").await.map(|(_, text)| text).as_deref(), Some("mine"));
}

pub(crate) async fn what_a_listener_read_must_still_be_so(db: &dyn Harness) {
    write(db, &plains(db, 4).await).await;
    let fences: Vec<Fence> = claim(db, 4).await.iter().map(|claimed| claimed.fence).collect();
    let done = |index: usize, read: u64, value: &str| {
        (fences[index], Settlement::Done, effects(vec![], "p", &[("n", Some(read), set(value))]))
    };

    // All in one call: the first is right, the second saw what was there before it.
    let committed = commit(db, &[done(0, 0, "1"), done(1, 0, "1")]).await;
    assert_eq!(committed, [Committed::Stored, Committed::Conflict]);
    let (version, text) = value(db, "p", "n").await.expect("it is kept");
    assert_eq!(text, "1");

    let emitted = plain(db).await;
    let wrong = (fences[2], Settlement::Done, effects(vec![emitted.clone()], "p", &[("n", Some(version + 1), set("7"))]));
    assert_eq!(commit(db, &[wrong]).await, [Committed::Conflict]);
    assert!(db.store().get(emitted.id()).await.expect("reads").is_none(), "nothing of it was written");
    assert_eq!(commit(db, &[done(1, version, "2")]).await, [Committed::Stored], "the event is held still");

    // A key that was removed and written again is not what it was.
    let now = value(db, "p", "n").await.expect("it is kept").0;
    let gone = (fences[2], Settlement::Done, effects(vec![], "p", &[("n", None, Some(StateWrite::Delete))]));
    assert_eq!(commit(db, &[gone]).await, [Committed::Stored]);
    assert_eq!((value(db, "p", "n").await, usage(db, "p").await), (None, (0, 0)));
    assert_eq!(commit(db, &[done(3, now, "3")]).await, [Committed::Conflict]);
    assert_eq!(commit(db, &[done(3, 0, "3")]).await, [Committed::Stored]);
    assert!(value(db, "p", "n").await.expect("it is kept").0 > now, "a version is never used twice");
}

pub(crate) async fn a_plugin_keeps_no_more_than_its_quota(db: &dyn Harness) {
    write(db, &plains(db, 3).await).await;
    let fences: Vec<Fence> = claim(db, 3).await.iter().map(|claimed| claimed.fence).collect();
    let fill = [("a", None, set("1")), ("b", None, set("2")), ("c", None, set("3"))];
    assert_eq!(commit(db, &[(fences[0], Settlement::Done, effects(vec![], "p", &fill))]).await, [Committed::Stored]);

    let more = (fences[1], Settlement::Done, effects(vec![], "p", &[("d", None, set("4"))]));
    let large = "x".repeat(1_000);
    let larger = (fences[2], Settlement::Done, effects(vec![], "p", &[("a", None, set(&large))]));
    assert_eq!(commit(db, &[more, larger]).await, [Committed::Conflict, Committed::Conflict]);

    assert_eq!((value(db, "p", "d").await, usage(db, "p").await), (None, (3, 6)));
}

pub(crate) async fn an_event_that_is_there_already_is_not_emitted_again(db: &dyn Harness) {
    write(db, &plains(db, 2).await).await;
    let fences: Vec<Fence> = claim(db, 2).await.iter().map(|claimed| claimed.fence).collect();
    let follow_up = plain(db).await;

    for fence in fences {
        assert_eq!(commit(db, &[(fence, Settlement::Done, emits(vec![follow_up.clone()]))]).await, [Committed::Stored]);
    }

    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 3);
    let fence = claim_one(db).await;
    assert_eq!(settle(db, fence, Settlement::Done).await, 0);
}

pub(crate) async fn outcomes_of_many_plugins_go_together_whatever_they_are(db: &dyn Harness) {
    write(db, &plains(db, 30).await).await;
    let claimed = claim(db, 30).await;
    let items: Vec<_> = claimed
        .iter()
        .enumerate()
        .map(|(number, claimed)| {
            let settlement = if number % 2 == 0 { Settlement::Done } else { Settlement::Deferred { after: LEASE } };
            let plugin = format!("p{}", number % 5);
            let key = format!("k{}", number % 3);
            (claimed.fence, settlement, effects(vec![], &plugin, &[(key.as_str(), None, set(&number.to_string()))]))
        })
        .collect();

    assert_eq!(commit(db, &items).await, vec![Committed::Stored; 30]);

    assert_eq!(value(db, "p4", "k2").await.expect("it is kept").1, "29", "the last one counts");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event_state").await, 15);
    assert_eq!(db.store().stats().await.expect("counts").done, 15);
}

pub(crate) async fn an_outcome_that_could_not_be_written_leaves_its_event_unlocked(db: &dyn Harness) {
    let refused = if db.store().kind() == "sqlite" {
        "CREATE TRIGGER refused BEFORE INSERT ON outbox_event_state BEGIN SELECT RAISE(ABORT, 'refused'); END"
    } else {
        "ALTER TABLE outbox_event_state ADD CONSTRAINT refused CHECK (name <> 'refused')"
    };
    db.execute(refused).await;

    // A rollback that nobody waits for usually comes in time; fifty rounds meet one that does not.
    for _ in 0..50 {
        write_one(db).await;
        let fence = claim_one(db).await;
        let settled = Settled::new(fence, Settlement::Done);
        let effects = effects(vec![], "p", &[("refused", None, set("x"))]);

        let outcome = db.store().settle_with_effects(&[SettledWithEffects { settled: &settled, effects: &effects }]).await;

        assert!(outcome.is_err(), "{outcome:?}");
        assert_eq!(db.store().locked(&[fence.sequence]).await.expect("looks"), [0_u64; 0], "its transaction is open still");
        assert_eq!(settle(db, fence, Settlement::Done).await, 0);
    }
}

/// A trigger that has the UPDATE of an outcome do nothing: its effects must not be committed without it.
async fn the_effects_of_a_suppressed_outcome_are_not_written(db: &dyn Harness, suppress: &[&str]) {
    write_one(db).await;
    let fence = claim_one(db).await;
    for statement in suppress {
        db.execute(statement).await;
    }
    let settled = Settled::new(fence, Settlement::Done);
    let effects = effects(plains(db, 2).await, "sums", &[("total", None, set("9.5"))]);

    let refused = db.store().settle_with_effects(&[SettledWithEffects { settled: &settled, effects: &effects }]).await;

    assert!(matches!(refused, Err(StoreError::PartitionsMoved { .. })), "{refused:?}");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 1, "nothing is emitted");
    assert_eq!(value(db, "sums", "total").await, None);
    assert_eq!(
        db.store().unsettled(std::slice::from_ref(&settled)).await.expect("looks"),
        [fence.sequence],
        "it is still ours"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_effects_of_a_suppressed_outcome_are_not_written_on_sqlite() {
    let suppress = ["CREATE TRIGGER suppress BEFORE UPDATE ON outbox_event BEGIN SELECT RAISE(IGNORE); END"];
    the_effects_of_a_suppressed_outcome_are_not_written(&support::Sqlite::fresh().await, &suppress).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_effects_of_a_suppressed_outcome_are_not_written_on_postgres() {
    let suppress = [
        "CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        "CREATE TRIGGER suppress BEFORE UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION suppress()",
    ];
    the_effects_of_a_suppressed_outcome_are_not_written(&support::Postgres::fresh().await, &suppress).await;
}
