//! A read of a slow front that hangs.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::store::postgres::PostgresOptions;
use outbox::{Outbox, PostgresStore};
use support::{Harness, Postgres, Recorder, eventually};

use crate::common::{ROUTE, done, eager};

/// Longer than the test takes.
const LONG: Duration = Duration::from_secs(180);

/// Makes each read that passes the event of the aggregate `slow` take a second. Once armed, one of these reads hangs.
const SLOW: &str = "
CREATE SEQUENCE slow_reads;
CREATE SEQUENCE hanging_reads;
CREATE TABLE hang (is_armed boolean NOT NULL);
INSERT INTO hang VALUES (false);
CREATE FUNCTION passes(aggregate text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  IF aggregate = 'slow' AND current_query() LIKE '%bytes_before%' THEN
    PERFORM nextval('slow_reads'), pg_sleep(1);
    IF (SELECT is_armed FROM hang) AND nextval('hanging_reads') = 1 THEN
      PERFORM pg_sleep(180);
    END IF;
  END IF;
  RETURN true;
END $$;
ALTER TABLE outbox_event ENABLE ROW LEVEL SECURITY;
CREATE POLICY passes ON outbox_event USING (passes(aggregate_id))";

/// Inserts an event that has been due for this long.
async fn insert(db: &Postgres, event_type: &str, aggregate: &str, due_for: &str) {
    db.execute(&format!(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload, available_at, due_at)
         VALUES ('{event_type}', 'Order', '{aggregate}', '1', now() - interval '{due_for}', now() - interval '{due_for}')"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_in_a_slow_front_does_not_wait_for_a_read_that_hangs() {
    let db = Postgres::fresh().await;
    db.execute(SLOW).await;
    // Policies do not apply to a superuser. The user may change what the policy reads.
    let (user, url) = db.user("front").await;
    let mut options = PostgresOptions::from_url(&url).expect("good");
    options.statement_timeout = 2 * LONG;
    let store = PostgresStore::connect_with(options).await.expect("connects");
    // In flight, so that each read of the front passes it. The other event lies behind the front.
    insert(&db, "OrderHeld", "slow", "1 hour").await;
    insert(&db, "OrderPlaced", "behind", "0").await;
    let (held, recorder) = (Recorder::held(), Recorder::done());
    let config = DispatcherConfig { lease: 2 * LONG, deadline: LONG, ..DispatcherConfig::default() };
    let host = Outbox::multi_node(store).dispatcher(config).poller(eager());
    let host = host.listener(("Order", "OrderHeld"), held.listener()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    held.started().await;
    eventually("the front is read again", async || db.number("SELECT last_value FROM slow_reads").await >= 2).await;

    db.execute("UPDATE hang SET is_armed = true").await;
    eventually("a read hangs", async || db.number("SELECT is_called::integer::bigint FROM hanging_reads").await == 1).await;
    insert(&db, "OrderPlaced", "in the front", "10 minutes").await;

    eventually("it is delivered", async || recorder.count() == 2).await;
    let hanging = format!("usename = '{user}' AND wait_event = 'PgSleep' AND query_start < now() - interval '3 seconds'");
    let ended = format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE {hanging}");
    assert_eq!(db.number(&ended).await, 1, "the read did not answer");
    held.finish(1);
    done(&db, 3).await;
    host.shutdown().await;
    assert_eq!((held.count(), recorder.count()), (1, 2), "no event is delivered twice");
    db.drop_user(&user).await;
}
