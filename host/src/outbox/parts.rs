//! What the rooms of one outbox share, made once.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Mode;
use crate::dispatcher::DispatcherConfig;
use crate::event::OwnerId;
use crate::listener::Listeners;
use crate::metrics::{Metrics, MetricsConfig};
use crate::node::{Heartbeat, Report};
use crate::notifier::Notifier;
use crate::order::{Learner, Order, Partitions, Sweep};
use crate::poller::{Poller, PollerConfig};
use crate::queue::{Batches, InFlight, Queue};
use crate::readiness::Pulse;
use crate::settlement::SettlementRules;
use crate::settler::SettlerHandle;
use crate::store::{Node, Store};
use crate::wake::Wake;
use crate::writer::{Abandoned, HotPath};

/// What the rooms share.
pub(super) struct Parts {
    pub(super) queue: Arc<Queue>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) wake: Arc<Wake>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) batches: Arc<Batches>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) owner: OwnerId,
    /// Of the poller.
    pub(super) pulse: Arc<Pulse>,
}

impl Parts {
    pub(super) fn new(config: &DispatcherConfig, metrics: &MetricsConfig, label: &str) -> Self {
        Self {
            queue: Arc::new(Queue::new(config.queue_limits()).for_workers(config.workers)),
            in_flight: Arc::default(),
            wake: Arc::default(),
            notifier: Arc::default(),
            batches: Arc::default(),
            metrics: Arc::new(Metrics::for_routes(metrics.max_routes)),
            owner: OwnerId::generate(label),
            pulse: Arc::new(Pulse::new()),
        }
    }

    pub(super) fn hot_path(&self, hot: bool) -> Arc<HotPath> {
        Arc::new(HotPath {
            queue: hot.then(|| self.queue.clone()),
            in_flight: self.in_flight.clone(),
            wake: self.wake.clone(),
            notifier: self.notifier.clone(),
            batches: self.batches.clone(),
            metrics: self.metrics.clone(),
            abandoned: Abandoned::default(),
            settler: OnceLock::new(),
            stopped: AtomicBool::new(false),
        })
    }

    pub(super) fn heartbeat(
        &self,
        store: Arc<dyn Store>,
        mode: Mode,
        dispatcher: &DispatcherConfig,
        label: &str,
        partitions: Option<Arc<Partitions>>,
        report: Option<Report>,
    ) -> Heartbeat {
        Heartbeat {
            store,
            node: Node {
                owner: self.owner.clone(),
                label: format!("{label} {}", std::process::id()),
                mode: mode.as_str(),
                version: env!("CARGO_PKG_VERSION"),
                plugins: None,
            },
            report,
            lease: dispatcher.lease,
            partitions,
            in_flight: self.in_flight.clone(),
            wake: self.wake.clone(),
            metrics: self.metrics.clone(),
        }
    }

    pub(super) fn learner(
        &self,
        store: Arc<dyn Store>,
        order: Arc<Order>,
        partitions: Arc<Partitions>,
        every: Duration,
    ) -> Learner {
        Learner { store, order, partitions, wake: self.wake.clone(), metrics: self.metrics.clone(), every }
    }

    pub(super) fn poller(
        &self,
        store: Arc<dyn Store>,
        listeners: Arc<Listeners>,
        settler: &SettlerHandle,
        lease: Duration,
        rules: SettlementRules,
        config: PollerConfig,
    ) -> Poller {
        Poller {
            store,
            queue: self.queue.clone(),
            in_flight: self.in_flight.clone(),
            listeners,
            settler: settler.clone(),
            wake: self.wake.clone(),
            batches: self.batches.clone(),
            metrics: self.metrics.clone(),
            owner: self.owner.clone(),
            lease,
            rules,
            config,
            order: None,
            partitions: None,
            sweep: Sweep::default(),
            unparking: false,
            unparked_at: Instant::now(),
            deciding: true,
            decided_at: Instant::now(),
            parked_after: None,
            pulse: self.pulse.clone(),
        }
    }
}
