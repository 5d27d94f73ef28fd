//! Outcomes into rows.

use std::time::Duration;

use outbox::event::Fence;
use outbox::store::{AttemptEnd, Record, Renewed, Settled, Settlement};
use outbox::{EventId, Status};
use support::Harness;

use crate::common::{
    LEASE, MOMENT, add_user_columns, by_hand, claim, claim_one, dead, finished, ids, plains, retry, row, settle, snapshot,
    status, write, write_one,
};
use crate::costs::{cost, settle_with_cost};

/// How long outcomes put their events off here.
const DELAY: Duration = Duration::from_secs(600);
/// What a server's clock may go on by itself while a test runs.
const SLACK: Duration = Duration::from_secs(60);

/// Every kind of outcome.
fn every_kind() -> [Settlement; 8] {
    [
        Settlement::Done,
        Settlement::Deferred { after: DELAY },
        retry(DELAY),
        dead("too late"),
        Settlement::Parked { reason: "nobody".to_owned() },
        Settlement::Released { after: Duration::ZERO, reason: None },
        Settlement::Behind { sequence: 1 },
        Settlement::Erased,
    ]
}

async fn is_unlocked(db: &dyn Harness, id: EventId) -> bool {
    let record = row(db, id).await;
    (record.locked_by, record.locked_at, record.lease_end, record.claims) == (None, None, None, 0)
}

/// An event that failed twice and was deferred once before its present claim.
async fn tried(db: &dyn Harness) -> (EventId, Fence) {
    let id = write_one(db).await;
    for settlement in [retry(Duration::ZERO), Settlement::Deferred { after: Duration::ZERO }, retry(Duration::ZERO)] {
        let fence = claim_one(db).await;
        settle(db, fence, settlement).await;
    }
    (id, claim_one(db).await)
}

pub(crate) async fn done_writes_its_columns(db: &dyn Harness) {
    let (id, fence) = tried(db).await;
    let before = db.now().await;

    assert_eq!(settle(db, fence, Settlement::Done).await, 0);

    let record = row(db, id).await;
    assert_eq!((record.status, record.due_at, record.parked.clone()), (Status::Done, None, None));
    assert!(record.done_at.expect("finished") >= before);
    assert_eq!((record.attempts, record.deferrals, record.claim_seq), (2, 1, 8), "the history stays");
    assert_eq!(record.last_error.as_deref(), Some("no luck"), "what went wrong before stays readable");
    assert!(is_unlocked(db, id).await);
}

pub(crate) async fn a_deferred_event_keeps_its_attempt_count(db: &dyn Harness) {
    let (id, fence) = tried(db).await;

    assert_eq!(settle(db, fence, Settlement::Deferred { after: DELAY }).await, 0);

    let record = row(db, id).await;
    assert_eq!((record.status, record.attempts, record.deferrals), (Status::New, 2, 2));
    assert_eq!(record.done_at, None);
    assert!(is_unlocked(db, id).await);
    db.let_pass(DELAY - SLACK).await;
    assert!(claim(db, 1).await.is_empty());
    db.let_pass(SLACK + MOMENT).await;
    assert_eq!(claim(db, 1).await[0].attempts, 2);
}

pub(crate) async fn a_retry_counts_and_is_due_after_its_delay(db: &dyn Harness) {
    let (id, fence) = tried(db).await;

    assert_eq!(settle(db, fence, Settlement::Retry { after: DELAY, error: "späti".to_owned() }).await, 0);

    let record = row(db, id).await;
    assert_eq!((record.status, record.attempts, record.deferrals), (Status::Retry, 3, 1));
    assert_eq!((record.last_error.as_deref(), record.done_at), (Some("späti"), None));
    assert!(is_unlocked(db, id).await);
    db.let_pass(DELAY - SLACK).await;
    assert!(claim(db, 1).await.is_empty());
    db.let_pass(SLACK + MOMENT).await;
    assert_eq!(claim(db, 1).await[0].attempts, 3);
}

pub(crate) async fn a_counted_death_counts_the_attempt(db: &dyn Harness) {
    let (id, fence) = tried(db).await;

    assert_eq!(settle(db, fence, dead("gave up")).await, 0);

    let record = row(db, id).await;
    assert_eq!((record.status, record.attempts, record.last_error.as_deref()), (Status::Dead, 3, Some("gave up")));
    assert!(record.due_at.is_none() && record.done_at.is_some());
    assert!(is_unlocked(db, id).await);
}

pub(crate) async fn an_uncounted_death_keeps_the_attempt_count(db: &dyn Harness) {
    let (id, fence) = tried(db).await;

    assert_eq!(settle(db, fence, Settlement::Dead { error: "never".to_owned(), counted: false, blocks: false }).await, 0);

    assert_eq!((row(db, id).await.status, row(db, id).await.attempts), (Status::Dead, 2));
}

pub(crate) async fn a_parked_event_waits_for_nothing_in_time(db: &dyn Harness) {
    let (id, fence) = tried(db).await;

    assert_eq!(settle(db, fence, Settlement::Parked { reason: "no listener".to_owned() }).await, 0);

    let record = row(db, id).await;
    assert_eq!((record.due_at, record.parked.as_deref(), record.done_at), (None, Some("no listener"), None));
    assert_eq!((record.status, record.attempts), (Status::Retry, 2), "parking is no outcome of an attempt");
    assert!(is_unlocked(db, id).await);
}

pub(crate) async fn a_released_event_gives_its_claim_back(db: &dyn Harness) {
    let id = write_one(db).await;
    claim_one(db).await;
    db.let_pass(LEASE + MOMENT).await;
    let fence = claim_one(db).await;

    assert_eq!(settle(db, fence, Settlement::Released { after: Duration::ZERO, reason: None }).await, 0);

    let record = row(db, id).await;
    assert_eq!((record.claims, record.attempts, record.deferrals), (1, 0, 0), "this claim is given back, the lost one is not");
    assert_eq!((record.locked_by, record.claim_seq), (None, 3));
    assert_eq!(claim_one(db).await.claim, 4, "due again at once, under a new fence");
}

pub(crate) async fn a_mixed_batch_writes_every_kind(db: &dyn Harness) {
    let kinds = every_kind();
    write(db, &plains(db, kinds.len()).await).await;
    let claimed = claim(db, 100).await;
    assert_eq!(claimed.len(), kinds.len());
    let batch: Vec<Settled> = claimed.iter().zip(kinds).map(|(one, settlement)| Settled::new(one.fence, settlement)).collect();

    assert_eq!(db.store().settle(&batch).await.expect("written"), 0);

    for (id, settled) in ids(&claimed).into_iter().zip(&batch) {
        let record = db.store().get(id).await.expect("can be looked for");
        assert_eq!(record.as_ref().map(written), expected(&settled.settlement), "{settled:?}: {record:?}");
        if let Some(record) = record {
            let gone = (record.locked_by, record.locked_at, record.lease_end, record.claims);
            assert_eq!(gone, (None, None, None, 0), "{settled:?} ends the claim");
        }
    }
    assert_eq!(db.store().settle(&batch).await.expect("a repeat is safe"), u64::try_from(batch.len()).expect("small"));
}

pub(crate) async fn outcomes_ignore_columns_that_a_user_added(db: &dyn Harness) {
    add_user_columns(db).await;
    let (id, cost) = (write_one(db).await, cost(1, AttemptEnd::Done));

    settle_with_cost(db, claim_one(db).await, Settlement::Done, &cost).await;

    assert_eq!(row(db, id).await.last_cost, Some(cost));
    a_mixed_batch_writes_every_kind(db).await;
}

/// What tells the outcomes of one batch apart: status, attempts, deferrals, whether it is due and finished, and why it waits.
type Written = (Status, u32, u32, [bool; 2], Option<String>, Option<u64>);

fn written(record: &Record) -> Written {
    let Record { status, attempts, deferrals, due_at, done_at, .. } = record;
    let why = record.last_error.clone().or(record.parked.clone());
    (*status, *attempts, *deferrals, [due_at.is_some(), done_at.is_some()], why, record.behind)
}

/// What an outcome of [`every_kind`] leaves of an event that was never tried before; `None` when no row.
fn expected(settlement: &Settlement) -> Option<Written> {
    let because = |text: &str| Some(text.to_owned());
    Some(match settlement {
        Settlement::Done => (Status::Done, 0, 0, [false, true], None, None),
        Settlement::Deferred { .. } => (Status::New, 0, 1, [true, false], None, None),
        Settlement::Retry { .. } => (Status::Retry, 1, 0, [true, false], because("no luck"), None),
        Settlement::Dead { .. } => (Status::Dead, 1, 0, [false, true], because("too late"), None),
        Settlement::Parked { .. } => (Status::New, 0, 0, [false, false], because("nobody"), None),
        Settlement::Released { .. } => (Status::New, 0, 0, [true, false], None, None),
        Settlement::Behind { sequence } => (Status::New, 0, 0, [false, false], None, Some(*sequence)),
        Settlement::Erased => return None,
    })
}

pub(crate) async fn thousands_of_outcomes_are_written_in_one_call(db: &dyn Harness) {
    write(db, &plains(db, 3_000).await).await;
    let mut batch: Vec<Settled> =
        claim(db, 3_000).await.iter().map(|claimed| Settled::new(claimed.fence, Settlement::Done)).collect();
    for settled in batch.iter_mut().step_by(3) {
        settled.settlement = retry(Duration::from_secs(1));
    }

    assert_eq!(db.store().settle(&batch).await.expect("written"), 0);

    let stats = db.store().stats().await.expect("counts");
    assert_eq!((stats.done, stats.retry, stats.new), (2_000, 1_000, 0));
}

pub(crate) async fn an_outcome_under_an_old_fence_changes_nothing_and_is_counted(db: &dyn Harness) {
    let id = write_one(db).await;
    let old = claim_one(db).await;
    db.let_pass(LEASE + MOMENT).await;
    let new = claim_one(db).await;
    let before = snapshot(db, id).await;

    for settlement in every_kind() {
        assert_eq!(settle(db, old, settlement.clone()).await, 1, "{settlement:?} is dropped and counted");
        assert_eq!(snapshot(db, id).await, before, "{settlement:?} changes nothing");
    }

    assert_eq!(settle(db, new, Settlement::Done).await, 0);
}

pub(crate) async fn an_outcome_after_the_lease_but_before_another_claim_counts(db: &dyn Harness) {
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    db.let_pass(LEASE * 2).await;

    assert_eq!(settle(db, fence, Settlement::Done).await, 0, "nobody else has it, so the work need not be done again");

    assert_eq!(status(db, id).await, Status::Done);
}

async fn absorbs(db: &dyn Harness, last: Settlement) {
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    settle(db, fence, last).await;
    let before = snapshot(db, id).await;

    for settlement in every_kind() {
        assert_eq!(settle(db, fence, settlement.clone()).await, 1, "{settlement:?} is dropped and counted");
        assert_eq!(snapshot(db, id).await, before, "{settlement:?} changes nothing");
    }
    assert_eq!(db.store().renew(&[fence], LEASE).await.expect("looks"), Renewed::default());
}

pub(crate) async fn done_absorbs_every_later_outcome(db: &dyn Harness) {
    absorbs(db, Settlement::Done).await;
}

pub(crate) async fn dead_absorbs_every_later_outcome(db: &dyn Harness) {
    absorbs(db, dead("no")).await;
}

pub(crate) async fn the_same_outcome_twice_changes_nothing_the_second_time(db: &dyn Harness) {
    for settlement in every_kind() {
        let id = write_one(db).await;
        let claimed = claim(db, 10).await;
        let fence = claimed.iter().find(|one| one.event.as_ref().is_ok_and(|event| event.id() == id)).expect("due").fence;
        assert_eq!(settle(db, fence, settlement.clone()).await, 0);
        let before = snapshot(db, id).await;

        assert_eq!(settle(db, fence, settlement.clone()).await, 1, "{settlement:?} again");

        assert_eq!(snapshot(db, id).await, before, "{settlement:?} again changes nothing");
    }
}

pub(crate) async fn an_outcome_after_a_release_is_dropped(db: &dyn Harness) {
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    settle(db, fence, Settlement::Released { after: DELAY, reason: None }).await;

    assert_eq!(settle(db, fence, Settlement::Done).await, 1, "who gave the claim back has none");

    assert_eq!(status(db, id).await, Status::New);
}

pub(crate) async fn an_outcome_of_an_earlier_life_is_dropped_after_a_replay(db: &dyn Harness) {
    let id = write_one(db).await;
    let zombie = claim_one(db).await;
    db.let_pass(LEASE + MOMENT).await;
    let fence = claim_one(db).await;
    settle(db, fence, dead("no")).await;
    assert!(db.store().replay(id, &by_hand()).await.expect("replays"));

    assert_eq!(settle(db, zombie, Settlement::Done).await, 1);
    assert_eq!(settle(db, fence, Settlement::Done).await, 1, "not even the last fence of the earlier life counts");

    assert_eq!(status(db, id).await, Status::New);
    assert_eq!(claim_one(db).await.claim, 5, "the fence goes on");
}

pub(crate) async fn an_outcome_for_a_row_that_is_gone_is_counted(db: &dyn Harness) {
    // The host asks with the largest number whether a statement fails without a row.
    for sequence in [4_711, u64::MAX >> 1] {
        for settlement in [Settlement::Done, retry(DELAY)] {
            assert_eq!(settle(db, Fence { sequence, claim: 1 }, settlement).await, 1, "{sequence}");
        }
    }
}

pub(crate) async fn an_error_is_cut_to_four_thousand_characters(db: &dyn Harness) {
    let long = "äöü😀".repeat(2_000);
    let expected: String = long.chars().take(4_000).collect();

    let died = finished(db, dead(&long)).await;
    let id = write_one(db).await;
    let fence = claim_one(db).await;
    settle(db, fence, Settlement::Retry { after: Duration::ZERO, error: format!("a\0b{long}") }).await;

    assert_eq!(row(db, died).await.last_error.as_deref(), Some(expected.as_str()));
    let error = row(db, id).await.last_error.expect("an error");
    assert_eq!(error.chars().count(), 4_000);
    assert!(error.starts_with("abäöü"), "a NUL, which not every database can store, is left out");
}

pub(crate) async fn a_delay_beyond_all_time_does_not_break_the_table(db: &dyn Harness) {
    for settlement in [
        Settlement::Deferred { after: Duration::MAX },
        retry(Duration::MAX),
        Settlement::Released { after: Duration::MAX, reason: None },
    ] {
        let id = write_one(db).await;
        let fence = claim_one(db).await;

        assert_eq!(settle(db, fence, settlement.clone()).await, 0);

        let due = row(db, id).await.due_at.expect("it waits");
        assert!(due > db.now().await.plus(Duration::from_secs(100 * 365 * 24 * 3_600)), "{settlement:?}: {due}");
        let rest = db.store().next_due().await.expect("one absurd delay must not blind the poller");
        assert!(rest.expect("it waits") > Duration::from_secs(100 * 365 * 24 * 3_600));
    }
}

pub(crate) async fn no_outcomes_are_no_work(db: &dyn Harness) {
    assert_eq!(db.store().settle(&[]).await.expect("nothing to do"), 0);
}

/// An outcome names its event by its number and its id: each kind of outcome, for another event with the same number, changes nothing.
pub(crate) async fn an_outcome_of_another_event_with_the_same_number_is_dropped(db: &dyn Harness) {
    let kinds = every_kind();
    write(db, &plains(db, kinds.len()).await).await;
    let claimed = claim(db, 100).await;
    let unfinished = |record: &Record| (record.seq, record.status, record.claim_seq, record.locked_by.clone());
    let mut before = Vec::new();
    for id in ids(&claimed) {
        before.push(unfinished(&row(db, id).await));
    }
    let other = EventId::generate(db.now().await);
    let batch = |id: Option<EventId>| -> Vec<Settled> {
        let settled = claimed.iter().zip(&kinds);
        settled.map(|(one, kind)| Settled { id, ..Settled::new(one.fence, kind.clone()) }).collect()
    };

    for alone in batch(Some(other)) {
        assert_eq!(db.store().settle(std::slice::from_ref(&alone)).await.expect("runs"), 1, "{alone:?}");
        assert_eq!(db.store().unsettled(std::slice::from_ref(&alone)).await.expect("runs"), Vec::<u64>::new(), "{alone:?}");
    }
    assert_eq!(db.store().settle(&batch(Some(other))).await.expect("runs"), batch(None).len() as u64);
    for (id, before) in ids(&claimed).into_iter().zip(before) {
        assert_eq!(unfinished(&row(db, id).await), before);
    }

    let own: Vec<Settled> =
        ids(&claimed).into_iter().zip(batch(None)).map(|(id, settled)| Settled { id: Some(id), ..settled }).collect();
    assert_eq!(db.store().settle(&own).await.expect("runs"), 0);
}

pub(crate) async fn an_outcome_can_be_stored_only_while_its_event_is_held_and_unfinished(db: &dyn Harness) {
    write(db, &plains(db, 4).await).await;
    let claimed = claim(db, 100).await;
    let all: Vec<Settled> = claimed.iter().map(|one| Settled::new(one.fence, Settlement::Done)).collect();
    let sequences = |settled: &[Settled]| settled.iter().map(|one| one.fence.sequence).collect::<Vec<u64>>();
    let unsettled = async || {
        let mut unsettled = db.store().unsettled(&all).await.expect("runs");
        unsettled.sort_unstable();
        unsettled
    };
    assert_eq!(unsettled().await, sequences(&all));

    settle(db, all[0].fence, Settlement::Done).await;
    settle(db, all[1].fence, Settlement::Erased).await;
    settle(db, all[2].fence, retry(DELAY)).await;

    assert_eq!(unsettled().await, sequences(&all[3..]), "the others have an outcome, or no row");
}
