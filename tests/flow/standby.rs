//! A PostgreSQL with a standby behind it, and something between them and the host that lets the standby answer reads.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use outbox::event::OwnerId;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{InspectStore, NewRow, NodeRecord, NodeStore, Ownership, SchemaStore, WriteStore};
use outbox::{EventId, Mode, Outbox, PostgresStore, Store};
use servers::{Database, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use support::{Recorder, Split, Splitter, eventually};

use crate::common::{HOUR, ROUTE, eager, orders};

/// How late the standby shows what was committed: longer than a delivery takes.
const APPLY_DELAY: Duration = Duration::from_secs(3);
const EACH: u32 = 30;

const MODES: [Mode; 3] = [Mode::MultiNode, Mode::OrderedByAggregate, Mode::Ordered];

/// A primary and its standby, with a migrated database for each mode.
struct Servers {
    primary: Server,
    standby: Server,
}

impl Servers {
    async fn start() -> Self {
        let primary = Server::start(Database::PostgreSql, Durability::Volatile).expect("`cargo xtask test` installs it");
        let mut admin = PgConnection::connect(&primary.url()).await.expect("connects");
        for mode in MODES {
            let create = format!("CREATE DATABASE {}", database(mode));
            admin.execute(AssertSqlSafe(create)).await.expect("creates it");
            let store = PostgresStore::connect(&url(&primary, mode)).await.expect("connects");
            store.migrate_up().await.expect("migrates");
            if let Some(index) = mode.index() {
                store.add_index(index).await.expect("adds it");
            }
            store.close().await;
        }
        // After the databases were migrated: the standby starts with a copy of them, and applies later changes late.
        let standby = primary.standby(APPLY_DELAY).expect("it starts");
        Self { primary, standby }
    }

    async fn ground(&self, mode: Mode) -> Ground<'_> {
        let direct = PostgresStore::connect(&url(&self.primary, mode)).await.expect("connects");
        Ground { servers: self, mode, direct }
    }
}

/// The name of a mode's database. Hosts of different modes share no table.
fn database(mode: Mode) -> String {
    format!("outbox_test_{}", mode.as_str())
}

/// The address of a mode's database on this server.
fn url(server: &Server, mode: Mode) -> String {
    let url = server.url();
    let (server, _) = url.rsplit_once('/').expect("the address names a database");
    format!("{server}/{}", database(mode))
}

/// A mode's database on both servers.
struct Ground<'a> {
    servers: &'a Servers,
    mode: Mode,
    direct: PostgresStore,
}

impl Ground<'_> {
    async fn split(&self, split: Split) -> Splitter {
        let Servers { primary, standby } = self.servers;
        let at = |server: &Server| SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let url = primary.url();
        let (account, _) = url.rsplit_once('@').expect("the address names an account");
        let (_, password) = account.rsplit_once(':').expect("the address names a password");
        Splitter::in_front_of(at(primary), at(standby), password, split).await
    }

    async fn through(&self, splitter: &Splitter) -> PostgresStore {
        let primary = &self.servers.primary;
        let direct = format!("127.0.0.1:{}", primary.port());
        let url = url(primary, self.mode).replace(&direct, &splitter.address().to_string());
        PostgresStore::connect_with(PostgresOptions::from_url(&url).expect("good")).await.expect("connects")
    }

    async fn write(&self) -> Vec<EventId> {
        let envelopes = orders(EACH);
        let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
        let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
        self.direct.write(&rows, &nobody).await.expect("writes");
        envelopes.iter().map(outbox::Envelope::id).collect()
    }

    async fn nodes(&self) -> Vec<NodeRecord> {
        self.direct.nodes().await.expect("lists")
    }

    async fn done_on_primary(&self, rounds: u32) {
        eventually("all events are DONE", async || self.direct.stats().await.expect("counts").done == u64::from(rounds * EACH))
            .await;
    }

    /// Whether the standby shows that all events are DONE.
    async fn shows(&self, rounds: u32) -> bool {
        let mut standby = PgConnection::connect(&url(&self.servers.standby, self.mode)).await.expect("it answers");
        let done = standby.fetch_one("SELECT count(*) FROM outbox_event WHERE status = 1").await.expect("counts");
        done.try_get::<i64, _>(0).expect("a number") == i64::from(rounds * EACH)
    }
}

/// Events that were delivered more than once.
fn twice(recorder: &Recorder) -> Vec<EventId> {
    let mut calls: HashMap<EventId, usize> = HashMap::new();
    for id in recorder.ids() {
        *calls.entry(id).or_default() += 1;
    }
    calls.into_iter().filter(|(_, calls)| *calls > 1).map(|(id, _)| id).collect()
}

fn stale_reads(host: &Outbox<PostgresStore>) -> u64 {
    host.metrics().db_errors_by_kind.counts().find(|(kind, _)| *kind == "stale_read").map_or(0, |(_, count)| count)
}

async fn start(store: PostgresStore, mode: Mode, recorder: &Recorder) -> Outbox<PostgresStore> {
    Outbox::builder(store).mode(mode).poller(eager()).listener(ROUTE, recorder.listener()).start().await.expect("starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_reads_go_to_a_standby_refuses_them_and_calls_no_listener_twice() {
    let servers = Servers::start().await;
    for mode in MODES {
        let ground = servers.ground(mode).await;
        let splitter = ground.split(Split::Off).await;
        let recorder = Recorder::done();
        let host = start(ground.through(&splitter).await, mode, &recorder).await;
        ground.write().await;
        ground.done_on_primary(1).await;

        splitter.set(Split::Reads);

        ground.write().await;
        eventually("a read was refused, or the standby shows every delivery", async || {
            stale_reads(&host) > 0 || ground.shows(2).await
        })
        .await;
        splitter.set(Split::Off);
        ground.done_on_primary(2).await;
        assert_eq!(twice(&recorder), [], "{mode:?}");
        assert!(stale_reads(&host) > 0, "{mode:?}");
        host.shutdown().await;
    }
}

/// Such a host cannot read the rows of the other hosts either. Its heartbeats, which write, count them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_reads_go_to_a_standby_stands_aside_for_one_whose_reads_do_not() {
    let servers = Servers::start().await;
    let mode = Mode::MultiNode;
    let ground = servers.ground(mode).await;
    let splitter = ground.split(Split::Off).await;
    let recorder = Recorder::done();
    let direct = PostgresStore::connect(&url(&servers.primary, mode)).await.expect("connects");
    let healthy = start(direct, mode, &recorder).await;
    let sick = start(ground.through(&splitter).await, mode, &recorder).await;
    eventually("both hold their share", async || {
        let nodes = ground.nodes().await;
        nodes.len() == 2 && nodes.iter().all(|node| node.partitions == 128)
    })
    .await;

    splitter.set(Split::Reads);

    eventually("it stands aside", async || ground.nodes().await.iter().any(|node| node.room == 0)).await;
    eventually("the other host holds all partitions", async || ground.nodes().await.iter().any(|node| node.partitions == 256))
        .await;
    ground.write().await;
    ground.done_on_primary(1).await;
    assert!(stale_reads(&sick) > 0 && stale_reads(&healthy) == 0);
    assert_eq!(twice(&recorder), []);
    tokio::join!(healthy.shutdown(), sick.shutdown());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_address_leads_to_primary_and_standby_in_turn_delivers_each_event_once() {
    let servers = Servers::start().await;
    for mode in MODES {
        let ground = servers.ground(mode).await;
        let splitter = ground.split(Split::Off).await;
        let recorder = Recorder::done();
        let host = start(ground.through(&splitter).await, mode, &recorder).await;

        splitter.set(Split::Connections);

        for round in 1..=2 {
            ground.write().await;
            ground.done_on_primary(round).await;
            eventually("the standby shows every delivery", async || ground.shows(round).await).await;
        }

        assert_eq!(twice(&recorder), [], "{mode:?}");
        host.shutdown().await;
    }
}
