//! Claiming single events for one owner.

use std::time::Duration;

use outbox::event::Fence;
use outbox::store::{Claimed, Due, NewRow, Renewed, Settlement};
use outbox::time::Timestamp;
use support::Harness;

use crate::common::{
    LEASE, MOMENT, claim, claim_one, dead, event, finished, ids, owner, ownership, plain, plains, retry, row, settle, write,
    write_one,
};

pub(crate) async fn two_owners_never_hold_the_same_event(db: &dyn Harness) {
    write(db, &plains(db, 10).await).await;

    let first = claim(db, 6).await;
    let second = claim(db, 10).await;
    let third = claim(db, 10).await;

    assert_eq!((first.len(), second.len(), third.len()), (6, 4, 0));
    assert!(ids(&first).iter().all(|id| !ids(&second).contains(id)));
}

pub(crate) async fn an_expired_lease_can_be_claimed_again(db: &dyn Harness) {
    let id = write_one(db).await;
    let first = claim_one(db).await;

    // A server's clock goes on by itself while the test runs.
    let slack = LEASE / 2;
    db.let_pass(LEASE - slack).await;
    assert!(claim(db, 10).await.is_empty(), "the lease still holds");
    db.let_pass(slack + MOMENT).await;
    let again = claim(db, 10).await;

    assert_eq!(ids(&again), [id]);
    assert_eq!(again[0].fence, Fence { claim: first.claim + 1, ..first });
    assert_eq!((again[0].claims, again[0].attempts), (2, 0));
}

pub(crate) async fn a_row_inserted_as_claimed_is_hidden_until_its_lease_ends(db: &dyn Harness) {
    let (ours, free) = (plain(db).await, plain(db).await);
    let ownership = ownership();
    let rows = [NewRow { envelope: &ours, claimed: true }, NewRow { envelope: &free, claimed: false }];
    let sequences = db.store().write(&rows, &ownership).await.expect("written");

    assert_eq!(ids(&claim(db, 10).await), [free.id()], "nobody else sees ours");
    let record = row(db, ours.id()).await;
    assert_eq!((record.locked_by.as_deref(), record.claims, record.claim_seq), (Some(ownership.owner.as_str()), 1, 1));
    assert_eq!(record.lease_end, record.locked_at.map(|since| since.plus(LEASE)));
    let fence = Fence { sequence: sequences[0].expect("inserted"), claim: 1 };
    db.let_pass(LEASE + MOMENT).await;
    let again = claim(db, 10).await;
    assert!(ids(&again).contains(&ours.id()), "the lease of a writer that died ends too");
    assert_eq!(settle(db, fence, Settlement::Done).await, 1, "and its outcome is fenced off");
}

pub(crate) async fn a_claim_writes_owner_lease_fence_and_counter(db: &dyn Harness) {
    let id = write_one(db).await;
    let owner = owner("host");

    support::claim_due(&*db.store(), &owner, LEASE, 1).await.expect("claims");

    let record = row(db, id).await;
    assert_eq!(record.locked_by.as_deref(), Some(owner.as_str()));
    let since = record.locked_at.expect("locked");
    assert_eq!(record.lease_end, Some(since.plus(LEASE)), "it may be claimed again when the lease ends");
    assert_eq!((record.claim_seq, record.claims, record.attempts), (1, 1, 0));
    assert_eq!(record.status, outbox::Status::New, "a claim is no outcome");
}

pub(crate) async fn a_claimed_event_knows_its_attempt_sequence_and_fence(db: &dyn Harness) {
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    settle(db, fence, retry(Duration::ZERO)).await;

    let claimed = claim(db, 1).await.remove(0);

    let event = claimed.event.expect("readable");
    assert_eq!((event.id(), event.attempt(), event.sequence(), event.fence()), (id, 2, fence.sequence, 3));
    assert_eq!((claimed.attempts, claimed.fence.claim), (1, 3));
}

pub(crate) async fn a_delayed_event_is_not_due_before_its_time(db: &dyn Harness) {
    let delayed = event(db, "Reminder").await.deliver_after(Duration::from_secs(3_600)).json(&1).expect("good");
    write(db, std::slice::from_ref(&delayed)).await;

    db.let_pass(Duration::from_secs(3_540)).await;
    assert!(claim(db, 10).await.is_empty(), "a minute too early");
    db.let_pass(Duration::from_secs(60) + MOMENT).await;

    assert_eq!(ids(&claim(db, 10).await), [delayed.id()]);
}

pub(crate) async fn a_release_without_a_delay_keeps_the_place_of_an_event(db: &dyn Harness) {
    let first = write_one(db).await;
    db.let_pass(MOMENT).await;
    write_one(db).await;
    let claimed = claim(db, 10).await;
    let due_at = row(db, first).await.due_at;
    let at_once = Settlement::Released { after: Duration::ZERO, reason: None };

    settle(db, claimed[1].fence, at_once.clone()).await;
    settle(db, claimed[0].fence, at_once).await;

    assert_eq!(row(db, first).await.due_at, due_at);
    assert_eq!(ids(&claim(db, 1).await), [first], "though it was given back last");
}

pub(crate) async fn nothing_finished_or_parked_is_claimed(db: &dyn Harness) {
    finished(db, Settlement::Done).await;
    finished(db, dead("no")).await;
    finished(db, Settlement::Parked { reason: "nobody".to_owned() }).await;

    db.let_pass(Duration::from_secs(365 * 24 * 3_600)).await;

    assert!(claim(db, 10).await.is_empty());
    assert_eq!(db.store().next_due().await.expect("looks"), None);
}

pub(crate) async fn an_expired_event_says_so(db: &dyn Harness) {
    let life = Duration::from_secs(600);
    let expires_at = db.now().await.plus(life);
    let envelope = event(db, "X").await.expires_at(expires_at).json(&1).expect("good");
    write(db, std::slice::from_ref(&envelope)).await;

    let early = claim(db, 1).await;
    assert!(matches!(early[0].due, Due::Since(_)));
    settle(db, early[0].fence, Settlement::Released { after: Duration::ZERO, reason: None }).await;
    db.let_pass(life + MOMENT).await;

    assert_eq!(claim(db, 1).await[0].due, Due::Expired);
}

/// Claims the first rows of the table, whether they can be read or not.
async fn claim_first(db: &dyn Harness, count: u64) -> Vec<Claimed> {
    let fences: Vec<Fence> = (1..=count).map(|sequence| Fence::new(sequence, 0, 0)).collect();
    db.store().claim(&owner("host"), LEASE, &fences).await.expect("one bad row must not stop the others")
}

pub(crate) async fn an_unreadable_row_comes_back_as_an_error_beside_the_others(db: &dyn Harness) {
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload, headers) VALUES ('bad-headers', 'X', '1', '{broken')")
        .await;
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload) VALUES ('bad-name', '', '1')").await;
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload) VALUES ('a-pattern', '*', '1')").await;
    let good = write_one(db).await;

    let claimed = claim_first(db, 4).await;

    assert_eq!(claimed.len(), 4);
    let errors: Vec<&str> = claimed.iter().filter_map(|claimed| claimed.event.as_ref().err()).map(String::as_str).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    let wanted = ["headers", "event_type is empty", "event_type holds the character '*'"];
    assert!(errors.iter().zip(wanted).all(|(error, wanted)| error.contains(wanted)), "{errors:?}");
    assert!(claimed.iter().any(|claimed| claimed.event.as_ref().is_ok_and(|event| event.id() == good)));
    for claimed in claimed.iter().filter(|claimed| claimed.event.is_err()) {
        assert_eq!(settle(db, claimed.fence, dead("unreadable")).await, 0, "an unreadable row can be settled");
    }
}

pub(crate) async fn a_row_with_an_impossible_counter_does_not_spoil_the_batch(db: &dyn Harness) {
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload, attempts) VALUES ('e-1', 'X', '1', -1)").await;
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload, claims) VALUES ('e-2', 'X', '1', -7)").await;
    let good = write_one(db).await;

    let claimed = claim_first(db, 3).await;

    assert!(claimed.iter().any(|claimed| claimed.event.as_ref().is_ok_and(|event| event.id() == good)));
    let bad = claimed.iter().find(|claimed| claimed.fence.sequence == 1).expect("the bad row is claimed too");
    assert!(bad.event.as_ref().is_err_and(|why| why.contains("attempts")), "{bad:?}");
}

pub(crate) async fn the_claims_counter_grows_until_there_is_an_outcome(db: &dyn Harness) {
    let id = write_one(db).await;

    for claims in 1..=4 {
        let claimed = claim(db, 1).await;
        assert_eq!(claimed[0].claims, claims);
        db.let_pass(LEASE + MOMENT).await;
    }
    let last = claim_one(db).await;
    settle(db, last, retry(Duration::ZERO)).await;

    assert_eq!((row(db, id).await.claims, row(db, id).await.claim_seq), (0, 6));
    assert_eq!(claim(db, 1).await[0].claims, 1);
}

pub(crate) async fn counters_at_their_largest_value_stay_there(db: &dyn Harness) {
    const LARGEST: u32 = 2_147_483_647;
    let id = write_one(db).await;
    db.execute(&format!("UPDATE outbox_event SET claims = {LARGEST}, starts = {LARGEST}")).await;

    let fence = claim_one(db).await;
    assert!(db.store().count_start(fence).await.expect("counts"));

    let record = row(db, id).await;
    assert_eq!((record.claims, record.starts), (LARGEST, LARGEST));
    assert_eq!(settle(db, fence, Settlement::Done).await, 0);
}

pub(crate) async fn starts_are_counted_under_the_claim_until_there_is_an_outcome(db: &dyn Harness) {
    let id = write_one(db).await;
    let mut fence = claim_one(db).await;
    for starts in 1..=3 {
        assert!(db.store().count_start(fence).await.expect("counts"));
        assert_eq!(row(db, id).await.starts, starts);
        db.let_pass(LEASE + MOMENT).await;
        let old = fence;
        let claimed = claim(db, 1).await;
        assert_eq!(claimed[0].starts, starts, "a claim tells them");
        fence = claimed[0].fence;
        assert!(!db.store().count_start(old).await.expect("looks"), "the claim is lost");
    }
    settle(db, fence, Settlement::Released { after: Duration::ZERO, reason: None }).await;
    assert_eq!(row(db, id).await.starts, 3, "an event that was not started did not end");
    fence = claim_one(db).await;
    settle(db, fence, retry(Duration::ZERO)).await;
    assert_eq!(row(db, id).await.starts, 0);
    assert!(!db.store().count_start(fence).await.expect("looks"), "the outcome is stored");
}

pub(crate) async fn a_start_is_taken_back_by_a_host_that_is_still_there_whoever_holds_the_event(db: &dyn Harness) {
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    assert!(db.store().count_start(fence).await.expect("counts") && db.store().count_start(fence).await.expect("counts"));
    db.store().uncount_start(fence.sequence).await.expect("takes back");
    assert_eq!(row(db, id).await.starts, 1);
    db.let_pass(LEASE + MOMENT).await;
    let theirs = claim_one(db).await;
    for _ in 0..2 {
        db.store().uncount_start(fence.sequence).await.expect("takes back");
        assert_eq!(row(db, id).await.starts, 0, "never less than none");
    }
    assert_eq!(settle(db, theirs, Settlement::Done).await, 0, "their claim is as it was");
    db.store().uncount_start(fence.sequence).await.expect("looks");
    assert_eq!(row(db, id).await.starts, 0);
}

pub(crate) async fn renewing_keeps_a_claim_beyond_its_lease(db: &dyn Harness) {
    write_one(db).await;
    let fence = claim_one(db).await;

    for _ in 0..5 {
        db.let_pass(LEASE / 2).await;
        assert_eq!(db.store().renew(&[fence], LEASE).await.expect("renews").held, [fence.sequence]);
    }

    assert!(claim(db, 1).await.is_empty());
    assert_eq!(settle(db, fence, Settlement::Done).await, 0, "the fence is the same");
}

pub(crate) async fn only_our_own_live_claims_are_renewed(db: &dyn Harness) {
    let envelopes = plains(db, 4).await;
    write(db, &envelopes).await;
    let fences: Vec<Fence> = claim(db, 4).await.iter().map(|claimed| claimed.fence).collect();
    settle(db, fences[1], Settlement::Done).await;
    settle(db, fences[2], Settlement::Released { after: Duration::from_secs(3_600), reason: None }).await;
    let stale = Fence { claim: fences[3].claim + 1, ..fences[3] };
    let unknown = Fence { sequence: 999_999, claim: 1 };

    let renewed = db.store().renew(&[fences[0], fences[1], fences[2], stale, unknown], LEASE).await.expect("renews");

    assert_eq!(renewed, Renewed { held: vec![fences[0].sequence], locked: vec![] });
    assert_eq!(row(db, envelopes[1].id()).await.due_at, None, "a finished row stays finished");
    assert_eq!(db.store().renew(&[], LEASE).await.expect("nothing to do"), Renewed::default());
}

pub(crate) async fn next_due_tells_how_long_to_rest(db: &dyn Harness) {
    assert_eq!(db.store().next_due().await.expect("looks"), None, "nothing waits");

    let delayed = event(db, "X").await.deliver_after(Duration::from_secs(600)).json(&1).expect("good");
    write(db, std::slice::from_ref(&delayed)).await;
    rests_until(db, delayed.available_at()).await;

    let id = write_one(db).await;
    assert_eq!(db.store().next_due().await.expect("looks"), Some(Duration::ZERO), "one is due");

    claim_one(db).await;
    rests_until(db, row(db, id).await.lease_end.expect("claimed")).await;
}

/// The rest ends at this time: not sooner and not later than the database's clock allowed while it was asked.
async fn rests_until(db: &dyn Harness, end: Timestamp) {
    let before = db.now().await;
    let rest = db.store().next_due().await.expect("looks").expect("something waits");
    let after = db.now().await;
    assert!(end.since(after) <= rest && rest <= end.since(before), "{rest:?} until {end}, asked from {before} to {after}");
}

pub(crate) async fn what_nobody_has_locked_is_free_and_what_is_not_there_is_not_locked(db: &dyn Harness) {
    write_one(db).await;
    let fence = claim_one(db).await;
    assert_eq!(db.store().locked(&[fence.sequence, 999_999]).await.expect("looks"), Vec::<u64>::new());
    assert_eq!(db.store().locked(&[]).await.expect("nothing to do"), Vec::<u64>::new());
}
