//! What only a MySQL or MariaDB server has: other sessions, cut connections, accounts, a planner.

use std::process::{Command, Stdio};
use std::time::Duration;

use outbox::event::Fence;
use outbox::store::mysql::MySqlOptions;
use outbox::store::{
    DoctorStore, Finding, InspectStore, LeaseStore, NewRow, PARTITIONS, PartitionStore, ReadRequest, RouteStore, SchemaStore,
    SettleStore, Settled, Settlement, Severity, WriteStore,
};
use outbox::{MySqlStore, Store, StoreError, TransactionalStore};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection};
use support::{DOCUMENTED_PAYLOAD, Database, Harness, MySql, Network, Proxy, documented_insert, eventually, in_time};
use tokio::task::JoinSet;

use crate::common::{
    LEASE, beat, claim, claim_due, event, expectations, kept, owner, ownership, plain, plains, settle, write, write_one,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_insert_of_the_command_line_client_is_delivered_whatever_its_time_zone() {
    let db = MySql::fresh().await;
    let url = db.url();
    let (_, rest) = url.split_once("://").expect("a scheme");
    let (account, host) = rest.rsplit_once('@').expect("an account");
    let (user, password) = account.split_once(':').unwrap_or((account, ""));
    let (address, _) = host.split_once('/').expect("a database");
    let (host, port) = address.split_once(':').unwrap_or((address, "3306"));
    let insert = format!("SET time_zone = '+05:30'; {}", documented_insert("MySQL"));

    let inserted = Command::new("mariadb")
        .args(["--host", host, "--port", port, "--user", user, "--protocol", "tcp", db.name(), "--execute", &insert])
        .env("MYSQL_PWD", password)
        .stdin(Stdio::null())
        .status()
        .expect("the client `mariadb` is installed");

    assert!(inserted.success());
    let claimed = claim(&db, 10).await;
    assert_eq!(claimed.len(), 1, "due at once");
    let event = claimed[0].event.as_ref().expect("readable");
    assert_eq!((event.aggregate_id(), &event.payload_bytes()[..]), (Some("42"), DOCUMENTED_PAYLOAD.as_bytes()));
    let age = db.now().await.since(event.occurred_at());
    assert!(age < Duration::from_secs(600), "UTC, not the session's time zone: {age:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimers_settlers_and_renewers_at_once_never_see_a_deadlock() {
    let db = MySql::fresh().await;
    write(&db, &plains(&db, 3_000).await).await;
    let mut tasks = JoinSet::new();
    for number in 0..4_usize {
        let store = db.store();
        tasks.spawn(async move {
            let mut finished = 0;
            loop {
                let due = support::due(&*store, 50).await.expect("looks");
                if due.is_empty() {
                    return finished;
                }
                let claimed = store.claim(&owner("host"), LEASE, &due).await.expect("no deadlock reaches the caller");
                // Backwards, so that nobody could rely on a common order of the callers.
                let fences: Vec<Fence> = claimed.iter().rev().map(|one| one.fence).collect();
                let renewed = store.renew(&fences, LEASE).await.expect("renews");
                assert_eq!(renewed.held.len() + renewed.locked.len(), fences.len());
                let settled: Vec<Settled> = fences
                    .iter()
                    .enumerate()
                    .map(|(index, fence)| {
                        // Each is given back at most once, so that there is an end.
                        let settlement = match (index + number) % 3 {
                            0 if fence.claim == 1 => Settlement::Released { after: Duration::ZERO, reason: None },
                            1 => Settlement::Erased,
                            _ => Settlement::Done,
                        };
                        finished += u64::from(settlement != Settlement::Released { after: Duration::ZERO, reason: None });
                        Settled::new(*fence, settlement)
                    })
                    .collect();
                assert_eq!(store.settle(&settled).await.expect("settles"), 0, "nobody else had them");
            }
        });
    }

    let finished: u64 = tasks.join_all().await.into_iter().sum();

    let left = db.number("SELECT COUNT(*) FROM outbox_event WHERE status = 0").await;
    assert_eq!(i64::try_from(finished).expect("small") + left, 3_000, "each event was finished once");
    assert_eq!(left, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_leaves_the_callers_transaction_as_it_was() {
    let db = MySql::fresh().await;
    let store = db.mysql();
    let (first, second) = (plain(&db).await, plain(&db).await);
    write(&db, std::slice::from_ref(&first)).await;
    let mut transaction = store.begin().await.expect("begins");
    transaction.execute("CREATE TEMPORARY TABLE business (id INT)").await.expect("made");
    transaction.execute("INSERT INTO business VALUES (1)").await.expect("written");

    let rows = [&first, &second].map(|envelope| NewRow { envelope, claimed: false });
    let one = store.insert(transaction.as_mut(), &rows[..1], &ownership()).await.expect("no error");
    let both = store.insert(transaction.as_mut(), &rows, &ownership()).await.expect("no error");
    let kept = transaction.fetch_all("SELECT id FROM business").await.expect("the transaction goes on").len();
    MySqlStore::commit(transaction).await.expect("commits");

    assert_eq!((one, both[0], both[1].is_some(), kept), (vec![None], None, true, 1));
    assert_eq!(db.number("SELECT COUNT(*) FROM outbox_event").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_with_a_duplicate_waits_for_no_transaction_that_has_nothing_to_do_with_it() {
    let db = MySql::fresh().await;
    let there = plain(&db).await;
    write(&db, std::slice::from_ref(&there)).await;
    let store = db.mysql();
    let open = plain(&db).await;
    let mut transaction = store.begin().await.expect("begins");
    let row = NewRow { envelope: &open, claimed: false };
    store.insert(transaction.as_mut(), &[row], &ownership()).await.expect("inserts");

    let sequences = write(&db, &[plain(&db).await, there]).await;

    assert!(sequences[0].is_some() && sequences[1].is_none(), "{sequences:?}");
    MySqlStore::rollback(transaction).await.expect("rolls back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_of_the_auto_increment_does_not_mix_up_the_rows() {
    let db = MySql::fresh().await;
    let store = db.mysql();
    let envelopes = plains(&db, 50).await;
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let mut transaction = store.begin().await.expect("begins");
    transaction.execute("SET auto_increment_increment = 7").await.expect("set");

    let sequences = store.insert(transaction.as_mut(), &rows, &ownership()).await.expect("inserts");
    let single =
        store.insert(transaction.as_mut(), &[NewRow { envelope: &plain(&db).await, claimed: false }], &ownership()).await;
    transaction.execute("SET auto_increment_increment = 1").await.expect("set back");
    MySqlStore::commit(transaction).await.expect("commits");

    for (envelope, sequence) in envelopes.iter().zip(&sequences) {
        assert_eq!(Some(crate::common::row(&db, envelope.id()).await.seq), *sequence);
    }
    let last = single.expect("inserts")[0].expect("new");
    assert_eq!(db.number("SELECT CAST(MAX(seq) AS SIGNED) FROM outbox_event").await, i64::try_from(last).expect("small"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_connections_were_all_cut_works_again_after_one_error() {
    let db = MySql::fresh().await;
    let store = db.another().await;
    write_one(&db).await;
    // Several connections are open and idle: two for questions, one for leases, one of the application.
    let (first, second) = tokio::join!(Store::now(&store), Store::now(&store));
    assert!(first.is_ok() && second.is_ok());
    LeaseStore::renew(&store, &[Fence { sequence: 1, claim: 1 }], LEASE).await.expect("nothing to renew yet");
    MySqlStore::commit(store.begin().await.expect("begins")).await.expect("commits");
    db.execute(&format!(
        "BEGIN NOT ATOMIC
           DECLARE finished INT DEFAULT 0; DECLARE victim BIGINT;
           DECLARE victims CURSOR FOR SELECT id FROM information_schema.processlist
             WHERE db = '{}' AND id <> CONNECTION_ID();
           DECLARE CONTINUE HANDLER FOR NOT FOUND SET finished = 1;
           OPEN victims;
           killing: LOOP
             FETCH victims INTO victim;
             IF finished = 1 THEN LEAVE killing; END IF;
             KILL victim;
           END LOOP;
         END",
        db.name()
    ))
    .await;

    let error = claim_due(&store, 1).await.expect_err("the first one finds out");

    assert!(matches!(error, StoreError::Disconnected { .. }) && error.is_transient(), "{error:?}");
    let claimed = claim_due(&store, 1).await.expect("works again");
    let fence = claimed[0].fence;
    let renewed = LeaseStore::renew(&store, &[fence], LEASE).await.expect("on its own connection too");
    assert_eq!((renewed.held, renewed.locked), (vec![fence.sequence], vec![]));
    let mut transaction = store.begin().await.expect("on those of the application too");
    transaction.execute("SELECT 1").await.expect("works");
    MySqlStore::commit(transaction).await.expect("commits");
    let done = Settled::new(fence, Settlement::Done);
    assert_eq!(SettleStore::settle(&store, &[done]).await.expect("works"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_reached_says_why_and_never_the_password() {
    let db = MySql::fresh().await;
    let url = db.url();
    let (_, host) = url.rsplit_once('@').expect("an account");
    for (address, hint) in [
        (format!("mysql://nobody:secret@{host}"), "refuses this user"),
        (url.replace(db.name(), "no_such_database"), "does not know this database"),
        ("mysql://nobody:secret@127.0.0.1:1/shop".to_owned(), "check host and port"),
    ] {
        let mut options = MySqlOptions::from_url(&address).expect("an address of ours");
        options.acquire_timeout = Duration::from_secs(3);

        let error = MySqlStore::connect_with(options).await.expect_err("cannot be reached");

        let text = outbox::chain(&error);
        assert!(text.contains(hint) && !text.contains("secret"), "{text}");
        assert!(matches!(error, StoreError::Unreachable { .. }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_somebody_else_is_left_alone() {
    let db = MySql::fresh().await;
    db.execute("CREATE TABLE theirs (id INT)").await;
    let store = db.other_table("theirs").await;

    for error in [store.check_schema().await.expect_err("not ours"), store.migrate_up().await.expect_err("not ours")] {
        assert!(matches!(&error, StoreError::NotOurs { table } if table == "theirs"), "{error:?}");
    }

    assert_eq!(db.number("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'theirs_migration'").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_was_cut_in_the_middle_goes_on() {
    let db = MySql::fresh().await;
    let store = db.other_table("cut").await;
    let whole = store.migration_sql(None);
    // In the middle of the step, and after all that it does but its note.
    for middle in ["CREATE TABLE IF NOT EXISTS cut_node", "INSERT INTO cut_migration (version, name, applied_at) VALUES (1,"] {
        let middle = whole.find(middle).expect("it is a part of the schema");
        db.execute(&whole[..middle]).await;

        let applied = store.migrate_up().await.expect("goes on");

        assert!(!applied.is_empty());
        store.check_schema().await.expect("the schema is whole");
        assert_eq!(db.number("SELECT COUNT(*) FROM cut_partition").await, 256);
        while store.migrate_down().await.expect("takes it back").is_some() {}
        db.execute(&whole[..middle]).await;

        store.migrate_reset().await.expect("a reset goes on as well");

        store.check_schema().await.expect("the schema is whole");
        while store.migrate_down().await.expect("takes it back").is_some() {}
    }
}

/// An account for a role, of this test alone: names have at most 32 characters.
fn account_of(db: &MySql, role: &str) -> String {
    db.name().replacen("outbox_test", role.trim_start_matches("outbox_"), 1)
}

/// Makes an account of a role, and opens a store as it.
async fn as_role(db: &MySql, role: &str) -> MySqlStore {
    let account = account_of(db, role);
    let default = if db.number("SELECT VERSION() LIKE '%MariaDB%'").await == 1 { "FOR" } else { "TO" };
    db.execute(&format!(
        "CREATE USER '{account}'@'%' IDENTIFIED BY 'a-password'; GRANT {role} TO '{account}'@'%';
         SET DEFAULT ROLE {role} {default} '{account}'@'%'"
    ))
    .await;
    let url = db.url();
    let (_, host) = url.rsplit_once('@').expect("an account");
    MySqlStore::connect(&format!("mysql://{account}:a-password@{host}")).await.expect("the account may use the database")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_role_may_do_its_work_and_nothing_else() {
    let db = MySql::fresh().await;
    db.execute(&db.store().grants_sql()).await;
    let [writer, dispatcher, viewer, migrator] = [
        as_role(&db, "outbox_writer").await,
        as_role(&db, "outbox_dispatcher").await,
        as_role(&db, "outbox_viewer").await,
        as_role(&db, "outbox_migrator").await,
    ];
    let denied = |result: Result<(), StoreError>| {
        let error = result.expect_err("denied");
        assert!(matches!(error, StoreError::Forbidden { .. }), "{error:?}");
    };

    let envelope = plain(&db).await;
    let row = NewRow { envelope: &envelope, claimed: false };
    assert!(WriteStore::write(&writer, &[row], &ownership()).await.expect("a writer writes")[0].is_some());
    denied(writer.routes().await.map(drop));

    let claimed = claim_due(&dispatcher, 1).await.expect("a dispatcher claims");
    let done = Settled::new(claimed[0].fence, Settlement::Done);
    assert_eq!(SettleStore::settle(&dispatcher, &[done]).await.expect("and settles"), 0);
    let findings = dispatcher.diagnose(&expectations()).await.expect("looks");
    assert!(findings.iter().all(|finding| finding.severity != Severity::Fault), "{findings:#?}");

    assert_eq!(viewer.stats().await.expect("a viewer looks").done, 1);
    denied(WriteStore::write(&viewer, &[row], &ownership()).await.map(drop));
    // A writer may not even read the schema's version.
    for store in [&viewer, &writer] {
        let findings = store.diagnose(&expectations()).await.expect("looks");
        let lacking: Vec<&Finding> = findings.iter().filter(|finding| finding.check == "grants").collect();
        assert!(lacking.len() == 1 && lacking[0].severity == Severity::Fault, "{findings:#?}");
        assert!(lacking[0].found.contains("UPDATE on outbox_event"), "{lacking:?}");
    }

    denied(dispatcher.migrate_down().await.map(drop));
    migrator.migrate_down().await.expect("a migrator takes the schema back");
    migrator.migrate_up().await.expect("and makes it anew");
    for role in ["outbox_writer", "outbox_dispatcher", "outbox_viewer", "outbox_migrator"] {
        let account = account_of(&db, role);
        db.execute(&format!("DROP USER '{account}'@'%'; DROP ROLE {role}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_with_one_connection_can_look_at_its_database() {
    let db = MySql::fresh().await;
    let mut options = MySqlOptions::from_url(&db.url()).expect("an address of ours").connections(1);
    options.acquire_timeout = Duration::from_secs(3);
    let store = MySqlStore::connect_with(options).await.expect("connects");

    let findings = store.diagnose(&expectations()).await.expect("no second connection is waited for");

    assert!(findings.iter().all(|finding| finding.severity != Severity::Fault), "{findings:#?}");
    for check in ["clock", "schema", "indexes", "grants"] {
        assert!(findings.iter().any(|finding| finding.check == check), "{check} was looked at");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_finished_rows_are_never_read_by_what_must_be_fast() {
    let db = MySql::fresh().await;
    for (rows, columns, values) in [
        (1_000, "status, done_at, due_at", "1, UTC_TIMESTAMP(6), NULL"),
        (100, "status, done_at, due_at", "0, NULL, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR"),
    ] {
        let mut other = db.other_program().acquire().await.expect("a connection");
        let insert = format!(
            "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload, {columns})
             WITH RECURSIVE n (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM n WHERE number < 999)
             SELECT 'OrderPlaced', 'Order', a.number, '{{}}', {values} FROM n AS a CROSS JOIN n AS b WHERE b.number < {rows}"
        );
        other.execute(AssertSqlSafe(insert)).await.expect("inserted");
    }
    write(&db, &[event(&db, "Other").await.json(&1).expect("good")]).await;

    let fresh = db.store().plans().await.expect("explains");
    // The snapshot of another session keeps the versions that finished events had while they were due.
    let mut reader = MySqlConnection::connect(&db.url()).await.expect("connects");
    reader.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.expect("begins");
    let finish = "UPDATE outbox_event SET status = 1, due_at = NULL, done_at = UTC_TIMESTAMP(6) WHERE status = 0 LIMIT 20000";
    assert_eq!(db.execute(finish).await, 20_000);
    let behind_a_snapshot = db.store().plans().await.expect("explains");
    reader.execute("COMMIT").await.expect("ends");

    let bad: Vec<_> = fresh.iter().chain(&behind_a_snapshot).filter(|plan| !plan.good).collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_row_that_somebody_locks_is_left_for_later() {
    let db = MySql::fresh().await;
    let envelopes = plains(&db, 3).await;
    write(&db, &envelopes).await;
    for claimed in claim(&db, 3).await {
        settle(&db, claimed.fence, Settlement::Parked { reason: "no listener".to_owned() }).await;
    }
    let routes = [envelopes[0].route().clone()];
    let mut other = db.mysql().begin().await.expect("begins");
    let lock = format!("SELECT seq FROM outbox_event WHERE event_id = '{}' FOR UPDATE", envelopes[0].id());
    other.execute(AssertSqlSafe(lock)).await.expect("locks");

    assert_eq!(db.store().unpark(&owner("host"), &routes, None, 10).await.expect("does not wait").len(), 2);

    other.rollback().await.expect("unlocks");
    assert_eq!(db.store().unpark(&owner("host"), &routes, None, 10).await.expect("unparks").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_has_been_due_since_the_year_1_is_read() {
    let db = MySql::fresh().await;
    let owner = owner("host");
    let partitions = kept(&*db.store(), &owner, PARTITIONS, PARTITIONS).await;
    let id = write_one(&db).await;
    // The zero of Go's clock.
    db.execute("UPDATE outbox_event SET due_at = '0001-01-01', available_at = '0001-01-01'").await;

    let front = ReadRequest {
        owner,
        partitions,
        after: None,
        held: Vec::new(),
        busy: Vec::new(),
        limit: 10,
        max_bytes: 1 << 20,
        skip_recent: Duration::ZERO,
        order: None,
    };
    let read = db.store().read(&front).await.expect("reads");

    assert_eq!(read.iter().map(|read| read.event.event.as_ref().expect("readable").id()).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn a_migration_of_a_table_that_is_in_use_gives_up_and_goes_on_when_it_is_free() {
    let db = MySql::fresh().await;
    let mut backup = db.services_pool(1).begin().await.expect("begins");
    db.run_on(&mut backup, "SELECT count(*) FROM outbox_event_partition").await;

    let error = db.store().migrate_reset().await.expect_err("another transaction reads a table");

    assert!(matches!(&error, StoreError::InUse { table, .. } if table == "outbox_event"), "{error:?}");
    let half_done = db.store().check_schema().await.expect_err("some tables are gone");
    assert!(half_done.to_string().contains("`outbox migrate reset`"), "{half_done}");
    backup.rollback().await.expect("rolls back");
    assert_eq!(db.store().migrate_reset().await.expect("resets").len(), 1, "the lock of the migration is free");
    db.store().check_schema().await.expect("the schema is whole");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_kept_again_soon_after_a_server_fell_silent_while_their_transaction_began() {
    const LATE: Duration = Duration::from_millis(500);
    let db = MySql::fresh().await;
    let url = db.url();
    let (_, rest) = url.rsplit_once('@').expect("the address names an account");
    let server = rest.split_once(['/', '?']).expect("the address names a database").0.parse().expect("in figures");
    let proxy = Proxy::in_front_of(server).await;
    let store = MySqlStore::connect_with(MySqlOptions::from_url(&proxy.url(&url)).expect("good")).await.expect("connects");
    let (host, all) = (owner("host"), PARTITIONS);
    store.keep_partitions(&host, all, all).await.expect("takes");
    proxy.set(Network::Latency(LATE));
    let (same, same_host) = (store.clone(), host.clone());
    let keeping = tokio::spawn(async move { same.keep_partitions(&same_host, all, all).await });
    // Its first statement is on its way.
    tokio::time::sleep(LATE / 2).await;

    proxy.set(Network::Forgets);

    // It fails, unless the connection had not come back yet.
    let _ = keeping.await.expect("does not panic");
    eventually("they are kept", async || store.keep_partitions(&host, all, all).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_partition_keeps_no_heartbeat_waiting_though_a_host_is_to_be_forgotten() {
    let (db, host) = (MySql::fresh().await, owner("host"));
    db.execute(
        "INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, room, session)
         VALUES ('old', 'old', 'multi_node', '1', '2026-01-01', '2026-01-01', 1, 0)",
    )
    .await;
    let mut other = db.services_pool(1).begin().await.expect("begins");
    db.run_on(&mut other, "SELECT * FROM outbox_event_partition WHERE partition_id = 7 FOR UPDATE").await;

    in_time("it waits for no lock", beat(&*db.store(), &host)).await;

    let left = "SELECT COUNT(*) FROM outbox_event_node WHERE owner = 'old'";
    assert_eq!(db.number(left).await, 0, "the other host is forgotten");
    assert_eq!(kept(&*db.store(), &host, PARTITIONS, PARTITIONS).await.len(), 255, "the locked one is skipped");
    other.rollback().await.expect("rolls back");
}
