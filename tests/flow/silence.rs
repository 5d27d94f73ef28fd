//! A server that is switched off while statements are on their way, and whose address another one has soon.

use std::net::SocketAddr;
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::mysql::MySqlOptions;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{NewRow, Ownership};
use outbox::{Mode, MySqlStore, Outbox, PostgresStore};
use support::{Database, MySql, Network, Postgres, Proxy, Recorder, eventually};

use crate::common::{HOUR, ROUTE, at_rest, done, eager, orders};

/// How long a statement may take, and a call may wait for a connection.
const LONGEST: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(3);
const EACH: u32 = 500;

const MODES: [Mode; 3] = [Mode::MultiNode, Mode::OrderedByAggregate, Mode::Ordered];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_though_a_server_was_switched_off_under_its_statements_on_postgres() {
    for mode in MODES {
        let db = Postgres::fresh().await;
        let proxy = Proxy::in_front_of(server_of(db.url())).await;
        let mut options = PostgresOptions::from_url(&proxy.url(db.url())).expect("good");
        (options.statement_timeout, options.acquire_timeout) = (LONGEST, LONGEST);
        goes_on(&db, PostgresStore::connect_with(options).await.expect("connects"), &proxy, mode).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_goes_on_though_a_server_was_switched_off_under_its_statements_on_mysql() {
    for mode in MODES {
        let db = MySql::fresh().await;
        let proxy = Proxy::in_front_of(server_of(&db.url())).await;
        let mut options = MySqlOptions::from_url(&proxy.url(&db.url())).expect("good");
        (options.statement_timeout, options.acquire_timeout) = (LONGEST, LONGEST);
        goes_on(&db, MySqlStore::connect_with(options).await.expect("connects"), &proxy, mode).await;
    }
}

/// The server is switched off twice, each time under load: connections that were lost the first time must not be missing later.
async fn goes_on<D: Database>(db: &D, store: D::Store, proxy: &Proxy, mode: Mode) {
    let recorder = Recorder::done();
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 2, ..DispatcherConfig::default() };
    let builder = Outbox::builder(store).mode(mode).dispatcher(config).poller(eager());
    let host = builder.listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    for round in 1..=2 {
        let envelopes = orders(EACH);
        let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
        db.store().write(&rows, &nobody).await.expect("writes");
        let before = usize::try_from(EACH * (round - 1) + EACH / 10).expect("small");
        eventually("some are delivered, and others under way", async || recorder.count() > before).await;

        proxy.set(Network::Forgets);

        done(db, u64::from(EACH * round)).await;
    }
    at_rest(&host).await;
    host.shutdown().await;
}

pub(crate) fn server_of(url: &str) -> SocketAddr {
    let (_, rest) = url.rsplit_once('@').expect("the address names an account");
    let (host, _) = rest.split_once(['/', '?']).expect("the address names a database");
    host.parse().expect("an address in figures")
}
