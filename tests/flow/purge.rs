//! Old finished rows away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outbox::event::OwnerId;
use outbox::metrics::Metrics;
use outbox::purge::{PURGE_COMPLETED, Purge, PurgeConfig, PurgeError, PurgeLimits};
use outbox::store::{Filter, Node, Purged};
use outbox::{EventId, Failure, Outbox, StartError, Status};
use rand::RngExt;
use support::{Database, Harness, Recorder, Seed, Sqlite, eventually};

use crate::common::{ROUTE, commit, commit_one, done, orders, outbox, reaches, row, rows};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A database with this many DONE events, finished an hour ago.
async fn finished(count: u32) -> Sqlite {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    commit(&outbox, orders(count)).await;
    done(&db, u64::from(count)).await;
    outbox.shutdown().await;
    db.let_pass(Duration::from_secs(3_600)).await;
    db
}

fn purge(db: &dyn Harness, config: PurgeConfig) -> Purge {
    Purge::new(db.store(), config, Arc::new(Metrics::default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_takes_what_is_older_than_its_retention_in_batches() {
    let db = finished(25).await;
    let config = PurgeConfig { retention: DAY, batch_size: 10, ..PurgeConfig::default() };
    let purge = purge(&db, config);

    assert_eq!(purge.run_once(PurgeLimits::default()).await.expect("runs").count, 0, "nothing is old enough");
    db.let_pass(DAY).await;
    let purged = purge.run_once(PurgeLimits::default()).await.expect("runs");

    assert_eq!((purged.count, rows(&db).await), (25, 0));
    assert!(purged.first.is_some() && purged.first <= purged.last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_on_request_stops_at_its_limits() {
    let db = finished(25).await;
    let config = PurgeConfig { retention: Duration::ZERO, batch_size: 10, ..PurgeConfig::default() };
    let purge = purge(&db, config);

    let none = purge.run_once(PurgeLimits { time: Some(Duration::ZERO), rows: None }).await.expect("runs");
    let some = purge.run_once(PurgeLimits { time: None, rows: Some(12) }).await.expect("runs");

    assert_eq!((none.count, some.count, rows(&db).await), (0, 12, 13));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_purge_does_not_begin() {
    let db = finished(1).await;
    let purge = purge(&db, PurgeConfig { retention: Duration::ZERO, ..PurgeConfig::default() });

    purge.close();

    assert!(matches!(purge.run_once(PurgeLimits::default()).await, Err(PurgeError::Closed)));
    assert_eq!(rows(&db).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_are_kept_unless_they_have_a_retention() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::answering(|_| Err(Failure::unrecoverable("no")));
    let running = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit(&running, orders(1)).await[0];
    reaches(&db, id, Status::Dead).await;
    running.shutdown().await;
    db.let_pass(DAY * 365).await;

    let kept = purge(&db, PurgeConfig::default()).run_once(PurgeLimits::default()).await.expect("runs");
    let config = PurgeConfig { dead_retention: Some(DAY * 30), ..PurgeConfig::default() };
    let purged = purge(&db, config).run_once(PurgeLimits::default()).await.expect("runs");

    assert_eq!((kept.count, purged.count), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_purges_by_itself_and_tells_of_it() {
    let db = finished(3).await;
    db.let_pass(DAY * 8).await;
    let recorder = Recorder::done();
    let config = PurgeConfig { emit_event: true, interval: Duration::from_millis(50), ..PurgeConfig::default() };
    let outbox = outbox(&db).purge(config).listener(PURGE_COMPLETED, recorder.listener()).start().await.expect("starts");

    let event = recorder.started().await;

    let told: serde_json::Value = event.payload().expect("JSON");
    assert_eq!(told["count"], 3);
    assert!(told["first"].is_string() && told["last"].is_string(), "{told}");
    assert_eq!(outbox.metrics().counts().purged, 3);
    eventually("only that event is left", async || rows(&db).await == 1).await;
    outbox.shutdown().await;
    assert_eq!(recorder.count(), 1, "a purge that deletes nothing tells nothing");
}

pub(crate) async fn a_host_purges_beside_an_older_host_that_does_not<D: Database>(db: &D) {
    let never = PurgeConfig { enabled: false, ..PurgeConfig::default() };
    let older = Outbox::multi_node(db.typed()).purge(never).listener(ROUTE, Recorder::done().listener());
    let older = older.start().await.expect("starts");
    commit(&older, orders(3)).await;
    done(db, 3).await;
    eventually("the older host is alive", async || db.store().nodes().await.expect("lists").iter().any(|node| node.alive))
        .await;

    let at_once = PurgeConfig { retention: Duration::ZERO, interval: Duration::from_millis(50), ..PurgeConfig::default() };
    let purging = Outbox::multi_node(db.typed()).purge(at_once).listener(ROUTE, Recorder::done().listener());
    let purging = purging.start().await.expect("starts");

    eventually("the finished events are deleted", async || rows(db).await == 0).await;
    eventually("they are counted", async || purging.metrics().counts().purged == 3).await;
    assert_eq!(older.metrics().counts().purged, 0);
    for host in [older, purging] {
        host.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_by_hand_tells_of_what_it_deleted_and_how_far_it_is() {
    let db = finished(25).await;
    let purge = purge(&db, PurgeConfig { emit_event: true, batch_size: 10, ..PurgeConfig::default() });
    let mut progress = Vec::new();

    let now = db.store().now().await.expect("tells the time");
    let done = purge.run(Status::Done, now, PurgeLimits::default(), |so_far| progress.push(so_far.count)).await;

    assert_eq!((done.expect("runs").count, progress), (25, vec![10, 20, 25]));
    assert_eq!(db.number(&format!("SELECT count(*) FROM outbox_event WHERE event_type = '{PURGE_COMPLETED}'")).await, 1);
    assert_eq!(rows(&db).await, 1, "and nothing else is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_get_no_time_of_their_own() {
    let db = finished(20).await;
    db.execute("UPDATE outbox_event SET status = 3 WHERE seq > 10").await;
    let config = PurgeConfig {
        dead_retention: Some(Duration::ZERO),
        retention: Duration::ZERO,
        batch_size: 1,
        ..PurgeConfig::default()
    };

    let limits = PurgeLimits { time: Some(Duration::from_micros(100)), rows: None };
    purge(&db, config).run_once(limits).await.expect("runs");

    let left = db.store().stats().await.expect("counts");
    assert!(left.done > 0, "no file takes ten transactions in a tenth of a millisecond");
    assert_eq!(left.dead, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_that_only_writes_purges_what_nobody_took_when_that_is_asked_for() {
    let db = Sqlite::fresh().await;
    let config =
        PurgeConfig { undelivered_retention: Some(DAY), interval: Duration::from_millis(20), ..PurgeConfig::default() };
    let writer = Outbox::writer_only(db.sqlite()).purge(config).start().await.expect("starts");
    let old = commit_one(&writer).await;

    db.let_pass(DAY * 2).await;
    let young = commit_one(&writer).await;

    eventually("what is old is deleted", async || db.store().get(old).await.expect("looks").is_none()).await;
    assert_eq!(row(&db, young).await.status, Status::New);
    writer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_undelivered_is_purged_while_a_host_is_there_to_deliver_it() {
    let db = Sqlite::fresh().await;
    let owner = OwnerId::generate("host");
    let host = Node::new(owner.clone(), "host 1", "single_node", "0");
    db.store().heartbeat(&host, DAY).await.expect("says that it is there");
    let writer = Outbox::writer_only(db.sqlite()).start().await.expect("starts");
    let id = commit_one(&writer).await;

    let config = PurgeConfig { undelivered_retention: Some(Duration::ZERO), ..PurgeConfig::default() };
    let purged = purge(&db, config.clone()).run_once(PurgeLimits::default()).await.expect("runs");
    assert_eq!(purged.count, 0);
    assert_eq!(row(&db, id).await.status, Status::New);

    db.store().leave(&owner).await.expect("leaves");
    let purged = purge(&db, config).run_once(PurgeLimits::default()).await.expect("runs");
    assert_eq!(purged.count, 1);
    writer.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_delivers_refuses_to_purge_what_is_undelivered() {
    let db = Sqlite::fresh().await;
    let config = PurgeConfig { undelivered_retention: Some(DAY), ..PurgeConfig::default() };

    let Err(StartError::Config(faults)) = outbox(&db).purge(config).start().await else { panic!("it starts") };

    assert!(faults[0].contains("purge.undelivered_retention") && faults[0].contains("single_node"), "{faults:?}");
}

/// Writes this many events, delivers them, and returns their IDs in the order of their `seq`.
async fn delivered<D: Database>(db: &D, count: u32) -> Vec<EventId> {
    let host = outbox(db).listener(ROUTE, Recorder::done().listener()).start().await.expect("starts");
    let ids = commit(&host, orders(count)).await;
    done(db, u64::from(count)).await;
    host.shutdown().await;
    ids
}

/// The `seq` and the ID of each row, oldest first.
async fn rows_by_seq(db: &dyn Harness) -> Vec<(u64, EventId)> {
    let rows = db.store().list(&Filter::default(), 1_000).await.expect("lists");
    rows.into_iter().map(|row| (row.seq, row.event_id)).collect()
}

/// One purge of everything that is finished, in batches of this size.
async fn purge_all(db: &dyn Harness, batch_size: u32) -> Purged {
    let purge = purge(db, PurgeConfig { retention: Duration::ZERO, batch_size, ..PurgeConfig::default() });
    purge.run_once(PurgeLimits::default()).await.expect("runs")
}

/// Marks rows, so that the triggers below keep them.
async fn hold(db: &dyn Harness, rows: &[(u64, EventId)]) {
    for (seq, _) in rows {
        db.execute(&format!("UPDATE outbox_event SET tenant_id = 'held' WHERE seq = {seq}")).await;
    }
}

/// Has the database refuse the DELETE of rows that are held.
async fn refuse_held(db: &dyn Harness) {
    let trigger = "CREATE TRIGGER held BEFORE DELETE ON outbox_event";
    let statement = match db.store().kind() {
        "postgres" => {
            let body = "BEGIN RAISE EXCEPTION 'the order is archived'; END";
            db.execute(&format!("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
            format!("{trigger} FOR EACH ROW WHEN (OLD.tenant_id = 'held') EXECUTE FUNCTION refuse()")
        }
        "mysql" => {
            let signal = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the order is archived'";
            format!("{trigger} FOR EACH ROW IF OLD.tenant_id = 'held' THEN {signal}; END IF")
        }
        _ => format!("{trigger} WHEN OLD.tenant_id = 'held' BEGIN SELECT RAISE(ABORT, 'the order is archived'); END"),
    };
    db.execute(&statement).await;
}

/// Has the database accept the DELETE of rows that are held, and keep them.
async fn suppress_held(db: &dyn Harness) {
    let trigger = "CREATE TRIGGER held BEFORE DELETE ON outbox_event";
    if db.store().kind() == "postgres" {
        db.execute("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$").await;
        let when = "FOR EACH ROW WHEN (OLD.tenant_id = 'held') EXECUTE FUNCTION keep()";
        db.execute(&format!("{trigger} {when}")).await;
    } else {
        db.execute(&format!("{trigger} WHEN OLD.tenant_id = 'held' BEGIN SELECT RAISE(IGNORE); END")).await;
    }
}

/// Only these rows are left, and the purge names them with this error.
async fn only_these_are_left(db: &dyn Harness, purged: &Purged, held: &[(u64, EventId)], error: &str) {
    assert_eq!(rows_by_seq(db).await, held, "{purged:?}");
    let found = &purged.undeletable;
    assert_eq!((found.count, found.gave_up), (held.len() as u64, false), "{found:?}");
    let named: BTreeSet<_> = found.first.iter().map(|row| (row.seq, row.event_id.expect("the ID is good"))).collect();
    assert_eq!(named, held.iter().copied().collect(), "{found:?}");
    assert!(found.first.iter().all(|row| row.error.to_lowercase().contains(error)), "{found:?}");
}

/// A table of the user's that refers to some rows.
pub(crate) async fn rows_that_the_database_refuses_to_delete_keep_no_other_row<D: Database>(db: &D) {
    delivered(db, 60).await;
    let rows = rows_by_seq(db).await;
    let held = [rows[0], rows[19], rows[20], rows[59]];
    let seq_type = if db.store().kind() == "mysql" { "BIGINT UNSIGNED" } else { "BIGINT" };
    db.execute(&format!("CREATE TABLE note (seq {seq_type} NOT NULL, FOREIGN KEY (seq) REFERENCES outbox_event (seq))")).await;
    for (seq, _) in held {
        db.execute(&format!("INSERT INTO note (seq) VALUES ({seq})")).await;
    }
    let metrics = Arc::new(Metrics::default());
    let config = PurgeConfig { retention: Duration::ZERO, batch_size: 7, ..PurgeConfig::default() };
    let purge = Purge::new(db.store(), config, metrics.clone());

    let purged = purge.run_once(PurgeLimits::default()).await.expect("runs");

    only_these_are_left(db, &purged, &held, "foreign key").await;
    let counts = metrics.counts();
    assert_eq!((purged.count, counts.purged, counts.purge_undeletable), (56, 56, 4));
    db.execute("DELETE FROM note").await;
    let purged = purge_all(db, 7).await;
    assert_eq!((purged.count, purged.undeletable.count), (4, 0), "the next purge deletes them");
}

/// For databases that can accept a DELETE and keep the row.
pub(crate) async fn a_purge_deletes_all_rows_but_those_that_a_trigger_keeps<D: Database>(db: &D) {
    delivered(db, 60).await;
    let rows = rows_by_seq(db).await;
    let held = [rows[0], rows[1], rows[30], rows[59]];
    hold(db, &held).await;
    suppress_held(db).await;

    let purged = purge_all(db, 7).await;

    assert_eq!(purged.count, 56);
    only_these_are_left(db, &purged, &held, "accepted the delete").await;
}

/// A constraint that PostgreSQL checks when the statement is over.
pub(crate) async fn rows_that_a_deferred_constraint_keeps_keep_no_other_row<D: Database>(db: &D) {
    delivered(db, 20).await;
    let rows = rows_by_seq(db).await;
    db.execute("CREATE TABLE note (seq bigint REFERENCES outbox_event (seq) DEFERRABLE INITIALLY DEFERRED)").await;
    db.execute(&format!("INSERT INTO note (seq) VALUES ({})", rows[3].0)).await;

    let purged = purge_all(db, 500).await;

    assert_eq!(purged.count, 19);
    only_these_are_left(db, &purged, &rows[3..4], "foreign key").await;
}

pub(crate) async fn undelivered_rows_that_cannot_be_deleted_keep_no_other_row<D: Database>(db: &D) {
    let writer = Outbox::writer_only(db.typed()).start().await.expect("starts");
    commit(&writer, orders(20)).await;
    let rows = rows_by_seq(db).await;
    let held = [rows[4], rows[5]];
    hold(db, &held).await;
    refuse_held(db).await;
    let config = PurgeConfig { undelivered_retention: Some(Duration::ZERO), batch_size: 6, ..PurgeConfig::default() };

    let purged = purge(db, config).run_once(PurgeLimits::default()).await.expect("runs");

    assert_eq!(purged.count, 18);
    only_these_are_left(db, &purged, &held, "the order is archived").await;
    writer.shutdown().await;
}

pub(crate) async fn any_undeletable_rows_are_the_only_ones_that_a_purge_leaves<D: Database>(db: &D) {
    let seed = Seed::of_this_run();
    let mut chance = seed.choices_of("undeletable rows");
    refuse_held(db).await;
    for round in 0..5 {
        let (count, batch_size) = (chance.random_range(1..60), chance.random_range(1..30));
        let share = chance.random_range(0..=10_u32);
        delivered(db, count).await;
        let rows = rows_by_seq(db).await;
        let held: Vec<_> = rows.iter().copied().filter(|_| chance.random_range(0..20) < share).collect();
        hold(db, &held).await;

        let purged = purge_all(db, batch_size).await;

        let of = format!("seed {}, round {round}: {} of {count} in batches of {batch_size}", seed.number(), held.len());
        assert_eq!(rows_by_seq(db).await, held, "{of}");
        assert_eq!((purged.count, purged.undeletable.count), (u64::from(count) - held.len() as u64, held.len() as u64), "{of}");
        db.execute("UPDATE outbox_event SET tenant_id = NULL").await;
        assert_eq!(purge_all(db, 500).await.count, held.len() as u64, "{of}");
    }
}
