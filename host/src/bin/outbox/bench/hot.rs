//! From a commit to its listener.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use outbox::event::Route;
use outbox::writer::{HookError, WriterHook};
use outbox::{DispatchResult, Envelope, Event, Failure, Registration, TransactionalStore};
use tokio::sync::mpsc;

use super::stage::{Bench, Error};

const WARM_UP: usize = 200;
const MEASURED: usize = 3_000;

/// Notes when the database has confirmed a commit.
pub(super) struct Stopwatch(Arc<Mutex<Instant>>);

/// Reads it.
pub(super) struct Committed(Arc<Mutex<Instant>>);

impl Stopwatch {
    pub(super) fn new() -> (Self, Committed) {
        let at = Arc::new(Mutex::new(Instant::now()));
        (Self(at.clone()), Committed(at))
    }
}

impl Committed {
    /// When the last commit was confirmed.
    pub(super) fn read(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriterHook for Stopwatch {
    fn after_commit(&self, _: &[&Envelope]) -> Result<(), HookError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }
}

/// Times from a confirmed commit to the first instruction of a listener.
#[derive(Debug, Default)]
pub(super) struct Latency {
    micros: Vec<f64>,
}

impl Latency {
    pub(super) fn add(&mut self, committed: Instant, started: Instant) {
        self.micros.push(started.saturating_duration_since(committed).as_secs_f64() * 1e6);
    }

    pub(super) fn count(&self) -> usize {
        self.micros.len()
    }

    /// In microseconds; there must be some.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let mut micros = self.micros.clone();
        micros.sort_by(f64::total_cmp);
        micros[micros.len() * percent / 100]
    }
}

/// The times of a native listener, one event at a time.
pub(super) async fn latency<S: TransactionalStore + Clone>(bench: &Bench<S>) -> Result<Latency, Error> {
    let (stopwatch, committed) = Stopwatch::new();
    let (started, mut starts) = mpsc::unbounded_channel();
    let listener = move |_: Arc<Event>| {
        let _ = started.send(Instant::now());
        async { Ok::<_, Failure>(DispatchResult::Done) }
    };
    let outbox =
        bench.host().registration(Registration::new(Route::new("Bench", "Noop")?, listener)).hook(stopwatch).start().await?;
    let mut latency = Latency::default();
    for round in 0..WARM_UP + MEASURED {
        let mut transaction = outbox.begin().await?;
        transaction.write(bench.envelope()?).await?;
        transaction.commit().await?;
        let start = starts.recv().await.ok_or("the listener is gone")?;
        if round >= WARM_UP {
            latency.add(committed.read(), start);
        }
    }
    outbox.shutdown().await;
    Ok(latency)
}
