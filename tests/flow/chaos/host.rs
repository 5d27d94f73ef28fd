//! The host of these tests: a process of its own, which embeds the library, writes hot and delivers.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use outbox::dispatcher::{DispatcherConfig, Interceptor};
use outbox::listener::{Fixed, Outcome};
use outbox::poller::PollerConfig;
use outbox::writer::{HookError, WriterHook};
use outbox::{
    DispatchResult, Envelope, Event, EventId, Failure, Mode, MySqlStore, Outbox, PostgresStore, SqliteStore, Status,
    TransactionalStore,
};
use serde::{Deserialize, Serialize};
use support::history::{Aggregate, Delivery, Ended, Ending, FaultKind, Journal, Step};
use support::{Faults, Gate, Moment, PATIENCE, Seed, Trouble, Witness, Writers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// What the host is to do, as JSON.
const ORDERS: &str = "OUTBOX_TEST_HOST";

/// So long that a busy machine alone does not end a lease, and short enough to wait for.
pub(super) const LEASE: Duration = Duration::from_secs(8);
const DEADLINE: Duration = Duration::from_secs(6);

pub(super) const RETRY: Duration = Duration::from_millis(100);

/// How long the listener takes.
pub(super) const TAKES: Duration = Duration::from_millis(2);

/// What a host is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) url: String,
    pub(super) directory: PathBuf,
    /// Its own among those of the test.
    pub(super) name: String,
    pub(super) mode: Mode,
    /// How many writers it has.
    pub(super) writers: usize,
    /// How many events they commit.
    pub(super) events: usize,
    /// How long each of them rests after a transaction.
    pub(super) rest: Duration,
    pub(super) faults: Faults,
    /// Where it waits to be killed or stopped.
    pub(super) moment: Option<Moment>,
    pub(super) passage: usize,
}

impl Orders {
    fn gate(&self) -> PathBuf {
        self.directory.join(&self.name).with_extension("gate")
    }

    /// What it makes when it has written its share.
    fn written(&self) -> PathBuf {
        self.directory.join(&self.name).with_extension("written")
    }

    /// Where it leaves the number of events that took the hot path.
    fn hot(&self) -> PathBuf {
        self.directory.join(&self.name).with_extension("hot")
    }
}

/// Does nothing, unless it was started to be a host.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test that starts this process says by the environment what it is to do")]
fn host_process() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).expect("orders that a test wrote");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(async {
        let there = "the database is there";
        match orders.url.split(':').next().unwrap_or_default() {
            "sqlite" => run(SqliteStore::open(&orders.url).await.expect(there), orders).await,
            "postgres" => run(PostgresStore::connect(&orders.url).await.expect(there), orders).await,
            "mysql" => run(MySqlStore::connect(&orders.url).await.expect(there), orders).await,
            scheme => panic!("no store for {scheme}"),
        }
    });
}

async fn run<S: TransactionalStore + Clone + 'static>(store: S, orders: Orders) {
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be heard");
    let gate = Arc::new(Gate::at(orders.moment, orders.passage, orders.gate()));
    let journal = |name: &str| Journal::open(&orders.directory.join(name).with_extension("jsonl"), name);
    let calls = Arc::new(Calls { journal: journal(&orders.name), gate: gate.clone(), store: Arc::new(store.clone()) });
    let dispatcher = DispatcherConfig { lease: LEASE, deadline: DEADLINE, ..DispatcherConfig::default() };
    // Little in hand, so that the bound on duplicates means something.
    let dispatcher = DispatcherConfig { cold_queue: 32, hot_queue: 32, ..dispatcher };
    let interval = Duration::from_millis(100);
    let outbox = Outbox::multi_node(store)
        .mode(orders.mode)
        .dispatcher(dispatcher)
        .poller(PollerConfig { interval, drain_batch_size: 32, ..PollerConfig::default() })
        .retry(Fixed(RETRY))
        .hook(Hook(gate.clone()))
        .interceptor(Around(calls.clone()))
        .listener(("Account", "Changed"), move |event: Arc<Event>| {
            let calls = calls.clone();
            async move { calls.answer(&event).await }
        });
    let outbox = Arc::new(outbox.start().await.expect("starts"));
    let writers =
        Writers { writers: orders.writers, events: orders.events, rest: orders.rest, takes: TAKES, faults: orders.faults };
    let mut writing = JoinSet::new();
    for number in 0..writers.writers {
        let name = format!("{}-writer-{number}", orders.name);
        let (journal, gate, outbox) = (journal(&name), gate.clone(), outbox.clone());
        writing.spawn(async move { writers.write_one(&outbox, &name, &journal, &gate).await });
    }
    while let Some(written) = writing.join_next().await {
        written.expect("it wrote its share");
    }
    fs::write(orders.written(), b"all").expect("the directory is there");
    terminate.recv().await;
    fs::write(orders.hot(), outbox.metrics().counts().hot_enqueued.to_string()).expect("the directory is there");
    Arc::into_inner(outbox).expect("its writers are gone").shutdown().await;
}

/// The listener, and what is around it.
struct Calls {
    journal: Journal,
    gate: Arc<Gate>,
    store: Arc<dyn outbox::Store>,
}

/// How the writers want it.
#[derive(Deserialize)]
struct Change {
    succeeds_on: u32,
    takes_ms: u64,
}

impl Calls {
    async fn answer(&self, event: &Event) -> Result<DispatchResult, Failure> {
        let envelope = event.envelope();
        let change: Change = envelope.payload().expect("its writer is ours");
        let (event_id, fence, attempt) = (envelope.id(), event.fence(), event.attempt());
        let kind = envelope.aggregate_type().as_str().to_owned();
        let aggregate = envelope.aggregate_id().map(|id| Aggregate { kind, id: id.to_owned() });
        self.journal.record(Step::Began(Delivery { event_id, aggregate, sequence: event.sequence(), fence, attempt }));
        self.gate.pass(Moment::Began).await;
        tokio::time::sleep(Duration::from_millis(change.takes_ms)).await;
        let succeeds = attempt >= change.succeeds_on;
        let ending = if succeeds { Ending::Done } else { Ending::Failed };
        self.journal.record(Step::Ended(Ended { event_id, fence, ending, after_ms: None }));
        self.gate.pass(Moment::Ended).await;
        if succeeds { Ok(DispatchResult::Done) } else { Err(Failure::retryable(format!("attempt {attempt}"))) }
    }
}

struct Around(Arc<Calls>);

#[async_trait]
impl Interceptor for Around {
    async fn before(&self, _: &Event) -> Result<(), String> {
        self.0.gate.pass(Moment::Claimed).await;
        Ok(())
    }

    async fn after(&self, event: &Event, _: &Outcome) -> Result<(), String> {
        self.0.gate.pass(Moment::Answered).await;
        if self.0.gate.waits_for(Moment::Settled) {
            let (calls, id) = (self.0.clone(), event.envelope().id());
            tokio::spawn(async move {
                let is_open = |status| matches!(status, Status::New | Status::Retry);
                while calls.store.get(id).await.is_ok_and(|row| row.is_some_and(|row| is_open(row.status))) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                calls.gate.pass(Moment::Settled).await;
            });
        }
        Ok(())
    }
}

struct Hook(Arc<Gate>);

impl WriterHook for Hook {
    fn after_commit(&self, _: &[&Envelope]) -> Result<(), HookError> {
        self.0.pass_blocking(Moment::Committed);
        Ok(())
    }
}

/// What a host that was killed left behind.
pub(super) struct Left {
    /// When, in microseconds since 1970.
    pub(super) at: i64,
    /// The events that others have to read again.
    pub(super) readable: BTreeSet<EventId>,
    /// How many it held.
    pub(super) held: usize,
}

/// A running host, seen by the test. Killed when dropped.
pub(super) struct Host {
    orders: Orders,
    child: Child,
}

impl Host {
    pub(super) fn start(orders: Orders) -> Self {
        let log = File::create(orders.directory.join(&orders.name).with_extension("log")).expect("the directory is there");
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own file"));
        command.args(["--exact", "chaos::host::host_process", "--nocapture"]);
        command.env(ORDERS, serde_json::to_string(&orders).expect("JSON"));
        command.env("OUTBOX_TEST_SEED", Seed::of_this_run().number().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("this program can be started again");
        Self { orders, child }
    }

    /// Waits until it stands at its gate.
    pub(super) fn meet(&mut self) {
        let gate = self.orders.gate();
        self.wait(&format!("it comes to {:?}", self.orders.moment), || gate.exists());
    }

    /// Waits until it is among the hosts that are alive.
    pub(super) fn wait_until_it_lives(&mut self, witness: &Witness) {
        let label = format!(" {}", self.child.id());
        self.wait("it lives", || {
            let nodes = witness.run(witness.store().nodes()).expect("the hosts can be listed");
            nodes.iter().any(|node| node.alive && node.label.ends_with(&label))
        });
    }

    /// How many partitions it holds.
    pub(super) fn partitions(&self, witness: &Witness) -> u16 {
        let label = format!(" {}", self.child.id());
        let nodes = witness.run(witness.store().nodes()).expect("the hosts can be listed");
        nodes.iter().filter(|node| node.label.ends_with(&label)).map(|node| node.partitions).sum()
    }

    /// Waits until it has written its share.
    pub(super) fn wait_until_all_is_written(&mut self) {
        let written = self.orders.written();
        self.wait("it writes its share", || written.exists());
    }

    /// `kill -9`. Returns how many events it held.
    pub(super) fn kill(self, witness: &Witness) -> usize {
        self.die(witness).held
    }

    /// The same. Returns what it left behind.
    pub(super) fn die(mut self, witness: &Witness) -> Left {
        let (name, process) = (self.orders.name.clone(), self.child.id());
        let killed = witness.trouble(&name, FaultKind::Killed, process, || {
            self.child.kill().expect("it runs");
            self.child.wait().expect("it ends");
        });
        let (at, readable) = (killed.from(), killed.readable().clone());
        Left { at, readable, held: witness.over(killed) }
    }

    /// Stops it in its tracks, until [`wake`](Self::wake).
    pub(super) fn stall(&self, witness: &Witness) -> Trouble {
        witness.trouble(&self.orders.name, FaultKind::Stalled, self.child.id(), || self.signal("STOP"))
    }

    /// Lets it go on, and through its gate. Returns how many events it held.
    pub(super) fn wake(&self, witness: &Witness, asleep: Trouble) -> usize {
        let held = witness.over(asleep);
        fs::remove_file(self.orders.gate()).expect("it stands at its gate");
        self.signal("CONT");
        held
    }

    /// What is done to its network, until [`Witness::over`].
    pub(super) fn cut(&self, witness: &Witness, act: impl FnOnce()) -> Trouble {
        witness.trouble(&self.orders.name, FaultKind::CutOff, self.child.id(), act)
    }

    /// Asks it to end when it has written its share, and waits for that. Returns how many events took the hot path in it.
    pub(super) fn stop(mut self) -> u64 {
        self.signal("TERM");
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it can be asked") {
                break status;
            }
            assert!(started.elapsed() < 2 * PATIENCE, "expected of {}: it ends; it says: {}", self.orders.name, self.said());
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(status.success(), "{}: {status}: {}", self.orders.name, self.said());
        fs::read_to_string(self.orders.hot()).expect("it told").parse().expect("a number")
    }

    fn wait(&mut self, fact: &str, holds: impl Fn() -> bool) {
        let started = Instant::now();
        while !holds() {
            let runs = self.child.try_wait().expect("it can be asked").is_none();
            let name = &self.orders.name;
            assert!(runs && started.elapsed() < 2 * PATIENCE, "expected of {name}: {fact}; it says: {}", self.said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn said(&self) -> String {
        said(&self.orders.directory, &self.orders.name)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().expect("kill is there");
        assert!(sent.success(), "the host takes signals");
    }
}

fn said(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name).with_extension("log")).unwrap_or_default()
}

impl Drop for Host {
    fn drop(&mut self) {
        // Nothing to do when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
