//! Reading what a partition's owner has to deliver, without a claim.

use std::time::Duration;

use outbox::event::{Fence, OwnerId};
use outbox::store::{
    NewRow, Ownership, PARTITIONS, Position, ReadEvent, ReadOrder, ReadRequest, Settled, Settlement, WaitsFor,
};
use outbox::{Envelope, EventId, Route, Status};
use support::Harness;

use crate::common::{
    LEASE, MOMENT, add_user_columns, by_hand, claim_one, dead, event, ids, keep, kept, of_epoch, owner, plain, plains, retry,
    row, settle, status, write, write_one,
};

fn all() -> Vec<u16> {
    (0..PARTITIONS).collect()
}

pub(crate) fn request(owner: &OwnerId) -> ReadRequest {
    ReadRequest {
        owner: owner.clone(),
        partitions: all(),
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 100,
        max_bytes: 64 << 20,
        skip_recent: Duration::ZERO,
        order: None,
    }
}

/// An owner of all partitions.
async fn holder(db: &dyn Harness) -> OwnerId {
    let owner = owner("host");
    assert_eq!(kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await, all());
    owner
}

async fn read_by(db: &dyn Harness, request: &ReadRequest) -> Vec<ReadEvent> {
    db.store().read(request).await.expect("reads")
}

async fn read(db: &dyn Harness, owner: &OwnerId) -> Vec<ReadEvent> {
    read_by(db, &request(owner)).await
}

fn read_ids(read: &[ReadEvent]) -> Vec<EventId> {
    read.iter().map(|read| read.event.event.as_ref().expect("a readable row").id()).collect()
}

async fn read_one(db: &dyn Harness, owner: &OwnerId) -> Fence {
    let read = read(db, owner).await;
    assert_eq!(read.len(), 1, "exactly one event is due: {read:?}");
    read[0].event.fence
}

pub(crate) async fn reading_writes_nothing_and_reads_the_same_again(db: &dyn Harness) {
    let owner = holder(db).await;
    let id = write_one(db).await;
    let before = row(db, id).await;

    let (first, second) = (read(db, &owner).await, read(db, &owner).await);

    assert_eq!((read_ids(&first), read_ids(&second)), (vec![id], vec![id]));
    assert_eq!(first[0].event.fence, second[0].event.fence);
    assert_eq!((first[0].event.claims, first[0].was_claimed), (0, false));
    let after = row(db, id).await;
    assert_eq!((after.claim_seq, after.claims, after.locked_by, after.due_at), (0, 0, None, before.due_at));
}

pub(crate) async fn a_read_without_payloads_returns_the_same_rows(db: &dyn Harness) {
    let owner = holder(db).await;
    let mut written = Vec::new();
    for aggregate in ["1", "2", "1"] {
        written.push(event(db, "OrderPlaced").await.aggregate("Order", aggregate).json(&aggregate).expect("good"));
    }
    let rows: Vec<_> = written.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: self::owner("producer"), lease: LEASE };
    db.store().write(&rows, &nobody).await.expect("writes");
    let by_aggregate = ReadOrder::ByAggregate { waits_for: WaitsFor::Unresolved, queued: Vec::new() };
    let shape = |read: &[ReadEvent]| -> Vec<_> {
        read.iter().map(|one| (one.event.fence, one.event.behind, one.partition, one.position, one.was_claimed)).collect()
    };

    for order in [None, Some(by_aggregate), Some(ReadOrder::OneForAll)] {
        let request = ReadRequest { order, ..request(&owner) };
        let with = read_by(db, &request).await;
        let without = db.store().read_without_payloads(&request).await.expect("reads");

        assert_eq!((with.len(), shape(&without)), (3, shape(&with)), "{:?}", request.order);
        assert!(without.iter().all(|one| one.event.event.is_err()), "{without:?}");
    }
}

pub(crate) async fn reads_and_routes_ignore_columns_that_a_user_added(db: &dyn Harness) {
    add_user_columns(db).await;
    let (store, owner) = (db.store(), holder(db).await);
    let envelope = plain(db).await;
    write(db, std::slice::from_ref(&envelope)).await;
    let by_aggregate = ReadOrder::ByAggregate { waits_for: WaitsFor::Unresolved, queued: Vec::new() };

    for order in [None, Some(by_aggregate), Some(ReadOrder::OneForAll)] {
        let read = read_by(db, &ReadRequest { order, ..request(&owner) }).await;
        assert_eq!(read_ids(&read), [envelope.id()]);
    }
    assert!(store.next_to_read(&owner, &[], &[]).await.expect("looks").is_some());

    store.remember_routes(&[envelope.route().clone()], &[]).await.expect("records");
    assert!(store.pause(envelope.route(), &by_hand()).await.expect("pauses"));
    for (routes, waiting) in [(store.routes().await, 0), (store.count_routes().await, 1)] {
        let routes = routes.expect("reads");
        let found: Vec<_> = routes.iter().map(|one| (&one.route, one.first_seen_at.is_some(), one.waiting)).collect();
        assert_eq!(found, [(envelope.route(), true, waiting)]);
        assert_eq!(routes[0].pause_reason, by_hand().reason);
    }
}

pub(crate) async fn only_who_holds_a_partition_reads_it(db: &dyn Harness) {
    let (one, two) = (owner("one"), owner("two"));
    let store = db.store();
    let ours = kept(&*store, &one, PARTITIONS / 2, PARTITIONS).await;
    let theirs = kept(&*store, &two, PARTITIONS, PARTITIONS).await;
    let mut written = Vec::new();
    for number in 0..40 {
        written.push(event(db, "OrderPlaced").await.aggregate("Order", number.to_string()).json(&1).expect("good"));
    }
    write(db, &written).await;

    let (first, second) = (read(db, &one).await, read(db, &two).await);

    assert!(!first.is_empty() && !second.is_empty() && first.len() + second.len() == 40, "each by one of them");
    for read in first.iter().chain(&second) {
        let query = format!("SELECT partition_id FROM outbox_event WHERE seq = {}", read.position.sequence);
        assert_eq!(i64::from(read.partition), db.number(&query).await, "it says of which partition it is");
    }
    assert!(read_by(db, &ReadRequest { partitions: theirs, ..request(&one) }).await.is_empty(), "asking is not holding");
    assert!(read_by(db, &ReadRequest { partitions: Vec::new(), ..request(&one) }).await.is_empty());
    assert!(read(db, &owner("stranger")).await.is_empty());
    db.let_pass(LEASE + MOMENT).await;
    assert!(read(db, &one).await.is_empty(), "its lease is over, whatever the host believes");
    assert_eq!(ours.len(), usize::from(PARTITIONS / 2));
}

pub(crate) async fn a_read_goes_on_behind_the_last_event_of_the_one_before(db: &dyn Harness) {
    let owner = holder(db).await;
    let written: Vec<EventId> = write_ids(db, 7).await;

    let mut seen = Vec::new();
    let mut after: Option<Position> = None;
    loop {
        let read = read_by(db, &ReadRequest { after, limit: 3, ..request(&owner) }).await;
        let Some(last) = read.last() else { break };
        assert!(after.is_none_or(|after| after < read[0].position), "it goes forward");
        after = Some(last.position);
        seen.extend(read_ids(&read));
    }

    assert_eq!(seen, written, "each once, those first that have been due longest");
}

/// Rows as a plain INSERT may write them: the second has one byte more than is read, the third has too large headers.
pub(crate) async fn a_row_larger_than_any_host_reads_comes_back_as_an_error_without_its_bytes(db: &dyn Harness) {
    const MOST: usize = 8 << 20;
    let owner = holder(db).await;
    for (id, payload, headers) in [("fits", MOST, None), ("large", MOST + 1, None), ("headers", 1, Some(MOST))] {
        let headers = headers.map_or_else(|| "NULL".to_owned(), |bytes| format!("'{}'", " ".repeat(bytes)));
        let payload = "x".repeat(payload);
        let insert = "INSERT INTO outbox_event (event_id, event_type, payload, headers)";
        db.execute(&format!("{insert} VALUES ('{id}', 'OrderPlaced', '{payload}', {headers})")).await;
    }
    let good = write_one(db).await;

    let unordered = read(db, &owner).await;
    let by_aggregate = ReadRequest {
        order: Some(ReadOrder::ByAggregate { waits_for: WaitsFor::Unresolved, queued: Vec::new() }),
        ..request(&owner)
    };
    let by_aggregate = read_by(db, &by_aggregate).await;
    let front = read_by(db, &ReadRequest { order: Some(ReadOrder::OneForAll), ..request(&owner) }).await;
    let fences: Vec<Fence> = unordered.iter().map(|read| read.event.fence).collect();
    let claimed = db.store().claim(&owner, LEASE, &fences).await.expect("claims");
    db.let_pass(LEASE + MOMENT).await;
    kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;
    let read_after_a_claim = read(db, &owner).await;

    let reads = [unordered, by_aggregate, front, read_after_a_claim]
        .map(|read| read.into_iter().map(|read| read.event).collect::<Vec<_>>());
    for rows in reads.iter().chain(&[claimed]) {
        assert_eq!(rows.len(), 4, "{rows:?}");
        for row in rows {
            match &row.event {
                Ok(event) if event.id() == good => {}
                Ok(event) => assert_eq!((event.id().as_str(), event.payload_bytes().len()), ("fits", MOST)),
                Err(why) => assert!(why.contains("have 8388609 bytes") && why.contains("8388608"), "{why}"),
            }
        }
        assert_eq!(rows.iter().filter(|row| row.event.is_err()).count(), 2);
    }
    for (id, shown) in [("fits", true), ("large", false), ("headers", true)] {
        let record = row(db, id.parse().expect("an id")).await;
        assert_eq!(record.payload.as_ref().map(|payload| payload.len() as u64), shown.then_some(record.payload_bytes), "{id}");
        assert!(record.headers.is_empty());
        assert_eq!(serde_json::to_value(record.whole()).expect("JSON").get("payload_base64").is_some(), shown, "{id}");
    }
}

pub(crate) async fn what_is_in_hand_is_left_out(db: &dyn Harness) {
    let owner = holder(db).await;
    let written = write_ids(db, 3).await;
    let second = read(db, &owner).await[1].event.fence.sequence;

    let read = read_by(db, &ReadRequest { held: vec![second, 999_999], ..request(&owner) }).await;

    assert_eq!(read_ids(&read), [written[0], written[2]]);
}

pub(crate) async fn a_read_stops_at_its_limits(db: &dyn Harness) {
    let owner = holder(db).await;
    let mut large = Vec::new();
    for _ in 0..4 {
        large.push(event(db, "Large").await.bytes("application/octet-stream", vec![7; 30_000]).expect("good"));
    }
    write(db, &large).await;

    let by_bytes = read_by(db, &ReadRequest { max_bytes: 40_000, ..request(&owner) }).await;
    assert_eq!(by_bytes.len(), 2, "the one that reaches the limit is the last");
    let payload = by_bytes[1].event.event.as_ref().expect("readable").payload_bytes().to_vec();
    assert_eq!(payload, vec![7; 30_000], "a large payload is read as well");
    assert_eq!(read_by(db, &ReadRequest { max_bytes: 1, ..request(&owner) }).await.len(), 1, "never none");
    assert_eq!(read_by(db, &ReadRequest { limit: 3, ..request(&owner) }).await.len(), 3);
    let recent = ReadRequest { skip_recent: Duration::from_secs(3_600), ..request(&owner) };
    assert!(read_by(db, &recent).await.is_empty(), "what was inserted within the hour is left alone");
}

pub(crate) async fn headers_count_for_the_byte_limit(db: &dyn Harness) {
    let owner = holder(db).await;
    let mut envelopes = Vec::new();
    for _ in 0..10 {
        envelopes.push(event(db, "X").await.header("large", "h".repeat(990)).json(&1).expect("good"));
    }
    write(db, &envelopes).await;

    let read = read_by(db, &ReadRequest { max_bytes: 2_500, ..request(&owner) }).await;

    assert_eq!(read.len(), 3, "as if they were payload");
}

pub(crate) async fn nothing_that_is_not_due_is_read(db: &dyn Harness) {
    let owner = holder(db).await;
    for settlement in [
        Settlement::Done,
        dead("no"),
        Settlement::Parked { reason: "no listener".to_owned() },
        retry(LEASE),
        Settlement::Deferred { after: LEASE },
        Settlement::Erased,
    ] {
        write_one(db).await;
        let fence = read_one(db, &owner).await;
        assert_eq!(settle(db, fence, settlement).await, 0);
    }
    assert!(read(db, &owner).await.is_empty());

    db.let_pass(LEASE + MOMENT).await;
    kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;

    assert_eq!(read(db, &owner).await.len(), 2, "what is tried again is read when it is due");
}

pub(crate) async fn an_outcome_of_what_was_read_is_stored_once_and_raises_the_fence(db: &dyn Harness) {
    let owner = holder(db).await;
    let id = write_one(db).await;
    let first = read_one(db, &owner).await;

    assert_eq!(settle(db, first, retry(Duration::ZERO)).await, 0);
    assert_eq!(settle(db, first, Settlement::Done).await, 1, "it had its outcome");

    let second = read_one(db, &owner).await;
    assert!(second.claim > first.claim, "{second:?} comes after {first:?}");
    assert_eq!((row(db, id).await.status, row(db, id).await.attempts), (Status::Retry, 1));
    assert_eq!(settle(db, second, Settlement::Done).await, 0);
    assert_eq!(row(db, id).await.status, Status::Done);
}

pub(crate) async fn an_outcome_of_an_earlier_owner_is_dropped(db: &dyn Harness) {
    let (gone, heir) = (holder(db).await, owner("heir"));
    let id = write_one(db).await;
    let late = read_one(db, &gone).await;
    db.let_pass(LEASE + MOMENT).await;
    let taken = keep(&*db.store(), &heir, PARTITIONS, PARTITIONS).await;
    assert!(taken.iter().all(|partition| partition.abandoned && partition.epoch == 2), "{taken:?}");

    assert_eq!(settle(db, late, Settlement::Done).await, 1);

    let fence = read_one(db, &heir).await;
    assert!(fence.claim > late.claim, "a later owner's delivery has a larger number");
    assert_eq!((row(db, id).await.status, settle(db, fence, Settlement::Done).await), (Status::New, 0));
}

/// Epochs of restored partitions follow from the clock's seconds. If all tables are emptied twice within a second, an epoch begins twice.
pub(crate) async fn an_outcome_is_dropped_if_its_number_and_epoch_were_given_to_another_event(db: &dyn Harness) {
    let (one, two) = (holder(db).await, owner("two"));
    let (first, second) = (plain(db).await, plain(db).await);
    write(db, std::slice::from_ref(&first)).await;
    let late = read_one(db, &one).await;
    db.execute(match db.store().kind() {
        "postgres" => "TRUNCATE outbox_event RESTART IDENTITY",
        "mysql" => "TRUNCATE TABLE outbox_event",
        _ => "DELETE FROM outbox_event; DELETE FROM sqlite_sequence WHERE name = 'outbox_event'",
    })
    .await;
    db.execute("DELETE FROM outbox_event_node").await;
    db.execute("DELETE FROM outbox_event_partition").await;
    db.store().restore_partitions().await.expect("restores");
    db.execute("UPDATE outbox_event_partition SET epoch = 0").await;

    keep(&*db.store(), &two, PARTITIONS, PARTITIONS).await;
    write(db, std::slice::from_ref(&second)).await;
    assert_eq!(read_one(db, &two).await, late, "only the id tells the two events apart");

    let done = |id: EventId| [Settled { id: Some(id), ..Settled::new(late, Settlement::Done) }];
    assert_eq!(db.store().settle(&done(first.id())).await.expect("runs"), 1, "dropped");
    assert_eq!(status(db, second.id()).await, Status::New);
    assert_eq!(db.store().settle(&done(second.id())).await.expect("runs"), 0);
    assert_eq!(status(db, second.id()).await, Status::Done);
}

pub(crate) async fn a_lease_that_ended_and_that_nobody_took_over_is_renewed_with_what_was_read(db: &dyn Harness) {
    let owner = holder(db).await;
    write_one(db).await;
    let before = read_one(db, &owner).await;
    db.let_pass(LEASE + MOMENT).await;
    assert!(read(db, &owner).await.is_empty(), "its lease is over");

    let again = keep(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;

    assert!(again.iter().all(|partition| !partition.abandoned && partition.epoch == 1), "nobody else had it: {again:?}");
    assert_eq!(read_one(db, &owner).await, before, "the same delivery");
    assert_eq!(settle(db, before, Settlement::Done).await, 0);
}

pub(crate) async fn a_partition_that_was_lost_and_won_again_has_forgotten_what_was_read(db: &dyn Harness) {
    let (one, other) = (holder(db).await, owner("other"));
    let store = db.store();
    write_one(db).await;
    let before = read_one(db, &one).await;
    db.let_pass(LEASE + MOMENT).await;
    keep(&*db.store(), &other, PARTITIONS, PARTITIONS).await;
    store.release_partitions(&other, &of_epoch(2, all())).await.expect("gives back");

    let again = keep(&*db.store(), &one, PARTITIONS, PARTITIONS).await;

    assert!(again.iter().all(|partition| !partition.abandoned && partition.epoch == 3), "{again:?}");
    assert_eq!(settle(db, before, Settlement::Done).await, 1);
    assert_eq!(settle(db, read_one(db, &one).await, Settlement::Done).await, 0);
}

pub(crate) async fn a_partition_that_was_given_back_is_not_abandoned(db: &dyn Harness) {
    let (one, two) = (holder(db).await, owner("two"));
    let store = db.store();
    let same = keep(&*db.store(), &one, PARTITIONS, PARTITIONS).await;
    assert!(same.iter().all(|partition| partition.epoch == 1), "renewing changes no owner");
    store.release_partitions(&one, &same).await.expect("gives back");

    let taken = keep(&*db.store(), &two, PARTITIONS, PARTITIONS).await;

    assert!(taken.iter().all(|partition| !partition.abandoned && partition.epoch == 2), "{taken:?}");
}

pub(crate) async fn what_somebody_holds_under_a_claim_is_not_read_until_that_has_ended(db: &dyn Harness) {
    let owner = holder(db).await;
    let envelope = plain(db).await;
    let writer = Ownership { owner: outbox::event::OwnerId::generate("writer"), lease: LEASE * 2 };
    let hot = db.store().write(&[NewRow { envelope: &envelope, claimed: true }], &writer).await.expect("writes");
    let hot = Fence { sequence: hot[0].expect("new"), claim: 1 };
    assert!(read(db, &owner).await.is_empty(), "its writer delivers it");

    db.let_pass(LEASE * 2 + MOMENT).await;
    kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;
    let found = read(db, &owner).await;

    assert!(found.len() == 1 && found[0].was_claimed, "its writer may be at work still: {found:?}");
    let claimed = db.store().claim(&owner, LEASE, &[hot]).await.expect("claims");
    assert_eq!((ids(&claimed), claimed[0].claims), (vec![envelope.id()], 2), "the first claim was its writer's");
    assert!(claimed[0].fence.claim > hot.claim);
    assert!(read(db, &owner).await.is_empty(), "now it is claimed");
    assert_eq!(settle(db, hot, Settlement::Done).await, 1, "the writer's outcome comes too late");
    assert_eq!(settle(db, claimed[0].fence, Settlement::Done).await, 0);
}

pub(crate) async fn only_what_is_due_and_free_is_claimed_by_its_number(db: &dyn Harness) {
    let owner = holder(db).await;
    write_one(db).await;
    let held = claim_one(db).await;
    let done = {
        write_one(db).await;
        let fence = claim_one(db).await;
        settle(db, fence, Settlement::Done).await;
        fence
    };
    let free = write_one(db).await;
    let free_fence = Fence::new(row(db, free).await.seq, 0, 0);

    let asked = [free_fence, held, done, Fence { sequence: 999_999, claim: 0 }, free_fence];
    let claimed = db.store().claim(&owner, LEASE, &asked).await.expect("claims");

    assert_eq!(ids(&claimed), [free]);
    assert!(db.store().claim(&owner, LEASE, &asked).await.expect("claims").is_empty(), "no second time");
    assert!(db.store().claim(&owner, LEASE, &[]).await.expect("claims").is_empty());
}

pub(crate) async fn what_changed_since_it_was_looked_at_is_not_claimed_by_its_number(db: &dyn Harness) {
    let owner = holder(db).await;
    write_one(db).await;
    let before = read_one(db, &owner).await;
    assert_eq!(settle(db, before, retry(Duration::ZERO)).await, 0);

    assert!(db.store().claim(&owner, LEASE, &[before]).await.expect("claims").is_empty(), "its owner may have read it");

    let after = read_one(db, &owner).await;
    let two = crate::common::owner("two");
    assert!(db.store().claim(&two, LEASE, &[after]).await.expect("claims").is_empty(), "it holds no partition");
    db.let_pass(LEASE + MOMENT).await;
    kept(&*db.store(), &two, PARTITIONS, PARTITIONS).await;
    assert!(db.store().claim(&owner, LEASE, &[after]).await.expect("claims").is_empty(), "its next owner may have read it");

    let without_epoch = Fence::new(after.sequence, 0, after.claim);
    let claimed = db.store().claim(&owner, LEASE, &[without_epoch]).await.expect("claims");
    assert_eq!(claimed.len(), 1, "as what was unparked is claimed by whoever answers it");
    assert!(claimed[0].fence.claim > after.claim);
}

pub(crate) async fn a_retry_that_a_writer_stored_is_read_by_the_owner_of_its_partition(db: &dyn Harness) {
    let owner = holder(db).await;
    let envelope = plain(db).await;
    let writer = Ownership { owner: outbox::event::OwnerId::generate("writer"), lease: LEASE };
    let hot = db.store().write(&[NewRow { envelope: &envelope, claimed: true }], &writer).await.expect("writes");
    let hot = Fence { sequence: hot[0].expect("new"), claim: 1 };

    assert_eq!(settle(db, hot, retry(Duration::ZERO)).await, 0);

    let found = read(db, &owner).await;
    assert!(found.len() == 1 && !found[0].was_claimed, "{found:?}");
    assert_eq!(found[0].event.event.as_ref().expect("readable").attempt(), 2);
    assert_eq!(settle(db, found[0].event.fence, Settlement::Done).await, 0);
}

pub(crate) async fn events_of_busy_routes_are_left_out(db: &dyn Harness) {
    let owner = holder(db).await;
    let mut events = plains(db, 3).await;
    for aggregate_type in ["Order", "order", "Order "] {
        events.push(event(db, "OrderPaid").await.aggregate_type(aggregate_type).json(&1).expect("good"));
    }
    write(db, &events).await;
    let route = |aggregate, event| Route::new(aggregate, event).expect("a good name");
    let (placed, paid) = (route("Order", "OrderPlaced"), route("Order", "OrderPaid"));
    let wanted = async |busy: &[Route]| {
        let read = read_by(db, &ReadRequest { busy: busy.to_vec(), ..request(&owner) }).await;
        read.iter().map(|one| one.event.event.as_ref().expect("readable").id()).collect::<Vec<_>>()
    };
    let of = |range: std::ops::Range<usize>| events[range].iter().map(Envelope::id).collect::<Vec<_>>();

    assert_eq!(wanted(&[]).await, of(0..6));
    assert_eq!(wanted(std::slice::from_ref(&placed)).await, of(3..6));
    assert_eq!(wanted(&[placed.clone(), paid.clone()]).await, of(4..6), "names are compared byte by byte");
    let limited = ReadRequest { busy: vec![placed.clone()], limit: 1, ..request(&owner) };
    assert_eq!(read_by(db, &limited).await.len(), 1, "those that are left out do not count");
    let next = async |busy: &[Route]| db.store().next_to_read(&owner, &[], busy).await.expect("looks");
    assert_eq!(next(&[placed.clone(), paid.clone()]).await, Some(Duration::ZERO));
    assert_eq!(next(&[placed, paid, route("order", "OrderPaid"), route("Order ", "OrderPaid")]).await, None);
}

pub(crate) async fn the_next_to_read_is_told_of_own_partitions_and_of_what_is_not_in_hand(db: &dyn Harness) {
    let (one, two) = (holder(db).await, owner("two"));
    let store = db.store();
    let next = async |owner: &OwnerId, held: &[u64]| store.next_to_read(owner, held, &[]).await.expect("looks");
    assert_eq!(next(&one, &[]).await, None);
    let id = write_one(db).await;
    let sequence = row(db, id).await.seq;

    assert_eq!(next(&one, &[]).await, Some(Duration::ZERO));
    assert_eq!(next(&one, &[sequence]).await, None, "it is in hand");
    assert_eq!(next(&two, &[]).await, None, "not its own");
    db.let_pass(LEASE + MOMENT).await;
    assert!(read(db, &one).await.is_empty());
    assert_eq!(next(&one, &[]).await, Some(Duration::ZERO), "there is something to read, and the lease has ended");
    kept(&*store, &one, PARTITIONS, PARTITIONS).await;

    let fence = read_one(db, &one).await;
    assert_eq!(settle(db, fence, retry(LEASE)).await, 0);
    let due = next(&one, &[]).await.expect("due once");
    assert!(due > Duration::ZERO && due <= LEASE, "{due:?}");
    db.let_pass(LEASE + MOMENT).await;
    kept(&*store, &one, PARTITIONS, PARTITIONS).await;
    let retried = read_one(db, &one).await;
    let retried = Fence::new(retried.sequence, 0, retried.claim);
    store.claim(&two, LEASE * 2, &[retried]).await.expect("claims");
    let free = next(&one, &[]).await.expect("free once");
    assert!(free > LEASE && free <= LEASE * 2, "when the claim ends: {free:?}");
}

async fn write_ids(db: &dyn Harness, count: usize) -> Vec<EventId> {
    let envelopes = plains(db, count).await;
    write(db, &envelopes).await;
    envelopes.iter().map(outbox::Envelope::id).collect()
}
