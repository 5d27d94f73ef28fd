//! What plugins emit and keep, while their hosts are killed: an event has all of its effects when it is DONE, and none before.

use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::{Effects, OwnerId};
use outbox::listener::{Outcome, Reply, Visit};
use outbox::store::{Filter, InspectStore, NewRow, Ownership, Stats};
use outbox::wasm::PluginsConfig;
use outbox::{
    Envelope, EventId, Listener, MySqlStore, Outbox, PostgresStore, Registration, SqliteStore, Status, Store,
    TransactionalStore,
};
use rand::RngExt;
use support::{Database, MySql, Postgres, Recorder, Seed, Sqlite, eventually, sample_plugins};
use tokio::sync::watch;

use crate::chaos::say;
use crate::common::{ROUTE, at_rest, commit, eager, order, reaches, row};
use crate::refused::{BAD, allow, refused, set_back};

const URL: &str = "OUTBOX_TEST_EFFECTS_URL";
const PLUGINS: &str = "OUTBOX_TEST_EFFECTS_PLUGINS";
/// How often a host is killed; a thousand times, by hand, when this says so.
const KILLS: &str = "OUTBOX_TEST_KILLS";
const MANIFEST: &str = "emit = true\nstate = true\nlimits.concurrency = 4";
const LEASE: Duration = Duration::from_secs(3);
/// Events for each host that is killed.
const EVENTS: u32 = 20;
const EMITTED: usize = 2;
/// How long anything may take, and each event more where there are many.
const PATIENCE: Duration = Duration::from_secs(300);
const EACH: Duration = Duration::from_millis(100);

/// The host of these tests, a process of its own: this program again, with a database to work on.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test that starts this process says by the environment what it is to do")]
fn host_process() {
    let (Ok(url), Some(plugins)) = (std::env::var(URL), std::env::var_os(PLUGINS)) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(async {
        let there = "the database is there";
        match url.split(':').next().unwrap_or_default() {
            "sqlite" => run(SqliteStore::open(&url).await.expect(there), plugins.as_ref()).await,
            "postgres" => run(PostgresStore::connect(&url).await.expect(there), plugins.as_ref()).await,
            _ => run(MySqlStore::connect(&url).await.expect(there), plugins.as_ref()).await,
        }
    });
}

async fn run<S: TransactionalStore + Clone + 'static>(store: S, plugins: &Path) {
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 3, ..DispatcherConfig::default() };
    let dir = plugins.to_owned();
    let plugins = PluginsConfig { cache_dir: Some(plugins.join(".cache")), dir, ..PluginsConfig::default() };
    let host = Outbox::multi_node(store).dispatcher(config).poller(eager()).plugins_config(plugins);
    host.start().await.expect("starts").broken().await;
}

/// A host that is killed when it is dropped.
struct Host(Child);

impl Host {
    fn start(url: &str, plugins: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own file"));
        command.args(["--exact", "effects::host_process", "--nocapture"]).env(URL, url).env(PLUGINS, plugins);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be started"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[expect(clippy::disallowed_methods, reason = "how often is the caller's choice")]
fn kills() -> u32 {
    std::env::var(KILLS).ok().and_then(|kills| kills.parse().ok()).unwrap_or(6)
}

async fn hosts_are_killed_at_work(name: &str, url: &str, store: &dyn Store) {
    let plugins = tempfile::tempdir().expect("a directory");
    std::fs::copy(sample_plugins().join("effects.wasm"), plugins.path().join("effects.wasm")).expect("copies");
    std::fs::write(plugins.path().join("effects.toml"), MANIFEST).expect("writes");
    let mut chance = Seed::of_this_run().choices_of(name);
    let mut written = Vec::new();
    let mut interrupted = 0;
    for _ in 0..kills() {
        written.extend(write(store).await);
        let before = stats(store).await;
        let host = Host::start(url, plugins.path());
        // It is killed once it is at work, a moment later.
        wait_until("the host is at work", store, |now| now.done > before.done).await;
        tokio::time::sleep(Duration::from_micros(chance.random_range(0..30_000))).await;
        drop(host);
        interrupted += u64::from(stats(store).await.new > 0);
        assert_whole(store, &written).await;
    }
    let host = Host::start(url, plugins.path());
    // All of them count under one key, one after the other: what so many killed hosts have left takes its time.
    let patience = PATIENCE + EACH * u32::try_from(written.len()).expect("fits");
    wait_for(patience, "everything has ended", store, |now| now.new + now.retry == 0).await;
    drop(host);
    let Ends { done, dead } = assert_whole(store, &written).await;
    assert_eq!(done + dead, written.len());
    assert!(dead == 0 || kills() > 100, "so few kills are no fault of any event");
    say(&format!(
        "{name}: {} hosts killed, {interrupted} of them with events left; {} events, each with all of its effects, but for {dead} dead ones\n",
        kills(),
        written.len()
    ));
}

async fn write(store: &dyn Store) -> Vec<EventId> {
    let payload = format!(r#"{{"emit":{EMITTED},"count":"n","then":"done"}}"#);
    let envelope = || Envelope::new("Do").aggregate_type("Effects").json_text(payload.clone()).expect("a good envelope");
    let envelopes: Vec<Envelope> = (0..EVENTS).map(|_| envelope()).collect();
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    store.write(&rows, &Ownership { owner: OwnerId::generate("writer"), lease: LEASE }).await.expect("writes");
    envelopes.iter().map(Envelope::id).collect()
}

async fn stats(store: &dyn Store) -> Stats {
    store.stats().await.expect("counts")
}

async fn wait_until(what: &str, store: &dyn Store, so: impl Fn(&Stats) -> bool) {
    wait_for(PATIENCE, what, store, so).await;
}

async fn wait_for(patience: Duration, what: &str, store: &dyn Store, so: impl Fn(&Stats) -> bool) {
    let until = tokio::time::Instant::now() + patience;
    loop {
        let now = stats(store).await;
        if so(&now) {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "expected: {what}, not {now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How events ended.
struct Ends {
    done: usize,
    /// Each was delivered alone when its host was killed, five times: then it looks as if it were to blame.
    dead: usize,
}

/// Of the events written, those that are DONE have emitted and counted, and the others have not.
async fn assert_whole(store: &dyn Store, written: &[EventId]) -> Ends {
    // A server may still be at the commit that a killed host sent: rows and state are to be of one moment.
    let (rows, count) = loop {
        let count = counted(store).await;
        let rows = store.list(&Filter::default(), u32::MAX).await.expect("lists");
        if counted(store).await == count {
            break (rows, count);
        }
    };
    let done = rows.iter().filter(|row| row.status == Status::Done && written.contains(&row.event_id));
    let done: std::collections::HashSet<String> = done.map(|row| row.event_id.to_string()).collect();
    let mut emitted = std::collections::HashMap::<&str, usize>::new();
    for row in rows.iter().filter(|row| row.event_type == "Emitted") {
        *emitted.entry(row.aggregate_id.as_deref().expect("the event that it follows")).or_default() += 1;
    }
    for (id, count) in &emitted {
        assert!(done.contains(*id), "{id} emitted {count} events and is not DONE");
        assert_eq!(*count, EMITTED, "{id}");
    }
    assert_eq!(emitted.len(), done.len(), "each of the DONE emitted");
    assert_eq!(count, done.len(), "each of the DONE is counted once");
    let dead: Vec<_> = rows.iter().filter(|row| row.status == Status::Dead).collect();
    let blamed = |row: &&outbox::store::Record| {
        row.last_error.as_deref().is_some_and(|error| error.contains("its host stopped 5 times"))
    };
    assert!(dead.iter().all(blamed), "no event failed: {dead:?}");
    Ends { done: done.len(), dead: dead.len() }
}

async fn counted(store: &dyn Store) -> usize {
    let value = store.state("effects", "n").await.expect("reads");
    value.map_or(0, |value| String::from_utf8_lossy(&value.value).parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_killed_at_work_leave_no_event_with_half_of_its_effects_on_sqlite() {
    let (db, store) = Sqlite::on_system_clock().await;
    hosts_are_killed_at_work("SQLite", &format!("sqlite:{}", db.file().display()), &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_killed_at_work_leave_no_event_with_half_of_its_effects_on_postgres() {
    let db = Postgres::fresh().await;
    let store = PostgresStore::connect(db.url()).await.expect("the database is there");
    hosts_are_killed_at_work("PostgreSQL", db.url(), &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_killed_at_work_leave_no_event_with_half_of_its_effects_on_mysql() {
    let db = MySql::fresh().await;
    let store = MySqlStore::connect(&db.url()).await.expect("the database is there");
    hosts_are_killed_at_work("MySQL", &db.url(), &store).await;
}

/// A host whose plugin counts in its state, and has counted some events; and what was written.
async fn counting_host<D: Database>(db: &D, plugins: &Path, free: &Recorder) -> (Outbox<D::Store>, Vec<EventId>) {
    std::fs::copy(sample_plugins().join("effects.wasm"), plugins.join("effects.wasm")).expect("copies");
    std::fs::write(plugins.join("effects.toml"), "emit = true\nstate = true").expect("writes");
    let store = db.another().await;
    let host = Outbox::multi_node(store.clone()).poller(eager()).plugins(plugins).listener(ROUTE, free.listener());
    let host = host.start().await.expect("starts");
    let written = write(&store).await;
    wait_until("the first are counted", &store, |now| now.new + now.retry + now.in_flight == 0).await;
    (host, written)
}

/// While somebody else holds the row of the state: what has none goes on, and the events that count come again and again.
async fn held_up<D: Database>(db: &D, host: &Outbox<D::Store>) -> Vec<EventId> {
    let store = db.another().await;
    let written = write(&store).await;
    let comes_again = async || {
        let rows = store.list(&Filter::default(), u32::MAX).await.expect("lists");
        rows.iter().any(|row| written.contains(&row.event_id) && row.claim_seq > 1)
    };
    eventually("some have come again", comes_again).await;
    let id = commit(host, vec![order(1)]).await[0];
    reaches(db, id, Status::Done).await;
    written
}

async fn all_are_counted<D: Database>(db: &D, host: Outbox<D::Store>, written: &[EventId]) {
    let store = db.another().await;
    wait_until("all are counted", &store, |now| now.new + now.retry + now.in_flight == 0).await;
    let Ends { done, dead } = assert_whole(&store, written).await;
    assert_eq!((done, dead), (written.len(), 0));
    for id in written {
        assert_eq!(row(db, *id).await.attempts, 0, "a lock of somebody else is no failure of the listener");
    }
    host.shutdown().await;
}

const LOCK: &str = "SELECT plugin FROM outbox_event_state_usage FOR UPDATE";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_somebody_else_has_locked_costs_no_attempt_on_postgres() {
    let (db, plugins, free) = (Postgres::fresh().await, tempfile::tempdir().expect("a directory"), Recorder::done());
    let (host, mut written) = counting_host(&db, plugins.path(), &free).await;
    let mut other = sqlx::PgPool::connect(db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(LOCK).execute(&mut *other).await.expect("locks");

    written.extend(held_up(&db, &host).await);

    other.rollback().await.expect("lets it go");
    all_are_counted(&db, host, &written).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_that_somebody_else_has_locked_costs_no_attempt_on_mysql() {
    let (db, plugins, free) = (MySql::fresh().await, tempfile::tempdir().expect("a directory"), Recorder::done());
    let (host, mut written) = counting_host(&db, plugins.path(), &free).await;
    let mut other = sqlx::MySqlPool::connect(&db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(LOCK).execute(&mut *other).await.expect("locks");

    written.extend(held_up(&db, &host).await);

    other.rollback().await.expect("lets it go");
    all_are_counted(&db, host, &written).await;
}

/// Answers with eight follow-up events of one MiB, which are one row: they have one id.
struct Emitter {
    calls: Arc<AtomicUsize>,
    may_answer: watch::Receiver<bool>,
}

impl Listener for Emitter {
    fn call<'a>(&'a self, _: Visit<'a>) -> Pin<Box<dyn Future<Output = Reply> + Send + 'a>> {
        let mut may_answer = self.may_answer.clone();
        Box::pin(async move {
            self.calls.fetch_add(1, Ordering::SeqCst);
            may_answer.wait_for(|may_answer| *may_answer).await.expect("the test goes on");
            let emitted = Envelope::new("Emitted").id("the-same".parse().expect("an id"));
            let emitted = emitted.bytes("application/octet-stream", vec![0; 1 << 20]).expect("a good envelope");
            let effects = Effects { emitted: vec![emitted; 8], state: None };
            Reply { effects: Some(Box::new(effects)), ..Outcome::Done.into() }
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_that_wait_for_the_database_keep_no_more_workers_than_their_listener_has_calls() {
    let db = Sqlite::fresh().await;
    let (calls, others) = (Arc::new(AtomicUsize::new(0)), Recorder::done());
    let (answer, may_answer) = watch::channel(false);
    let emitter = Emitter { calls: calls.clone(), may_answer };
    let emitter = Registration::new(ROUTE.try_into().expect("good names"), emitter).concurrency(2);
    let config = DispatcherConfig { workers: 4, ..DispatcherConfig::default() };
    let host = crate::common::outbox(&db).dispatcher(config).registration(emitter).listener("Other", others.listener());
    let host = host.listener("Emitted", Recorder::done().listener()).start().await.expect("starts");
    let ids = commit(&host, (0..20).map(order).collect()).await;
    eventually("two calls have begun", async || calls.load(Ordering::SeqCst) == 2).await;
    commit(&host, vec![Envelope::new("Other").json(&1).expect("good")]).await;

    let mut service = db.other_program().acquire().await.expect("connects");
    sqlx::query("BEGIN IMMEDIATE").execute(&mut *service).await.expect("locks the file");
    answer.send_replace(true);
    others.started().await;
    let begun = async || calls.load(Ordering::SeqCst) >= 9;
    eventually("64 MiB of effects wait for the database, and two calls for room", begun).await;
    tokio::time::sleep(Duration::from_millis(300)).await;

    assert_eq!(calls.load(Ordering::SeqCst), 9, "seven of 8 MiB have room, and two wait for room at their places");
    sqlx::query("ROLLBACK").execute(&mut *service).await.expect("lets go");
    for id in ids {
        reaches(&db, id, Status::Done).await;
    }
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_with_effects_that_is_set_back_is_not_delivered_in_a_loop() {
    let db = Sqlite::fresh().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let (_answer, may_answer) = watch::channel(true);
    let emitter = Emitter { calls: calls.clone(), may_answer };
    let emitter = Registration::new(ROUTE.try_into().expect("good names"), emitter);
    let host = crate::common::outbox(&db).registration(emitter).listener("Emitted", Recorder::done().listener());
    let host = host.start().await.expect("starts");
    set_back(&db).await;

    let id = commit(&host, vec![order(u32::try_from(BAD).expect("small"))]).await[0];

    eventually("the host names the outcome", async || refused(&db).await.len() == 1).await;
    allow(&db).await;
    reaches(&db, id, Status::Done).await;
    at_rest(&host).await;
    assert_eq!(calls.load(Ordering::SeqCst), 2, "the listener is called once more");
    host.shutdown().await;
}
