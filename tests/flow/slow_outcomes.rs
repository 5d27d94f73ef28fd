//! A row whose outcome takes longer than a statement may take.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{NodeRecord, StuckReason};
use outbox::why::ReasonCode;
use outbox::{Event, EventId, Failure, Outbox, PostgresStore, Status};
use support::{Harness, Postgres, Recorder, Scrape, eventually, in_time};

use crate::common::{HOUR, ROUTE, commit, done, eager, orders, row};
use crate::refused::{BAD, EVENTS, refused, the_outcome_is_stored_later};

const SLEEP: &str = "PERFORM pg_sleep(3600)";
const WAIT: &str = "WHILE NOT (SELECT is_open FROM gate) LOOP PERFORM pg_sleep(0.1); END LOOP";

/// Makes the outcome of one row wait. Counts how often it is tried, also by statements that are rolled back.
async fn slow_down(db: &Postgres, wait: &str) {
    let body = format!("BEGIN PERFORM nextval('tries'); {wait}; RETURN NEW; END");
    db.execute("CREATE SEQUENCE tries").await;
    db.execute(&format!("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
    let when = format!("FOR EACH ROW WHEN (OLD.aggregate_id = '{BAD}' AND NEW.status IN (1, 2)) EXECUTE FUNCTION slow()");
    db.execute(&format!("CREATE TRIGGER refused BEFORE UPDATE ON outbox_event {when}")).await;
}

/// A host whose statements may take this long, and whose first batch has most of the outcomes.
async fn host(db: &Postgres, statement_timeout: Duration, recorder: &Recorder) -> Outbox<PostgresStore> {
    let mut options = PostgresOptions::from_url(db.url()).expect("good");
    options.statement_timeout = statement_timeout;
    let store = PostgresStore::connect_with(options).await.expect("connects");
    let (settle_delay, drain_timeout) = (Duration::from_secs(1), HOUR);
    let config = DispatcherConfig { settle_delay, drain_timeout, ..DispatcherConfig::default() };
    let builder = Outbox::multi_node(store).poller(eager()).dispatcher(config);
    builder.listener(ROUTE, recorder.listener()).start().await.expect("starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_statements_wait_for_a_slow_outcome_until_all_others_are_stored() {
    let (db, recorder) = (Postgres::fresh().await, Recorder::done());
    let host = host(&db, Duration::from_secs(2), &recorder).await;
    slow_down(&db, SLEEP).await;

    let ids = commit(&host, orders(EVENTS)).await;

    done(&db, u64::from(EVENTS) - 1).await;
    // One of all, one of an eighth, one of an eighth of that; then some of the slow outcome alone.
    let tries = db.number("SELECT last_value FROM tries").await;
    assert!(tries <= 8, "{tries} statements");
    eventually("the host names the slow outcome", async || refused(&db).await.len() == 1).await;
    let named = refused(&db).await.remove(0);
    assert_eq!(named.event_id, Some(ids[BAD]));
    assert!(named.error.contains("statement timeout"), "{}", named.error);
    the_outcome_is_stored_later(&db, &host, &recorder, ids[BAD]).await;
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_that_wait_for_a_slow_statement_are_reported() {
    let (db, recorder) = (Postgres::fresh().await, Recorder::done());
    let host = host(&db, HOUR, &recorder).await;
    db.execute("CREATE TABLE gate AS SELECT false AS is_open").await;
    slow_down(&db, WAIT).await;
    let slow = async || {
        let nodes = db.store().nodes().await.expect("lists");
        NodeRecord::stuck_at_live(&nodes, StuckReason::OutcomeSlow)
    };

    commit(&host, orders(EVENTS)).await;

    eventually("the host names the outcomes", async || slow().await.is_some()).await;
    let named = slow().await.expect("they wait").first.remove(0).event_id.expect("it has one");
    let why = outbox::why::explain(&*db.store(), named, Vec::new()).await.expect("explains").expect("is there");
    assert_eq!(why.reason, ReasonCode::OutcomeSlow, "{}", why.sentence);
    let metrics = host.prometheus();
    assert!(Scrape::of(&metrics).value("outbox_outcomes_apart{obstacle=\"slow\"}") >= Some(1.0), "{metrics}");
    db.execute("UPDATE gate SET is_open = true").await;
    done(&db, EVENTS.into()).await;
    eventually("the host names them no more", async || slow().await.is_none()).await;
    assert_eq!(recorder.count(), usize::try_from(EVENTS).expect("small"), "nothing was delivered twice");
    host.shutdown().await;
}

/// Stops a host whose listener has begun with these events, then has the listener answer.
async fn stop_before_the_answers(host: Outbox<PostgresStore>, recorder: &Recorder, ids: &[EventId]) {
    recorder.started().await;
    let stopping = tokio::spawn(host.shutdown());
    eventually("the stop has begun", async || !host.monitor().readiness().is_ready()).await;
    recorder.finish(ids.len());
    in_time("the host stops", stopping).await.expect("does not panic");
    assert_eq!(recorder.count(), ids.len(), "each was called once");
}

/// The limit of the stop is an hour away, and so is the end of each statement that the stop does not limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_stores_all_outcomes_but_the_slow_one() {
    let fails = |_: &Event| Err(Failure::retryable("the receiver is away"));
    for (recorder, stored) in [(Recorder::held(), "status = 1"), (Recorder::held_answering(fails), "status = 2")] {
        let db = Postgres::fresh().await;
        let host = host(&db, HOUR, &recorder).await;
        slow_down(&db, SLEEP).await;
        let ids = commit(&host, orders(EVENTS)).await;

        stop_before_the_answers(host, &recorder, &ids).await;

        let count = db.number(&format!("SELECT count(*) FROM outbox_event WHERE {stored}")).await;
        assert_eq!(count, i64::from(EVENTS) - 1, "{stored}");
        assert_eq!(row(&db, ids[BAD]).await.status, Status::New, "it is delivered again");
    }
}

/// A statement for one outcome takes as long as one for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_stores_all_outcomes_in_a_slow_database() {
    let (db, recorder) = (Postgres::fresh().await, Recorder::held());
    let host = host(&db, HOUR, &recorder).await;
    let ids = commit(&host, orders(20)).await;
    db.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END $$",
    )
    .await;
    db.execute("CREATE TRIGGER slow BEFORE UPDATE ON outbox_event FOR EACH STATEMENT EXECUTE FUNCTION slow()").await;

    stop_before_the_answers(host, &recorder, &ids).await;

    done(&db, 20).await;
}
