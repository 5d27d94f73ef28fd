//! What plugins keep, as people list and delete it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outbox::Store;
use outbox::event::{Fence, StateWrite};
use outbox::store::{Committed, Settled, SettledWithEffects, Settlement};
use support::Harness;

use crate::common::{by_hand, claim, plains, write};
use crate::effects::{Change, commit, effects, set, usage, value};

/// Lets a plugin keep values, one change after the other, in this many calls.
async fn keep(db: &dyn Harness, plugin: &str, changes: &[Change<'_>]) {
    write(db, &plains(db, changes.len()).await).await;
    let claimed = claim(db, 100).await;
    assert_eq!(claimed.len(), changes.len(), "nothing else is due");
    for (claimed, change) in claimed.iter().zip(changes) {
        let item = (claimed.fence, Settlement::Done, effects(vec![], plugin, std::slice::from_ref(change)));
        assert_eq!(commit(db, &[item]).await, [Committed::Stored]);
    }
}

async fn keys(db: &dyn Harness, plugin: &str, prefix: &str, after: Option<&str>, limit: u32) -> Vec<String> {
    let listed = db.store().list_state(plugin, prefix, after, limit).await.expect("lists");
    listed.into_iter().map(|record| record.key).collect()
}

/// How many bytes the values and keys of a plugin have, counted anew.
async fn counted(db: &dyn Harness, plugin: &str) -> (u64, u64) {
    let listed = db.store().list_state(plugin, "", None, 1_000).await.expect("lists");
    let bytes = listed.iter().map(|record| record.key.len() as u64 + record.value_bytes);
    (listed.len() as u64, bytes.sum())
}

pub(crate) async fn what_a_plugin_keeps_is_listed_by_key_in_pages_without_the_values(db: &dyn Harness) {
    keep(db, "p", &[("b", None, set("22")), ("a", None, set("1")), ("ä", None, set(""))]).await;
    keep(db, "q", &[("z", None, set("other"))]).await;

    let listed = db.store().list_state("p", "", None, 2).await.expect("lists");

    let seen: Vec<_> = listed.iter().map(|one| (one.plugin.as_str(), one.key.as_str(), one.version, one.value_bytes)).collect();
    assert_eq!(seen, [("p", "a", 2, 1), ("p", "b", 1, 2)]);
    assert!(listed.iter().all(|one| one.value.is_none()), "{listed:?}");
    assert_eq!(keys(db, "p", "", Some("b"), 2).await, ["ä"]);
    assert_eq!(keys(db, "p", "", None, 0).await, [] as [String; 0]);
    let whole = db.store().get_state("p", "b").await.expect("reads").expect("it is kept");
    assert_eq!(whole.value.as_deref(), Some(b"22".as_slice()));
    let now = db.now().await;
    assert!(whole.updated_at <= now && now.since(whole.updated_at).as_secs() < 3_600, "{whole:?} at {now}");
    assert_eq!(db.store().get_state("q", "b").await.expect("reads"), None);
}

pub(crate) async fn a_prefix_is_bytes_and_no_pattern(db: &dyn Harness) {
    let names = ["%", "A", "_a", "a", "a%b", "a\u{10ffff}", "axb", "ä"];
    for name in names {
        // The quota of these tests is three keys.
        let plugin = format!("p{}", names.iter().position(|other| *other == name).expect("it is there") / 3);
        keep(db, &plugin, &[(name, None, set("x"))]).await;
    }

    assert_eq!(keys(db, "p0", "%", None, 10).await, ["%"]);
    assert_eq!(keys(db, "p0", "_", None, 10).await, ["_a"]);
    assert_eq!(keys(db, "p0", "a", None, 10).await, [] as [String; 0], "letters have one case");
    assert_eq!(keys(db, "p1", "a%", None, 10).await, ["a%b"]);
    assert_eq!(keys(db, "p1", "a", None, 10).await, ["a", "a%b", "a\u{10ffff}"], "itself, and to the last character");
    assert_eq!(keys(db, "p1", "a", Some("a%"), 10).await, ["a%b", "a\u{10ffff}"]);
    assert_eq!(keys(db, "p2", "a", None, 10).await, ["axb"], "not ä");
}

pub(crate) async fn a_plugin_that_keeps_nothing_is_not_listed(db: &dyn Harness) {
    keep(db, "b", &[("k", None, set("1")), ("k", None, Some(StateWrite::Delete))]).await;
    keep(db, "c", &[("k", None, set("123"))]).await;
    keep(db, "a", &[("k", None, set("1")), ("l", None, set("2"))]).await;
    let used = async |after, limit| {
        let used = db.store().state_usages(after, limit).await.expect("reads");
        used.into_iter().map(|one| (one.plugin, one.usage.keys, one.usage.bytes)).collect::<Vec<_>>()
    };
    let (a, c) = (("a".to_owned(), 2, 4), ("c".to_owned(), 1, 4));

    assert_eq!(used(None, 10).await, [a.clone(), c.clone()]);
    assert_eq!(used(None, 1).await, [a]);
    assert_eq!(used(Some("a"), 10).await, [c]);
    assert_eq!(used(Some("c"), 10).await, []);
}

pub(crate) async fn a_deleted_value_makes_room_and_its_version_is_never_used_again(db: &dyn Harness) {
    // The last of them is version 4, and the quota is full.
    keep(db, "p", &[("a", None, set("1")), ("b", None, set("2")), ("c", None, set("3")), ("b", None, set("22"))]).await;
    let (version, _) = value(db, "p", "b").await.expect("it is kept");

    assert!(db.store().delete_state("p", "b", &by_hand()).await.expect("deletes"));
    assert!(!db.store().delete_state("p", "b", &by_hand()).await.expect("looks"), "it is gone already");

    assert_eq!((value(db, "p", "b").await, usage(db, "p").await), (None, (2, 4)));
    keep(db, "p", &[("d", None, set("4"))]).await;
    let (next, _) = value(db, "p", "d").await.expect("there is room for it");
    assert!(next > version, "{next} after {version}");
    assert_eq!(usage(db, "p").await, counted(db, "p").await);
}

pub(crate) async fn deleting_everything_of_a_plugin_touches_no_other_and_its_versions_go_on(db: &dyn Harness) {
    keep(db, "p", &[("a", None, set("1")), ("b", None, set("2")), ("c", None, set("3"))]).await;
    keep(db, "P", &[("a", None, set("other"))]).await;
    let (version, _) = value(db, "p", "c").await.expect("it is kept");
    let store = db.store();

    assert_eq!(store.delete_all_state("p", 2, &by_hand()).await.expect("deletes"), 2);
    assert_eq!((keys(db, "p", "", None, 10).await, usage(db, "p").await), (vec!["c".to_owned()], (1, 2)), "the first two");
    assert_eq!(store.delete_all_state("p", 2, &by_hand()).await.expect("deletes"), 1);
    assert_eq!(store.delete_all_state("p", 2, &by_hand()).await.expect("looks"), 0);
    assert_eq!(store.delete_all_state("nobody", 2, &by_hand()).await.expect("looks"), 0);

    assert_eq!(usage(db, "p").await, (0, 0));
    assert_eq!((value(db, "P", "a").await.expect("it is kept").1, usage(db, "P").await), ("other".to_owned(), (1, 6)));
    keep(db, "p", &[("c", Some(0), set("3"))]).await;
    assert!(value(db, "p", "c").await.expect("it is kept").0 > version, "a version is never used twice");
}

pub(crate) async fn a_call_that_read_what_was_deleted_ends_in_a_conflict(db: &dyn Harness) {
    keep(db, "p", &[("n", None, set("1")), ("m", None, set("1"))]).await;
    let (read, _) = value(db, "p", "n").await.expect("it is kept");
    write(db, &plains(db, 1).await).await;
    let fence = claim(db, 1).await[0].fence;
    let adds = |read| (fence, Settlement::Done, effects(vec![], "p", &[("n", Some(read), set("2"))]));

    // Written again under the same text meanwhile.
    assert!(db.store().delete_state("p", "n", &by_hand()).await.expect("deletes"));
    assert_eq!(commit(db, &[adds(read)]).await, [Committed::Conflict]);
    assert_eq!(value(db, "p", "n").await, None, "it does not come back");
    assert_eq!(commit(db, &[adds(0)]).await, [Committed::Stored], "the event is held still");
}

pub(crate) async fn what_is_deleted_by_hand_is_noted_and_what_was_not_there_is_not(db: &dyn Harness) {
    keep(db, "p", &[("a", None, set("1")), ("b", None, set("2")), ("c", None, set("3"))]).await;
    let store = db.store();

    store.delete_state("p", "a", &by_hand()).await.expect("deletes");
    store.delete_state("p", "a", &by_hand()).await.expect("looks");
    store.delete_all_state("p", 10, &by_hand()).await.expect("deletes");
    store.delete_all_state("p", 10, &by_hand()).await.expect("looks");

    let notes = store.audit(10).await.expect("reads");
    let notes: Vec<_> = notes.iter().map(|note| (note.action.as_str(), note.selector.to_string(), note.count)).collect();
    let one = r#"{"key":"a","plugin":"p"}"#.to_owned();
    assert_eq!(notes, [("delete_state", r#"{"plugin":"p"}"#.to_owned(), 2), ("delete_state", one, 1)], "newest first");
}

pub(crate) async fn deletes_beside_settling_calls_leave_the_usage_exact(db: &dyn Harness) {
    const CALLS: usize = 80;
    write(db, &plains(db, CALLS).await).await;
    let fences: Vec<Fence> = claim(db, 100).await.iter().map(|claimed| claimed.fence).collect();
    assert_eq!(fences.len(), CALLS);
    let settling = fences.chunks(CALLS / 4).map(|fences| tokio::spawn(settle_each(db.store(), fences.to_vec())));
    let settling: Vec<_> = settling.collect();
    let over = Arc::new(AtomicBool::new(false));
    let deleting = ["a", "b"].map(|key| tokio::spawn(delete_again_and_again(db.store(), key, over.clone())));

    for task in settling {
        task.await.expect("every call is settled");
    }
    over.store(true, Ordering::Relaxed);
    let mut deleted = 0;
    for task in deleting {
        deleted += task.await.expect("it deletes");
    }

    assert_eq!(db.store().stats().await.expect("counts").done, CALLS as u64);
    assert_eq!(usage(db, "p").await, counted(db, "p").await);
    let newest = db.number("SELECT coalesce(max(version), 0) FROM outbox_event_state").await;
    let given = db.number("SELECT revision FROM outbox_event_state_usage WHERE plugin = 'p'").await;
    assert!(newest <= given, "{newest} of {given}");
    assert_eq!(given, i64::try_from(CALLS + deleted).expect("few"), "each call and each delete is one change");
}

/// Sets two keys in each call, to values of all sizes.
async fn settle_each(store: Arc<dyn Store>, fences: Vec<Fence>) {
    for fence in fences {
        let size = usize::try_from(fence.sequence % 7).expect("below 7");
        let changes = [("a", None, set(&"x".repeat(size))), ("b", None, set(&"y".repeat(10 - size)))];
        let effects = effects(vec![], "p", &changes);
        let settled = Settled::new(fence, Settlement::Done);
        let item = SettledWithEffects { settled: &settled, effects: &effects };
        assert_eq!(store.settle_with_effects(&[item]).await.expect("it is settled"), [Committed::Stored]);
    }
}

/// Deletes one key, and now and then the first of all. Returns how often there was something to delete.
async fn delete_again_and_again(store: Arc<dyn Store>, key: &'static str, over: Arc<AtomicBool>) -> usize {
    let mut deleted = 0;
    while !over.load(Ordering::Relaxed) {
        deleted += usize::from(store.delete_state("p", key, &by_hand()).await.expect("deletes"));
        deleted += usize::from(store.delete_all_state("p", 1, &by_hand()).await.expect("deletes") == 1);
    }
    deleted
}
