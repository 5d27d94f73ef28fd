//! Transactions that are committed when the leases of their events are over.

use std::time::Duration;

use outbox::Outbox;
use outbox::dispatcher::DispatcherConfig;
use support::{Database, Ledger, Recorder, Report, Sqlite};

use crate::common::{ROUTE, done, eager, orders};

const LEASE: Duration = Duration::from_secs(2);

pub(crate) async fn events_of_a_commit_that_outlasts_their_leases_are_delivered_once<D: Database>(db: &D) {
    let recorder = Recorder::done();
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 2, ..DispatcherConfig::default() };
    let mut hosts = Vec::new();
    for _ in 0..2 {
        let host = Outbox::multi_node(db.another().await).dispatcher(config.clone()).poller(eager());
        hosts.push(host.listener(ROUTE, recorder.listener()).start().await.expect("starts"));
    }

    let mut ledger = Ledger::default();
    let mut slow = hosts[0].begin().await.expect("begins");
    ledger.committed(slow.write_all(orders(20)).await.expect("writes"));
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await; // the plan, not a wait for something
    slow.commit().await.expect("commits");

    done(db, 20).await;
    for host in hosts {
        host.shutdown().await;
    }
    assert_eq!(ledger.compare(recorder.ids()), Report::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_whose_lease_is_nearly_over_at_the_commit_are_left_to_the_poller() {
    let (db, store) = Sqlite::on_system_clock().await;
    let recorder = Recorder::done();
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE / 2, ..DispatcherConfig::default() };
    let host = Outbox::single_node(store).dispatcher(config).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");

    let mut slow = host.begin().await.expect("begins");
    slow.write_all(orders(3)).await.expect("writes");
    tokio::time::sleep(LEASE * 3 / 4).await; // the plan, not a wait for something
    slow.commit().await.expect("commits");

    done(&db, 3).await;
    let counts = host.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.cold_enqueued, recorder.count()), (0, 3, 3));
    host.shutdown().await;
}
