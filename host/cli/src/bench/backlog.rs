//! The time from a commit to the listener of a fast route while the host has a backlog: of a slow route, or of events that it
//! delivers as fast as it can.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::event::Route;
use outbox::{DispatchResult, Event, Failure, Outbox, Registration, TransactionalStore};

use super::latency::{self, Latency, Stopwatch};
use super::stage::{self, Bench, Error};

const WARM_UP: usize = 50;
/// How many events of another process are measured, unless that takes too long: a host that is not told of commits finds each
/// event by a poll.
const MEASURED: usize = 1_000;
const LONGEST: Duration = Duration::from_secs(30);
/// The rest between two events of another process.
const REST: Duration = Duration::from_millis(2);
/// How long the slow listener takes.
const SLOW: Duration = Duration::from_millis(20);
/// Fewest events of which a percentile during a drain is reported.
const FEWEST: usize = 100;

/// Times from a commit by another process to the listener.
pub(super) struct Cold {
    /// Of the first event: the host may have to get past the backlog.
    pub(super) first: Duration,
    /// Of the other events, without the warm-up.
    pub(super) others: Latency,
}

/// Measures events of another process without a backlog.
pub(super) async fn alone<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<Cold, Error> {
    bench.clear().await?;
    cold(bench).await
}

/// Measures events of another process beside this many events of a slow route.
pub(super) async fn beside_slow_route<S: TransactionalStore + Clone>(bench: &Bench<S>, events: u32) -> Result<Cold, Error> {
    bench.fill_slow(events).await?;
    cold(bench).await
}

/// A writer of its own stands for the other process. Each of the two routes may use half of the workers, as plugins may.
async fn cold<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<Cold, Error> {
    let (fast, mut starts) = latency::timed_listener("Fast")?;
    let half = bench.workers.div_ceil(2);
    let host = bench.host().registration(slow_listener()?.concurrency(half)).registration(fast.concurrency(half));
    let host = host.start().await?;
    let writer = Outbox::writer_only(bench.store.clone()).start().await?;
    let (mut first, mut others) = (Duration::ZERO, Latency::default());
    let begun = Instant::now();
    for round in 0..WARM_UP + MEASURED {
        tokio::time::sleep(REST).await;
        latency::commit(&writer, bench.envelope("Fast")?).await?;
        let committed = Instant::now();
        let started = starts.next().await?;
        if round == 0 {
            first = started.saturating_duration_since(committed);
        } else if round >= WARM_UP {
            others.add(committed, started);
            if begun.elapsed() > LONGEST {
                break;
            }
        }
    }
    writer.shutdown().await;
    host.shutdown().await;
    Ok(Cold { first, others })
}

fn slow_listener() -> Result<Registration, Error> {
    let listener = |_: Arc<Event>| async {
        tokio::time::sleep(SLOW).await;
        Ok::<_, Failure>(DispatchResult::Done)
    };
    Ok(Registration::new(Route::new("Bench", "Slow")?, listener))
}

/// Measures events that are committed in the host's own process while the host delivers a full table. `None` if the host was
/// done before enough events were measured.
pub(super) async fn during_drain<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<Option<Latency>, Error> {
    bench.fill().await?;
    let (fast, mut starts) = latency::timed_listener("Fast")?;
    let (stopwatch, committed) = Stopwatch::new();
    let host = stage::with_native(bench.host())?.registration(fast).hook(stopwatch).start().await?;
    let mut latency = Latency::default();
    let mut round = 0;
    while host.metrics().counts().dispatch_success < u64::from(bench.events) {
        latency::commit(&host, bench.envelope("Fast")?).await?;
        let started = starts.next().await?;
        round += 1;
        if round > WARM_UP {
            latency.add(committed.at(), started);
        }
    }
    host.shutdown().await;
    Ok(Some(latency).filter(|latency| latency.count() >= FEWEST))
}
