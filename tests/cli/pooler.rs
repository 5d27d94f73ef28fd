//! PgBouncer in transaction mode between hosts and their PostgreSQL: sessions, settings and prepared statements do not last, so
//! leases alone decide.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outbox::PostgresStore;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{DoctorStore, Expectations, InspectStore, Severity, Store};
use servers::{Deal, Pooler};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use support::{Faults, Network, Proxy, Witness, Writers, eventually, sample_plugins};
use url::Url;

use crate::home::Home;
use crate::node::{Mode, Node, Settings, conclude, say, wait_for_writers};
use crate::program::{PATIENCE, Place, run};

const EVENTS: usize = 200;

/// How many hosts connect while others use the pooler, and how many these are: more than it has connections to the server.
const CONNECTS: usize = 10;
const OTHERS: u64 = 6;

/// A lease short enough to wait for.
const SETTINGS: Settings<'_> = &[
    ("OUTBOX_DISPATCHER__LEASE", "4s"),
    ("OUTBOX_DISPATCHER__DEADLINE", "2s"),
    ("OUTBOX_POLLER__INTERVAL", "100ms"),
    ("OUTBOX_RETRY__POLICY", "fixed"),
    ("OUTBOX_RETRY__BASE", "100ms"),
];

/// What a host says of it.
const SAID: &str = "a pooler in transaction mode is between";

/// A migrated schema that is reached through a pooler.
pub(crate) struct Pooled {
    place: Place,
    /// In the order of their end: the place first.
    _pooler: Pooler,
    user: String,
    home: Home,
}

/// Of the users of these tests.
const PASSWORD: &str = "for-a-test";

impl Pooled {
    pub(crate) fn start(deal: Deal) -> Self {
        let home = Home::on_postgres();
        let (server, schema) = home.url().split_once("options=-csearch_path%3D").expect("each test has a schema of its own");
        let user = schema.replace("outbox_test", "outbox_pooled");
        // A pooler passes on no parameters of an address: the user's sessions begin with the schema.
        home.execute(&format!(
            "DROP ROLE IF EXISTS {user}; CREATE ROLE {user} SUPERUSER LOGIN PASSWORD '{PASSWORD}';
             ALTER ROLE {user} SET search_path = {schema}"
        ));
        let (_, server) = server.rsplit_once('@').expect("the address names a user");
        let pooler = Pooler::start(&format!("postgres://{user}:{PASSWORD}@{server}"), deal);
        let pooler = pooler.expect("`cargo xtask test` installs it");
        Self { place: Place::at(pooler.url()), _pooler: pooler, user, home }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.home.execute(&format!("DROP ROLE {}", self.user));
        }
    }
}

#[test]
fn hosts_behind_a_pooler_deliver_and_take_over_by_leases() {
    hosts_deliver_and_take_over(Deal::Last, "multi_node", Mode::Any);
}

#[test]
fn hosts_behind_a_pooler_that_deals_in_turn_keep_the_order_of_aggregates() {
    hosts_deliver_and_take_over(Deal::InTurn, "ordered_by_aggregate", Mode::ByAggregate);
}

#[test]
fn a_host_behind_a_pooler_that_has_the_table_for_itself_is_followed_by_another() {
    hosts_deliver_and_take_over(Deal::Last, "single_node", Mode::Any);
}

fn hosts_deliver_and_take_over(deal: Deal, mode: &str, promises: Mode) {
    let pooled = Pooled::start(deal);
    let place = pooled.place();
    let settings = &[SETTINGS, &[("OUTBOX_MODE", mode)]].concat()[..];
    sample_plugins();
    let rest = Duration::from_millis(20);
    let writers = Writers { writers: 2, events: EVENTS, rest, takes: Duration::from_millis(20), faults: Faults::None };
    let enough = Arc::new(AtomicBool::new(false));
    let writers = writers.start_until(place.url(), place.path(), enough.clone());
    let witness = Witness::of(place.url(), place.path());
    let mut first = Node::start(place, 0, settings);
    first.wait_for_deliveries(20);
    let mut second = Node::start(place, 1, settings);
    second.wait_for("ready", 1);

    let held = first.kill(&witness);
    let killed_at = Instant::now();
    second.wait_for_deliveries(20);
    let after = killed_at.elapsed();
    enough.store(true, Ordering::Relaxed);
    wait_for_writers(writers, EVENTS);
    first.revive(place, settings);
    first.wait_for("ready", 2);
    first.wait_for(SAID, 2);

    assert_eq!((first.said(SAID).len(), second.said(SAID).len()), (2, 1), "{:?}", second.complaints());
    say(&format!("PgBouncer, {mode}: killed with {held} in hand, 20 delivered by the other {after:.1?} later\n"));
    let title = format!("PgBouncer, {mode}, a host killed and started again");
    conclude(&title, place, &mut [first, second], EVENTS, &promises.rules(), &witness);
}

#[test]
fn a_host_leaves_nothing_of_its_own_with_a_pooler_and_doctor_says_what_is_lost() {
    let pooled = Pooled::start(Deal::Last);
    let place = pooled.place();
    let order = r#"{"order_id":42,"total":9.5}"#;
    place.ok(&["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", order]);

    let host = place.host(&[("OUTBOX_POLLER__INTERVAL", "100ms")]);
    place.wait_for("done", 1);
    let ended = place.run(&["doctor", "--output", "json"]);
    host.signal("TERM");
    assert_eq!(host.end().0.code(), Some(0));

    let findings: serde_json::Value = serde_json::from_str(&ended.stdout).expect("one document");
    let findings = findings.as_array().expect("a list");
    let of = |check: &str| findings.iter().filter(|finding| finding["check"] == check).cloned().collect::<Vec<_>>();
    let said = of("pooler")[0].to_string();
    assert!(said.contains("sessions and wake-ups do not work") && said.contains("lease"), "{said}");
    assert!(of("notify").is_empty(), "told of once: {findings:?}");
    // Another user of the pooler meets no setting, no prepared statement and no lock of the host's.
    let [plans, statements, locks] = left_by_hosts(place.url());
    assert_eq!((plans.as_str(), statements.as_str(), locks.as_str()), ("on", "0", "0"));
    let directly = place.run(&["doctor", "--output", "json", "--database-url", pooled.home.url()]);
    assert!(directly.stdout.contains("each connection keeps its backend"), "{}", directly.stdout);
}

#[test]
fn a_pooler_that_others_use_at_the_same_time_is_noticed_by_each_host_that_connects() {
    let second = Duration::from_secs(1);
    let expectations = Expectations { lease: second * 4, deadline: second, max_payload: 1 << 20, connections: 5, index: None };
    for deal in [Deal::Last, Deal::InTurn] {
        let pooled = Pooled::start(deal);
        let url = pooled.place().url();
        run(async {
            for millis in 1..=OTHERS {
                tokio::spawn(transactions(connect_as_another(url).await, Duration::from_millis(millis)));
            }
            for connect in 1..=CONNECTS {
                let store = PostgresStore::connect(url).await.expect("the pooler answers");
                let findings = store.diagnose(&expectations).await.expect("the server answers");
                let pooler = findings.iter().find(|finding| finding.check == "pooler").expect("each has one");
                assert_eq!(pooler.severity, Severity::Warning, "{deal:?}, connect {connect}: {}", pooler.found);
                store.close().await;
            }
        });
    }
}

/// Transactions of somebody else, each as long as the one before, without an end.
async fn transactions(mut other: PgConnection, takes: Duration) {
    let sleep = format!("SELECT pg_sleep({})", takes.as_secs_f64());
    loop {
        // Safe: the only text put in is a number.
        sqlx::raw_sql(AssertSqlSafe(sleep.clone())).execute(&mut other).await.expect("it can be asked");
    }
}

/// A connection through the pooler of somebody who is no host.
async fn connect_as_another(url: &str) -> PgConnection {
    // PgBouncer takes no startup parameter that it does not know.
    let options = PgConnectOptions::from_str(url).expect("an address").extra_float_digits(None);
    options.connect().await.expect("the pooler answers")
}

#[test]
fn host_behind_a_pooler_uses_no_setting_that_another_client_left() {
    let pooled = Pooled::start(Deal::Last);
    let place = pooled.place();
    let order = r#"{"order_id":42,"total":9.5}"#;
    place.ok(&["event", "emit", "--type", "OrderPlaced", "--aggregate-type", "Order", "--payload", order]);
    leave_in_each_session(place.url(), "SET search_path = pg_catalog; SET default_transaction_read_only = on");

    let host = place.host(&[("OUTBOX_POLLER__INTERVAL", "100ms")]);
    place.wait_for("done", 1);
    host.signal("TERM");

    assert_eq!(host.end().0.code(), Some(0));
}

#[test]
fn configured_schema_is_used_behind_a_pooler() {
    let pooled = Pooled::start(Deal::Last);
    // No session was opened yet: none of them begins with the schema.
    pooled.home.execute(&format!("ALTER ROLE {} RESET search_path", pooled.user));
    let set = format!("database.schema={}", pooled.user.replace("outbox_pooled", "outbox_test"));

    pooled.place().ok(&["event", "emit", "--type", "OrderPlaced", "--payload", "{}", "--set", &set]);

    assert_eq!(Place::at(pooled.home.url()).stat("new"), 1);
}

/// Runs statements in all sessions of the server that the pooler uses.
fn leave_in_each_session(url: &str, sql: &'static str) {
    run(async {
        let mut others = Vec::new();
        for _ in 0..Pooler::SESSIONS {
            let mut other = connect_as_another(url).await;
            // Until its end, the transaction keeps a session for itself.
            other.execute("BEGIN").await.expect("begins");
            others.push(other);
        }
        for mut other in others {
            other.execute(sql).await.expect("it can be set");
            other.execute("COMMIT").await.expect("commits");
        }
    });
}

/// What a connection of the pooler has: a setting of plans, prepared statements, locks of sessions.
fn left_by_hosts(url: &str) -> [String; 3] {
    run(async {
        let mut other = connect_as_another(url).await;
        let mut found = Vec::new();
        for sql in [
            "SELECT current_setting('enable_seqscan')",
            "SELECT count(*)::text FROM pg_prepared_statements",
            "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        ] {
            let row = sqlx::raw_sql(sql).fetch_one(&mut other).await.expect("it can be asked");
            found.push(sqlx::Row::get::<String, _>(&row, 0));
        }
        found.try_into().expect("three")
    })
}

#[test]
fn a_call_whose_pooler_falls_silent_ends_and_the_next_one_is_answered() {
    let pooled = Pooled::start(Deal::Last);
    let server = Url::parse(pooled.place().url()).expect("an address").socket_addrs(|| None).expect("in figures")[0];
    run(async {
        let proxy = Proxy::in_front_of(server).await;
        let mut options = PostgresOptions::from_url(&proxy.url(pooled.place().url())).expect("good");
        (options.statement_timeout, options.lock_timeout) = (Duration::from_secs(2), PATIENCE);
        let store = PostgresStore::connect_with(options).await.expect("connects");
        store.stats().await.expect("it answers");
        let mut other = connect_as_another(pooled.home.url()).await;
        other.execute("BEGIN; LOCK TABLE outbox_event").await.expect("nobody else has it");
        let asking = tokio::spawn({
            let store = store.clone();
            async move { store.stats().await }
        });
        eventually("the statement waits for the table", async || {
            let waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'outbox_event'::regclass AND NOT granted)";
            sqlx::query_scalar::<_, bool>(waiting).fetch_one(&mut other).await.expect("it answers")
        })
        .await;

        proxy.set(Network::Forgets);

        let silent = tokio::time::timeout(PATIENCE, asking).await.expect("the call ends").expect("it does not panic");
        assert!(silent.is_err_and(|error| error.is_transient()));
        other.execute("ROLLBACK").await.expect("it answers");
        eventually("the next call is answered", async || store.stats().await.is_ok()).await;
    });
}
