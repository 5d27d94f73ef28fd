//! Measuring the time from a confirmed commit to the first instruction of a listener.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outbox::event::Route;
use outbox::writer::{HookError, WriterHook};
use outbox::{DispatchResult, Envelope, Event, Failure, Outbox, Registration, TransactionalStore};
use tokio::sync::mpsc;

use super::stage::{Error, WHAT_TO_DO};

/// How long the listener of one event may not be called.
const PATIENCE: Duration = Duration::from_secs(120);

/// Times from commits to listeners.
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

    /// In microseconds, for a percentage below 100. There must be at least one time.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let mut micros = self.micros.clone();
        micros.sort_by(f64::total_cmp);
        micros[micros.len() * percent / 100]
    }
}

/// A hook that notes when the database has confirmed a commit.
pub(super) struct Stopwatch(Arc<Mutex<Instant>>);

/// Tells when the last commit was confirmed.
pub(super) struct Committed(Arc<Mutex<Instant>>);

impl Stopwatch {
    pub(super) fn new() -> (Self, Committed) {
        let at = Arc::new(Mutex::new(Instant::now()));
        (Self(at.clone()), Committed(at))
    }
}

impl Committed {
    pub(super) fn at(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriterHook for Stopwatch {
    fn after_commit(&self, _: &[&Envelope]) -> Result<(), HookError> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }
}

/// The times at which a listener was called.
pub(super) struct Starts(mpsc::UnboundedReceiver<Instant>);

impl Starts {
    /// Waits for the next call.
    ///
    /// # Errors
    /// When there is none for [`PATIENCE`].
    pub(super) async fn next(&mut self) -> Result<Instant, Error> {
        let started = tokio::time::timeout(PATIENCE, self.0.recv()).await;
        let late = |_| format!("an event was not delivered within {} s; {WHAT_TO_DO}", PATIENCE.as_secs());
        Ok(started.map_err(late)?.ok_or("the host has dropped its listener")?)
    }
}

/// A native listener for this event type that notes when it is called.
pub(super) fn timed_listener(event_type: &str) -> Result<(Registration, Starts), Error> {
    let (started, starts) = mpsc::unbounded_channel();
    let listener = move |_: Arc<Event>| {
        let _ = started.send(Instant::now());
        async { Ok::<_, Failure>(DispatchResult::Done) }
    };
    Ok((Registration::new(Route::new("Bench", event_type)?, listener), Starts(starts)))
}

/// Writes one event in a transaction of its own.
pub(super) async fn commit<S: TransactionalStore + Clone>(writer: &Outbox<S>, envelope: Envelope) -> Result<(), Error> {
    let mut transaction = writer.begin().await?;
    transaction.write(envelope).await?;
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_time_that_so_many_percent_are_below() {
        let (committed, mut latency) = (Instant::now(), Latency::default());
        for micros in (0..100).rev() {
            latency.add(committed, committed + Duration::from_micros(micros));
        }

        assert_eq!([50, 99].map(|percent| latency.percentile(percent).round()), [50.0, 99.0]);
        latency.add(committed + Duration::from_secs(1), committed);
        assert_eq!(latency.percentile(0), 0.0, "a listener that was called before the commit returned");
    }
}
