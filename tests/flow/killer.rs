//! Hosts that are stopped in the middle, by an event or by somebody else: who is to blame, and who is not.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::sqlite::SqliteOptions;
use outbox::store::{InspectStore, NewRow, Ownership, WriteStore};
use outbox::{DispatchResult, Envelope, Event, Outbox, SqliteStore, Status};
use support::{Sqlite, sample_plugins};

use crate::common::{ROUTE, eager, order, row};

const FILE: &str = "OUTBOX_TEST_HOST_FILE";
const PLUGINS: &str = "OUTBOX_TEST_HOST_PLUGINS";
/// So long a test waits for what takes several leases.
const MINUTES: Duration = Duration::from_secs(300);
const LEASE: Duration = Duration::from_secs(3);

/// The host of these tests, a process of its own: this program again, with a file to work on. A plugin answers orders, or a
/// listener that takes five milliseconds; what answers `Fatal` takes the host with it.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test that starts this process says by the environment what it is to do")]
fn host_process() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    runtime.block_on(async {
        let store = SqliteStore::open_with(SqliteOptions::new(file)).await.expect("opens");
        let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 3, ..DispatcherConfig::default() };
        let host = Outbox::single_node(store).dispatcher(config).poller(eager()).listener("Fatal", fatal);
        let host = match std::env::var_os(PLUGINS) {
            Some(plugins) => host.plugins(plugins),
            None => host.listener(ROUTE, slow),
        };
        let host = host.start().await.expect("starts");
        host.broken().await;
    });
}

async fn fatal(_: Arc<Event>) -> Result<DispatchResult, outbox::Failure> {
    std::process::abort();
}

async fn slow(_: Arc<Event>) -> Result<DispatchResult, outbox::Failure> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(DispatchResult::Done)
}

/// A host that is killed when the test ends.
struct Host(Child);

impl Host {
    fn start(db: &Sqlite, plugins: Option<&std::path::Path>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own file"));
        command.args(["--exact", "killer::host_process", "--nocapture"]).env(FILE, db.file());
        if let Some(plugins) = plugins {
            command.env(PLUGINS, plugins);
        }
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be started"))
    }

    /// The signal that ended it; `None` while it runs.
    fn ended(&mut self) -> Option<i32> {
        self.0.try_wait().expect("it can be asked").map(|status| status.signal().expect("it runs until something kills it"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

async fn write_cold(store: &SqliteStore, envelopes: &[Envelope]) {
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let ownership = Ownership { owner: OwnerId::generate("writer"), lease: LEASE };
    store.write(&rows, &ownership).await.expect("writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_aborts_its_host_ends_dead_and_the_others_beside_it_done() {
    let plugins = tempfile::tempdir().expect("a directory");
    std::fs::copy(sample_plugins().join("order-mailer.wasm"), plugins.path().join("order-mailer.wasm")).expect("copies");
    let (db, store) = Sqlite::on_system_clock().await;
    let mut envelopes: Vec<Envelope> = (0..1_000).map(good_order).collect();
    envelopes[500] = Envelope::new("Fatal").json(&1).expect("a good envelope");
    let killer = envelopes[500].id();
    write_cold(&store, &envelopes).await;

    let started = Instant::now();
    let (mut host, mut aborts) = (Host::start(&db, Some(plugins.path())), 0);
    loop {
        let stats = store.stats().await.expect("counts");
        if stats.done == 999 && stats.dead == 1 {
            break;
        }
        assert!(started.elapsed() < MINUTES, "expected: 999 DONE and one DEAD, after {aborts} aborts not {stats:?}");
        if let Some(signal) = host.ended() {
            assert_eq!(signal, 6, "only the event stops it");
            aborts += 1;
            host = Host::start(&db, Some(plugins.path()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    assert_eq!(aborts, 8, "once as it was read, twice as it was claimed beside others, and five times alone");
    let dead = row(&db, killer).await;
    assert_eq!(dead.status, Status::Dead);
    assert!(dead.last_error.expect("a reason").contains("its host stopped 5 times"), "it says why");
    assert!(host.ended().is_none(), "the host that saw it last lives");
}

fn good_order(number: u32) -> Envelope {
    let payload = serde_json::json!({ "order_id": number, "total": 9.5 });
    Envelope::new("OrderPlaced").aggregate("Order", number.to_string()).json(&payload).expect("a good envelope")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_events_outlive_a_host_that_is_killed_ten_times() {
    let (db, store) = Sqlite::on_system_clock().await;
    write_cold(&store, &(0..300).map(order).collect::<Vec<_>>()).await;

    for _ in 0..10 {
        let host = Host::start(&db, None);
        let started = Instant::now();
        loop {
            let stats = store.stats().await.expect("counts");
            if stats.in_flight > 0 || stats.done == 300 {
                break;
            }
            assert!(started.elapsed() < MINUTES, "expected: it holds some, not {stats:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(host); // SIGKILL
    }

    let _host = Host::start(&db, None);
    let started = Instant::now();
    while store.stats().await.expect("counts").done < 300 {
        let stats = store.stats().await.expect("counts");
        assert!(stats.dead == 0 && started.elapsed() < MINUTES, "expected: 300 DONE, not {stats:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
