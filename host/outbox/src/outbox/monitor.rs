//! What one outbox tells of itself to whoever watches it: its metrics, and whether it can do its work.

use std::sync::Arc;
use std::time::Duration;

use outbox_listener::Health;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Mode, Outbox};
use crate::metrics::{Exposition, Metrics, Sampled};
use crate::node::{PluginLister, SinkReport, SinkStatus};
use crate::queue::{InFlight, Queue};
use crate::readiness::{Pulse, Readiness, SchemaFault, Unready, UnreadyCode};
use crate::store::SharedStore;

/// How long a turn of the poller or a heartbeat may take, beside the rest before it, before they count as stuck.
const LONGEST_TURN: Duration = Duration::from_secs(10);

/// How long the poller may neither finish nor fail a turn, beside its rest, before it counts as standing still: two statements that
/// take as long as the server lets them.
const LONGEST_STILLNESS: Duration = Duration::from_secs(120);

/// Within this a database that can be used tells its schema's version.
const PROMPT: Duration = Duration::from_secs(5);

/// What one outbox tells of itself. Asks no database, so that it may be asked at any time; stays behind when the outbox is shut
/// down, and says so then.
#[derive(Clone)]
pub struct Monitor(pub(super) Arc<Watched>);

/// What is looked at.
pub(super) struct Watched {
    pub(super) mode: Mode,
    /// The kind of database.
    pub(super) database: &'static str,
    /// What the names of its metrics begin with.
    pub(super) prefix: String,
    pub(super) metrics: Arc<Metrics>,
    pub(super) queue: Arc<Queue>,
    pub(super) in_flight: Arc<InFlight>,
    /// `None` where the table is not looked at.
    pub(super) sampled: Option<Arc<Sampled>>,
    pub(super) sinks: SinkReport,
    /// `None` without plugins.
    pub(super) plugins: Option<PluginLister>,
    /// What became of spans; `None` where none are exported.
    #[cfg(feature = "otel")]
    pub(super) spans: Option<Arc<crate::telemetry::SpanCounts>>,
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) health: Health,
    pub(super) schema: Arc<SchemaFault>,
    /// With the longest rest between two turns; `None` in a mode without a poller.
    pub(super) poller: Option<(Arc<Pulse>, Duration)>,
    /// Fails while the poller waits for the settler; `None` in a mode without a poller.
    pub(super) flushes: Option<Arc<Pulse>>,
    /// The heartbeat, with the longest rest between two of them; `None` in a mode without one.
    pub(super) heartbeat: Option<(Arc<Pulse>, Duration)>,
    #[cfg(feature = "wasm")]
    pub(super) required: Option<crate::wasm::RequiredPlugins>,
}

impl Monitor {
    /// The metrics in the text format of Prometheus, for `GET /metrics` with the content type
    /// [`CONTENT_TYPE`](crate::metrics::CONTENT_TYPE). Their names begin with [`prefix`](crate::metrics::MetricsConfig::prefix).
    #[must_use]
    pub fn prometheus(&self) -> String {
        self.exposition().text()
    }

    /// What it shows now.
    fn exposition(&self) -> Exposition<'_> {
        let Watched { prefix, metrics, database, mode, queue, in_flight, sampled, .. } = &*self.0;
        Exposition {
            prefix,
            metrics,
            database,
            mode: mode.as_str(),
            queued: queue.depth(),
            in_flight: in_flight.len(),
            sample: sampled.as_ref().map(|sampled| sampled.at(Instant::now())),
            sinks: self.sinks(),
            plugins: self.0.plugins.as_ref().map(|list| list()).unwrap_or_default(),
            #[cfg(feature = "otel")]
            spans: self.0.spans.as_deref(),
        }
    }

    /// Whether the outbox can do its work, and if not, why; for `GET /readyz`. Without the sinks that are down.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        if self.is_stopping() {
            return Readiness::new(vec![Unready::new(UnreadyCode::Stopping, "the host stops")]);
        }
        let mut reasons = self.broken_parts();
        reasons.extend(self.stuck_poller(Instant::now()));
        reasons.extend(self.0.flushes.iter().filter_map(|flushes| stuck_settler(flushes, Instant::now())));
        reasons.extend(self.stuck_heartbeat(Instant::now()));
        reasons.extend(self.0.schema.get().map(|fault| Unready::new(UnreadyCode::Schema, fault)));
        #[cfg(feature = "wasm")]
        let missing = self.0.required.iter().flat_map(crate::wasm::RequiredPlugins::missing);
        #[cfg(feature = "wasm")]
        reasons.extend(missing.map(|fault| Unready::new(UnreadyCode::Plugin, fault)));
        Readiness::new(reasons).with_stalled(self.0.metrics.stalls.routes())
    }

    /// As [`readiness`](Self::readiness), with the sinks that are down; for `GET /readyz` with a token. Reads the state of all
    /// receivers of all sinks, so a probe must not cause it.
    #[must_use]
    pub fn readiness_with_sinks(&self) -> Readiness {
        if self.is_stopping() {
            return self.readiness();
        }
        let down = self.sinks().into_iter().filter(SinkStatus::is_down).collect();
        self.readiness().with_sinks_down(down)
    }

    /// The state of each sink as this outbox sees it, by name.
    #[must_use]
    pub fn sinks(&self) -> Vec<SinkStatus> {
        (self.0.sinks)()
    }

    /// The outbox's mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.mode
    }

    /// How many events are queued: hot, cold.
    #[must_use]
    pub fn queue_depth(&self) -> (usize, usize) {
        self.0.queue.depth()
    }

    /// How many events are in flight in this process.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.0.in_flight.len()
    }

    /// Waits until the outbox begins to shut down, or is dropped.
    pub async fn stopping(&self) {
        // An error means that it is gone.
        let _ = self.0.stopped.clone().wait_for(|stopped| *stopped).await;
    }

    /// Whether the outbox has begun to shut down, or was dropped.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        *self.0.stopped.borrow() || self.0.stopped.has_changed().is_err()
    }

    fn broken_parts(&self) -> Vec<Unready> {
        let said = |part| format!("the {part} of the host has broken; events are safe in the table, start the host again");
        let parts = self.0.health.broken_parts().into_iter();
        parts.map(|part| Unready::new(UnreadyCode::PartBroken, said(part))).collect()
    }

    pub(super) fn stuck_poller(&self, now: Instant) -> Option<Unready> {
        let poller = self.0.poller.as_ref()?;
        let seconds = stuck_for(poller, now)?;
        let message = if poller.0.is_failing() {
            format!("no turn of the poller has succeeded for {seconds} s; the log says what the database answers")
        } else {
            format!(
                "the poller has not come to the end of a turn for {seconds} s: the database does not answer, or is too slow"
            )
        };
        Some(Unready::new(UnreadyCode::PollerStuck, message))
    }

    pub(super) fn stuck_heartbeat(&self, now: Instant) -> Option<Unready> {
        stuck_heartbeat(self.0.heartbeat.as_ref()?, now)
    }

    fn still_poller(&self, now: Instant) -> Option<Duration> {
        let (pulse, interval) = self.0.poller.as_ref()?;
        let stillness = pulse.stillness(now);
        (stillness > interval.saturating_add(LONGEST_STILLNESS)).then_some(stillness)
    }
}

/// For how many seconds a loop with this rest has completed no turn; `None` unless that is too long.
fn stuck_for((pulse, rest): &(Arc<Pulse>, Duration), now: Instant) -> Option<u64> {
    let silence = pulse.silence(now);
    (silence > rest.saturating_add(LONGEST_TURN)).then_some(silence.as_secs())
}

fn stuck_heartbeat(heartbeat: &(Arc<Pulse>, Duration), now: Instant) -> Option<Unready> {
    let seconds = stuck_for(heartbeat, now)?;
    let why = heartbeat.0.error().unwrap_or_else(|| "the database does not answer, or is too slow".to_owned());
    let message = format!("the heartbeat of this host could not be written for {seconds} s, and other hosts take over: {why}");
    Some(Unready::new(UnreadyCode::HeartbeatStuck, message))
}

/// A poller that has waited for the settler for too long. A wait begins with a beat.
fn stuck_settler(flushes: &Pulse, now: Instant) -> Option<Unready> {
    let waited = flushes.silence(now);
    (flushes.is_failing() && waited > LONGEST_TURN).then(|| {
        let seconds = waited.as_secs();
        let message = format!(
            "outcomes have waited to be stored for {seconds} s: the database refuses or delays them; they wait in memory, and no more \
             events are read"
        );
        Unready::new(UnreadyCode::SettlerStuck, message)
    })
}

#[cfg(feature = "otel")]
impl crate::telemetry::Numbers for Monitor {
    fn prefix(&self) -> &str {
        &self.0.prefix
    }

    fn snapshot(&self) -> crate::metrics::Snapshot {
        self.exposition().snapshot()
    }

    fn is_gone(&self) -> bool {
        self.0.stopped.has_changed().is_err()
    }
}

impl<S: SharedStore> Outbox<S> {
    /// What this outbox tells of itself, to be kept by whoever watches it.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.inner.monitor.clone()
    }

    /// See [`Monitor::prometheus`].
    #[must_use]
    pub fn prometheus(&self) -> String {
        self.inner.monitor.prometheus()
    }

    /// See [`Monitor::readiness`].
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.inner.monitor.readiness()
    }

    /// What only a restart of the process can fix, for a watchdog: a part that has broken, or a poller that has not moved for two
    /// minutes although the database answers. `None` while everything moves, while the poller waits for outcomes to be stored, while
    /// the outbox stops, and while the database does not answer, since another start would not change that. Asks the database only
    /// when the poller does not move.
    pub async fn standstill(&self) -> Option<String> {
        self.standstill_at(Instant::now()).await
    }

    pub(super) async fn standstill_at(&self, now: Instant) -> Option<String> {
        let monitor = &self.inner.monitor;
        if monitor.is_stopping() {
            return None;
        }
        if let Some(broken) = monitor.broken_parts().into_iter().next() {
            return Some(broken.message);
        }
        let stillness = monitor.still_poller(now)?;
        let answer = tokio::time::timeout(PROMPT, self.inner.store.check_schema()).await;
        let seconds = stillness.as_secs();
        matches!(answer, Ok(Ok(_))).then(|| format!("the poller has not moved for {seconds} s, although the database answers"))
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("mode", &self.0.mode).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    #[test]
    fn stuck_heartbeat_says_what_the_database_answers() {
        let (pulse, later) = (Arc::new(Pulse::new()), Instant::now() + LONGEST_TURN * 2);
        let message = || stuck_heartbeat(&(pulse.clone(), Duration::ZERO), later).expect("none was written").message;
        assert!(message().ends_with("the database does not answer, or is too slow"), "{}", message());

        // A pulse counts milliseconds.
        std::thread::sleep(Duration::from_millis(2));
        pulse.failed_with(&StoreError::Full { action: "commit", source: crate::sqlx::Error::RowNotFound });

        assert!(message().contains("no space is left for the database to commit"), "{}", message());
    }

    #[test]
    fn settler_is_stuck_only_while_the_poller_waits_for_it() {
        let (flushes, later) = (Pulse::new(), Instant::now() + LONGEST_TURN * 2);
        assert_eq!(stuck_settler(&flushes, later), None, "the poller does not wait");

        // A pulse counts milliseconds.
        std::thread::sleep(Duration::from_millis(2));
        flushes.failed();

        assert_eq!(stuck_settler(&flushes, Instant::now()), None, "it has waited for a moment");
        let stuck = stuck_settler(&flushes, later).expect("it has waited for too long");
        assert_eq!(stuck.code, UnreadyCode::SettlerStuck);
        assert!(stuck.message.contains("outcomes have waited to be stored for "), "{}", stuck.message);
        flushes.beat();
        assert_eq!(stuck_settler(&flushes, later), None, "the settler has taken them");
    }
}
