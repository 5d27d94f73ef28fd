//! What attempts cost, into rows.

use std::time::Duration;

use outbox::Status;
use outbox::event::{Cost, Fence, GuestCost};
use outbox::store::{AttemptCost, AttemptEnd, Filter, Settled, Settlement};
use support::Harness;

use crate::common::{claim, claim_one, dead, finished, ids, plains, retry, row, settle, write, write_one};

/// How long a deferred event waits here.
const DELAY: Duration = Duration::from_secs(600);

/// What an attempt cost, with every figure that there is.
pub(crate) fn cost(attempt: u32, outcome: AttemptEnd) -> AttemptCost {
    let guest = GuestCost {
        digest: "0123456789ab".parse().expect("hex"),
        fuel: u64::MAX,
        memory_bytes: 65_536,
        host_calls: u32::MAX,
        host_bytes: 7,
    };
    let took = Duration::from_micros(12_345);
    AttemptCost { attempt, outcome, cost: Cost { took, events: 40, guest: Some(guest) } }
}

pub(crate) async fn settle_with_cost(db: &dyn Harness, fence: Fence, settlement: Settlement, cost: &AttemptCost) {
    let settled = Settled { cost: Some(Box::new(cost.clone())), ..Settled::new(fence, settlement) };
    assert_eq!(db.store().settle(&[settled]).await.expect("the outcome is written"), 0);
}

pub(crate) async fn a_failure_writes_its_cost_or_none_and_an_answer_leaves_what_is_there(db: &dyn Harness) {
    let id = write_one(db).await;
    assert_eq!(row(db, id).await.last_cost, None);
    let first = cost(1, AttemptEnd::Retry);

    settle_with_cost(db, claim_one(db).await, retry(Duration::ZERO), &first).await;
    assert_eq!(row(db, id).await.last_cost.as_ref(), Some(&first));
    settle(db, claim_one(db).await, Settlement::Deferred { after: Duration::ZERO }).await;
    assert_eq!(row(db, id).await.last_cost.as_ref(), Some(&first), "a deferral leaves it");
    settle(db, claim_one(db).await, retry(Duration::ZERO)).await;
    assert_eq!(row(db, id).await.last_cost, None, "it belongs to the last error, which no call made");
    let native = AttemptCost { cost: Cost::of_time(Duration::from_micros(3)), ..cost(3, AttemptEnd::Retry) };
    settle_with_cost(db, claim_one(db).await, retry(Duration::ZERO), &native).await;
    settle(db, claim_one(db).await, Settlement::Done).await;
    let done = row(db, id).await;
    assert_eq!((done.status, done.last_cost), (Status::Done, Some(native)), "what the last failure cost stays readable");

    let given_up = finished(db, dead("no call")).await;
    assert_eq!(row(db, given_up).await.last_cost, None);
    let last = cost(1, AttemptEnd::Dead);
    let id = write_one(db).await;
    settle_with_cost(db, claim_one(db).await, dead("no luck"), &last).await;
    let record = row(db, id).await;
    assert_eq!((record.last_error.as_deref(), record.last_cost), (Some("no luck"), Some(last.clone())));
    let listed = db.store().list(&Filter::default(), 10).await.expect("lists");
    assert!(listed.iter().any(|row| row.last_cost.as_ref() == Some(&last)), "lists have it too");
}

pub(crate) async fn an_answer_writes_its_cost_where_one_comes_with_it(db: &dyn Harness) {
    write(db, &plains(db, 6).await).await;
    let claimed = claim(db, 10).await;
    let with =
        |settlement, kept: Option<AttemptCost>, fence| Settled { cost: kept.map(Box::new), ..Settled::new(fence, settlement) };
    let done = cost(1, AttemptEnd::Done);
    let batch: Vec<Settled> = claimed
        .iter()
        .enumerate()
        .map(|(number, one)| match number {
            0 | 3 => with(Settlement::Done, Some(done.clone()), one.fence),
            4 => with(Settlement::Deferred { after: DELAY }, Some(cost(1, AttemptEnd::Deferred)), one.fence),
            5 => with(Settlement::Erased, Some(done.clone()), one.fence),
            _ => with(Settlement::Done, None, one.fence),
        })
        .collect();

    assert_eq!(db.store().settle(&batch).await.expect("written"), 0);
    assert_eq!(db.store().settle(&batch).await.expect("dropped"), 6, "and a second time it changes nothing");

    for (number, id) in ids(&claimed).into_iter().enumerate().take(5) {
        let expected = match number {
            0 | 3 => Some(done.clone()),
            4 => Some(cost(1, AttemptEnd::Deferred)),
            _ => None,
        };
        let record = row(db, id).await;
        assert_eq!(record.last_cost, expected, "number {number}");
        assert_eq!(record.status, if number == 4 { Status::New } else { Status::Done }, "number {number}");
        assert_eq!((record.locked_by, record.lease_end), (None, None), "number {number}");
    }
    assert_eq!(db.store().stats().await.expect("counts").done, 4, "the erased one is gone");
}

pub(crate) async fn a_cost_that_no_host_wrote_spoils_no_row(db: &dyn Harness) {
    let id = finished(db, dead("no luck")).await;
    for text in ["cheap", "{}", "[]"] {
        db.execute(&format!("UPDATE outbox_event SET last_cost = '{text}'")).await;

        let record = row(db, id).await;
        assert_eq!((record.last_cost, record.last_error.as_deref()), (None, Some("no luck")), "{text}");
    }
}
