//! Deletes old finished rows.

use std::time::Duration;

use outbox::store::{NewRow, Node, PurgeBatch, PurgeRequest, PurgeRow, PurgeTarget, Purgeable, Settlement};
use outbox::{EventId, Status};
use support::Harness;

use crate::common::{by_hand, claim, dead, event, finished, owner, ownership, retry, row, write, write_one};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What was finished at least this long ago by the database's clock.
async fn request(db: &dyn Harness, status: Status, older_than: Duration, limit: u32) -> PurgeRequest {
    PurgeRequest::first(PurgeTarget::Finished { status, finished_before: db.now().await.minus(older_than) }, limit)
}

async fn purge(db: &dyn Harness, status: Status, older_than: Duration, limit: u32) -> PurgeBatch {
    db.store().purge(&request(db, status, older_than, limit).await).await.expect("purges")
}

async fn purge_undelivered(db: &dyn Harness, older_than: Duration, limit: u32) -> PurgeBatch {
    db.store().purge(&PurgeRequest::first(PurgeTarget::Undelivered { older_than }, limit)).await.expect("purges")
}

async fn count_purgeable(db: &dyn Harness, status: Status, older_than: Duration) -> Purgeable {
    db.store().count_purgeable(status, db.now().await.minus(older_than)).await.expect("counts")
}

/// Rows that finished one second after the other.
async fn one_by_one(db: &dyn Harness, count: usize) -> Vec<EventId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(finished(db, Settlement::Done).await);
        db.let_pass(Duration::from_secs(1)).await;
    }
    ids
}

async fn are_there(db: &dyn Harness, ids: &[EventId]) -> Vec<bool> {
    let mut there = Vec::new();
    for id in ids {
        there.push(is_there(db, *id).await);
    }
    there
}

async fn is_there(db: &dyn Harness, id: EventId) -> bool {
    db.store().get(id).await.expect("looks").is_some()
}

pub(crate) async fn only_rows_that_are_old_enough_go(db: &dyn Harness) {
    let old = finished(db, Settlement::Done).await;
    db.let_pass(DAY).await;
    let young = finished(db, Settlement::Done).await;
    db.let_pass(DAY).await;
    let done_at = row(db, old).await.done_at;

    let counted = count_purgeable(db, Status::Done, DAY + DAY / 2).await;
    let purged = purge(db, Status::Done, DAY + DAY / 2, 100).await;

    assert_eq!(counted, Purgeable { count: 1, blocking: 0 });
    assert_eq!(purged, PurgeBatch { count: 1, first: done_at, last: done_at, remaining: Vec::new() });
    assert!(!is_there(db, old).await && is_there(db, young).await);
}

pub(crate) async fn done_and_dead_have_their_own_retention(db: &dyn Harness) {
    let done = finished(db, Settlement::Done).await;
    let died = finished(db, dead("no")).await;
    db.let_pass(DAY).await;

    assert_eq!(purge(db, Status::Done, Duration::ZERO, 100).await.count, 1);
    assert!(!is_there(db, done).await && is_there(db, died).await, "dead events are not purged with the others");
    assert_eq!(purge(db, Status::Dead, Duration::ZERO, 100).await.count, 1);
    assert!(!is_there(db, died).await);
}

pub(crate) async fn a_batch_takes_the_oldest_and_no_more_than_its_limit(db: &dyn Harness) {
    let ids = one_by_one(db, 5).await;

    let batch = purge(db, Status::Done, Duration::ZERO, 3).await;

    assert_eq!(batch.count, 3);
    assert!(batch.first < batch.last);
    assert_eq!(are_there(db, &ids).await, [false, false, false, true, true]);
    assert_eq!(purge(db, Status::Done, Duration::ZERO, 3).await.count, 2);
    assert_eq!(purge(db, Status::Done, Duration::ZERO, 3).await, PurgeBatch::default());
}

pub(crate) async fn nothing_unfinished_is_ever_purged(db: &dyn Harness) {
    finished(db, retry(DAY)).await;
    finished(db, Settlement::Parked { reason: "nobody".to_owned() }).await;
    finished(db, Settlement::Deferred { after: DAY }).await;
    write_one(db).await;
    claim(db, 1).await;
    let replayed = finished(db, dead("no")).await;
    assert!(db.store().replay(replayed, &by_hand()).await.expect("replays"));
    db.let_pass(DAY * 365).await;

    for status in [Status::New, Status::Done, Status::Retry, Status::Dead] {
        let batch = purge(db, status, Duration::ZERO, 100).await;
        assert_eq!(batch.count, 0, "{status}");
    }
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 5);
}

pub(crate) async fn a_dead_event_that_blocks_its_aggregate_is_kept_and_counted(db: &dyn Harness) {
    let blocks = finished(db, Settlement::Dead { error: "no".to_owned(), counted: true, blocks: true }).await;
    let plain = finished(db, dead("no")).await;
    let finished_before = db.now().await;
    let request = PurgeRequest::first(PurgeTarget::Finished { status: Status::Dead, finished_before }, 100);

    let counted = db.store().count_purgeable(Status::Dead, finished_before).await.expect("counts");
    assert_eq!(counted, Purgeable { count: 1, blocking: 1 });
    let oldest = db.store().oldest_purgeable(Status::Dead, finished_before).await.expect("looks");
    assert_eq!(oldest.and_then(|row| row.event_id), Some(plain));
    assert_eq!(db.store().purge(&request).await.expect("purges").count, 1);
    assert!(is_there(db, blocks).await && !is_there(db, plain).await);
    assert!(db.store().skip(blocks, &by_hand()).await.expect("skips"));
    assert_eq!(db.store().purge(&request).await.expect("purges").count, 1, "it blocks no more");
}

pub(crate) async fn what_was_due_long_ago_and_never_taken_is_purged_as_undelivered(db: &dyn Harness) {
    let old = write_one(db).await;
    db.let_pass(DAY).await;
    let second = write_one(db).await;
    db.let_pass(DAY).await;
    let due_at = row(db, old).await.due_at;

    let purged = purge_undelivered(db, DAY + DAY / 2, 100).await;

    assert_eq!(purged, PurgeBatch { count: 1, first: due_at, last: due_at, remaining: Vec::new() });
    assert!(!is_there(db, old).await && is_there(db, second).await);
    let third = write_one(db).await;
    assert_eq!(purge_undelivered(db, Duration::ZERO, 1).await.count, 1);
    assert!(!is_there(db, second).await && is_there(db, third).await, "no more than the limit, and the oldest first");
}

pub(crate) async fn what_its_writer_dated_back_is_as_old_as_its_row(db: &dyn Harness) {
    let long_ago = db.now().await.minus(DAY * 30);
    let imported = event(db, "X").await.occurred_at(long_ago).json(&1).expect("good");
    write(db, std::slice::from_ref(&imported)).await;

    assert_eq!(purge_undelivered(db, DAY, 100).await.count, 0);
    db.let_pass(DAY * 2).await;
    assert_eq!(purge_undelivered(db, DAY, 100).await.count, 1);
}

pub(crate) async fn nothing_is_purged_as_undelivered_while_a_host_is_alive(db: &dyn Harness) {
    let id = write_one(db).await;
    let node = Node::new(owner("host"), "host 1", "single_node", "0");
    db.store().heartbeat(&node, DAY).await.expect("says that it is there");
    db.let_pass(DAY / 2).await;
    assert_eq!(purge_undelivered(db, Duration::ZERO, 100).await, PurgeBatch::default());
    assert!(is_there(db, id).await);
    db.let_pass(DAY).await;
    assert_eq!(purge_undelivered(db, Duration::ZERO, 100).await.count, 1, "it is gone");
}

pub(crate) async fn what_a_host_ever_took_or_is_not_due_is_not_undelivered(db: &dyn Harness) {
    let failed = finished(db, retry(Duration::ZERO)).await;
    claim(db, 1).await;
    let done = finished(db, Settlement::Done).await;
    let put_off = event(db, "X").await.deliver_after(DAY * 800).json(&1).expect("good");
    write(db, std::slice::from_ref(&put_off)).await;
    let held = event(db, "X").await.json(&1).expect("good");
    db.store().write(&[NewRow { envelope: &held, claimed: true }], &ownership()).await.expect("written");
    db.let_pass(DAY * 365).await;

    assert_eq!(purge_undelivered(db, Duration::ZERO, 100).await, PurgeBatch::default());
    for id in [failed, done, put_off.id(), held.id()] {
        assert!(is_there(db, id).await, "{id}");
    }
}

pub(crate) async fn a_batch_begins_at_a_time_and_skips_rows(db: &dyn Harness) {
    let ids = one_by_one(db, 5).await;
    let (second, third) = (row(db, ids[1]).await, row(db, ids[2]).await);
    let all = request(db, Status::Done, Duration::ZERO, 2).await;
    let later = PurgeRequest { from: second.done_at, skip: vec![third.seq], ..all.clone() };

    let next = db.store().next_to_purge(&later).await.expect("looks");
    let batch = db.store().purge(&later).await.expect("purges");

    let at = second.done_at.expect("it has finished");
    assert_eq!(next, Some(PurgeRow { seq: second.seq, event_id: Some(ids[1]), at }));
    assert_eq!((batch.count, batch.first, batch.remaining), (2, second.done_at, Vec::new()));
    assert_eq!(are_there(db, &ids).await, [true, false, true, false, true]);
    let first = db.store().next_to_purge(&all).await.expect("looks").expect("rows are left");
    assert_eq!(first.event_id, Some(ids[0]));
    let oldest = db.store().oldest_purgeable(Status::Done, db.now().await).await.expect("looks");
    assert_eq!(oldest, Some(first));
    let of_no_row = db.store().oldest_purgeable(Status::Done, first.at.minus(DAY)).await.expect("looks");
    assert_eq!(of_no_row, None);
    let none = PurgeRequest { from: Some(db.now().await), ..all };
    assert_eq!(db.store().next_to_purge(&none).await.expect("looks"), None);
}

pub(crate) async fn an_undelivered_batch_begins_at_a_time_and_skips_rows(db: &dyn Harness) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(write_one(db).await);
        db.let_pass(Duration::from_secs(1)).await;
    }
    let (second, third) = (row(db, ids[1]).await, row(db, ids[2]).await);
    let all = PurgeRequest::first(PurgeTarget::Undelivered { older_than: Duration::ZERO }, 100);
    let later = PurgeRequest { from: second.due_at, skip: vec![third.seq], ..all };

    let next = db.store().next_to_purge(&later).await.expect("looks");
    let batch = db.store().purge(&later).await.expect("purges");

    assert_eq!(next.map(|row| (row.seq, row.event_id)), Some((second.seq, Some(ids[1]))));
    assert_eq!((batch.count, batch.first, batch.chosen()), (2, second.due_at, 2));
    assert_eq!(are_there(db, &ids).await, [true, false, true, false]);
}

/// For databases that can accept a DELETE and keep the row.
pub(crate) async fn rows_that_a_trigger_keeps_remain_and_are_answered(db: &dyn Harness) {
    let ids = one_by_one(db, 5).await;
    let kept = row(db, ids[1]).await;
    let when = format!("WHEN (OLD.event_id = '{}')", ids[1]);
    if db.store().kind() == "postgres" {
        db.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$").await;
        let each = format!("FOR EACH ROW {when} EXECUTE FUNCTION keep()");
        db.execute(&format!("CREATE TRIGGER kept BEFORE DELETE ON outbox_event {each}")).await;
    } else {
        let body = format!("{when} BEGIN SELECT RAISE(IGNORE); END");
        db.execute(&format!("CREATE TRIGGER kept BEFORE DELETE ON outbox_event {body}")).await;
    }
    let at = kept.done_at.expect("it has finished");
    let kept = PurgeRow { seq: kept.seq, event_id: Some(ids[1]), at };

    let full = purge(db, Status::Done, Duration::ZERO, 3).await;
    let last = purge(db, Status::Done, Duration::ZERO, 3).await;

    assert_eq!((full.count, full.chosen(), full.remaining), (2, 3, vec![kept]), "three of five rows");
    assert_eq!((last.count, last.chosen(), last.remaining), (2, 3, vec![kept]), "the rest, and the kept one again");
    assert_eq!(are_there(db, &ids).await, [false, true, false, false, false]);
}
