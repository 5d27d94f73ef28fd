//! The sessions of hosts: a lock that is held while its host lives, and what becomes of the partitions when it is free.

mod file;
mod server;

use outbox::event::OwnerId;
use outbox::store::{HeldPartition, Node, PARTITIONS, Session};
use outbox::{Route, Store, StoreError};
use support::{Harness, eventually};

use crate::common::{LEASE, MOMENT, by_hand, owner, write_one};

/// Says that a host is alive, and whether it has a session.
async fn says(store: &dyn Store, owner: &OwnerId, session: bool) {
    let node = Node { session, ..Node::new(owner.clone(), "host 1", "multi_node", "1") };
    store.heartbeat(&node, LEASE).await.expect("says that it is alive");
}

/// Keeps partitions without a heartbeat, which would say whether the host has a session. Returns their numbers.
async fn taken(store: &dyn Store, owner: &OwnerId, most: u16, of: u16) -> Vec<u16> {
    let held = store.keep_partitions(owner, most, of).await.expect("keeps partitions");
    held.into_iter().map(|partition| partition.number).collect()
}

/// A host that has partitions and says that it has a session.
async fn serving(store: &dyn Store, label: &str, partitions: u16) -> OwnerId {
    let owner = owner(label);
    says(store, &owner, true).await;
    assert_eq!(taken(store, &owner, partitions, PARTITIONS).await.len(), usize::from(partitions));
    owner
}

async fn held(store: &dyn Store, owner: &OwnerId) -> Box<dyn Session> {
    store.hold_session(owner).await.expect("asks for the lock").expect("this database has such locks")
}

/// Owners whose lock is free, as another host sees it.
async fn free(store: &dyn Store) -> Vec<String> {
    store.free_sessions(&owner("other")).await.expect("looks")
}

fn names(owners: &[&OwnerId]) -> Vec<String> {
    let mut names: Vec<String> = owners.iter().map(|owner| owner.as_str().to_owned()).collect();
    names.sort();
    names
}

pub(crate) async fn a_session_holds_its_lock_until_it_is_dropped(db: &dyn Harness) {
    let store = db.store();
    let one = serving(&*store, "one", 2).await;
    let mut session = held(&*store, &one).await;

    session.prove().await.expect("it holds the lock");
    assert!(free(&*store).await.is_empty());
    assert!(!store.abandon(one.as_str()).await.expect("looks"), "its owner is there");
    session.prove().await.expect("it still holds the lock");
    assert!(taken(&*store, &owner("two"), PARTITIONS, 2).await.is_empty(), "no lease was ended");
    drop(session);

    eventually("the lock is free", async || free(&*store).await == names(&[&one])).await;
}

pub(crate) async fn a_session_that_is_ended_lets_its_lock_go_at_once(db: &dyn Harness) {
    let store = db.store();
    let one = serving(&*store, "one", 2).await;
    let session = held(&*store, &one).await;

    session.end().await;

    assert_eq!(free(&*store).await, names(&[&one]));
    let mut session = held(&*store, &one).await;
    session.prove().await.expect("an owner may have one session after the other");
    assert!(free(&*store).await.is_empty());
}

pub(crate) async fn the_lock_of_an_owner_is_held_once_and_locks_of_two_owners_do_not_meet(db: &dyn Harness) {
    let store = db.store();
    let (one, two) = (serving(&*store, "one", 2).await, serving(&*store, "two", 2).await);
    let session = held(&*store, &one).await;

    let error = store.hold_session(&one).await.err().expect("it is held");
    assert!(matches!(error, StoreError::Locked { .. }) && error.is_transient(), "{error:?}");
    assert_eq!(free(&*store).await, names(&[&two]));
    let mut other = held(&*store, &two).await;
    assert!(free(&*store).await.is_empty());
    session.end().await;

    other.prove().await.expect("the other session has nothing to do with it");
    assert_eq!(free(&*store).await, names(&[&one]));
}

pub(crate) async fn live_owners_that_said_that_they_have_a_session_are_missed_with_partitions_or_without(db: &dyn Harness) {
    let store = db.store();
    let missed = serving(&*store, "missed", 2).await;
    let silent = serving(&*store, "silent", 2).await;
    says(&*store, &silent, false).await;
    let idle = owner("idle");
    says(&*store, &idle, true).await;
    let gave_back = serving(&*store, "gave back", 2).await;
    let partitions = store.keep_partitions(&gave_back, 2, PARTITIONS).await.expect("keeps");
    store.release_partitions(&gave_back, &partitions).await.expect("gives back");
    let unknown = owner("unknown");
    assert_eq!(taken(&*store, &unknown, 2, PARTITIONS).await.len(), 2, "it never said that it is alive");

    assert_eq!(free(&*store).await, names(&[&missed, &idle, &gave_back]));
    assert_eq!(store.free_sessions(&missed).await.expect("looks"), names(&[&idle, &gave_back]), "no host misses itself");
    assert!(store.abandon(idle.as_str()).await.expect("abandons"), "the others keep a share for it");
    assert_eq!(free(&*store).await, names(&[&missed, &gave_back]));
    db.let_pass(LEASE + MOMENT).await;
    assert!(free(&*store).await.is_empty(), "the lease has ended: whoever wants its partitions takes them");
}

/// PostgreSQL tells it with the proof; elsewhere others are asked.
pub(crate) async fn the_overview_of_a_session_is_what_others_are_told(db: &dyn Harness) {
    let store = db.store();
    let (one, missed) = (serving(&*store, "one", 2).await, serving(&*store, "missed", 2).await);
    let mut session = held(&*store, &one).await;
    let Some(before) = session.prove_with_overview().await.expect("it holds the lock") else {
        assert_ne!(store.kind(), "postgres");
        return;
    };
    assert_eq!(before.free_sessions, names(&[&missed]));
    assert_eq!(session.prove_with_overview().await.expect("looks").expect("tells"), before, "nothing has changed");

    let _other = held(&*store, &missed).await;
    let route = Route::new("Order", "OrderPlaced").expect("a good name");
    let mut texts = vec![before.routes_digest];
    store.remember_routes(std::slice::from_ref(&route), &[]).await.expect("notes");
    texts.push(session.prove_with_overview().await.expect("looks").expect("tells").routes_digest);
    store.pause(&route, &by_hand()).await.expect("pauses");
    texts.push(session.prove_with_overview().await.expect("looks").expect("tells").routes_digest);
    store.resume(&route, &by_hand()).await.expect("resumes");

    let after = session.prove_with_overview().await.expect("looks").expect("tells");
    assert_eq!((after.free_sessions, &after.routes_digest), (Vec::new(), &texts[1]), "as it was before the pause");
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "each change shows");
}

pub(crate) async fn partitions_of_an_owner_that_is_gone_are_taken_at_once_and_were_abandoned(db: &dyn Harness) {
    let store = db.store();
    let (gone, other, heir) = (serving(&*store, "gone", 2).await, serving(&*store, "other", 1).await, owner("heir"));
    assert!(taken(&*store, &heir, 3, 3).await.is_empty(), "all are held");

    assert!(store.abandon(gone.as_str()).await.expect("abandons"));

    let alive: Vec<_> = store.nodes().await.expect("lists").into_iter().filter(|node| node.alive).collect();
    assert_eq!(alive.iter().map(|node| node.owner.as_str()).collect::<Vec<_>>(), [other.as_str()]);
    assert!(!store.abandon(gone.as_str()).await.expect("looks"), "there is nothing left to end");
    assert_eq!(free(&*store).await, names(&[&other]));
    let inherited = store.keep_partitions(&heir, 3, 3).await.expect("keeps");
    assert_eq!(inherited, [0, 1].map(|number| HeldPartition { number, epoch: 2, abandoned: true }), "and nothing of the other");
}

pub(crate) async fn an_owner_that_says_that_it_has_no_session_loses_nothing(db: &dyn Harness) {
    let store = db.store();
    let one = serving(&*store, "one", 2).await;
    assert_eq!(free(&*store).await, names(&[&one]));
    says(&*store, &one, false).await;

    assert!(!store.abandon(one.as_str()).await.expect("looks"));
    assert!(!store.abandon(owner("unknown").as_str()).await.expect("looks"));
    assert!(!store.abandon("no host's name").await.expect("looks"));

    assert!(store.nodes().await.expect("lists")[0].alive);
    assert!(taken(&*store, &owner("two"), PARTITIONS, 2).await.is_empty());
}

pub(crate) async fn an_owner_that_was_abandoned_and_lives_keeps_what_nobody_has_taken(db: &dyn Harness) {
    let store = db.store();
    let one = serving(&*store, "one", 2).await;
    assert!(store.abandon(one.as_str()).await.expect("abandons"));

    says(&*store, &one, true).await;
    let kept = store.keep_partitions(&one, 2, 2).await.expect("keeps");

    assert_eq!(kept, [0, 1].map(|number| HeldPartition { number, epoch: 1, abandoned: false }));
    assert!(store.nodes().await.expect("lists")[0].alive);
}

pub(crate) async fn rows_that_an_abandoned_owner_claimed_stay_claimed(db: &dyn Harness) {
    let store = db.store();
    let gone = serving(&*store, "gone", 2).await;
    write_one(db).await;
    let claim = async |owner: &OwnerId| support::claim_due(&*store, owner, LEASE, 10).await.expect("claims").len();
    assert_eq!(claim(&gone).await, 1);

    assert!(store.abandon(gone.as_str()).await.expect("abandons"));

    assert_eq!(claim(&owner("heir")).await, 0);
    db.let_pass(LEASE + MOMENT).await;
    assert_eq!(claim(&owner("heir")).await, 1);
}
