//! Envelopes into rows.

use std::time::Duration;

use outbox::event::EventId;
use outbox::store::{Due, NewRow};
use outbox::{Envelope, Status, Store, TransactionalStore};
use support::{Database, Harness};

use crate::common::{LEASE, MOMENT, claim, event, ids, ownership, plain, plains, row, write, write_one};

pub(crate) async fn rows_are_numbered_in_the_order_of_insertion(db: &dyn Harness) {
    let envelopes = plains(db, 5).await;

    let sequences = write(db, &envelopes).await;

    let sequences: Vec<u64> = sequences.into_iter().map(|sequence| sequence.expect("no duplicate")).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");
    for (envelope, sequence) in envelopes.iter().zip(sequences) {
        assert_eq!(row(db, envelope.id()).await.seq, sequence);
    }
}

pub(crate) async fn a_duplicate_id_is_reported_and_changes_nothing(db: &dyn Harness) {
    let first = plain(db).await;
    write(db, std::slice::from_ref(&first)).await;
    let again = event(db, "SomethingElse").await.id(first.id()).json(&2).expect("good");
    let new = plain(db).await;

    let sequences = write(db, &[again, new.clone()]).await;

    assert_eq!(sequences[0], None);
    assert!(sequences[1].is_some(), "the other row comes in");
    assert_eq!(row(db, first.id()).await.event_type, "OrderPlaced");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 2);
}

pub(crate) async fn the_same_id_twice_in_one_call_is_inserted_once(db: &dyn Harness) {
    let first = plain(db).await;
    let again = event(db, "SomethingElse").await.id(first.id()).json(&2).expect("good");

    let sequences = write(db, &[first.clone(), again]).await;

    assert!(sequences[0].is_some() && sequences[1].is_none(), "{sequences:?}");
    assert_eq!(row(db, first.id()).await.event_type, "OrderPlaced", "the first one counts");
}

pub(crate) async fn a_batch_of_thousands_keeps_its_order_around_duplicates(db: &dyn Harness) {
    let envelopes = plains(db, 2_500).await;
    let early: Vec<Envelope> = envelopes.iter().step_by(7).cloned().collect();
    write(db, &early).await;

    let sequences = write(db, &envelopes).await;

    for (index, sequence) in sequences.iter().enumerate() {
        assert_eq!(sequence.is_none(), index % 7 == 0, "row {index}");
    }
    let new: Vec<u64> = sequences.iter().flatten().copied().collect();
    assert!(new.is_sorted_by(|a, b| a < b));
    assert_eq!(Some(row(db, envelopes[2_498].id()).await.seq), sequences[2_498], "numbers belong to their own rows");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 2_500);
}

pub(crate) async fn every_field_is_read_back_as_it_was_written(db: &dyn Harness) {
    let now = db.now().await;
    let id: EventId = "0d9f6f2c-1f6b-4d7e-9a53-0a7d3f0c1e2b".parse().expect("a UUID is an id");
    let envelope = Envelope::new("Ereignis·типа")
        .id(id)
        .aggregate("Bestellung", "№ 42")
        .tenant("müller & co")
        .occurred_at(now.minus(Duration::from_micros(1_234_567)))
        .available_at(now.minus(Duration::from_micros(234_567)))
        .expires_at(now.plus(Duration::from_micros(3_600_000_001)))
        .header("a", "\"quoted\" \\ back\tslash")
        .header("ü", "")
        .correlation_id("c-1")
        .bytes("application/x-protobuf", vec![0, 1, 2])
        .expect("good");
    write(db, std::slice::from_ref(&envelope)).await;

    let record = row(db, id).await;
    let claimed = claim(db, 1).await.remove(0);
    let event = claimed.event.expect("readable");

    assert_eq!(*event.envelope(), envelope, "the listener is given what was written");
    assert_eq!((record.event_type.as_str(), record.aggregate_type.as_str()), ("Ereignis·типа", "Bestellung"));
    assert_eq!((record.aggregate_id.as_deref(), record.tenant_id.as_deref()), (Some("№ 42"), Some("müller & co")));
    assert_eq!(record.headers, *envelope.headers());
    assert_eq!((record.content_type.as_str(), record.payload_bytes), ("application/x-protobuf", 3));
    assert_eq!((record.occurred_at, record.available_at), (envelope.occurred_at(), envelope.available_at()));
    assert_eq!(record.expires_at, envelope.expires_at());
    assert_eq!(record.due_at, Some(envelope.available_at()));
    assert_eq!((record.status, record.attempts, record.claims, record.claim_seq), (Status::New, 0, 0, 0));
    assert_eq!((record.done_at, record.locked_by, record.locked_at, record.lease_end), (None, None, None, None));
}

pub(crate) async fn an_event_with_an_empty_payload_may_be_written_alone(db: &dyn Harness) {
    let empty = event(db, "X").await.bytes("text/plain", "").expect("good");

    write(db, std::slice::from_ref(&empty)).await;

    let claimed = claim(db, 1).await;
    assert!(claimed[0].event.as_ref().expect("readable").payload_bytes().is_empty());
    assert_eq!(row(db, empty.id()).await.payload_bytes, 0);
}

pub(crate) async fn what_is_not_put_off_is_due_at_once_though_its_writers_clock_is_ahead(db: &dyn Harness) {
    let ahead = db.now().await.plus(Duration::from_secs(600));
    let by_that_clock = || Envelope::new("X").now(ahead);
    let one = by_that_clock().json(&1).expect("good");
    let many = [by_that_clock().json(&2).expect("good"), by_that_clock().deliver_after(MOMENT).json(&3).expect("good")];
    write(db, std::slice::from_ref(&one)).await;
    write(db, &many).await;

    let claimed = claim(db, 10).await;

    assert_eq!(ids(&claimed), [one.id(), many[0].id()], "the third is put off, by the clock that its writer has");
    assert!(claimed.iter().all(|claimed| matches!(claimed.due, Due::Since(_))), "{claimed:?}");
}

pub(crate) async fn an_event_of_a_writer_whose_clock_is_behind_is_due_at_once_and_held_for_a_whole_lease(db: &dyn Harness) {
    let behind = db.now().await.minus(Duration::from_secs(600));
    let event = Envelope::new("X").now(behind).json(&1).expect("good");
    let row = NewRow { envelope: &event, claimed: true };
    db.store().write(&[row], &ownership()).await.expect("writes");

    assert!(claim(db, 10).await.is_empty(), "its writer delivers it: the lease is counted by the database's clock");
    db.let_pass(LEASE + MOMENT).await;
    let claimed = claim(db, 10).await;

    assert_eq!(ids(&claimed), [event.id()]);
    assert!(matches!(claimed[0].due, Due::Since(_)), "{claimed:?}");
}

pub(crate) async fn payload_bytes_are_kept_whatever_they_are(db: &dyn Harness) {
    let payloads: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0],
        b"a\0b".to_vec(),
        vec![0xff, 0xfe, 0xc3, 0x28],
        (0..=255).collect(),
        b"{\"b\":1.0,  \"a\":[],\"n\":12345678901234567890.10}".to_vec(),
        vec![0xab; 1 << 20],
        vec![0; 1 << 20],
    ];
    let mut envelopes = Vec::new();
    for payload in &payloads {
        envelopes.push(event(db, "X").await.bytes("application/octet-stream", payload.clone()).expect("good"));
    }
    write(db, &envelopes).await;

    let claimed = claim(db, 100).await;

    assert_eq!(claimed.len(), payloads.len());
    for (claimed, payload) in claimed.into_iter().zip(&payloads) {
        let event = claimed.event.expect("readable");
        assert!(event.payload_bytes() == payload, "{} bytes came back as {}", payload.len(), event.payload_bytes().len());
        let record = row(db, event.id()).await;
        assert!(record.payload.expect("get carries the payload") == payload, "{} bytes", payload.len());
        assert_eq!(record.payload_bytes, u64::try_from(payload.len()).expect("small"));
    }
}

pub(crate) async fn many_large_payloads_in_one_call_do_not_mix(db: &dyn Harness) {
    let mut envelopes = Vec::new();
    for byte in 0..20 {
        envelopes.push(event(db, "X").await.bytes("application/octet-stream", vec![byte; 1_000_000]).expect("good"));
    }
    write(db, &envelopes).await;

    let claimed = claim(db, 100).await;

    assert_eq!(ids(&claimed), envelopes.iter().map(Envelope::id).collect::<Vec<_>>());
    for (claimed, envelope) in claimed.iter().zip(&envelopes) {
        let event = claimed.event.as_ref().expect("readable");
        assert!(event.payload_bytes() == envelope.payload_bytes(), "event {}", event.sequence());
    }
}

pub(crate) async fn names_and_headers_with_quotes_are_only_text(db: &dyn Harness) {
    let nasty = "'; DROP TABLE outbox_event; -- \" ` \\ ${x} :1 ?1 $1 %s";
    let envelope = event(db, nasty)
        .await
        .aggregate(nasty, nasty)
        .tenant(nasty)
        .header(nasty, nasty)
        .json(&nasty)
        .expect("a strange name is a name");
    write(db, std::slice::from_ref(&envelope)).await;

    let record = row(db, envelope.id()).await;

    assert_eq!((record.event_type.as_str(), record.aggregate_id.as_deref()), (nasty, Some(nasty)));
    assert_eq!(record.headers.get(nasty), Some(nasty));
    let filter = outbox::store::Filter { event_type: Some(nasty.to_owned()), ..Default::default() };
    assert_eq!(db.store().list(&filter, 10).await.expect("lists").len(), 1);
}

pub(crate) async fn no_rows_are_no_work(db: &dyn Harness) {
    assert!(db.store().write(&[], &ownership()).await.expect("nothing to do").is_empty());
}

pub(crate) async fn a_plain_insert_with_defaults_is_delivered(db: &dyn Harness) {
    db.execute("INSERT INTO outbox_event (event_type, payload) VALUES ('OrderPlaced', '1')").await;
    db.execute("INSERT INTO outbox_event (event_type, payload) VALUES ('OrderPlaced', '2')").await;

    let claimed = claim(db, 10).await;

    assert_eq!(claimed.len(), 2);
    let event = claimed[0].event.as_ref().expect("readable");
    assert_eq!(event.route().to_string(), "__GLOBAL__/OrderPlaced");
    assert_eq!((event.content_type(), event.attempt()), ("application/json", 1));
    assert!(event.headers().is_empty() && event.tenant_id().is_none() && event.aggregate_id().is_none());
    assert!(!event.is_delayed());
    assert!(matches!(claimed[0].due, Due::Since(_)), "{claimed:?}");
    assert_ne!(ids(&claimed)[0], ids(&claimed)[1], "the database makes a new id for each");
}

pub(crate) async fn a_plain_insert_of_text_delivers_its_bytes(db: &dyn Harness) {
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload, headers) VALUES ('e-1', 'X', '{\"ü\":  1.0}', '{\"k\":\"v\"}')")
        .await;

    let claimed = claim(db, 10).await;

    let event = claimed[0].event.as_ref().expect("readable");
    assert_eq!(&event.payload_bytes()[..], "{\"ü\":  1.0}".as_bytes());
    assert_eq!(event.headers().get("k"), Some("v"));
    assert_eq!(row(db, event.id()).await.payload_bytes, 12, "counted in bytes, not in characters");
}

pub(crate) async fn a_plain_insert_that_only_sets_available_at_is_not_due_before(db: &dyn Harness) {
    // A producer that knows nothing of due_at: its row is due by default, but its writer asked for later.
    let id = write_one(db).await;
    let later = db.now().await.plus(Duration::from_secs(600));
    let envelope = event(db, "Later").await.available_at(later).json(&1).expect("good");
    write(db, std::slice::from_ref(&envelope)).await;
    db.execute(&format!(
        "UPDATE outbox_event SET due_at = (SELECT due_at FROM (SELECT due_at FROM outbox_event WHERE event_id = '{id}') AS first)
         WHERE event_id = '{}'",
        envelope.id()
    ))
    .await;

    let before = db.now().await;
    let claimed = claim(db, 10).await;
    let after = db.now().await;

    assert_eq!(claimed.len(), 2);
    assert!(matches!(claimed[0].due, Due::Since(_)), "{claimed:?}");
    let Due::In(rest) = claimed[1].due else { panic!("{:?}", claimed[1].due) };
    let [least, most] = [after, before].map(|now| envelope.available_at().since(now));
    assert!((least..=most).contains(&rest), "{rest:?}, not {least:?} to {most:?}");
    let settlement = outbox::store::Settlement::Released { after: rest, reason: None };
    crate::common::settle(db, claimed[1].fence, settlement).await;
    db.let_pass(rest + MOMENT).await;
    let again = claim(db, 10).await;
    assert!(ids(&again).contains(&envelope.id()));
    assert!(again.iter().all(|claimed| matches!(claimed.due, Due::Since(_))));
}

/// Refuses rows of the type `Refused`, whoever writes them.
async fn refuse(db: &dyn Harness) {
    match db.store().kind() {
        "sqlite" => {
            db.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON outbox_event WHEN NEW.event_type = 'Refused'
                 BEGIN SELECT RAISE(ABORT, 'refused'); END",
            )
            .await
        }
        _ => db.execute("ALTER TABLE outbox_event ADD CONSTRAINT refuse CHECK (event_type <> 'Refused')").await,
    };
}

pub(crate) async fn a_batch_that_fails_in_its_last_statement_leaves_nothing_in_the_transaction<D: Database>(db: &D) {
    let mut envelopes = plains(db, 2_500).await;
    envelopes.push(event(db, "Refused").await.json(&1).expect("good"));
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: true }).collect();
    let more = [plain(db).await];
    let more: Vec<NewRow<'_>> = more.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    refuse(db).await;
    let store = db.typed();

    let mut transaction = store.begin().await.expect("begins");
    store.insert(transaction.as_mut(), &rows, &ownership()).await.expect_err("the last row is refused");
    let went_on = store.insert(transaction.as_mut(), &more, &ownership()).await;
    D::Store::commit(transaction).await.expect("the driver says nothing of a transaction that the server ended");

    // After an error, PostgreSQL takes no more of a transaction, and commits none of it.
    let expected = if store.kind() == "postgres" { (false, 0) } else { (true, 1) };
    assert_eq!((went_on.is_ok(), db.number("SELECT count(*) FROM outbox_event").await), expected);
}
