//! Dead events: count, bring back, throw away.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::dead::{DeadEvents, FailedEvents, ReplayLimits};
use outbox::store::{Audit, AuditFilter, DeadFilter, Settlement};
use outbox::time::Timestamp;
use outbox::{Envelope, EventId, Status};
use support::Harness;

use crate::common::{
    by_hand, claim, claim_one, dead, event, finished, ids, plains, replay_batch, retry, retry_now, row, settle, status, write,
    write_one,
};

pub(crate) async fn a_replayed_event_begins_anew_under_a_later_fence(db: &dyn Harness) {
    let expires_at = db.now().await.plus(Duration::from_secs(10));
    let envelope = event(db, "X").await.expires_at(expires_at).json(&1).expect("good");
    write(db, std::slice::from_ref(&envelope)).await;
    let fence = claim_one(db).await;
    settle(db, fence, Settlement::Deferred { after: Duration::ZERO }).await;
    let fence = claim_one(db).await;
    settle(db, fence, dead("boom")).await;
    db.let_pass(Duration::from_secs(20)).await;

    assert!(db.store().replay(envelope.id(), &by_hand()).await.expect("replays"));

    let record = row(db, envelope.id()).await;
    assert_eq!((record.status, record.attempts, record.deferrals, record.claims), (Status::New, 0, 0, 0));
    assert_eq!((record.replays, record.done_at, record.claim_seq), (1, None, 5));
    assert_eq!(record.last_error.as_deref(), Some("boom"), "why it died stays readable");
    let again = claim(db, 1).await;
    assert_eq!(again[0].fence.claim, 6);
    assert!(matches!(again[0].due, outbox::store::Due::Since(_)), "due at once, not expired again");
}

pub(crate) async fn only_dead_events_are_replayed_or_discarded(db: &dyn Harness) {
    let done = finished(db, Settlement::Done).await;
    let parked = finished(db, Settlement::Parked { reason: "nobody".to_owned() }).await;
    let new = write_one(db).await;
    let unknown: EventId = "no-such-event".parse().expect("an id");

    for id in [done, parked, new, unknown] {
        assert!(!db.store().replay(id, &by_hand()).await.expect("looks"), "{id} is not dead");
        assert!(!db.store().discard(id, None, &by_hand()).await.expect("looks"), "{id} is not dead");
    }

    assert_eq!(status(db, done).await, Status::Done);
    assert_eq!(replay_batch(&*db.store(), &DeadFilter::default(), 100, &by_hand()).await.expect("looks"), 0);
}

pub(crate) async fn dead_events_are_counted_by_filter(db: &dyn Harness) {
    let first = event(db, "OrderPlaced").await.aggregate_type("Order").tenant("acme").json(&1).expect("good");
    let second = event(db, "orderplaced").await.aggregate_type("order").json(&1).expect("good");
    for (envelope, error) in [(&first, "timeout 100%"), (&second, "refused")] {
        write(db, std::slice::from_ref(envelope)).await;
        let fence = claim_one(db).await;
        settle(db, fence, dead(error)).await;
    }
    finished(db, Settlement::Done).await;

    let some = |text: &str| Some(text.to_owned());
    for (filter, count) in [
        (DeadFilter::default(), 2),
        (DeadFilter { event_type: some("OrderPlaced"), ..DeadFilter::default() }, 1),
        (DeadFilter { aggregate_type: some("Order"), ..DeadFilter::default() }, 1),
        (DeadFilter { tenant_id: some("acme"), ..DeadFilter::default() }, 1),
        (DeadFilter { error: some("100%"), ..DeadFilter::default() }, 1),
        (DeadFilter { error: some("1_0"), ..DeadFilter::default() }, 0),
        (DeadFilter { event_type: some("OrderPlaced"), error: some("refused"), ..DeadFilter::default() }, 0),
    ] {
        assert_eq!(db.store().count_dead(&filter).await.expect("counts"), count, "{filter:?}");
    }
    let filter = DeadFilter { event_type: some("OrderPlaced"), ..DeadFilter::default() };
    assert_eq!(replay_batch(&*db.store(), &filter, 10, &by_hand()).await.expect("replays"), 1);
    assert_eq!((status(db, first.id()).await, status(db, second.id()).await), (Status::New, Status::Dead));
}

pub(crate) async fn a_batch_replays_the_oldest_up_to_its_limit(db: &dyn Harness) {
    let envelopes = plains(db, 5).await;
    write(db, &envelopes).await;
    for claimed in claim(db, 5).await {
        settle(db, claimed.fence, dead("no")).await;
    }

    assert_eq!(replay_batch(&*db.store(), &DeadFilter::default(), 3, &by_hand()).await.expect("replays"), 3);

    for (index, envelope) in envelopes.iter().enumerate() {
        let expected = if index < 3 { Status::New } else { Status::Dead };
        assert_eq!(status(db, envelope.id()).await, expected, "event {index}");
    }
}

pub(crate) async fn what_died_after_the_cut_off_is_not_replayed(db: &dyn Harness) {
    let before = finished(db, dead("early")).await;
    db.let_pass(Duration::from_secs(10)).await;
    let cut_off = db.now().await;
    db.let_pass(Duration::from_secs(10)).await;
    let after = finished(db, dead("late")).await;
    let filter = DeadFilter { dead_before: Some(cut_off), ..DeadFilter::default() };

    assert_eq!(db.store().count_dead(&filter).await.expect("counts"), 1);
    assert_eq!(replay_batch(&*db.store(), &filter, 10, &by_hand()).await.expect("replays"), 1);

    assert_eq!((status(db, before).await, status(db, after).await), (Status::New, Status::Dead));
}

pub(crate) async fn a_discarded_event_is_gone(db: &dyn Harness) {
    let id = finished(db, dead("no")).await;
    let other = finished(db, dead("no")).await;

    let died = db.store().get(id).await.expect("looks").expect("is there").done_at.expect("is dead");
    let before = Timestamp::from_micros(died.as_micros() - 1);
    assert!(!db.store().discard(id, Some(before), &by_hand()).await.expect("looks"), "it died later");

    assert!(db.store().discard(id, Some(died), &by_hand()).await.expect("discards"));

    assert!(db.store().get(id).await.expect("looks").is_none());
    assert_eq!(status(db, other).await, Status::Dead);
    assert!(!db.store().discard(id, None, &by_hand()).await.expect("looks"), "it is gone already");
}

pub(crate) async fn what_is_done_by_hand_is_noted_with_who_and_why(db: &dyn Harness) {
    let (replayed, discarded) = (finished(db, dead("a")).await, finished(db, dead("b")).await);
    let store = db.store();

    assert!(store.replay(replayed, &by_hand()).await.expect("replays"));
    assert!(store.discard(discarded, None, &by_hand()).await.expect("discards"));
    assert!(!store.discard(discarded, None, &by_hand()).await.expect("looks"));
    assert_eq!(replay_batch(&*store, &DeadFilter::default(), 10, &by_hand()).await.expect("looks"), 0);
    store.note(&by_hand(), "purge", &serde_json::json!({ "status": "done" }), 7).await.expect("notes");

    let audit = store.audit(10).await.expect("reads");
    let actions: Vec<_> = audit.iter().map(|record| (record.action.as_str(), record.count)).collect();
    assert_eq!(actions, [("purge", 7), ("discard", 1), ("replay", 1)], "newest first, and nothing that did nothing");
    assert_eq!(audit[2].selector, serde_json::json!({ "event_id": replayed }));
    assert!(audit.iter().all(|record| record.actor == "tester" && record.reason.as_deref() == Some("to see")));
    assert_eq!(store.audit(1).await.expect("reads").len(), 1);
}

pub(crate) async fn audit_records_are_chosen_by_who_what_which_and_when_and_read_page_by_page(db: &dyn Harness) {
    let (one, two) = (finished(db, dead("a")).await, finished(db, dead("b")).await);
    let store = db.store();
    let other = Audit::by("deploy");
    assert!(store.replay(one, &by_hand()).await.expect("replays"));
    assert!(store.discard(two, None, &other).await.expect("discards"));
    store.note(&other, "purge", &serde_json::json!({ "status": "done" }), 7).await.expect("notes");
    let now = store.now().await.expect("tells the time");
    let hour = Duration::from_secs(3_600);
    let any = AuditFilter::default();
    let actor = |name: &str| AuditFilter { actor: Some(name.to_owned()), ..AuditFilter::default() };
    let action = |name: &str| AuditFilter { action: Some(name.to_owned()), ..AuditFilter::default() };

    for (filter, wanted) in [
        (any.clone(), vec!["purge", "discard", "replay"]),
        (actor("deploy"), vec!["purge", "discard"]),
        (AuditFilter { action: Some("purge".to_owned()), ..actor("deploy") }, vec!["purge"]),
        (action("skip"), vec![]),
        (actor("Deploy"), vec![]),
        (AuditFilter { event_id: Some(one), ..any.clone() }, vec!["replay"]),
        (AuditFilter { since: Some(now.minus(hour)), ..any.clone() }, vec!["purge", "discard", "replay"]),
        (AuditFilter { since: Some(now.plus(hour)), ..any.clone() }, vec![]),
        (AuditFilter { until: Some(now.minus(hour)), ..any.clone() }, vec![]),
    ] {
        let found = store.list_audit(&filter, 10).await.expect("reads");
        assert_eq!(found.iter().map(|record| record.action.as_str()).collect::<Vec<_>>(), wanted, "{filter:?}");
    }
    let first = store.list_audit(&any, 2).await.expect("reads");
    let rest = store.list_audit(&AuditFilter { before: Some(first[1].id), ..any }, 2).await.expect("reads");
    assert_eq!(rest.iter().map(|record| record.action.as_str()).collect::<Vec<_>>(), ["replay"], "the next page");
    let before = |before: u64| AuditFilter { before: Some(before), ..AuditFilter::default() };
    assert_eq!(
        store.list_audit(&before(u64::MAX), 10).await.expect("reads").len(),
        3,
        "no record has that number, and all are before it"
    );
    assert!(store.list_audit(&before(0), 10).await.expect("reads").is_empty(), "none is before the first");
    let contradiction = AuditFilter { event_id: Some(one), touching: Some(two), ..AuditFilter::default() };
    assert!(store.list_audit(&contradiction, 10).await.expect("reads").is_empty());
}

pub(crate) async fn pages_of_audit_records_lose_none_and_repeat_none_though_all_were_made_at_once(db: &dyn Harness) {
    let store = db.store();
    let one = finished(db, dead("a")).await;
    for number in 0..7 {
        store.note(&Audit::by(number.to_string()), "replay", &serde_json::json!({ "event_id": one }), 1).await.expect("notes");
        store.note(&Audit::by("filter"), "replay", &serde_json::json!({ "error": "a" }), 1).await.expect("notes");
    }
    db.execute("UPDATE outbox_event_audit SET at = (SELECT at FROM (SELECT min(at) AS at FROM outbox_event_audit) AS first)")
        .await;
    let all = AuditFilter::default();
    for (filter, count) in [
        (all.clone(), 14),
        (AuditFilter { event_id: Some(one), ..all.clone() }, 7),
        (AuditFilter { touching: Some(one), ..all.clone() }, 14),
        (AuditFilter { touching: Some(one), actor: Some("filter".to_owned()), ..all }, 7),
    ] {
        let (mut ids, mut page) = (Vec::new(), filter.clone());
        loop {
            let records = store.list_audit(&page, 3).await.expect("reads");
            let Some(last) = records.last() else { break };
            page.before = Some(last.id);
            ids.extend(records.iter().map(|record| record.id));
        }
        assert_eq!(ids.len(), count, "{filter:?}");
        assert!(ids.is_sorted_by(|one, next| one > next), "{filter:?}: {ids:?}");
    }
}

pub(crate) async fn audit_records_that_may_touch_an_event_are_chosen(db: &dyn Harness) {
    let (one, two) = (finished(db, dead("a")).await, finished(db, dead("b")).await);
    let store = db.store();
    let route = outbox::Route::new("Order", "OrderPlaced").expect("good");
    assert!(store.replay(one, &Audit::by("alone")).await.expect("replays"));
    assert_eq!(replay_batch(&*store, &DeadFilter::default(), 10, &Audit::by("by filter")).await.expect("replays"), 1);
    assert!(store.pause(&route, &Audit::by("by route")).await.expect("pauses"));
    store.note(&Audit::by("another"), "replay", &serde_json::json!({ "event_id": two }), 1).await.expect("notes");
    store.note(&Audit::by("nobody's"), "purge", &serde_json::json!({ "status": "done" }), 7).await.expect("notes");
    let actors = |records: Vec<outbox::store::AuditRecord>| records.into_iter().map(|record| record.actor).collect::<Vec<_>>();
    let touching = AuditFilter { touching: Some(one), ..AuditFilter::default() };

    assert_eq!(actors(store.list_audit(&touching, 10).await.expect("reads")), ["by route", "by filter", "alone"]);

    let narrow = AuditFilter { action: Some("replay".to_owned()), ..touching };
    assert_eq!(actors(store.list_audit(&narrow, 10).await.expect("reads")), ["by filter", "alone"]);
}

pub(crate) async fn audit_records_of_a_host_are_found_by_its_name_with_or_without_its_process(db: &dyn Harness) {
    let one = finished(db, dead("a")).await;
    let store = db.store();
    for actor in ["web-1 4711", "web-1 4712", "web-1", "web-11 4711", "web-1 b"] {
        store.note(&Audit::by(actor), "replay", &serde_json::json!({ "event_id": one }), 1).await.expect("notes");
    }
    let any = AuditFilter::default();
    let of_one = AuditFilter { event_id: Some(one), ..any.clone() };
    let touching = AuditFilter { touching: Some(one), ..any.clone() };

    for (name, wanted) in [
        ("web-1", vec!["web-1", "web-1 4712", "web-1 4711"]),
        ("web-1 4711", vec!["web-1 4711"]),
        ("web", vec![]),
        ("web-", vec![]),
    ] {
        for filter in [&any, &of_one, &touching] {
            let filter = AuditFilter { actor: Some(name.to_owned()), ..filter.clone() };
            let found = store.list_audit(&filter, 10).await.expect("reads");
            assert_eq!(found.iter().map(|record| record.actor.as_str()).collect::<Vec<_>>(), wanted, "{filter:?}");
        }
    }

    store.note(&Audit::by("web-2 9"), "replay", &serde_json::json!({ "error": "a" }), 1).await.expect("notes");
    let by_filter = AuditFilter { actor: Some("web-2".to_owned()), ..touching };
    assert_eq!(store.list_audit(&by_filter, 10).await.expect("reads").len(), 1, "it may have touched the event");
}

pub(crate) async fn a_replay_of_many_is_noted_with_its_filter(db: &dyn Harness) {
    for _ in 0..3 {
        finished(db, dead("no")).await;
    }
    let filter = DeadFilter { error: Some("no".to_owned()), ..DeadFilter::default() };

    replay_batch(&*db.store(), &filter, 2, &by_hand()).await.expect("replays");

    let audit = db.store().audit(10).await.expect("reads");
    assert_eq!((audit[0].action.as_str(), audit[0].count), ("replay", 2));
    assert_eq!(audit[0].selector, serde_json::json!({ "error": "no" }));
}

pub(crate) async fn dead_events_are_found_by_aggregate_attempts_and_time(db: &dyn Harness) {
    let envelope = event(db, "X").await.aggregate("Order", "42").json(&1).expect("good");
    write(db, std::slice::from_ref(&envelope)).await;
    let fence = claim_one(db).await;
    settle(db, fence, dead("no")).await;
    let died = row(db, envelope.id()).await.done_at.expect("dead");
    let second = Duration::from_secs(1);

    let count = async |filter: DeadFilter| db.store().count_dead(&filter).await.expect("counts");
    let any = DeadFilter::default;
    assert_eq!(count(DeadFilter { aggregate_id: Some("42".to_owned()), ..any() }).await, 1);
    assert_eq!(count(DeadFilter { aggregate_id: Some("4".to_owned()), ..any() }).await, 0);
    assert_eq!(count(DeadFilter { max_attempts: Some(1), ..any() }).await, 1);
    assert_eq!(count(DeadFilter { max_attempts: Some(0), ..any() }).await, 0);
    assert_eq!(count(DeadFilter { dead_after: Some(died), dead_before: Some(died), ..any() }).await, 1);
    assert_eq!(count(DeadFilter { dead_after: Some(died.plus(second)), ..any() }).await, 0);
}

pub(crate) async fn what_waits_for_another_attempt_can_be_retried_now(db: &dyn Harness) {
    let day = Duration::from_secs(24 * 3_600);
    let once = finished(db, retry(day)).await;
    let twice = finished(db, retry(Duration::ZERO)).await;
    let fence = claim_one(db).await;
    settle(db, fence, retry(day)).await;

    assert_eq!(db.store().count_waiting(Some(1)).await.expect("counts"), 1);
    assert_eq!(retry_now(&*db.store(), Some(1), 0, 10, &by_hand()).await.expect("retries now").count, 1);

    assert_eq!(ids(&claim(db, 10).await), [once], "not the one that failed too often");
    assert_eq!(
        retry_now(&*db.store(), None, 0, 10, &by_hand()).await.expect("retries now").count,
        1,
        "nothing that is claimed"
    );
    assert_eq!(ids(&claim(db, 10).await), [twice]);
}

pub(crate) async fn a_retry_of_many_goes_on_where_it_left_off_and_lets_none_go_twice(db: &dyn Harness) {
    let day = Duration::from_secs(24 * 3_600);
    let mut failed = Vec::new();
    for _ in 0..5 {
        failed.push(finished(db, retry(day)).await);
    }
    let first = retry_now(&*db.store(), None, 0, 2, &by_hand()).await.expect("retries now");
    assert_eq!((first.count, first.last), (2, Some(row(db, failed[1]).await.seq)));
    for taken in claim(db, 10).await {
        settle(db, taken.fence, retry(day)).await; // fails again, and waits again
    }

    let second = retry_now(&*db.store(), None, first.last.expect("two went"), 10, &by_hand()).await.expect("retries now");

    assert_eq!((second.count, second.last), (3, Some(row(db, failed[4]).await.seq)));
    assert_eq!(ids(&claim(db, 10).await), failed[2..], "the first two had their turn");
    assert_eq!(retry_now(&*db.store(), None, second.last.expect("three went"), 10, &by_hand()).await.expect("looks").count, 0);
}

pub(crate) async fn a_retry_in_batches_takes_what_failed_and_what_was_put_off_in_the_order_of_insertion(db: &dyn Harness) {
    let day = Duration::from_secs(24 * 3_600);
    let deferred = || Settlement::Deferred { after: day };
    let mut waiting = Vec::new();
    // The last ones are of one kind: the other has come to its end before.
    for settlement in [retry(day), deferred(), deferred(), retry(day), retry(day), deferred(), deferred()] {
        finished(db, Settlement::Done).await;
        waiting.push(finished(db, settlement).await);
    }
    let mut sequences = Vec::new();
    for id in &waiting {
        sequences.push(row(db, *id).await.seq);
    }

    let mut after = 0;
    for batch in [&sequences[..2], &sequences[2..4], &sequences[4..6], &sequences[6..]] {
        let retried = retry_now(&*db.store(), None, after, 2, &by_hand()).await.expect("retries now");
        assert_eq!((retried.count, retried.last), (batch.len() as u64, batch.last().copied()), "{sequences:?}");
        after = retried.last.expect("some went");
    }
    assert_eq!(ids(&claim(db, 10).await), waiting);
}

pub(crate) async fn what_its_listener_put_off_can_be_retried_now_and_what_its_writer_put_off_cannot(db: &dyn Harness) {
    let day = Duration::from_secs(24 * 3_600);
    let deferred = finished(db, Settlement::Deferred { after: day }).await;
    let later = event(db, "X").await.deliver_after(day).json(&1).expect("good");
    write(db, std::slice::from_ref(&later)).await;

    assert_eq!(db.store().count_waiting(None).await.expect("counts"), 1);
    assert_eq!(retry_now(&*db.store(), None, 0, 10, &by_hand()).await.expect("retries now").count, 1);

    assert_eq!(ids(&claim(db, 10).await), [deferred]);
    assert_eq!(row(db, deferred).await.deferrals, 1, "a replay is no excuse for deferring for ever");
}

pub(crate) async fn two_replays_of_many_at_once_leave_none_dead(db: &dyn Harness) {
    const DEAD: usize = 120;
    let mut envelopes = Vec::new();
    for _ in 0..DEAD {
        envelopes.push(event(db, "X").await.json(&1).expect("good"));
    }
    write(db, &envelopes).await;
    for claimed in claim(db, 120).await {
        settle(db, claimed.fence, dead("boom")).await;
    }
    let filter = DeadFilter::default();
    assert_eq!(db.store().count_dead(&filter).await.expect("counts"), DEAD as u64);
    let store = db.store();
    let replay = async |batch_size: u32| {
        let limits = ReplayLimits { batch_size, ..ReplayLimits::default() };
        DeadEvents::new(store.clone()).replay_all(&filter, &limits, &by_hand(), |_| {}).await.expect("replays")
    };

    let (first, second) = tokio::join!(replay(40), replay(7));

    assert!(first.refused.is_empty() && second.refused.is_empty(), "{first:?} {second:?}");
    assert_eq!((first.count + second.count, db.store().count_dead(&filter).await.expect("counts")), (DEAD as u64, 0));
}

pub(crate) async fn two_people_who_replay_the_same_events_at_once_are_both_told_the_truth(db: &dyn Harness) {
    const DEAD: usize = 60;
    let envelopes = plains(db, DEAD).await;
    write(db, &envelopes).await;
    for claimed in claim(db, 60).await {
        settle(db, claimed.fence, dead("boom")).await;
    }
    // One by one and all at once, each of them twice.
    let store = db.store();
    let one_by_one = async |envelopes: &[Envelope]| {
        let mut replayed = 0;
        for envelope in envelopes {
            replayed += u64::from(store.replay(envelope.id(), &by_hand()).await.expect("replays"));
        }
        replayed
    };
    let all =
        async || DeadEvents::new(store.clone()).replay_all(&DeadFilter::default(), &few_at_once(), &by_hand(), |_| {}).await;
    let (first, second) = envelopes.split_at(DEAD / 2);

    let told = tokio::join!(one_by_one(first), one_by_one(first), one_by_one(second), all(), all());

    let told = told.0 + told.1 + told.2 + told.3.expect("replays").count + told.4.expect("replays").count;
    assert_eq!((told, store.count_dead(&DeadFilter::default()).await.expect("counts")), (DEAD as u64, 0));
    for envelope in &envelopes {
        let replayed = row(db, envelope.id()).await;
        assert_eq!((replayed.status, replayed.replays, replayed.claim_seq), (Status::New, 1, 3));
    }
    let noted: u64 = store.audit(1_000).await.expect("reads").iter().map(|noted| noted.count).sum();
    assert_eq!(noted, DEAD as u64, "the audit knows each of them once");
}

pub(crate) async fn a_dead_event_is_replayed_or_discarded_but_never_both(db: &dyn Harness) {
    for _ in 0..20 {
        let id = finished(db, dead("boom")).await;
        let (store, other) = (db.store(), db.store());
        let by_hand = by_hand();

        let (replayed, discarded) = tokio::join!(store.replay(id, &by_hand), other.discard(id, None, &by_hand));

        let (replayed, discarded) = (replayed.expect("replays"), discarded.expect("discards"));
        let left = db.store().get(id).await.expect("looks").map(|left| left.status);
        assert_eq!((replayed, left), (!discarded, replayed.then_some(Status::New)));
        if replayed {
            // Out of the way of the next one.
            let fence = claim_one(db).await;
            settle(db, fence, Settlement::Done).await;
        }
    }
}

/// Lets the database refuse, or ignore, an update of these events.
async fn refuse_updates(db: &dyn Harness, ids: &[EventId], ignored: bool) {
    let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
    let ids = ids.join(", ");
    match db.store().kind() {
        "sqlite" => {
            let answer = if ignored { "IGNORE" } else { "ABORT, 'archived'" };
            let when = format!("WHEN OLD.event_id IN ({ids}) BEGIN SELECT RAISE({answer}); END");
            db.execute(&format!("CREATE TRIGGER held BEFORE UPDATE ON outbox_event {when}")).await;
        }
        "postgres" => {
            let answer = if ignored { "RETURN NULL" } else { "RAISE EXCEPTION 'archived'" };
            let body = format!("IF OLD.event_id IN ({ids}) THEN {answer}; END IF; RETURN NEW;");
            db.execute(&format!("CREATE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")).await;
            db.execute("CREATE TRIGGER held BEFORE UPDATE ON outbox_event FOR EACH ROW EXECUTE FUNCTION held()").await;
        }
        _ => {
            let signal = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'archived'";
            let body = format!("IF OLD.event_id IN ({ids}) THEN {signal}; END IF;");
            db.execute(&format!("CREATE TRIGGER held BEFORE UPDATE ON outbox_event FOR EACH ROW BEGIN {body} END")).await;
        }
    }
}

/// Every third of 30 events, the first among them, cannot be changed.
pub(crate) async fn an_event_that_the_database_refuses_to_change_keeps_no_other_from_a_replay(db: &dyn Harness) {
    let (mut held, mut others) = (Vec::new(), Vec::new());
    for index in 0..15 {
        for settlement in [dead("boom"), retry(Duration::from_secs(24 * 3_600))] {
            let id = finished(db, settlement).await;
            if index % 3 == 0 { held.push(id) } else { others.push(id) }
        }
    }
    refuse_updates(db, &held, false).await;

    let failed = FailedEvents::default();
    let replayed =
        DeadEvents::new(db.store()).replay_failed(&failed, &few_at_once(), &by_hand(), |_| {}).await.expect("replays");

    assert_eq!((replayed.retried.count, replayed.replayed.count), (10, 10));
    let refused = [replayed.retried.refused.first, replayed.replayed.refused.first].concat();
    assert!(refused.iter().all(|row| row.error.contains("archived")), "{refused:?}");
    let named: BTreeSet<_> = refused.iter().map(|row| row.event_id.expect("the ID is good")).collect();
    assert_eq!(named, held.into_iter().collect());
    for id in others {
        let record = row(db, id).await;
        assert!(record.status != Status::Dead && record.due_at <= Some(db.now().await), "{record:?}");
    }
}

/// MySQL has no way to accept an UPDATE and leave the row.
pub(crate) async fn an_event_whose_change_is_suppressed_is_named_and_keeps_no_other_from_a_replay(db: &dyn Harness) {
    if db.store().kind() == "mysql" {
        return;
    }
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(finished(db, dead("boom")).await);
    }
    // More than one batch, and the oldest.
    let others = ids.split_off(9);
    let held = ids;
    refuse_updates(db, &held, true).await;

    let dead_events = DeadEvents::new(db.store());
    let replayed = dead_events.replay_all(&DeadFilter::default(), &few_at_once(), &by_hand(), |_| {}).await.expect("replays");

    assert_eq!((replayed.count, replayed.refused.count), (11, 9));
    let named: Vec<_> = replayed.refused.first.iter().map(|row| row.event_id.expect("the ID is good")).collect();
    assert_eq!(named, held);
    for id in others {
        assert_eq!(status(db, id).await, Status::New);
    }
}

pub(crate) async fn an_event_whose_count_of_replays_is_at_its_end_can_be_replayed(db: &dyn Harness) {
    let id = finished(db, dead("boom")).await;
    let other = finished(db, dead("boom")).await;
    db.execute("UPDATE outbox_event SET replays = 2147483647").await;

    assert!(db.store().replay(id, &by_hand()).await.expect("replays"));
    assert_eq!(replay_batch(&*db.store(), &DeadFilter::default(), 10, &by_hand()).await.expect("replays"), 1);

    for id in [id, other] {
        let record = row(db, id).await;
        assert_eq!((record.status, record.replays), (Status::New, 2_147_483_647));
    }
}

fn few_at_once() -> ReplayLimits {
    ReplayLimits { batch_size: 7, ..ReplayLimits::default() }
}
