//! Order by aggregate: partitions, key queues, and what waits behind what.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::event::{Fence, OwnerId};
use outbox::store::{Blocker, Claimed, DeadFilter, PARTITIONS, ReadOrder, ReadRequest, Settlement, Unblocked, WaitsFor};
use outbox::{Envelope, EventId, Status};
use support::Harness;

use crate::common::{
    LEASE, MOMENT, by_hand, claim, claim_one, event, ids, kept, of_epoch, owner, replay_batch, retry, row, settle, write,
};

fn all() -> Vec<u16> {
    (0..PARTITIONS).collect()
}

/// A host that holds every partition.
async fn holder(db: &dyn Harness) -> OwnerId {
    let owner = owner("node");
    assert_eq!(kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await, all());
    owner
}

async fn claim_in_order(db: &dyn Harness, owner: &OwnerId) -> Vec<Claimed> {
    read_and_claim(db, owner, all(), WaitsFor::Unresolved).await
}

/// Reads the due events of these partitions in order and claims them, as a host does that takes over from another.
async fn read_and_claim(db: &dyn Harness, owner: &OwnerId, partitions: Vec<u16>, waits_for: WaitsFor) -> Vec<Claimed> {
    let request = ReadRequest {
        owner: owner.clone(),
        partitions,
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 100,
        max_bytes: 64 << 20,
        skip_recent: Duration::ZERO,
        order: Some(ReadOrder::ByAggregate { waits_for, queued: Vec::new() }),
    };
    let read = db.store().read(&request).await.expect("reads");
    let fences: Vec<Fence> = read.iter().map(|read| read.event.fence).collect();
    let mut claimed = db.store().claim(owner, LEASE, &fences).await.expect("claims");
    for claimed in &mut claimed {
        let read = read.iter().find(|read| read.event.fence.sequence == claimed.fence.sequence).expect("it was read");
        claimed.behind = read.event.behind;
    }
    claimed
}

async fn of(db: &dyn Harness, id: &str) -> Envelope {
    event(db, "X").await.aggregate("Order", id).json(&1).expect("good")
}

async fn written(db: &dyn Harness, id: &str, count: usize) -> Vec<EventId> {
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(of(db, id).await);
    }
    write(db, &events).await;
    events.iter().map(Envelope::id).collect()
}

/// Three events of one aggregate, one of another, and one of none.
async fn two_queues(db: &dyn Harness) {
    written(db, "42", 3).await;
    written(db, "7", 1).await;
    let free = event(db, "X").await.json(&1).expect("good");
    write(db, std::slice::from_ref(&free)).await;
}

/// First dies and blocks, and the others of its aggregate wait behind it.
async fn blocked(db: &dyn Harness, owner: &OwnerId, count: usize) -> (Vec<EventId>, u64) {
    let queue = written(db, "42", count).await;
    let claimed = claim_in_order(db, owner).await;
    let first = claimed[0].fence;
    settle(db, first, Settlement::Dead { error: "no".to_owned(), counted: true, blocks: true }).await;
    for later in &claimed[1..] {
        settle(db, later.fence, Settlement::Behind { sequence: first.sequence }).await;
    }
    (queue, first.sequence)
}

pub(crate) async fn partitions_are_shared_and_never_held_twice(db: &dyn Harness) {
    let (one, two) = (owner("one"), owner("two"));
    let store = db.store();

    let first = kept(&*store, &one, 100, PARTITIONS).await;
    let second = kept(&*store, &two, PARTITIONS, PARTITIONS).await;
    let again = kept(&*store, &one, 200, PARTITIONS).await;

    assert_eq!((first.len(), second.len()), (100, 156));
    assert!(first.iter().all(|partition| !second.contains(partition)));
    assert_eq!(again, first, "nothing is free, and nothing is given back");
    assert_eq!(kept(&*store, &one, 10, PARTITIONS).await, first);
}

pub(crate) async fn partitions_are_taken_over_when_their_lease_ends(db: &dyn Harness) {
    let (gone, heir) = (owner("gone"), owner("heir"));
    let store = db.store();
    kept(&*store, &gone, PARTITIONS, PARTITIONS).await;
    // A server's clock goes on by itself while the test runs.
    let slack = LEASE / 2;
    db.let_pass(LEASE - slack).await;
    assert!(kept(&*store, &heir, PARTITIONS, PARTITIONS).await.is_empty(), "the lease still holds");
    kept(&*store, &gone, PARTITIONS, PARTITIONS).await;
    db.let_pass(LEASE - slack).await;
    assert!(kept(&*store, &heir, PARTITIONS, PARTITIONS).await.is_empty(), "it was renewed");

    db.let_pass(slack + MOMENT).await;

    assert_eq!(kept(&*store, &heir, PARTITIONS, PARTITIONS).await, all());
    assert!(kept(&*store, &gone, PARTITIONS, PARTITIONS).await.is_empty(), "and the late one has none");
}

pub(crate) async fn a_partition_that_is_given_back_is_free_at_once(db: &dyn Harness) {
    let (one, two) = (holder(db).await, owner("two"));
    let store = db.store();

    store.release_partitions(&two, &of_epoch(1, [1])).await.expect("nothing happens: it is not theirs");
    store.release_partitions(&one, &of_epoch(1, [3, 5])).await.expect("gives back");

    assert_eq!(kept(&*store, &two, PARTITIONS, PARTITIONS).await, [3, 5]);
}

pub(crate) async fn a_single_partition_is_the_lock_of_one_host(db: &dyn Harness) {
    let (one, two) = (owner("one"), owner("two"));
    assert_eq!(kept(&*db.store(), &one, 1, 1).await, [0]);
    assert!(kept(&*db.store(), &two, 1, 1).await.is_empty());
}

pub(crate) async fn only_events_of_partitions_that_one_holds_are_read_and_claimed(db: &dyn Harness) {
    let (one, two, stranger) = (owner("one"), owner("two"), owner("stranger"));
    let store = db.store();
    let ours = kept(&*store, &one, PARTITIONS / 2, PARTITIONS).await;
    let theirs = kept(&*store, &two, PARTITIONS, PARTITIONS).await;
    for number in 0..100 {
        written(db, &format!("aggregate-{number}"), 1).await;
    }

    assert!(claim_in_order(db, &stranger).await.is_empty(), "who holds no partition gets nothing");
    assert!(read_and_claim(db, &one, theirs, WaitsFor::Unresolved).await.is_empty());
    let first = read_and_claim(db, &one, ours, WaitsFor::Unresolved).await;
    let second = claim_in_order(db, &two).await;

    assert_eq!(first.len() + second.len(), 100);
    assert!(first.len() > 10 && second.len() > 10, "spread over the partitions: {} and {}", first.len(), second.len());
}

pub(crate) async fn all_events_of_an_aggregate_are_in_one_partition(db: &dyn Harness) {
    let (one, two) = (owner("one"), owner("two"));
    kept(&*db.store(), &one, PARTITIONS / 2, PARTITIONS).await;
    kept(&*db.store(), &two, PARTITIONS, PARTITIONS).await;
    for number in 0..20 {
        written(db, &number.to_string(), 3).await;
    }

    let (first, second) = (claim_in_order(db, &one).await, claim_in_order(db, &two).await);

    let aggregates = |claimed: &[Claimed]| -> BTreeSet<String> {
        let id = |claimed: &Claimed| claimed.event.as_ref().expect("readable").aggregate_id().expect("it has one").to_owned();
        claimed.iter().map(id).collect()
    };
    assert_eq!(first.len() + second.len(), 60);
    assert!(aggregates(&first).is_disjoint(&aggregates(&second)));
}

pub(crate) async fn the_head_of_a_queue_is_the_first_that_is_waited_for(db: &dyn Harness) {
    let owner = holder(db).await;
    two_queues(db).await;
    let claimed = claim_in_order(db, &owner).await;
    let seq: Vec<u64> = claimed.iter().map(|claimed| claimed.fence.sequence).collect();
    let heads = async |waits_for| {
        let mut heads = db.store().heads(&seq, waits_for).await.expect("looks");
        heads.sort_unstable();
        heads
    };

    assert_eq!(heads(WaitsFor::Unresolved).await, [(seq[1], seq[0]), (seq[2], seq[0])]);
    assert!(heads(WaitsFor::Nothing).await.is_empty());
    settle(db, claimed[0].fence, retry(Duration::from_secs(3_600))).await;
    assert_eq!(heads(WaitsFor::Untried).await, [(seq[2], seq[1])], "one that failed is overtaken when that is asked for");
    settle(db, claimed[1].fence, Settlement::Done).await;
    assert_eq!(heads(WaitsFor::Unresolved).await, [(seq[2], seq[0])]);
    assert!(db.store().heads(&[], WaitsFor::Unresolved).await.expect("looks").is_empty());
}

pub(crate) async fn what_is_claimed_or_failed_is_still_waited_for(db: &dyn Harness) {
    let owner = holder(db).await;
    written(db, "42", 1).await;
    let first = claim_in_order(db, &owner).await[0].fence;
    written(db, "42", 1).await;
    let second = claim_in_order(db, &owner).await;
    assert_eq!(second[0].behind, Some(first.sequence), "while it is claimed");

    settle(db, first, retry(Duration::from_secs(3_600))).await;
    settle(db, second[0].fence, Settlement::Released { after: Duration::ZERO, reason: None }).await;

    let again = claim_in_order(db, &owner).await;
    assert_eq!(again[0].behind, Some(first.sequence), "while it waits for its retry");
    settle(db, again[0].fence, Settlement::Released { after: Duration::ZERO, reason: None }).await;
    let untried = read_and_claim(db, &owner, all(), WaitsFor::Untried).await;
    assert_eq!(untried[0].behind, None, "one that failed is overtaken when that is asked for");
}

pub(crate) async fn what_is_finished_or_not_yet_available_is_not_waited_for(db: &dyn Harness) {
    let owner = holder(db).await;
    let later = event(db, "X").await.aggregate("Order", "42").deliver_after(Duration::from_secs(3_600)).json(&1).expect("good");
    let (done, died) = (of(db, "42").await, of(db, "42").await);
    write(db, &[later.clone(), done, died]).await;
    let claimed = claim_in_order(db, &owner).await;
    settle(db, claimed[0].fence, Settlement::Done).await;
    settle(db, claimed[1].fence, Settlement::Dead { error: "no".to_owned(), counted: true, blocks: false }).await;

    let next = written(db, "42", 1).await;

    let claimed = claim_in_order(db, &owner).await;
    assert_eq!((ids(&claimed), claimed[0].behind), (next, None));
    db.let_pass(Duration::from_secs(3_601)).await;
    kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;
    let claimed = claim_in_order(db, &owner).await;
    let late = claimed.iter().find(|claimed| claimed.event.as_ref().is_ok_and(|event| event.id() == later.id()));
    assert_eq!(late.expect("its time has come").behind, None, "it is the first of its queue by insertion");
}

pub(crate) async fn an_event_behind_another_is_not_due_and_keeps_its_counters(db: &dyn Harness) {
    let owner = holder(db).await;
    let (queue, first) = blocked(db, &owner, 3).await;

    assert!(claim_in_order(db, &owner).await.is_empty());
    assert!(claim(db, 10).await.is_empty(), "not by any other way either");
    let record = row(db, queue[1]).await;
    assert_eq!((record.status, record.behind, record.due_at), (Status::New, Some(first), None));
    assert_eq!((record.attempts, record.claims, record.locked_by), (0, 0, None), "it was never started");
    assert!(row(db, queue[0]).await.blocks);
    let stats = db.store().stats().await.expect("counts");
    assert_eq!((stats.dead, stats.blocked, stats.new, stats.parked), (1, 2, 0, 0));
    let blocker = Blocker { sequence: first, aggregate_type: "Order".to_owned(), aggregate_id: "42".to_owned() };
    assert_eq!(db.store().blockers(&all(), 0, 10).await.expect("looks"), [blocker]);
    assert!(db.store().blockers(&[], 0, 10).await.expect("looks").is_empty());
}

pub(crate) async fn blockers_are_listed_in_pages_each_once(db: &dyn Harness) {
    let mut all_of_them = Vec::new();
    for aggregate in ["a", "b", "c"] {
        for blocker in [100, 200] {
            written(db, aggregate, 2).await;
            let blocker = blocker + u64::from(aggregate.as_bytes()[0]);
            db.execute(&format!("UPDATE outbox_event SET behind = {blocker}, due_at = NULL WHERE behind IS NULL")).await;
            all_of_them.push((blocker, aggregate.to_owned()));
        }
    }
    all_of_them.sort_unstable();

    let mut listed = Vec::new();
    for expected in [4, 2, 0] {
        let after = listed.last().map_or(0, |(sequence, _)| *sequence);
        let page = db.store().blockers(&all(), after, 4).await.expect("looks");
        assert_eq!(page.len(), expected);
        listed.extend(page.into_iter().map(|blocker| (blocker.sequence, blocker.aggregate_id)));
    }

    assert_eq!(listed, all_of_them);
}

fn cleared(blockers: &[u64]) -> Unblocked {
    Unblocked { cleared: blockers.to_vec(), left: Vec::new() }
}

fn left(blockers: &[u64]) -> Unblocked {
    Unblocked { cleared: Vec::new(), left: blockers.to_vec() }
}

pub(crate) async fn a_queue_goes_on_in_order_when_its_blocker_is_resolved(db: &dyn Harness) {
    let owner = holder(db).await;
    let (queue, first) = blocked(db, &owner, 4).await;
    let store = db.store();
    assert!(store.unblock(&[first], WaitsFor::Unresolved, 10).await.expect("looks") == Unblocked::default(), "it blocks still");
    assert!(claim_in_order(db, &owner).await.is_empty());

    assert!(store.skip(queue[0], &by_hand()).await.expect("skips"));
    assert!(!store.skip(queue[0], &by_hand()).await.expect("looks"), "once");

    assert_eq!(store.unblock(&[first], WaitsFor::Unresolved, 2).await.expect("unblocks"), left(&[first]), "one is left");
    let claimed = claim_in_order(db, &owner).await;
    assert_eq!(ids(&claimed), queue[1..3], "the oldest first");
    assert_eq!((claimed[0].behind, claimed[0].claims), (None, 1));
    assert_eq!(
        store.unblock(&[first, 999_999], WaitsFor::Unresolved, 2).await.expect("unblocks"),
        cleared(&[999_999]),
        "the others come first"
    );
    for one in claimed {
        settle(db, one.fence, Settlement::Done).await;
    }
    assert_eq!(store.unblock(&[first], WaitsFor::Unresolved, 2).await.expect("unblocks"), cleared(&[first]));
    let last = claim_in_order(db, &owner).await;
    assert_eq!((ids(&last), last[0].behind), (queue[3..].to_vec(), None));
    assert_eq!(row(db, queue[0]).await.status, Status::Dead, "it is skipped, not forgotten");
}

pub(crate) async fn a_replayed_blocker_is_delivered_before_its_queue(db: &dyn Harness) {
    let owner = holder(db).await;
    let (queue, first) = blocked(db, &owner, 2).await;

    assert_eq!(replay_batch(&*db.store(), &DeadFilter::default(), 10, &by_hand()).await.expect("replays"), 1);

    assert!(!row(db, queue[0]).await.blocks);
    assert!(
        db.store().unblock(&[first], WaitsFor::Unresolved, 10).await.expect("looks") == Unblocked::default(),
        "it is not done yet"
    );
    let again = claim_in_order(db, &owner).await;
    assert_eq!(ids(&again), [queue[0]]);
    settle(db, again[0].fence, Settlement::Done).await;
    assert_eq!(db.store().unblock(&[first], WaitsFor::Unresolved, 10).await.expect("unblocks"), cleared(&[first]));
    assert_eq!(ids(&claim_in_order(db, &owner).await), [queue[1]]);
}

pub(crate) async fn a_discarded_blocker_lets_its_queue_go(db: &dyn Harness) {
    let owner = holder(db).await;
    let (queue, first) = blocked(db, &owner, 2).await;

    assert!(db.store().discard(queue[0], None, &by_hand()).await.expect("discards"));

    assert_eq!(db.store().unblock(&[first], WaitsFor::Unresolved, 10).await.expect("unblocks"), cleared(&[first]));
    assert_eq!(ids(&claim_in_order(db, &owner).await), [queue[1]]);
}

pub(crate) async fn nothing_blocks_where_order_is_not_asked_for(db: &dyn Harness) {
    let owner = holder(db).await;
    let (queue, first) = blocked(db, &owner, 2).await;

    assert_eq!(db.store().unblock(&[first], WaitsFor::Nothing, 10).await.expect("unblocks"), cleared(&[first]));

    assert_eq!(ids(&claim(db, 10).await), [queue[1]]);
}

pub(crate) async fn a_dead_event_without_an_aggregate_blocks_nothing(db: &dyn Harness) {
    let free = event(db, "X").await.json(&1).expect("good");
    write(db, std::slice::from_ref(&free)).await;
    let fence = claim_one(db).await;
    settle(db, fence, Settlement::Dead { error: "no".to_owned(), counted: true, blocks: true }).await;
    assert!(!row(db, free.id()).await.blocks);
}

pub(crate) async fn events_with_an_empty_aggregate_id_wait_for_no_other(db: &dyn Harness) {
    let owner = holder(db).await;
    let events = written(db, "42", 2).await;
    db.execute("UPDATE outbox_event SET aggregate_id = ''").await;

    let claimed = claim_in_order(db, &owner).await;

    assert_eq!(claimed.len(), 2);
    for one in &claimed {
        assert_eq!(one.behind, None);
        assert_eq!(one.event.as_ref().expect("a readable row").aggregate_id(), None);
    }
    let numbers: Vec<u64> = claimed.iter().map(|one| one.fence.sequence).collect();
    assert!(db.store().heads(&numbers, WaitsFor::Unresolved).await.expect("looks").is_empty());
    let blocking = Settlement::Dead { error: "no".to_owned(), counted: true, blocks: true };
    settle(db, claimed[0].fence, blocking).await;
    let dead = ids(&claimed)[0];
    assert!(events.contains(&dead) && !row(db, dead).await.blocks);
}

pub(crate) async fn an_event_that_is_finished_waits_for_nobody(db: &dyn Harness) {
    let owner = holder(db).await;
    written(db, "42", 3).await;
    let fences: Vec<_> = claim_in_order(db, &owner).await.iter().map(|claimed| claimed.fence).collect();
    let blocking = Settlement::Dead { error: "no".to_owned(), counted: true, blocks: true };
    assert_eq!(settle(db, fences[1], blocking).await, 0);
    let (first, dead, last) = (fences[0].sequence, fences[1].sequence, fences[2].sequence);

    let heads = db.store().heads(&[dead, last], WaitsFor::Unresolved).await.expect("looks");

    assert_eq!(heads, [(last, first)], "it blocks the last one, and is not in the queue itself");
}

pub(crate) async fn blocked_aggregates_are_listed_with_their_cause(db: &dyn Harness) {
    let owner = holder(db).await;
    let (queue, first) = blocked(db, &owner, 3).await;

    let keys = db.store().blocked_keys(10).await.expect("lists");

    assert_eq!(keys.len(), 1);
    let key = &keys[0];
    assert_eq!((key.aggregate_type.as_str(), key.aggregate_id.as_str(), key.seq, key.waiting), ("Order", "42", first, 2));
    assert_eq!((key.event_id, key.status, key.last_error.as_deref()), (Some(queue[0]), Some(Status::Dead), Some("no")));
    assert!(db.store().blocked_keys(0).await.expect("lists").is_empty());
    let routes = db.store().count_routes().await.expect("counts");
    assert_eq!((routes[0].blocked, routes[0].dead, routes[0].waiting), (2, 1, 0));
}

pub(crate) async fn one_waiting_event_without_an_aggregate_does_not_hide_the_others(db: &dyn Harness) {
    let owner = holder(db).await;
    two_queues(db).await;
    let claimed = claim_in_order(db, &owner).await;
    let first = claimed[0].fence.sequence;
    for waiting in [1, 4] {
        settle(db, claimed[waiting].fence, Settlement::Behind { sequence: first }).await;
    }

    let keys = db.store().blocked_keys(10).await.expect("lists");

    let mut ids: Vec<&str> = keys.iter().map(|key| key.aggregate_id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["", "42"]);
}

pub(crate) async fn an_erased_event_leaves_no_row(db: &dyn Harness) {
    let owner = holder(db).await;
    let queue = written(db, "42", 2).await;
    let claimed = claim_in_order(db, &owner).await;

    assert_eq!(settle(db, claimed[0].fence, Settlement::Erased).await, 0);

    assert!(db.store().get(queue[0]).await.expect("looks").is_none());
    assert_eq!(settle(db, claimed[0].fence, Settlement::Erased).await, 1, "it is gone");
    assert!(db.store().get(queue[1]).await.expect("looks").is_some());
}
