//! What hosts with nothing to do ask of PostgreSQL, by the server's own count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::poller::PollerConfig;
use outbox::store::SchemaStore;
use outbox::{DispatchResult, Event, Outbox, PostgresStore};
use support::{Harness, Postgres};

use crate::common::ROUTE;

const HOSTS: u32 = 3;
/// Until then they have come and shared the partitions, and the server has counted what they did: it may take 10 s.
const SETTLED: Duration = Duration::from_secs(14);
const COUNTED: Duration = Duration::from_secs(10);
const WINDOWS: u32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_host_does_three_transactions_a_second_at_most() {
    let rate = idle(PollerConfig::default()).await;

    assert!(rate <= 3.0, "{rate:.2} transactions a second for each host");
}

/// Four of them are the reads, by which events of other programs are found within the interval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_host_that_reads_four_times_a_second_does_little_else() {
    let rate = idle(PollerConfig { interval: Duration::from_millis(250), ..PollerConfig::default() }).await;

    assert!(rate <= 7.5, "{rate:.2} transactions a second for each host");
}

/// How many transactions a second each of some idle hosts does, in a database of its own: the server counts by database.
async fn idle(poller: PollerConfig) -> f64 {
    let db = Postgres::fresh().await;
    let name = format!("{}_idle", db.schema());
    db.execute(&format!("DROP DATABASE IF EXISTS {name}")).await;
    db.execute(&format!("CREATE DATABASE {name}")).await;
    let (server, _) = db.url().rsplit_once('/').expect("the address names a database");
    let url = format!("{server}/{name}");
    let mut hosts = Vec::new();
    for _ in 0..HOSTS {
        let store = PostgresStore::connect(&url).await.expect("connects");
        store.migrate_up().await.expect("an empty database can be migrated");
        let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
        let host = Outbox::multi_node(store).poller(poller.clone()).listener(ROUTE, listener).start().await;
        hosts.push(host.expect("starts"));
    }
    quieten(&url).await;
    let transactions =
        async || db.number(&format!("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{name}'")).await;
    tokio::time::sleep(SETTLED).await;
    // The quietest: the server may do work of its own meanwhile, which it counts too.
    let mut rate = f64::INFINITY;
    for _ in 0..WINDOWS {
        let (before, began) = (transactions().await, Instant::now());
        tokio::time::sleep(COUNTED).await;
        let counted = u32::try_from(transactions().await - before).expect("a few hundred");
        rate = rate.min(f64::from(counted) / began.elapsed().as_secs_f64() / f64::from(HOSTS));
    }
    for host in hosts {
        host.shutdown().await;
    }
    db.execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    assert!(rate > 0.5, "{rate:.2}: nothing was counted");
    rate
}

/// The server's own work on the tables would be counted too.
async fn quieten(url: &str) {
    let pool = sqlx::PgPool::connect(url).await.expect("connects");
    let tables =
        "DO $$ DECLARE name text; BEGIN FOR name IN SELECT relname FROM pg_class WHERE relname LIKE 'outbox%' AND relkind = 'r'
                  LOOP EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = false)', name); END LOOP; END $$";
    sqlx::raw_sql(tables).execute(&pool).await.expect("the tables can be changed");
    pool.close().await;
}
