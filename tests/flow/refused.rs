//! A row whose outcome the database refuses: a trigger, a constraint, or a policy of the user's. It hurts nothing but itself.

use std::collections::BTreeSet;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::listener::Fixed;
use outbox::purge::{OnDone, PurgeConfig};
use outbox::store::{Audit, NewRow, NodeRecord, Ownership, StuckEvent, StuckReason};
use outbox::why::ReasonCode;
use outbox::{DispatchResult, Envelope, EventId, Failure, Mode, Outbox, Route, Status};
use support::{Database, Harness, Postgres, Recorder, Scrape, eventually, in_time};

use crate::common::{HOUR, ROUTE, at_rest, commit, done, eager, order, orders, outbox, reaches, row, rows};

pub(crate) const EVENTS: u32 = 400;
/// The aggregate of the refused event: in the middle of a batch.
pub(crate) const BAD: usize = 123;

/// Has the database refuse every UPDATE, or every DELETE, of that one row.
pub(crate) async fn refuse(db: &dyn Harness, change: &str) {
    refuse_each(db, change, &[BAD]).await;
}

/// Has the database refuse every UPDATE, or every DELETE, of the rows of these aggregates.
pub(crate) async fn refuse_each(db: &dyn Harness, change: &str, aggregates: &[usize]) {
    let aggregates: Vec<String> = aggregates.iter().map(|aggregate| format!("'{aggregate}'")).collect();
    let is_bad = format!("OLD.aggregate_id IN ({})", aggregates.join(", "));
    let trigger = format!("CREATE TRIGGER refused BEFORE {change} ON outbox_event");
    let statement = match db.store().kind() {
        "postgres" => {
            let body = "BEGIN RAISE EXCEPTION 'the order is archived'; END";
            db.execute(&format!("CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
            format!("{trigger} FOR EACH ROW WHEN ({is_bad}) EXECUTE FUNCTION refuse()")
        }
        "mysql" => {
            let signal = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the order is archived'";
            format!("{trigger} FOR EACH ROW IF {is_bad} THEN {signal}; END IF")
        }
        _ => format!("{trigger} WHEN {is_bad} BEGIN SELECT RAISE(ABORT, 'the order is archived'); END"),
    };
    db.execute(&statement).await;
}

/// Has the database accept every change of that one row, and do nothing.
async fn ignore(db: &dyn Harness) {
    if db.store().kind() == "postgres" {
        db.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$").await;
        let when = format!("FOR EACH ROW WHEN (OLD.aggregate_id = '{BAD}') EXECUTE FUNCTION keep()");
        db.execute(&format!("CREATE TRIGGER refused BEFORE UPDATE ON outbox_event {when}")).await;
    } else {
        let body = format!("WHEN OLD.aggregate_id = '{BAD}' BEGIN SELECT RAISE(IGNORE); END");
        db.execute(&format!("CREATE TRIGGER refused BEFORE UPDATE ON outbox_event {body}")).await;
    }
}

/// Has the database report each outcome of that one row as stored, and keep the event unfinished.
pub(crate) async fn set_back(db: &dyn Harness) {
    let trigger = "CREATE TRIGGER refused";
    let is_bad = format!("OLD.aggregate_id = '{BAD}'");
    let statement = match db.store().kind() {
        "postgres" => {
            db.execute("CREATE FUNCTION set_back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$").await;
            format!("{trigger} BEFORE UPDATE ON outbox_event FOR EACH ROW WHEN ({is_bad}) EXECUTE FUNCTION set_back()")
        }
        "mysql" => {
            let body = "SET NEW.status = OLD.status, NEW.due_at = OLD.due_at";
            format!("{trigger} BEFORE UPDATE ON outbox_event FOR EACH ROW IF {is_bad} THEN {body}; END IF")
        }
        _ => {
            let body = "UPDATE outbox_event SET status = OLD.status, due_at = OLD.due_at, done_at = NULL WHERE seq = OLD.seq;";
            format!("{trigger} AFTER UPDATE OF status ON outbox_event WHEN NEW.status = 1 AND {is_bad} BEGIN {body} END")
        }
    };
    db.execute(&statement).await;
}

pub(crate) async fn allow(db: &dyn Harness) {
    let table = if db.store().kind() == "postgres" { " ON outbox_event" } else { "" };
    db.execute(&format!("DROP TRIGGER refused{table}")).await;
}

/// The events with refused outcomes in the row of the one host.
pub(crate) async fn refused(db: &dyn Harness) -> Vec<StuckEvent> {
    let nodes = db.store().nodes().await.expect("lists");
    NodeRecord::stuck_at_live(&nodes, StuckReason::OutcomeRefused).map(|stuck| stuck.first).unwrap_or_default()
}

/// Everything but the bad event ends, each after one call. The bad one is named, and not called again. Returns its id.
pub(crate) async fn only_the_bad_one_waits<D: Database>(db: &D, host: &Outbox<D::Store>, error: &str) -> EventId {
    let ids = commit(host, orders(EVENTS)).await;
    let bad = ids[BAD];
    done(db, u64::from(EVENTS) - 1).await;
    eventually("the host names the refused outcome", async || refused(db).await.len() == 1).await;

    let named = refused(db).await.remove(0);
    assert_eq!((named.seq, named.event_id), (row(db, bad).await.seq, Some(bad)));
    assert!(named.error.contains(error), "{}", named.error);
    let why = outbox::why::explain(&*db.store(), bad, Vec::new()).await.expect("explains").expect("is there");
    assert_eq!(why.reason, ReasonCode::OutcomeRefused);
    assert!(why.sentence.contains(error), "{}", why.sentence);
    // The refusal holds up no later event.
    let later = commit(host, orders(20)).await;
    eventually("later events are DONE", async || {
        let mut all = true;
        for id in &later {
            all &= row(db, *id).await.status == Status::Done;
        }
        all
    })
    .await;
    assert_eq!(host.in_flight(), 1, "the host keeps only the refused one");
    bad
}

/// Once the database takes it, the outcome is stored, without another call.
pub(crate) async fn the_outcome_is_stored_later<D: Database>(
    db: &D,
    host: &Outbox<D::Store>,
    recorder: &Recorder,
    bad: EventId,
) {
    allow(db).await;
    eventually("the outcome is stored", async || row(db, bad).await.status == Status::Done).await;
    at_rest(host).await;
    eventually("the host names it no more", async || refused(db).await.is_empty()).await;
    let calls = recorder.ids();
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "nothing was delivered twice");
}

pub(crate) async fn an_outcome_that_the_database_refuses_holds_up_no_other_and_is_stored_later<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    refuse(db, "UPDATE").await;

    let bad = only_the_bad_one_waits(db, &host, "the order is archived").await;

    the_outcome_is_stored_later(db, &host, &recorder, bad).await;
    host.shutdown().await;
}

/// The second one comes while the first is retried.
pub(crate) async fn a_second_refused_outcome_holds_up_no_other_either<D: Database>(db: &D) {
    const SECOND: u32 = 5_000;
    let recorder = Recorder::done();
    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    refuse_each(db, "UPDATE", &[BAD, SECOND as usize]).await;
    let first = commit(&host, orders(EVENTS)).await;
    eventually("the first is refused", async || refused(db).await.len() == 1).await;

    let second = commit(&host, (SECOND - 10..SECOND + 10).map(order).collect()).await;

    done(db, u64::from(EVENTS) - 1 + 19).await;
    eventually("both are named", async || refused(db).await.len() == 2).await;
    let named: BTreeSet<_> = refused(db).await.into_iter().map(|one| one.event_id).collect();
    assert_eq!(named, BTreeSet::from([Some(first[BAD]), Some(second[10])]));
    let metrics = host.prometheus();
    let apart = Scrape::of(&metrics).value("outbox_outcomes_apart{obstacle=\"refused\"}");
    assert_eq!(apart, Some(2.0), "{metrics}");
    assert_eq!(host.in_flight(), 2, "the host keeps only the refused ones");
    allow(db).await;
    done(db, u64::from(EVENTS) + 20).await;
    at_rest(&host).await;
    let calls = recorder.ids();
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "nothing was delivered twice");
    host.shutdown().await;
}

/// A constraint of the user's, which SQLite cannot add to a table.
pub(crate) async fn an_outcome_that_a_constraint_refuses_holds_up_no_other<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let is_open = format!("aggregate_id <> '{BAD}' OR status <> 1");
    db.execute(&format!("ALTER TABLE outbox_event ADD CONSTRAINT of_the_shop CHECK ({is_open})")).await;

    let bad = only_the_bad_one_waits(db, &host, "of_the_shop").await;

    db.execute("ALTER TABLE outbox_event DROP CONSTRAINT of_the_shop").await;
    reaches(db, bad, Status::Done).await;
    at_rest(&host).await;
    let calls = recorder.ids();
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "nothing was delivered twice");
    host.shutdown().await;
}

pub(crate) async fn an_outcome_that_changes_nothing_is_not_delivered_in_a_loop<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let host = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    ignore(db).await;

    let bad = only_the_bad_one_waits(db, &host, "left the row as it was").await;

    the_outcome_is_stored_later(db, &host, &recorder, bad).await;
    host.shutdown().await;
}

/// The listener is called once more, because the row could have been changed by hand.
pub(crate) async fn an_event_whose_outcome_is_set_back_is_not_delivered_in_a_loop<D: Database>(db: &D) {
    // The trigger of PostgreSQL also keeps the claim of a hot event, so that no host reads the event before the lease has ended.
    let is_hot_claim_kept = db.store().kind() == "postgres";
    for mode in [Mode::SingleNode, Mode::OrderedByAggregate] {
        if mode == Mode::SingleNode && is_hot_claim_kept {
            continue;
        }
        let recorder = Recorder::done();
        let host = outbox(db).mode(mode).listener(ROUTE, recorder.listener()).start().await.expect("starts");
        set_back(db).await;

        let bad = only_the_bad_one_waits(db, &host, "left the row as it was or set it back").await;

        allow(db).await;
        reaches(db, bad, Status::Done).await;
        at_rest(&host).await;
        eventually("the host names it no more", async || refused(db).await.is_empty()).await;
        let calls = recorder.ids();
        assert_eq!(calls.iter().filter(|id| **id == bad).count(), 2, "{mode:?}");
        assert_eq!(calls.iter().collect::<BTreeSet<_>>().len() + 1, calls.len(), "no other was delivered twice");
        host.shutdown().await;
        db.execute("DELETE FROM outbox_event").await;
        db.execute("DELETE FROM outbox_event_node").await;
    }
}

/// PostgreSQL alone has rules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_a_rule_suppresses_is_named_and_stored_later() {
    let db = Postgres::fresh().await;
    let recorder = Recorder::done();
    let id = "an-event".parse().expect("an id");
    db.execute(
        "INSERT INTO outbox_event (event_id, event_type, aggregate_type, payload) VALUES ('an-event', 'OrderPlaced', 'Order', '1')",
    )
    .await;
    db.execute("CREATE RULE keeps AS ON UPDATE TO outbox_event DO INSTEAD NOTHING").await;

    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    eventually("the host names the outcome", async || refused(&db).await.len() == 1).await;
    let named = refused(&db).await.remove(0);
    assert!(named.event_id == Some(id) && named.error.contains("a trigger, rule or row-level policy"), "{named:?}");
    db.execute("DROP RULE keeps ON outbox_event").await;
    reaches(&db, id, Status::Done).await;
    at_rest(&host).await;
    assert_eq!(recorder.count(), 1, "nothing was delivered twice");
    host.shutdown().await;
}

/// Has the server end the connection of every UPDATE of that one row.
pub(crate) async fn disconnect(db: &Postgres) {
    let body = "BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END";
    db.execute(&format!("CREATE FUNCTION disconnect() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
    let when = format!("FOR EACH ROW WHEN (OLD.aggregate_id = '{BAD}') EXECUTE FUNCTION disconnect()");
    db.execute(&format!("CREATE TRIGGER refused BEFORE UPDATE ON outbox_event {when}")).await;
}

/// As by a pooler that ends the connection of a statement that takes too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_ends_its_connection_holds_up_no_other_on_postgres() {
    let db = Postgres::fresh().await;
    let recorder = Recorder::done();
    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    disconnect(&db).await;

    let bad = only_the_bad_one_waits(&db, &host, "the connection to the database was lost").await;

    the_outcome_is_stored_later(&db, &host, &recorder, bad).await;
    host.shutdown().await;
}

/// A foreign key of the user's, where finished events are deleted.
pub(crate) async fn a_row_that_cannot_be_deleted_keeps_no_other_from_being_deleted<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let delete = PurgeConfig { on_done: OnDone::Delete, ..PurgeConfig::default() };
    let host = outbox(db).purge(delete).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    refuse(db, "DELETE").await;

    let ids = commit(&host, orders(EVENTS)).await;

    eventually("all other rows are gone", async || rows(db).await == 1).await;
    allow(db).await;
    eventually("the last row is gone", async || rows(db).await == 0).await;
    assert_eq!(recorder.ids().iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert_eq!(recorder.count(), ids.len(), "nothing was delivered twice");
    host.shutdown().await;
}

/// Where order is kept, the refused event keeps its place: later events of its aggregate wait, and those of others do not.
pub(crate) async fn later_events_of_an_aggregate_wait_behind_a_refused_outcome<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let host = Outbox::ordered_by_aggregate(db.typed()).poller(eager()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    refuse(db, "UPDATE").await;
    let bad = u32::try_from(BAD).expect("small");

    let first = commit(&host, vec![order(bad), order(bad), order(bad + 1)]).await;
    eventually("the host names the refused outcome", async || refused(db).await.len() == 1).await;
    let later = commit(&host, vec![order(bad + 1), order(bad + 2)]).await;
    for id in [first[2], later[0], later[1]] {
        reaches(db, id, Status::Done).await;
    }
    assert!(!recorder.ids().contains(&first[1]), "the later event of the refused one's aggregate waits");

    allow(db).await;
    reaches(db, first[1], Status::Done).await;
    let calls = recorder.ids();
    let place = |id: EventId| calls.iter().position(|called| *called == id);
    assert!(place(first[0]) < place(first[1]), "in order");
    assert_eq!(calls.len(), 5, "nothing was delivered twice");
    host.shutdown().await;
}

/// The events of all aggregates whose turn it is are unblocked by one statement.
pub(crate) async fn a_waiting_event_that_cannot_be_unblocked_stops_no_other_aggregate<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| match event.payload::<u32>().expect("a number") {
        1 => Err(Failure::unrecoverable("no")),
        _ => Ok(DispatchResult::Done),
    });
    let host = Outbox::ordered_by_aggregate(db.typed()).poller(eager()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    let numbered = |aggregate: usize, number: u32| {
        Envelope::new("OrderPlaced").aggregate("Order", aggregate.to_string()).json(&number).expect("a good envelope")
    };
    let bad = commit(&host, vec![numbered(BAD, 1), numbered(BAD, 2)]).await;
    let good = commit(&host, vec![numbered(BAD + 1, 1), numbered(BAD + 1, 2)]).await;
    for head in [bad[0], good[0]] {
        reaches(db, head, Status::Dead).await;
    }
    eventually("two wait behind", async || db.store().stats().await.expect("counts").blocked == 2).await;
    refuse(db, "UPDATE").await;

    // By hand: a replay or a skip would change the head's row, which is refused, too.
    db.execute(&format!("DELETE FROM outbox_event WHERE aggregate_id = '{BAD}' AND status = 3")).await;
    eventually("it is refused", async || host.metrics().counts().db_errors > 0).await;
    assert!(host.dead().skip(good[0], &Audit::by("tester")).await.expect("skips"));

    reaches(db, good[1], Status::Done).await;
    assert_eq!(row(db, bad[1]).await.status, Status::New, "the refused one waits");
    allow(db).await;
    reaches(db, bad[1], Status::Done).await;
    at_rest(&host).await;
    host.shutdown().await;
}

/// Parked events of all routes are unparked by one statement, and the poller sends it beside its reads.
pub(crate) async fn a_parked_event_that_cannot_be_changed_keeps_neither_other_routes_nor_the_poller_waiting<D: Database>(
    db: &D,
) {
    const MANY: u32 = 2_000;
    let (store, recorder) = (db.store(), Recorder::done());
    let paused = [ROUTE, ("Order", "OrderPaid")].map(|route| Route::try_from(route).expect("good names"));
    for route in &paused {
        store.pause(route, &Audit::by("tester")).await.expect("pauses");
    }
    let host = outbox(db).listener(ROUTE, recorder.listener()).listener(("Order", "OrderPaid"), recorder.listener());
    let host = host.listener(("Order", "OrderSent"), recorder.listener()).start().await.expect("starts");
    let named = |name: &str, number: u32| {
        Envelope::new(name).aggregate("Order", format!("other {number}")).json(&number).expect("a good envelope")
    };
    let bad = order(u32::try_from(BAD).expect("small"));
    let parked = commit(&host, vec![bad, named("OrderPaid", 1)]).await;
    eventually("both are parked", async || store.stats().await.expect("counts").parked == 2).await;
    refuse(db, "UPDATE").await;

    for route in &paused {
        store.resume(route, &Audit::by("tester")).await.expect("resumes");
    }
    eventually("it is refused", async || host.metrics().counts().db_errors > 0).await;
    let envelopes: Vec<Envelope> = (0..MANY).map(|number| named("OrderSent", number)).collect();
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("writer"), lease: HOUR };
    for some in rows.chunks(1_000) {
        store.write(some, &nobody).await.expect("writes");
    }

    done(db, u64::from(MANY) + 1).await;
    assert_eq!(row(db, parked[1]).await.status, Status::Done, "its route is unparked");
    assert!(row(db, parked[0]).await.parked.is_some(), "the refused event waits");
    allow(db).await;
    reaches(db, parked[0], Status::Done).await;
    at_rest(&host).await;
    host.shutdown().await;
}

/// The event is delivered again by the next host, as every event without an outcome.
pub(crate) async fn a_stop_does_not_wait_for_an_outcome_that_is_refused<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let patient = DispatcherConfig { drain_timeout: HOUR, ..DispatcherConfig::default() };
    let host = outbox(db).dispatcher(patient).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    refuse(db, "UPDATE").await;
    let bad = only_the_bad_one_waits(db, &host, "the order is archived").await;

    in_time("the host stops", host.shutdown()).await;

    assert_eq!((row(db, bad).await.status, recorder.ids().iter().filter(|id| **id == bad).count()), (Status::New, 1));
}

/// An error that the table's character set does not have, as in a database of LATIN1.
pub(crate) async fn an_error_that_the_table_cannot_keep_is_stored_in_ascii<D: Database>(db: &D) {
    let recorder = Recorder::answering(|_| Err(Failure::retryable("✗ refused")));
    let host = outbox(db).retry(Fixed(HOUR)).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let trigger = "CREATE TRIGGER refused BEFORE UPDATE ON outbox_event";
    let statement = match db.store().kind() {
        "postgres" => {
            let body = "BEGIN RAISE EXCEPTION 'no equivalent in encoding LATIN1'; END";
            db.execute(&format!("CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
            let is_wide = "octet_length(NEW.last_error) <> char_length(NEW.last_error)";
            format!("{trigger} FOR EACH ROW WHEN ({is_wide}) EXECUTE FUNCTION refuse()")
        }
        "mysql" => {
            let signal = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'Incorrect string value'";
            format!("{trigger} FOR EACH ROW IF LENGTH(NEW.last_error) <> CHAR_LENGTH(NEW.last_error) THEN {signal}; END IF")
        }
        _ => {
            let is_wide = "length(CAST(NEW.last_error AS BLOB)) <> length(NEW.last_error)";
            format!("{trigger} WHEN {is_wide} BEGIN SELECT RAISE(ABORT, 'not ASCII'); END")
        }
    };
    db.execute(&statement).await;

    let ids = commit(&host, orders(EVENTS)).await;

    for id in ids {
        let error = reaches(db, id, Status::Retry).await.last_error.expect("it failed");
        assert!(error.starts_with("? refused"), "{error}");
    }
    host.shutdown().await;
}

/// A counter at the end of its column.
pub(crate) async fn a_failure_is_stored_though_the_counter_is_at_its_end<D: Database>(db: &D) {
    let recorder = Recorder::answering(|event| Err(Failure::retryable(format!("attempt {}", event.attempt()))));
    let host = outbox(db).retry(Fixed(HOUR)).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit(&host, orders(1)).await[0];
    reaches(db, id, Status::Retry).await;
    db.execute("UPDATE outbox_event SET attempts = 2147483647").await;
    db.let_pass(HOUR).await;

    eventually("the second failure is stored", async || {
        row(db, id).await.last_error.is_some_and(|error| error.contains("attempt 2147483648"))
    })
    .await;

    assert_eq!(row(db, id).await.attempts, 2_147_483_647);
    host.shutdown().await;
}
