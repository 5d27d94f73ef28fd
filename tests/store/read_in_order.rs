//! Reading in order, without a claim: by aggregate, and one queue of all events.

use std::time::Duration;

use outbox::event::OwnerId;
use outbox::store::{NewRow, Ownership, PARTITIONS, ReadEvent, ReadOrder, ReadRequest, Settlement, WaitsFor};
use outbox::{Envelope, EventId};
use support::Harness;

use crate::common::{LEASE, MOMENT, dead, event, kept, of_epoch, owner, retry, row, settle, write};

const HOUR: Duration = Duration::from_secs(3_600);
const BY_AGGREGATE: ReadOrder = by_aggregate(WaitsFor::Unresolved);

const fn by_aggregate(waits_for: WaitsFor) -> ReadOrder {
    ReadOrder::ByAggregate { waits_for, queued: Vec::new() }
}

fn all() -> Vec<u16> {
    (0..PARTITIONS).collect()
}

async fn holder(db: &dyn Harness) -> OwnerId {
    let owner = owner("host");
    assert_eq!(kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await, all());
    owner
}

/// All that is held is queued.
pub(crate) fn request(owner: &OwnerId, order: ReadOrder, held: &[u64]) -> ReadRequest {
    let order = match order {
        ReadOrder::ByAggregate { waits_for, .. } => ReadOrder::ByAggregate { waits_for, queued: held.to_vec() },
        ReadOrder::OneForAll => order,
    };
    ReadRequest {
        owner: owner.clone(),
        partitions: all(),
        after: None,
        held: held.to_vec(),
        busy: Vec::new(),
        limit: 100,
        max_bytes: 64 << 20,
        skip_recent: Duration::ZERO,
        order: Some(order),
    }
}

async fn read_by(db: &dyn Harness, request: &ReadRequest) -> Vec<ReadEvent> {
    db.store().read(request).await.expect("reads")
}

async fn read(db: &dyn Harness, owner: &OwnerId, order: ReadOrder, held: &[u64]) -> Vec<ReadEvent> {
    read_by(db, &request(owner, order, held)).await
}

/// This many events of an aggregate, or of none.
async fn written(db: &dyn Harness, aggregate: Option<&str>, count: usize) -> Vec<EventId> {
    let mut envelopes = Vec::new();
    for number in 0..count {
        let new = event(db, "X").await;
        let new = aggregate.into_iter().fold(new, |new, id| new.aggregate("Order", id));
        envelopes.push(new.json(&number).expect("good"));
    }
    write(db, &envelopes).await;
    envelopes.iter().map(Envelope::id).collect()
}

fn sequences(read: &[ReadEvent]) -> Vec<u64> {
    read.iter().map(|read| read.position.sequence).collect()
}

fn behind(read: &[ReadEvent]) -> Vec<Option<u64>> {
    read.iter().map(|read| read.event.behind).collect()
}

fn read_ids(read: &[ReadEvent]) -> Vec<EventId> {
    read.iter().map(|read| read.event.event.as_ref().expect("a readable row").id()).collect()
}

pub(crate) async fn a_read_in_order_tells_what_each_event_waits_for(db: &dyn Harness) {
    let owner = holder(db).await;
    for (aggregate, count) in [(Some("42"), 3), (Some("7"), 1), (None, 2)] {
        written(db, aggregate, count).await;
    }

    let first = read(db, &owner, BY_AGGREGATE, &[]).await;
    let seq = sequences(&first);
    let held = read(db, &owner, BY_AGGREGATE, &seq[..2]).await;

    assert_eq!(behind(&first), [None, Some(seq[0]), Some(seq[1]), None, None, None]);
    assert_eq!(sequences(&held), seq[2..], "what is in hand is left out");
    assert_eq!(behind(&held), [Some(seq[1]), None, None, None], "and is waited for");
    assert_eq!(behind(&read(db, &owner, by_aggregate(WaitsFor::Nothing), &[]).await), [None; 6]);
    let after = ReadRequest { after: Some(first[1].position), limit: 1, ..request(&owner, BY_AGGREGATE, &[]) };
    assert_eq!(behind(&read_by(db, &after).await), [Some(seq[1])], "what lies before the position is waited for as well");
    assert_eq!(first[0].event.claims, 0, "nothing is claimed");
}

pub(crate) async fn what_failed_or_has_a_claim_is_waited_for_by_what_is_read(db: &dyn Harness) {
    let owner = holder(db).await;
    let new = event(db, "X").await.aggregate("Order", "42").json(&1).expect("good");
    let writer = Ownership { owner: crate::common::owner("writer"), lease: LEASE * 10 };
    let hot = db.store().write(&[NewRow { envelope: &new, claimed: true }], &writer).await.expect("writes")[0];
    written(db, Some("42"), 2).await;

    let behind_a_claim = read(db, &owner, BY_AGGREGATE, &[]).await;
    let seq = sequences(&behind_a_claim);
    settle(db, behind_a_claim[0].event.fence, retry(HOUR)).await;
    let behind_a_failure = read(db, &owner, BY_AGGREGATE, &[]).await;

    assert_eq!(behind(&behind_a_claim), [hot, Some(seq[0])]);
    assert_eq!((sequences(&behind_a_failure), behind(&behind_a_failure)), (vec![seq[1]], vec![Some(seq[0])]));
    let untried = read(db, &owner, by_aggregate(WaitsFor::Untried), &[]).await;
    assert_eq!(behind(&untried), [hot], "one that failed is overtaken when that is asked for");
}

pub(crate) async fn what_became_due_late_is_waited_for_though_a_later_one_is_in_hand(db: &dyn Harness) {
    let owner = holder(db).await;
    let late = event(db, "X").await.aggregate("Order", "42").deliver_after(LEASE / 4).json(&1).expect("good");
    write(db, &[late]).await;
    written(db, Some("42"), 3).await;
    let first = sequences(&read(db, &owner, BY_AGGREGATE, &[]).await);
    db.let_pass(LEASE / 2).await;

    let then = read(db, &owner, BY_AGGREGATE, &first[..1]).await;
    let late = *sequences(&then).last().expect("it is due now");

    assert_eq!(sequences(&then), [first[1], first[2], late], "in the order in which they became due");
    assert_eq!(behind(&then), [Some(late), Some(first[1]), None]);
    let the_last = read(db, &owner, BY_AGGREGATE, &[late, first[0], first[1]]).await;
    assert_eq!((sequences(&the_last), behind(&the_last)), (vec![first[2]], vec![Some(first[1])]), "all are in hand");
    let leaving = ReadOrder::ByAggregate { waits_for: WaitsFor::Unresolved, queued: vec![first[0], first[1]] };
    let request = ReadRequest { order: Some(leaving), ..request(&owner, BY_AGGREGATE, &[late, first[0], first[1]]) };
    assert_eq!(behind(&read_by(db, &request).await), [Some(late)], "the late one is about to be set aside");
}

pub(crate) async fn in_a_long_queue_what_is_read_waits_for_what_is_not_in_hand(db: &dyn Harness) {
    let owner = holder(db).await;
    written(db, Some("42"), 1_200).await;
    let mut held = Vec::new();
    let mut first = None;
    for _ in 0..3 {
        let batch = ReadRequest { limit: 400, ..request(&owner, BY_AGGREGATE, &held) };
        for read in read_by(db, &batch).await {
            assert_eq!(read.event.behind, held.last().copied(), "the one before it, since all are in the same hands");
            held.push(read.position.sequence);
            first = first.or(Some(read.event.fence));
        }
    }
    assert_eq!(held.len(), 1_200);

    settle(db, first.expect("some"), retry(HOUR)).await;
    written(db, Some("42"), 1).await;
    let last = read(db, &owner, BY_AGGREGATE, &held[1..]).await;

    assert_eq!((last.len(), behind(&last)[0]), (1, Some(held[0])), "{last:?}");
}

pub(crate) async fn the_front_of_the_queue_is_read_in_the_order_of_insertion(db: &dyn Harness) {
    let owner = holder(db).await;
    let mut events = Vec::new();
    for aggregate in [Some("42"), None, Some("7"), Some("42"), None] {
        events.extend(written(db, aggregate, 1).await);
    }
    let before = row(db, events[0]).await;
    // Due long before the others, and still in its place.
    db.execute(&format!("UPDATE outbox_event SET due_at = created_at WHERE event_id = '{}'", events[4])).await;

    let some = ReadRequest { limit: 3, ..request(&owner, ReadOrder::OneForAll, &[]) };
    let first = read_by(db, &some).await;
    let again = read_by(db, &ReadRequest { partitions: Vec::new(), after: Some(first[2].position), ..some }).await;
    let seq = sequences(&first);
    let rest = read(db, &owner, ReadOrder::OneForAll, &seq).await;
    let between = read(db, &owner, ReadOrder::OneForAll, &[seq[0], seq[2], 999_999]).await;

    assert_eq!([read_ids(&first), read_ids(&rest)].concat(), events);
    assert_eq!(
        (behind(&first), behind(&rest)),
        (vec![None, Some(seq[0]), Some(seq[1])], vec![Some(seq[2]), Some(rest[0].position.sequence)])
    );
    assert_eq!((sequences(&again), sequences(&between)[0]), (seq.clone(), seq[1]), "there is no position but the front");
    assert_eq!(first[0].event.fence, again[0].event.fence);
    let after = row(db, events[0]).await;
    assert_eq!((after.claim_seq, after.locked_by, after.due_at), (0, None, before.due_at), "nothing is written");
    for read in first.iter().chain(&rest) {
        assert_eq!(settle(db, read.event.fence, Settlement::Done).await, 0);
    }
    assert!(read(db, &owner, ReadOrder::OneForAll, &[]).await.is_empty());
}

pub(crate) async fn the_front_stops_at_its_limits(db: &dyn Harness) {
    let owner = holder(db).await;
    let large = async || event(db, "X").await.bytes("a/b", vec![1; 20_000]).expect("good");
    write(db, &[large().await, large().await, large().await]).await;

    let bounded = ReadRequest { max_bytes: 30_000, ..request(&owner, ReadOrder::OneForAll, &[]) };
    let first = read_by(db, &bounded).await;
    let last = read_by(db, &ReadRequest { max_bytes: 1, held: sequences(&first), ..bounded }).await;

    assert_eq!((first.len(), last.len()), (2, 1), "what is in hand counts no bytes");
    assert_eq!(last[0].event.event.as_ref().expect("readable").payload_bytes().len(), 20_000);
    let recent = ReadRequest { skip_recent: HOUR, ..request(&owner, ReadOrder::OneForAll, &[]) };
    assert!(read_by(db, &recent).await.is_empty(), "what was inserted within the hour stops the queue");
}

pub(crate) async fn nothing_is_read_past_an_event_that_cannot_be_delivered(db: &dyn Harness) {
    let owner = holder(db).await;
    let obstacles = [
        Settlement::Deferred { after: HOUR },
        Settlement::Released { after: HOUR, reason: None },
        Settlement::Parked { reason: "no listener".to_owned() },
        Settlement::Behind { sequence: 1 },
        retry(HOUR),
    ];
    for obstacle in obstacles {
        written(db, None, 2).await;
        let found = read(db, &owner, ReadOrder::OneForAll, &[]).await;
        let seq = sequences(&found);
        assert_eq!(settle(db, found[0].event.fence, obstacle.clone()).await, 0);

        assert!(read(db, &owner, ReadOrder::OneForAll, &[]).await.is_empty(), "{obstacle:?}");
        let stepped_over = read(db, &owner, ReadOrder::OneForAll, &seq[..1]).await;

        assert_eq!((sequences(&stepped_over), behind(&stepped_over)), (vec![seq[1]], vec![Some(seq[0])]), "{obstacle:?}");
        db.execute("UPDATE outbox_event SET status = 1, due_at = NULL, parked = NULL, behind = NULL").await;
    }
}

pub(crate) async fn a_claim_of_another_stops_the_front_until_it_has_ended(db: &dyn Harness) {
    let owner = holder(db).await;
    let new = event(db, "X").await.json(&1).expect("good");
    let writer = Ownership { owner: crate::common::owner("writer"), lease: LEASE };
    db.store().write(&[NewRow { envelope: &new, claimed: true }], &writer).await.expect("writes");
    let free = written(db, None, 1).await;
    assert!(read(db, &owner, ReadOrder::OneForAll, &[]).await.is_empty(), "its writer delivers it");

    db.let_pass(LEASE + MOMENT).await;
    kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;
    let found = read(db, &owner, ReadOrder::OneForAll, &[]).await;

    assert_eq!(read_ids(&found), [new.id(), free[0]]);
    assert_eq!((found[0].was_claimed, found[1].was_claimed), (true, false), "its writer may be at work still");
}

pub(crate) async fn only_who_holds_all_partitions_reads_the_front(db: &dyn Harness) {
    let (one, two) = (owner("one"), owner("two"));
    assert_eq!(kept(&*db.store(), &one, PARTITIONS - 1, PARTITIONS).await.len(), 255);
    written(db, None, 3).await;

    assert!(read(db, &one, ReadOrder::OneForAll, &[]).await.is_empty(), "all or none");
    kept(&*db.store(), &two, 1, PARTITIONS).await;
    assert!(read(db, &one, ReadOrder::OneForAll, &[]).await.is_empty());
    db.store().release_partitions(&two, &of_epoch(1, all())).await.expect("gives back");
    kept(&*db.store(), &one, PARTITIONS, PARTITIONS).await;

    assert_eq!(read(db, &one, ReadOrder::OneForAll, &[]).await.len(), 3);
    db.let_pass(LEASE + MOMENT).await;
    assert!(read(db, &one, ReadOrder::OneForAll, &[]).await.is_empty(), "its lease is over, whatever the host believes");
}

pub(crate) async fn finished_and_delayed_events_do_not_stop_the_queue(db: &dyn Harness) {
    let owner = holder(db).await;
    let late = event(db, "X").await.deliver_after(HOUR).json(&1).expect("good");
    write(db, std::slice::from_ref(&late)).await;
    let events = written(db, None, 3).await;
    let found = read(db, &owner, ReadOrder::OneForAll, &[]).await;
    assert_eq!((read_ids(&found), found[0].event.behind), (events.clone(), None));
    settle(db, found[0].event.fence, Settlement::Done).await;
    settle(db, found[1].event.fence, dead("no")).await;

    db.let_pass(HOUR + MOMENT).await;
    kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;

    let found = read(db, &owner, ReadOrder::OneForAll, &[]).await;
    assert_eq!(read_ids(&found), [late.id(), events[2]], "its time has come, and its place is the first");
    assert_eq!(behind(&found), [None, Some(found[0].event.fence.sequence)]);
}

pub(crate) async fn an_event_that_is_delayed_by_due_at_alone_stops_no_other(db: &dyn Harness) {
    let owner = holder(db).await;
    let late = event(db, "X").await.aggregate("Order", "42").deliver_after(HOUR).json(&1).expect("good");
    write(db, std::slice::from_ref(&late)).await;
    let by_due_at_alone = format!("UPDATE outbox_event SET available_at = created_at WHERE event_id = '{}'", late.id());
    if db.store().kind() == "postgres" {
        let refused = db.try_execute(&by_due_at_alone).await.expect_err("PostgreSQL can compare with its clock").to_string();
        assert!(refused.contains("what_nobody_has_claimed_is_due_once_available"), "{refused}");
        return;
    }
    db.execute(&by_due_at_alone).await;
    let next = written(db, Some("42"), 1).await;

    for order in [ReadOrder::OneForAll, BY_AGGREGATE] {
        let found = read(db, &owner, order, &[]).await;
        assert_eq!((read_ids(&found), behind(&found)), (next.clone(), vec![None]));
    }
    db.let_pass(HOUR + MOMENT).await;
    kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;

    let found = read(db, &owner, ReadOrder::OneForAll, &[]).await;
    assert_eq!((read_ids(&found), found[0].event.behind), (vec![late.id(), next[0]], None), "its place is the first");
}
