//! Several hosts on one table.

use std::time::{Duration, Instant};

use outbox::store::PARTITIONS;
use outbox::{Mode, Outbox, TransactionalStore};

use super::stage::{self, Bench, Error};

/// How soon events are due that are written at so many in a second at least.
const WRITTEN_PER_S: f64 = 4_000.0;
const AT_LEAST: Duration = Duration::from_secs(3);
/// How long hosts may take until each has its share of the table.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets so many hosts drain events that all become due at one time, once each of the hosts has its share of the table. Returns the
/// rate of all of them together.
pub(super) async fn drain_together<S: TransactionalStore + Clone>(bench: &Bench<S>, count: usize) -> Result<f64, Error> {
    bench.clear().await?;
    let mut hosts: Vec<Outbox<S>> = Vec::with_capacity(count);
    for _ in 0..count {
        let mut host = bench.host().mode(Mode::MultiNode);
        for registration in stage::native()? {
            host = host.registration(registration);
        }
        hosts.push(host.start().await?);
    }
    let started = Instant::now();
    // As many for each, but for a few.
    let share = (usize::from(PARTITIONS) / count).saturating_sub(count);
    while bench.store.nodes().await?.iter().filter(|node| node.alive && usize::from(node.partitions) >= share).count() < count {
        if started.elapsed() > PATIENCE {
            return Err("the hosts do not share the table; is another host working on it?".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let due_at = Instant::now() + AT_LEAST + Duration::from_secs_f64(f64::from(bench.events) / WRITTEN_PER_S);
    bench.fill_due(due_at).await?;
    tokio::time::sleep_until(due_at.into()).await;
    let done = || -> u64 { hosts.iter().map(|host| host.metrics().counts().dispatch_success).sum() };
    while done() < u64::from(bench.events) || hosts.iter().any(|host| host.in_flight() > 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = Instant::now().saturating_duration_since(due_at);
    for host in hosts {
        host.shutdown().await;
    }
    Ok(f64::from(bench.events) / took.as_secs_f64())
}
