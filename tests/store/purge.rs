//! Deletes old finished rows.

use std::time::Duration;

use outbox::store::{NewRow, Node, PurgeBatch, PurgeRequest, Purgeable, Settlement};
use outbox::{EventId, Status};
use support::Harness;

use crate::common::{by_hand, claim, dead, event, finished, owner, ownership, retry, row, write, write_one};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What was finished at least this long ago by the database's clock.
async fn request(db: &dyn Harness, status: Status, older_than: Duration, limit: u32) -> PurgeRequest {
    PurgeRequest { status, finished_before: db.now().await.minus(older_than), limit }
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
    let request = request(db, Status::Done, DAY + DAY / 2, 100).await;

    let counted = db.store().count_purgeable(request).await.expect("counts");
    let purged = db.store().purge(request).await.expect("purges");

    assert_eq!(counted, Purgeable { count: 1, blocking: 0 });
    assert_eq!(purged, PurgeBatch { count: 1, first: done_at, last: done_at });
    assert!(!is_there(db, old).await && is_there(db, young).await);
}

pub(crate) async fn done_and_dead_have_their_own_retention(db: &dyn Harness) {
    let done = finished(db, Settlement::Done).await;
    let died = finished(db, dead("no")).await;
    db.let_pass(DAY).await;

    assert_eq!(db.store().purge(request(db, Status::Done, Duration::ZERO, 100).await).await.expect("purges").count, 1);
    assert!(!is_there(db, done).await && is_there(db, died).await, "dead events are not purged with the others");
    assert_eq!(db.store().purge(request(db, Status::Dead, Duration::ZERO, 100).await).await.expect("purges").count, 1);
    assert!(!is_there(db, died).await);
}

pub(crate) async fn a_batch_takes_the_oldest_and_no_more_than_its_limit(db: &dyn Harness) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(finished(db, Settlement::Done).await);
        db.let_pass(Duration::from_secs(1)).await;
    }

    let batch = db.store().purge(request(db, Status::Done, Duration::ZERO, 3).await).await.expect("purges");

    assert_eq!(batch.count, 3);
    assert!(batch.first < batch.last);
    let mut left = Vec::new();
    for id in ids {
        left.push(is_there(db, id).await);
    }
    assert_eq!(left, [false, false, false, true, true]);
    assert_eq!(db.store().purge(request(db, Status::Done, Duration::ZERO, 3).await).await.expect("purges").count, 2);
    assert_eq!(
        db.store().purge(request(db, Status::Done, Duration::ZERO, 3).await).await.expect("purges"),
        PurgeBatch::default()
    );
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
        let batch = db.store().purge(request(db, status, Duration::ZERO, 100).await).await.expect("purges");
        assert_eq!(batch.count, 0, "{status}");
    }
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 5);
}

pub(crate) async fn a_dead_event_that_blocks_its_aggregate_is_kept_and_counted(db: &dyn Harness) {
    let blocks = finished(db, Settlement::Dead { error: "no".to_owned(), counted: true, blocks: true }).await;
    let plain = finished(db, dead("no")).await;
    let request = request(db, Status::Dead, Duration::ZERO, 100).await;

    assert_eq!(db.store().count_purgeable(request).await.expect("counts"), Purgeable { count: 1, blocking: 1 });
    assert_eq!(db.store().purge(request).await.expect("purges").count, 1);
    assert!(is_there(db, blocks).await && !is_there(db, plain).await);
    assert!(db.store().skip(blocks, &by_hand()).await.expect("skips"));
    assert_eq!(db.store().purge(request).await.expect("purges").count, 1, "it blocks no more");
}

pub(crate) async fn what_was_due_long_ago_and_never_taken_is_purged_as_undelivered(db: &dyn Harness) {
    let old = write_one(db).await;
    db.let_pass(DAY).await;
    let second = write_one(db).await;
    db.let_pass(DAY).await;
    let due_at = row(db, old).await.due_at;

    let purged = db.store().purge_undelivered(DAY + DAY / 2, 100).await.expect("purges");

    assert_eq!(purged, PurgeBatch { count: 1, first: due_at, last: due_at });
    assert!(!is_there(db, old).await && is_there(db, second).await);
    let third = write_one(db).await;
    assert_eq!(db.store().purge_undelivered(Duration::ZERO, 1).await.expect("purges").count, 1);
    assert!(!is_there(db, second).await && is_there(db, third).await, "no more than the limit, and the oldest first");
}

pub(crate) async fn what_its_writer_dated_back_is_as_old_as_its_row(db: &dyn Harness) {
    let long_ago = db.now().await.minus(DAY * 30);
    let imported = event(db, "X").await.occurred_at(long_ago).json(&1).expect("good");
    write(db, std::slice::from_ref(&imported)).await;

    assert_eq!(db.store().purge_undelivered(DAY, 100).await.expect("purges").count, 0);
    db.let_pass(DAY * 2).await;
    assert_eq!(db.store().purge_undelivered(DAY, 100).await.expect("purges").count, 1);
}

pub(crate) async fn nothing_is_purged_as_undelivered_while_a_host_is_alive(db: &dyn Harness) {
    let id = write_one(db).await;
    let node = Node::new(owner("host"), "host 1", "single_node", "0");
    db.store().heartbeat(&node, DAY).await.expect("says that it is there");
    db.let_pass(DAY / 2).await;
    assert_eq!(db.store().purge_undelivered(Duration::ZERO, 100).await.expect("purges"), PurgeBatch::default());
    assert!(is_there(db, id).await);
    db.let_pass(DAY).await;
    assert_eq!(db.store().purge_undelivered(Duration::ZERO, 100).await.expect("purges").count, 1, "it is gone");
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

    assert_eq!(db.store().purge_undelivered(Duration::ZERO, 100).await.expect("purges"), PurgeBatch::default());
    for id in [failed, done, put_off.id(), held.id()] {
        assert!(is_there(db, id).await, "{id}");
    }
}
