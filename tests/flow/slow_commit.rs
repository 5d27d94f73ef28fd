//! Transactions that are committed when the leases of their events are over.

use std::time::Duration;

use outbox::Outbox;
use outbox::dispatcher::DispatcherConfig;
use support::{Database, Ledger, Recorder, Report};

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
