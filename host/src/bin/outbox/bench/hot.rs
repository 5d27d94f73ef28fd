//! From a commit to its listener.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use outbox::event::Route;
use outbox::purge::PurgeConfig;
use outbox::writer::{HookError, WriterHook};
use outbox::{DispatchResult, Envelope, Event, Failure, Outbox, Registration, TransactionalStore};
use tokio::sync::mpsc;

use super::stage::{Bench, Error};

const WARM_UP: usize = 200;
const MEASURED: usize = 3_000;

/// Notes when the database has confirmed a commit.
struct Stopwatch(Arc<Mutex<Instant>>);

impl WriterHook for Stopwatch {
    fn after_commit(&self, _: &[&Envelope]) -> Result<(), HookError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }
}

/// The median and the 99th percentile, in microseconds, of the time from a confirmed commit to the first instruction of a native
/// listener; one event at a time.
pub(super) async fn latency<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<(f64, f64), Error> {
    let committed = Arc::new(Mutex::new(Instant::now()));
    let (started, mut starts) = mpsc::unbounded_channel();
    let listener = move |_: Arc<Event>| {
        let _ = started.send(Instant::now());
        async { Ok::<_, Failure>(DispatchResult::Done) }
    };
    let outbox = Outbox::single_node(bench.store.clone())
        .registration(Registration::new(Route::new("Bench", "Noop")?, listener))
        .hook(Stopwatch(committed.clone()))
        .purge(PurgeConfig { enabled: false, ..PurgeConfig::default() })
        .start()
        .await?;
    let mut micros = Vec::with_capacity(MEASURED);
    for round in 0..WARM_UP + MEASURED {
        let mut transaction = outbox.begin().await?;
        transaction.write(bench.envelope()?).await?;
        transaction.commit().await?;
        let start = starts.recv().await.ok_or("the listener is gone")?;
        let commit = *committed.lock().unwrap_or_else(PoisonError::into_inner);
        if round >= WARM_UP {
            micros.push(start.saturating_duration_since(commit).as_secs_f64() * 1e6);
        }
    }
    outbox.shutdown().await;
    micros.sort_by(f64::total_cmp);
    Ok((micros[MEASURED / 2], micros[MEASURED * 99 / 100]))
}
