//! One queue of all events: what its front is, and what stops it.

use std::time::Duration;

use outbox::Envelope;
use outbox::event::OwnerId;
use outbox::store::{ClaimOrder, ClaimRequest, Claimed, Settlement};
use support::Harness;

use crate::common::{LEASE, MOMENT, dead, event, ids, kept, of_epoch, owner, request, retry, settle, write};

const HOUR: Duration = Duration::from_secs(3_600);

/// A host that holds the partition of the one queue.
async fn holder(db: &dyn Harness) -> OwnerId {
    let owner = owner("node");
    assert_eq!(kept(&*db.store(), &owner, 1, 1).await, [0]);
    owner
}

fn front(owner: &OwnerId, held: &[u64], limit: u32) -> ClaimRequest {
    let order = Some(ClaimOrder::OneForAll { held: held.to_vec() });
    ClaimRequest { owner: owner.clone(), order, ..request(limit) }
}

async fn claim(db: &dyn Harness, owner: &OwnerId, held: &[u64]) -> Vec<Claimed> {
    db.store().claim(&front(owner, held, 100)).await.expect("claims")
}

/// This many events, of aggregates and of none in turns.
async fn written(db: &dyn Harness, count: usize) -> Vec<Envelope> {
    let mut envelopes = Vec::new();
    for number in 0..count {
        let new = event(db, "X").await;
        let new = if number % 2 == 0 { new.aggregate("Order", number.to_string()) } else { new };
        envelopes.push(new.json(&number).expect("good"));
    }
    write(db, &envelopes).await;
    envelopes
}

fn sequences(claimed: &[Claimed]) -> Vec<u64> {
    claimed.iter().map(|claimed| claimed.fence.sequence).collect()
}

fn behind(claimed: &[Claimed]) -> Vec<Option<u64>> {
    claimed.iter().map(|claimed| claimed.behind).collect()
}

pub(crate) async fn the_front_of_the_queue_is_claimed_in_the_order_of_insertion(db: &dyn Harness) {
    let owner = holder(db).await;
    let events = written(db, 5).await;

    let first = db.store().claim(&front(&owner, &[], 3)).await.expect("claims");
    let held = sequences(&first);
    assert!(claim(db, &owner, &[]).await.is_empty(), "the front is held, and the host says that it does not know of it");
    let second = claim(db, &owner, &held).await;

    assert_eq!([ids(&first), ids(&second)].concat(), events.iter().map(Envelope::id).collect::<Vec<_>>());
    let all = [held, sequences(&second)].concat();
    assert_eq!(behind(&first), [None, Some(all[0]), Some(all[1])]);
    assert_eq!(behind(&second), [Some(all[2]), Some(all[3])]);
    assert_eq!((second[0].claims, second[0].fence.claim), (1, 1));
}

pub(crate) async fn the_front_is_a_small_batch_when_its_payloads_are_large(db: &dyn Harness) {
    let owner = holder(db).await;
    let large = async || event(db, "X").await.bytes("a/b", vec![1; 20_000]).expect("good");
    write(db, &[large().await, large().await, large().await]).await;

    let bounded = ClaimRequest { max_bytes: 30_000, ..front(&owner, &[], 100) };
    let claimed = db.store().claim(&bounded).await.expect("claims");
    let held = sequences(&claimed);
    let rest = ClaimRequest { max_bytes: 1, ..front(&owner, &held, 100) };
    let last = db.store().claim(&rest).await.expect("claims");

    assert_eq!((claimed.len(), last.len()), (2, 1), "what is in hand counts no bytes");
    assert_eq!(last[0].event.as_ref().expect("readable").payload_bytes().len(), 20_000);
}

pub(crate) async fn nothing_passes_an_event_that_cannot_be_claimed(db: &dyn Harness) {
    let owner = holder(db).await;
    let obstacles = [
        Settlement::Deferred { after: HOUR },
        Settlement::Released { after: HOUR },
        Settlement::Parked { reason: "no listener".to_owned() },
        Settlement::Behind { sequence: 1 },
        retry(HOUR),
    ];
    for obstacle in obstacles {
        let events = written(db, 3).await;
        let claimed = claim(db, &owner, &[]).await;
        assert_eq!(ids(&claimed), events.iter().map(Envelope::id).collect::<Vec<_>>());
        settle(db, claimed[0].fence, Settlement::Done).await;
        settle(db, claimed[1].fence, obstacle.clone()).await;
        settle(db, claimed[2].fence, Settlement::Released { after: Duration::ZERO }).await;

        assert!(claim(db, &owner, &[]).await.is_empty(), "{obstacle:?}");

        let stopped = claimed[1].fence.sequence;
        db.execute(&format!(
            "UPDATE outbox_event SET status = 1, due_at = NULL, parked = NULL, behind = NULL WHERE seq = {stopped}"
        ))
        .await;
        let last = claim(db, &owner, &[]).await;
        assert_eq!((sequences(&last), behind(&last)), (vec![claimed[2].fence.sequence], vec![None]));
        settle(db, last[0].fence, Settlement::Done).await;
    }
}

pub(crate) async fn an_event_that_another_owner_holds_stops_the_queue_until_its_lease_ends(db: &dyn Harness) {
    let gone = holder(db).await;
    let events = written(db, 3).await;
    db.store().claim(&front(&gone, &[], 1)).await.expect("claims");
    db.store().release_partitions(&gone, &of_epoch(1, [0])).await.expect("gives it back");
    let heir = holder(db).await;

    assert!(claim(db, &heir, &[]).await.is_empty());

    db.let_pass(LEASE + MOMENT).await;
    assert!(claim(db, &heir, &[]).await.is_empty(), "the partition is lost as well");
    kept(&*db.store(), &heir, 1, 1).await;
    assert_eq!(ids(&claim(db, &heir, &[]).await), events.iter().map(Envelope::id).collect::<Vec<_>>());
}

pub(crate) async fn finished_and_delayed_events_stop_nobody(db: &dyn Harness) {
    let owner = holder(db).await;
    let late = event(db, "X").await.deliver_after(HOUR).json(&1).expect("good");
    write(db, std::slice::from_ref(&late)).await;
    let events = written(db, 3).await;
    let claimed = claim(db, &owner, &[]).await;
    assert_eq!((ids(&claimed), claimed[0].behind), (events.iter().map(Envelope::id).collect(), None));
    settle(db, claimed[0].fence, Settlement::Done).await;
    settle(db, claimed[1].fence, dead("no")).await;
    settle(db, claimed[2].fence, Settlement::Released { after: Duration::ZERO }).await;

    db.let_pass(HOUR + MOMENT).await;
    kept(&*db.store(), &owner, 1, 1).await;

    let claimed = claim(db, &owner, &[]).await;
    assert_eq!(ids(&claimed), [late.id(), events[2].id()], "its time has come, and its place is the first");
    assert_eq!(behind(&claimed), [None, Some(claimed[0].fence.sequence)]);
}

pub(crate) async fn whose_partition_it_is_not_claims_nothing_of_the_queue(db: &dyn Harness) {
    let owner = holder(db).await;
    written(db, 2).await;

    assert!(claim(db, &crate::common::owner("stranger"), &[]).await.is_empty());
    db.let_pass(LEASE + MOMENT).await;
    assert!(claim(db, &owner, &[]).await.is_empty(), "its lease is over by the clock of the database");
}

pub(crate) async fn an_event_that_is_too_young_stops_the_queue(db: &dyn Harness) {
    let owner = holder(db).await;
    written(db, 1).await;
    let patient = ClaimRequest { skip_recent: HOUR, ..front(&owner, &[], 10) };
    assert!(db.store().claim(&patient).await.expect("claims").is_empty());
    db.let_pass(HOUR + MOMENT).await;
    kept(&*db.store(), &owner, 1, 1).await;
    written(db, 1).await;
    assert_eq!(db.store().claim(&patient).await.expect("claims").len(), 1);
}
