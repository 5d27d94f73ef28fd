//! Old finished rows away.

use std::time::Duration;

use outbox::store::{PurgeBatch, PurgeRequest, Settlement};
use outbox::{EventId, Status};
use support::Harness;

use crate::common::{by_hand, claim, dead, finished, retry, row, write_one};

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn request(status: Status, older_than: Duration, limit: u32) -> PurgeRequest {
    PurgeRequest { status, older_than, limit }
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
    let request = request(Status::Done, DAY + DAY / 2, 100);

    let counted = db.store().count_purgeable(request).await.expect("counts");
    let purged = db.store().purge(request).await.expect("purges");

    assert_eq!((counted, purged), (1, PurgeBatch { count: 1, first: done_at, last: done_at }));
    assert!(!is_there(db, old).await && is_there(db, young).await);
}

pub(crate) async fn done_and_dead_have_their_own_retention(db: &dyn Harness) {
    let done = finished(db, Settlement::Done).await;
    let died = finished(db, dead("no")).await;
    db.let_pass(DAY).await;

    assert_eq!(db.store().purge(request(Status::Done, Duration::ZERO, 100)).await.expect("purges").count, 1);
    assert!(!is_there(db, done).await && is_there(db, died).await, "dead events are not purged with the others");
    assert_eq!(db.store().purge(request(Status::Dead, Duration::ZERO, 100)).await.expect("purges").count, 1);
    assert!(!is_there(db, died).await);
}

pub(crate) async fn a_batch_takes_the_oldest_and_no_more_than_its_limit(db: &dyn Harness) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(finished(db, Settlement::Done).await);
        db.let_pass(Duration::from_secs(1)).await;
    }

    let batch = db.store().purge(request(Status::Done, Duration::ZERO, 3)).await.expect("purges");

    assert_eq!(batch.count, 3);
    assert!(batch.first < batch.last);
    let mut left = Vec::new();
    for id in ids {
        left.push(is_there(db, id).await);
    }
    assert_eq!(left, [false, false, false, true, true]);
    assert_eq!(db.store().purge(request(Status::Done, Duration::ZERO, 3)).await.expect("purges").count, 2);
    assert_eq!(db.store().purge(request(Status::Done, Duration::ZERO, 3)).await.expect("purges"), PurgeBatch::default());
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
        let batch = db.store().purge(request(status, Duration::ZERO, 100)).await.expect("purges");
        assert_eq!(batch.count, 0, "{status}");
    }
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 5);
}
