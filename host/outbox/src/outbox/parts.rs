//! The parts that the modules of one outbox share, made once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::dispatcher::DispatcherConfig;
use crate::event::OwnerId;
use crate::metrics::{Metrics, MetricsConfig};
use crate::notifier::Notifier;
use crate::queue::{BatchNumbers, InFlight, Queue};
use crate::readiness::Pulse;
use crate::settler::SettlerHandle;
use crate::wake::Wake;
use crate::writer::{Abandoned, HotPath};

/// The parts that the modules share.
pub(super) struct Parts {
    pub(super) queue: Arc<Queue>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) wake: Arc<Wake>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) batch_numbers: Arc<BatchNumbers>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) owner: OwnerId,
    pub(super) poller_pulse: Arc<Pulse>,
    pub(super) reads: Arc<Pulse>,
    pub(super) flushes: Arc<Pulse>,
    pub(super) heartbeat_pulse: Arc<Pulse>,
}

impl Parts {
    pub(super) fn new(config: &DispatcherConfig, metrics: &MetricsConfig, label: &str) -> Self {
        Self {
            queue: Arc::new(Queue::new(config.queue_limits()).for_workers(config.workers)),
            in_flight: Arc::default(),
            wake: Arc::default(),
            notifier: Arc::default(),
            batch_numbers: Arc::default(),
            metrics: Arc::new(Metrics::for_routes(metrics.max_routes)),
            owner: OwnerId::generate(label),
            poller_pulse: Arc::new(Pulse::new()),
            reads: Arc::new(Pulse::new()),
            flushes: Arc::new(Pulse::new()),
            heartbeat_pulse: Arc::new(Pulse::new()),
        }
    }

    /// `settler` is `None` in the mode that never delivers.
    pub(super) fn hot_path(&self, hot: bool, settler: Option<SettlerHandle>) -> Arc<HotPath> {
        Arc::new(HotPath {
            queue: hot.then(|| self.queue.clone()),
            in_flight: self.in_flight.clone(),
            wake: self.wake.clone(),
            notifier: self.notifier.clone(),
            batch_numbers: self.batch_numbers.clone(),
            metrics: self.metrics.clone(),
            abandoned: Abandoned::default(),
            settler,
            stopped: AtomicBool::new(false),
        })
    }
}
