//! The time from a commit to its listener in a host that has nothing else to do.

use outbox::TransactionalStore;

use super::latency::{self, Latency, Stopwatch};
use super::stage::{Bench, Error};

const WARM_UP: usize = 200;
const MEASURED: usize = 3_000;

/// Commits one event at a time in the host's own process, each after the listener of the last one was called.
pub(super) async fn latency<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<Latency, Error> {
    let (stopwatch, committed) = Stopwatch::new();
    let (listener, mut starts) = latency::timed_listener("Noop")?;
    let host = bench.host().registration(listener).hook(stopwatch).start().await?;
    let mut latency = Latency::default();
    for round in 0..WARM_UP + MEASURED {
        latency::commit(&host, bench.envelope("Noop")?).await?;
        let started = starts.next().await?;
        if round >= WARM_UP {
            latency.add(committed.at(), started);
        }
    }
    host.shutdown().await;
    Ok(latency)
}
