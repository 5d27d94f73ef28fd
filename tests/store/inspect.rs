//! What people ask.

use std::time::Duration;

use outbox::event::NO_LISTENER;
use outbox::store::{Filter, OldestPending, SetAside, Settlement, Stats};
use outbox::{EventId, Status};
use support::Harness;

use crate::common::{
    LEASE, MOMENT, by_hand, claim, claim_one, dead, event, finished, plains, retry, row, settle, write, write_one,
};

pub(crate) async fn statistics_count_every_state(db: &dyn Harness) {
    for settlement in [
        Settlement::Done,
        Settlement::Done,
        dead("no"),
        retry(Duration::from_secs(600)),
        Settlement::Parked { reason: "nobody".to_owned() },
    ] {
        finished(db, settlement).await;
    }
    let oldest = write_one(db).await;
    claim_one(db).await;
    db.let_pass(Duration::from_secs(10)).await;
    write_one(db).await;
    let oldest = row(db, oldest).await;
    let since = oldest.available_at.max(oldest.created_at);

    let before = db.now().await;
    let stats = db.store().stats().await.expect("counts");
    let after = db.now().await;

    assert_eq!((stats.new, stats.retry, stats.done, stats.dead), (2, 1, 2, 1));
    assert_eq!((stats.parked, stats.in_flight), (1, 1));
    let waited = stats.oldest_pending_seconds.waits_for_host.expect("two wait");
    // Told in milliseconds at least.
    let [least, most] = [before, after].map(|now| now.since(since).as_secs_f64());
    assert!(
        (least - 0.001..=most + 0.001).contains(&waited),
        "{waited} s, but the one in a worker's hands waits {least} to {most} s"
    );
}

pub(crate) async fn a_sample_has_the_same_numbers_up_to_its_bound(db: &dyn Harness) {
    for settlement in [
        Settlement::Done,
        Settlement::Done,
        Settlement::Done,
        dead("no"),
        dead("no"),
        dead("no"),
        retry(Duration::from_secs(600)),
        Settlement::Parked { reason: "nobody".to_owned() },
    ] {
        finished(db, settlement).await;
    }
    write(db, &plains(db, 5).await).await;
    db.let_pass(Duration::from_secs(10)).await;

    // Ages grow between two looks.
    let ageless = |mut stats: Stats| {
        stats.oldest_pending_seconds = OldestPending::default();
        stats
    };
    let all = db.store().stats().await.expect("counts");
    let sample = db.store().sample(100).await.expect("counts");
    let bounded = db.store().sample(2).await.expect("counts");

    assert_eq!(ageless(sample), ageless(all));
    assert_eq!((all.new, all.retry, all.done, all.dead, all.parked), (5, 1, 3, 3, 1));
    assert!(sample.oldest_pending_seconds.waits_for_host >= Some(10.0), "{sample:?}");
    assert_eq!((bounded.new + bounded.retry, bounded.done, bounded.dead, bounded.parked), (2, 2, 2, 1), "{bounded:?}");
    assert!(
        bounded.oldest_pending_seconds.waits_for_host >= Some(10.0),
        "those that were due first are looked at: {bounded:?}"
    );
}

pub(crate) async fn the_reasons_of_waiting_events_are_counted_by_route(db: &dyn Harness) {
    let down = || Settlement::Released { after: Duration::from_secs(600), reason: Some("the sink is down".into()) };
    for _ in 0..3 {
        finished(db, down()).await;
    }
    let paid = event(db, "OrderPaid").await.aggregate("Order", "7").json(&1).expect("good");
    write(db, std::slice::from_ref(&paid)).await;
    let fence = claim_one(db).await;
    settle(db, fence, Settlement::Released { after: Duration::from_secs(600), reason: Some("its listener is paused".into()) })
        .await;
    finished(db, Settlement::Done).await;
    finished(db, Settlement::Released { after: Duration::from_secs(600), reason: None }).await;
    let oldest = row(db, paid.id()).await.wait_since.expect("it waits");

    let waits = db.store().wait_reasons(1_000).await.expect("looks");

    let found: Vec<_> = waits
        .iter()
        .map(|wait| (wait.aggregate_type.as_str(), wait.event_type.as_str(), wait.reason.as_str(), wait.events))
        .collect();
    assert_eq!(found, [("Order", "OrderPlaced", "the sink is down", 3), ("Order", "OrderPaid", "its listener is paused", 1)]);
    assert_eq!(waits[1].since, oldest);
    assert_eq!(
        db.store().wait_reasons(2).await.expect("looks").iter().map(|wait| wait.events).sum::<u64>(),
        2,
        "the look has a bound"
    );

    // Another outcome is another reason.
    db.let_pass(Duration::from_secs(600)).await;
    for claimed in claim(db, 10).await {
        settle(db, claimed.fence, retry(Duration::from_secs(600))).await;
    }
    assert_eq!(db.store().wait_reasons(1_000).await.expect("looks"), []);
}

pub(crate) async fn an_empty_table_has_no_oldest_event(db: &dyn Harness) {
    assert_eq!(db.store().stats().await.expect("counts"), Stats::default());
    finished(db, Settlement::Done).await;
    finished(db, Settlement::Parked { reason: format!("{NO_LISTENER} Order/OrderPlaced (no route is answered)") }).await;
    let delayed = event(db, "X").await.deliver_after(Duration::from_secs(60)).json(&1).expect("good");
    write(db, &[delayed]).await;

    let stats = db.store().stats().await.expect("counts");

    assert_eq!(stats.oldest_pending_seconds, OldestPending::default(), "what is parked or not due yet is not late");
    assert_eq!((stats.new, stats.done), (1, 1));
}

pub(crate) async fn each_cause_has_the_age_of_its_oldest_pending_event(db: &dyn Harness) {
    let long = Duration::from_secs(86_400);
    let delayed = event(db, "X").await.deliver_after(long).json(&1).expect("good");
    write(db, &[delayed]).await;
    finished(db, retry(long)).await;
    db.let_pass(Duration::from_secs(100)).await;
    for reason in [format!("{NO_LISTENER} Order/OrderPlaced (no route is answered)"), "the sink is down".to_owned()] {
        finished(db, Settlement::Released { after: long, reason: Some(reason.into()) }).await;
        db.let_pass(Duration::from_secs(100)).await;
    }
    write_one(db).await;
    db.let_pass(Duration::from_secs(100)).await;

    for stats in [db.store().stats().await, db.store().sample(100).await] {
        let oldest = stats.expect("counts").oldest_pending_seconds;
        let [host, back, listener] = oldest.by_cause().map(|(_, seconds)| seconds.expect("one waits"));
        assert!(host >= 100.0 && back >= host + 99.0 && listener >= back + 99.0, "{oldest:?}");
        assert_eq!(oldest.longest().map(|(cause, _)| cause), Some("no_listener"));
    }
}

pub(crate) async fn what_its_writer_dated_back_waits_only_since_it_was_written(db: &dyn Harness) {
    let yesterday = db.now().await.minus(Duration::from_secs(86_400));
    write(db, &[event(db, "X").await.occurred_at(yesterday).json(&1).expect("good")]).await;

    for stats in [db.store().stats().await, db.store().sample(10).await] {
        let waited = stats.expect("counts").oldest_pending_seconds.waits_for_host.expect("one waits");
        assert!(waited < 3_600.0, "an event that was written just now has waited for {waited} s");
    }
    db.let_pass(Duration::from_secs(7_200)).await;
    let stats = db.store().stats().await.expect("counts");
    assert!(stats.oldest_pending_seconds.waits_for_host >= Some(7_200.0));
}

pub(crate) async fn what_is_due_again_waits_only_since_then(db: &dyn Harness) {
    let retried = finished(db, retry(Duration::from_secs(600))).await;
    db.let_pass(Duration::from_secs(610)).await;
    let waits_since_now = async |what: &str| {
        for stats in [db.store().stats().await, db.store().sample(10).await] {
            let waited = stats.expect("counts").oldest_pending_seconds.waits_for_host.expect("one waits");
            assert!(waited < 300.0, "an event that is due since a moment has waited for {waited} s: {what}");
        }
    };
    waits_since_now("a retry").await;

    let fence = claim_one(db).await;
    assert_eq!(settle(db, fence, dead("no")).await, 0);
    db.let_pass(Duration::from_secs(86_400)).await;
    assert!(db.store().replay(retried, &by_hand()).await.expect("replays"));
    waits_since_now("a replay").await;
}

pub(crate) async fn what_is_given_back_has_waited_since_it_was_written(db: &dyn Harness) {
    write_one(db).await;
    db.let_pass(Duration::from_secs(7_200)).await;
    let fence = claim_one(db).await;
    assert_eq!(settle(db, fence, Settlement::Released { after: Duration::from_secs(5), reason: None }).await, 0);
    db.let_pass(Duration::from_secs(10)).await;

    for stats in [db.store().stats().await, db.store().sample(10).await] {
        let waited = stats.expect("counts").oldest_pending_seconds.waits_for_host.expect("one waits");
        assert!(waited >= 7_200.0, "no listener had a place for it, for {waited} s");
    }
}

pub(crate) async fn each_filter_narrows_the_list(db: &dyn Harness) {
    let wanted =
        event(db, "OrderPlaced").await.aggregate("Order", "42").tenant("acme").header("channel", "web").json(&1).expect("good");
    write(db, std::slice::from_ref(&wanted)).await;
    let fence = claim_one(db).await;
    settle(db, fence, dead("disk 100% full_")).await;
    let other = event(db, "orderplaced").await.aggregate("order", "43").header("channel", "shop").json(&1).expect("good");
    write(db, &[other]).await;

    let died = row(db, wanted.id()).await.done_at.expect("dead");
    let written = row(db, wanted.id()).await.created_at;
    let second = Duration::from_secs(1);
    let some = |text: &str| Some(text.to_owned());
    let filters = [
        Filter { status: Some(Status::Dead), ..Filter::default() },
        Filter { event_type: some("OrderPlaced"), ..Filter::default() },
        Filter { aggregate_type: some("Order"), ..Filter::default() },
        Filter { aggregate_id: some("42"), ..Filter::default() },
        Filter { tenant_id: some("acme"), ..Filter::default() },
        Filter { header: some("channel").zip(some("web")), ..Filter::default() },
        Filter { error: some("100% full_"), ..Filter::default() },
        Filter { finished_after: Some(died), ..Filter::default() },
        Filter { finished_before: Some(died), ..Filter::default() },
        Filter { before: Some(fence.sequence + 1), ..Filter::default() },
        Filter { created_after: Some(written), tenant_id: some("acme"), ..Filter::default() },
        Filter { created_before: Some(written), tenant_id: some("acme"), ..Filter::default() },
    ];
    for filter in filters {
        let listed = db.store().list(&filter, 10).await.expect("lists");
        let ids: Vec<EventId> = listed.iter().map(|record| record.event_id).collect();
        assert_eq!(ids, [wanted.id()], "{filter:?}");
    }
    let nothing = [
        Filter { error: some("100_ full"), ..Filter::default() },
        Filter { finished_after: Some(died.plus(second)), ..Filter::default() },
        Filter { finished_before: Some(died.minus(second)), ..Filter::default() },
        Filter { created_after: Some(written.plus(second)), tenant_id: some("acme"), ..Filter::default() },
        Filter { created_before: Some(written.minus(second)), ..Filter::default() },
        Filter { max_attempts: Some(0), status: Some(Status::Dead), ..Filter::default() },
        Filter { header: some("channel").zip(some("WEB")), ..Filter::default() },
        Filter { status: Some(Status::Dead), tenant_id: some("other"), ..Filter::default() },
    ];
    for filter in nothing {
        assert!(db.store().list(&filter, 10).await.expect("lists").is_empty(), "{filter:?}");
    }
    for all in [Filter::default(), Filter { max_attempts: Some(1), ..Filter::default() }] {
        assert_eq!(db.store().list(&all, 10).await.expect("lists").len(), 2);
    }
}

pub(crate) async fn what_is_parked_or_waits_behind_another_is_listed_alone(db: &dyn Harness) {
    let parked = finished(db, Settlement::Parked { reason: "nobody".to_owned() }).await;
    let first = write_one(db).await;
    let fence = claim_one(db).await;
    let blocked = finished(db, Settlement::Behind { sequence: fence.sequence }).await;
    let list = async |filter: Filter| -> Vec<EventId> {
        db.store().list(&filter, 10).await.expect("lists").iter().map(|record| record.event_id).collect()
    };

    for (set_aside, wanted) in
        [(Some(SetAside::Parked), vec![parked]), (Some(SetAside::Blocked), vec![blocked]), (None, vec![parked, first, blocked])]
    {
        assert_eq!(list(Filter { set_aside, ..Filter::default() }).await, wanted, "{set_aside:?}");
        let newest_first = Filter { set_aside, newest_first: true, ..Filter::default() };
        assert_eq!(list(newest_first).await, wanted.into_iter().rev().collect::<Vec<_>>(), "{set_aside:?}");
    }
    let dead = Filter { set_aside: Some(SetAside::Parked), status: Some(Status::Dead), ..Filter::default() };
    assert_eq!(list(dead).await, []);
}

pub(crate) async fn what_waits_for_its_time_and_what_a_host_holds_are_listed_alone(db: &dyn Harness) {
    finished(db, Settlement::Parked { reason: "nobody".to_owned() }).await;
    let retried = finished(db, retry(Duration::from_secs(600))).await;
    let deferred = finished(db, Settlement::Deferred { after: Duration::from_secs(600) }).await;
    let put_off = event(db, "X").await.deliver_after(Duration::from_secs(600)).json(&1).expect("good");
    write(db, std::slice::from_ref(&put_off)).await;
    finished(db, Settlement::Done).await;
    let held = write_one(db).await;
    claim_one(db).await;
    let due = write_one(db).await;
    let list = async |set_aside: SetAside| -> Vec<EventId> {
        let filter = Filter { set_aside: Some(set_aside), ..Filter::default() };
        db.store().list(&filter, 10).await.expect("lists").iter().map(|record| record.event_id).collect()
    };

    assert_eq!(list(SetAside::Delayed).await, [retried, deferred, put_off.id()]);
    assert_eq!(list(SetAside::Claimed).await, [held]);
    let delayed = Filter { set_aside: Some(SetAside::Delayed), status: Some(Status::Retry), ..Filter::default() };
    let listed = db.store().list(&delayed, 10).await.expect("lists");
    assert_eq!(listed.iter().map(|record| record.event_id).collect::<Vec<_>>(), [retried], "it goes with a status");
    db.let_pass(LEASE + MOMENT).await;
    assert_eq!(list(SetAside::Claimed).await, [], "the lease is over: {held} and {due} are due");
    db.let_pass(Duration::from_secs(600)).await;
    assert_eq!(list(SetAside::Delayed).await, []);
}

pub(crate) async fn pages_follow_each_other_without_gap_or_overlap(db: &dyn Harness) {
    write(db, &plains(db, 25).await).await;
    let page = async |filter: Filter| -> Vec<u64> {
        db.store().list(&filter, 10).await.expect("lists").iter().map(|record| record.seq).collect()
    };

    let mut forward: Vec<u64> = Vec::new();
    while let more = page(Filter { after: forward.last().copied(), ..Filter::default() }).await
        && !more.is_empty()
    {
        forward.extend(more);
    }
    let mut backward: Vec<u64> = Vec::new();
    while let more = page(Filter { before: backward.last().copied(), newest_first: true, ..Filter::default() }).await
        && !more.is_empty()
    {
        backward.extend(more);
    }

    assert_eq!(forward.len(), 25);
    assert!(forward.is_sorted_by(|a, b| a < b));
    backward.reverse();
    assert_eq!(forward, backward);
}

pub(crate) async fn a_list_carries_no_payloads(db: &dyn Harness) {
    let envelope = event(db, "X").await.bytes("text/plain", "ünï").expect("good");
    write(db, &[envelope]).await;

    let listed = db.store().list(&Filter::default(), 1).await.expect("lists");

    assert_eq!((listed[0].payload.clone(), listed[0].payload_bytes), (None, 5));
}

pub(crate) async fn an_unreadable_row_does_not_hide_the_others_from_a_list(db: &dyn Harness) {
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload, headers) VALUES ('bad', 'X', '1', '{broken')").await;
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload, attempts) VALUES ('worse', 'X', '1', -1)").await;
    let good = event(db, "X").await.header("k", "v").json(&1).expect("good");
    write(db, std::slice::from_ref(&good)).await;
    for claimed in claim(db, 10).await {
        settle(db, claimed.fence, dead("headers: broken")).await;
    }

    let all = db.store().list(&Filter { status: Some(Status::Dead), ..Filter::default() }, 10).await;
    let by_header = db.store().list(&Filter { header: Some(("k".to_owned(), "v".to_owned())), ..Filter::default() }, 10).await;

    let all = all.expect("dead events can be looked at, whatever they died of");
    assert_eq!(all.len(), 3);
    assert!(db.store().get("bad".parse().expect("an id")).await.expect("can be looked at").is_some());
    let by_header = by_header.expect("a filter steps over what it cannot read");
    assert_eq!(by_header.iter().map(|record| record.event_id).collect::<Vec<_>>(), [good.id()]);
}

/// Inserts rows that the checks of the table refuse, as a session may that switches them off.
async fn insert_unchecked(db: &dyn Harness) {
    let (unchecked, checked) = match db.store().kind() {
        "sqlite" => ("PRAGMA ignore_check_constraints = 1", "PRAGMA ignore_check_constraints = 0"),
        "postgres" => (
            "ALTER TABLE outbox_event DROP CONSTRAINT event_id_has_only_visible_ascii_characters,
                                      DROP CONSTRAINT only_unfinished_events_are_due, DROP CONSTRAINT claim_seq_is_below_2_to_the_62",
            "SELECT",
        ),
        _ => ("SET SESSION check_constraint_checks = 0", "SET SESSION check_constraint_checks = 1"),
    };
    db.execute(&format!(
        "{unchecked};
         INSERT INTO outbox_event (event_id, event_type, payload) VALUES ('ü', 'X', '1');
         INSERT INTO outbox_event (event_id, event_type, payload, claim_seq) VALUES ('negative', 'X', '1', -5);
         INSERT INTO outbox_event (event_id, event_type, payload, status, due_at) VALUES ('seven', 'X', '1', 7, NULL);
         {checked}"
    ))
    .await;
}

pub(crate) async fn a_row_with_columns_that_cannot_be_read_is_listed_with_the_reason(db: &dyn Harness) {
    let first = write_one(db).await;
    insert_unchecked(db).await;
    let last = write_one(db).await;

    let all = db.store().list(&Filter::default(), 10).await.expect("lists");

    let reasons: Vec<_> = all.iter().map(|row| row.unreadable.as_deref()).collect();
    assert_eq!(reasons[0], None);
    assert!(reasons[1].is_some_and(|why| why.contains("event_id holds the character 'ü'")), "{reasons:?}");
    assert_eq!(reasons[2], None);
    assert_eq!(reasons[3], Some("status: it is 7; it must be 0 to 3"));
    assert_eq!(reasons[4], None);
    assert_eq!((all[0].event_id, all[4].event_id), (first, last));
    assert_eq!(all[1].event_id.as_str(), format!("?{}", all[1].seq), "an id that no event has");
    assert!(db.store().get("seven".parse().expect("an id")).await.expect("can be looked at").is_some());
}

pub(crate) async fn an_unknown_id_is_nothing(db: &dyn Harness) {
    assert!(db.store().get("no-such-event".parse().expect("an id")).await.expect("looks").is_none());
}

pub(crate) async fn the_table_is_named_as_a_console_takes_it(db: &dyn Harness) {
    for name in ["outbox_event", "Shop_Outbox2"] {
        let store = db.other_table(name).await;
        store.migrate_up().await.expect("makes the table");

        let table = store.table_in_full().await.expect("knows its table");
        db.execute(&format!("INSERT INTO {table} (event_type, payload) VALUES ('Copied', '1')")).await;

        let copied = Filter { event_type: Some("Copied".to_owned()), ..Filter::default() };
        assert_eq!(store.list(&copied, 10).await.expect("reads").len(), 1, "{table}");
    }
}
