//! Several hosts that share one table.

use std::time::{Duration, Instant};

use outbox::store::PARTITIONS;
use outbox::{Mode, Outbox, TransactionalStore};

use super::stage::{self, Bench, Error, WHAT_TO_DO};

/// The events become due when they can all be written: at this rate at least, and after this time at the earliest.
const WRITTEN_PER_S: f64 = 4_000.0;
const AT_LEAST: Duration = Duration::from_secs(3);
/// How long the hosts may take to share the table among them.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts this many hosts, which deliver events that all become due at the same time. Returns the rate of all hosts together.
pub(super) async fn drain_together<S: TransactionalStore + Clone>(bench: &Bench<S>, count: u16) -> Result<f64, Error> {
    bench.clear().await?;
    let mut hosts: Vec<Outbox<S>> = Vec::with_capacity(usize::from(count));
    for _ in 0..count {
        hosts.push(stage::with_native(bench.host().mode(Mode::MultiNode))?.start().await?);
    }
    let took = drain(bench, &hosts, count).await;
    for host in hosts {
        host.shutdown().await;
    }
    Ok(f64::from(bench.events) / took?.as_secs_f64())
}

/// Returns how long the hosts took from the time when the events became due.
async fn drain<S: TransactionalStore + Clone>(bench: &Bench<S>, hosts: &[Outbox<S>], count: u16) -> Result<Duration, Error> {
    until_shared(bench, count).await?;
    let due_at = Instant::now() + AT_LEAST + Duration::from_secs_f64(f64::from(bench.events) / WRITTEN_PER_S);
    bench.fill_due(due_at).await?;
    tokio::time::sleep_until(due_at.into()).await;
    stage::until_delivered(hosts, bench.events).await?;
    Ok(Instant::now().saturating_duration_since(due_at))
}

/// Waits until the hosts hold all partitions, and none of them more than an even share.
async fn until_shared<S: TransactionalStore + Clone>(bench: &Bench<S>, count: u16) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        let nodes = bench.store.nodes().await?;
        let held: Vec<u16> = nodes.iter().filter(|node| node.alive).map(|node| node.partitions).collect();
        if is_shared(&held, count) {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(format!("{count} hosts do not share the table evenly after {seconds} s; {WHAT_TO_DO}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether this many hosts share all partitions evenly; `held` is how many each live host holds. An even share is rounded up,
/// so the last hosts may hold fewer, or none.
fn is_shared(held: &[u16], count: u16) -> bool {
    let share = PARTITIONS.div_ceil(count);
    held.len() == usize::from(count) && held.iter().all(|held| *held <= share) && held.iter().sum::<u16>() == PARTITIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_shared_when_all_hosts_hold_all_of_it_and_none_more_than_its_share() {
        assert!(is_shared(&[256], 1));
        assert!(is_shared(&[86, 86, 84], 3));
        assert!(is_shared(&[16; 16], 16));
        let sixty: Vec<u16> = std::iter::repeat_n(5, 51).chain([1]).chain([0; 8]).collect();
        assert!(is_shared(&sixty, 60), "the last hosts find nothing left");

        assert!(!is_shared(&[256, 0], 2), "the second host has taken nothing yet");
        assert!(!is_shared(&[128, 0], 2), "the second host has taken nothing of what is free");
        assert!(!is_shared(&[128], 2), "the second host is not alive yet");
        assert!(!is_shared(&[86, 86, 84], 2), "a host of another program is there");
    }
}
