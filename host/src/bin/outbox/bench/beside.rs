//! From a commit to its listener while others are busy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outbox::event::Route;
use outbox::{DispatchResult, Event, Failure, Outbox, Registration, TransactionalStore};
use tokio::sync::mpsc;

use super::hot::{Latency, Stopwatch};
use super::stage::{self, Bench, Error};

const WARM_UP: usize = 50;
/// Cold events measured, and the rest between two of them.
const MEASURED: usize = 1_000;
const REST: Duration = Duration::from_millis(2);
/// How long a fast event may take before the measuring is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the slow listener takes.
const SLOW: Duration = Duration::from_millis(20);
/// Fewest hot events that a percentile is told of.
const FEWEST: usize = 100;

/// From the commit of another process to the listener of a fast route, while the events of a slow one wait, as many as there are in the
/// table. Both may have half of the workers, as plugins do. Returns the time of the first event, too, for which the host has to go
/// through the others, and which is not among the rest.
pub(super) async fn cold<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<(Duration, Latency), Error> {
    let slow = |_: Arc<Event>| async {
        tokio::time::sleep(SLOW).await;
        Ok::<_, Failure>(DispatchResult::Done)
    };
    let (fast, mut starts) = fast()?;
    let slow = Registration::new(Route::new("Bench", "Slow")?, slow);
    let half = bench.workers.div_ceil(2);
    let host = bench.host().registration(slow.concurrency(half)).registration(fast.concurrency(half)).start().await?;
    let writer = Outbox::writer_only(bench.store.clone()).start().await?;
    let (mut first, mut latency) = (Duration::ZERO, Latency::default());
    for round in 0..WARM_UP + MEASURED {
        tokio::time::sleep(REST).await;
        let mut transaction = writer.begin().await?;
        transaction.write(bench.of_type("Fast")?).await?;
        transaction.commit().await?;
        let committed = Instant::now();
        let start = tokio::time::timeout(PATIENCE, starts.recv()).await;
        let start =
            start.map_err(|_| "an event of a fast route waits for a slow one for minutes")?.ok_or("the listener is gone")?;
        if round == 0 {
            first = start.saturating_duration_since(committed);
        } else if round >= WARM_UP {
            latency.add(committed, start);
        }
    }
    writer.shutdown().await;
    host.shutdown().await;
    Ok((first, latency))
}

/// From the commit of a hot event to its listener, while the same host drains the table. `None` where it was drained too soon.
pub(super) async fn drain<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<Option<Latency>, Error> {
    let (fast, mut starts) = fast()?;
    let (stopwatch, committed) = Stopwatch::new();
    let mut host = bench.host().registration(fast).hook(stopwatch);
    for registration in stage::native()? {
        host = host.registration(registration);
    }
    let host = host.start().await?;
    let mut latency = Latency::default();
    let mut round = 0;
    while host.metrics().counts().dispatch_success < u64::from(bench.events) {
        let mut transaction = host.begin().await?;
        transaction.write(bench.of_type("Fast")?).await?;
        transaction.commit().await?;
        let start = starts.recv().await.ok_or("the listener is gone")?;
        round += 1;
        if round > WARM_UP {
            latency.add(committed.read(), start);
        }
    }
    host.shutdown().await;
    Ok(Some(latency).filter(|latency| latency.count() >= FEWEST))
}

/// A listener that tells when it was called.
fn fast() -> Result<(Registration, mpsc::UnboundedReceiver<Instant>), Error> {
    let (started, starts) = mpsc::unbounded_channel();
    let listener = move |_: Arc<Event>| {
        let _ = started.send(Instant::now());
        async { Ok::<_, Failure>(DispatchResult::Done) }
    };
    Ok((Registration::new(Route::new("Bench", "Fast")?, listener), starts))
}
