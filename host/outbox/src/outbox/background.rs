//! What runs in the background of an outbox: how each part of it is started.

use std::sync::Arc;

use outbox_listener::Health;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::loaded::Loaded;
use super::monitor::{Monitor, Watched};
use super::parts::Parts;
use super::running::Running;
use super::wanted::Wanted;
use crate::dispatcher::{Dispatcher, Shared, Visits};
use crate::listener::Listeners;
use crate::metrics::{Sampled, Sampler};
use crate::node::{ChangeLog, HEARTBEATS, Heartbeat, SessionKeeper, SinkReport, Stalls};
use crate::notifier;
use crate::order::{Learner, Order};
use crate::partition::Partitions;
use crate::poller::{Busy, Headroom, Intake, Poller};
use crate::purge::{OnDone, Purge, PurgeConfig};
use crate::readiness::{SchemaFault, SchemaWatch};
use crate::recurring::{Outage, Recurring};
use crate::refusals::Refusals;
use crate::routes::RouteKeeper;
use crate::settlement::SettlementRules;
use crate::settler::{BufferedHandle, SettlerHandle, SettlerInbox};
use crate::store::{ListenerReport, Node, Store};

/// The settler's two ends.
pub(super) type Settling = (SettlerHandle, SettlerInbox);

/// What every part is started with.
pub(super) struct Background<'a, S> {
    pub(super) wanted: &'a Wanted<S>,
    pub(super) purge: &'a PurgeConfig,
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) parts: &'a Parts,
    pub(super) listeners: &'a Arc<Listeners>,
    pub(super) health: &'a Health,
    pub(super) rules: SettlementRules,
    /// `None` where order is not asked for.
    pub(super) order: Option<Arc<Order>>,
    pub(super) partitions: Arc<Partitions>,
    pub(super) schema: Arc<SchemaFault>,
    /// `None` where the table is not looked at.
    pub(super) sampled: Option<Arc<Sampled>>,
    pub(super) sinks: SinkReport,
    pub(super) stop: watch::Receiver<bool>,
}

impl<S> Background<'_, S> {
    /// Starts every part that the mode has.
    pub(super) fn start(&self, settling: Option<Settling>, loaded: Loaded, leave: watch::Receiver<bool>) -> Running {
        let delivers = self.wanted.delivers();
        let walk = settling.map(|(settler, inbox)| (self.dispatcher(settler.clone(), inbox), self.poller(settler)));
        let (dispatcher, poller) = walk.unzip();
        let receiver = delivers.then(|| self.notification_receiver());
        let schema_watcher = delivers.then(|| self.schema_watcher());
        let shared_parts = delivers.then(|| self.shared_parts());
        let (seen_routes, routes) = watch::channel(None);
        Running {
            poller,
            purge: self.purge(),
            learner: self.learner(),
            partitions: delivers.then(|| self.partitions.clone()),
            session: delivers.then(|| self.session_keeper(leave.clone(), seen_routes)),
            change_log: delivers.then(|| self.change_log(&loaded, leave.clone())),
            heartbeat: delivers.then(|| self.heartbeat(&loaded, leave)),
            routes: delivers.then(|| self.route_keeper(routes)),
            notifiers: std::iter::once(self.notifier()).chain(receiver).collect(),
            watchers: schema_watcher.into_iter().chain(self.sampler()).chain(shared_parts).collect(),
            dispatcher,
            loaded,
        }
    }

    fn dispatcher(&self, settler: SettlerHandle, inbox: SettlerInbox) -> Dispatcher {
        let Self { wanted, parts, .. } = self;
        let shared = Shared {
            queue: parts.queue.clone(),
            listeners: self.listeners.clone(),
            interceptors: wanted.interceptors.clone(),
            retry: wanted.retry.clone(),
            config: wanted.dispatcher.clone(),
            metrics: parts.metrics.clone(),
            at_work: Arc::default(),
            store: self.store.clone(),
            rules: self.rules,
            order: self.order.clone(),
            visits: Arc::new(Visits::new(wanted.dispatcher.workers)),
            spans: wanted.spans.clone(),
            partitions: self.partitions.clone(),
        };
        let (wake, notifier) = (parts.wake.clone(), parts.notifier.clone());
        Dispatcher::start(shared, settler, inbox, parts.in_flight.clone(), wake, notifier, self.health)
    }

    fn poller(&self, settler: SettlerHandle) -> JoinHandle<()> {
        let Self { wanted, parts, .. } = self;
        let intake = Intake {
            store: self.store.clone(),
            queue: parts.queue.clone(),
            in_flight: parts.in_flight.clone(),
            listeners: self.listeners.clone(),
            settler: BufferedHandle::new(settler),
            wake: parts.wake.clone(),
            batch_numbers: parts.batch_numbers.clone(),
            metrics: parts.metrics.clone(),
            owner: parts.owner.clone(),
            lease: wanted.dispatcher.lease,
            rules: self.rules,
            order: self.order.clone(),
            partitions: self.partitions.clone(),
            busy: Busy::default(),
            headroom: Headroom::default(),
            refused: Refusals::default(),
        };
        let (pulse, reads, flushes) = (parts.poller_pulse.clone(), parts.reads.clone(), parts.flushes.clone());
        let poller = Poller::new(wanted.poller.clone(), intake, pulse, reads, flushes);
        self.health.spawn("poller", poller.run(self.stop.clone()))
    }

    /// `None` where nothing is purged.
    fn purge(&self) -> Option<(Arc<Purge>, JoinHandle<()>)> {
        let config = Some(self.purge.clone()).filter(|config| config.enabled)?;
        let purge = Arc::new(Purge::new(self.store.clone(), config, self.parts.metrics.clone()));
        let keeping = purge.clone().keep(self.stop.clone());
        Some((purge, self.health.spawn("purge", keeping)))
    }

    /// `None` where nothing waits behind others in the table; so it is in one queue of all events.
    fn learner(&self) -> Option<JoinHandle<()>> {
        let order = self.order.clone().filter(|order| !order.is_one_for_all())?;
        let learner = Learner {
            store: self.store.clone(),
            order,
            partitions: self.partitions.clone(),
            wake: self.parts.wake.clone(),
            metrics: self.parts.metrics.clone(),
            every: self.wanted.dispatcher.lease,
            after: 0,
            outage: Outage::default(),
        };
        Some(self.health.spawn("learner", learner.run(self.stop.clone())))
    }

    fn heartbeat(&self, loaded: &Loaded, leave: watch::Receiver<bool>) -> JoinHandle<()> {
        let Self { wanted, parts, .. } = self;
        let node = Node {
            owner: parts.owner.clone(),
            label: wanted.host_label(),
            mode: wanted.mode.as_str(),
            version: env!("CARGO_PKG_VERSION"),
            report: None,
            stuck: Vec::new(),
            listeners: ListenerReport::default(),
            room: u32::try_from(wanted.dispatcher.reported_room()).unwrap_or(u32::MAX),
            session: false,
            is_registered: false,
        };
        let heartbeat = Heartbeat {
            store: self.store.clone(),
            node,
            plugins: loaded.lister(),
            sinks: self.sinks.clone(),
            lease: wanted.dispatcher.lease,
            erase_done: self.purge.on_done == OnDone::Delete,
            partitions: self.partitions.clone(),
            wake: parts.wake.clone(),
            metrics: parts.metrics.clone(),
            pulse: parts.heartbeat_pulse.clone(),
            stalls: Stalls {
                listeners: self.listeners.clone(),
                reads: parts.reads.clone(),
                poll_interval: wanted.poller.interval,
                metrics: parts.metrics.clone(),
            },
        };
        self.health.spawn("heartbeat", heartbeat.run(leave))
    }

    /// Starts the task that records the changes of this host.
    fn change_log(&self, loaded: &Loaded, leave: watch::Receiver<bool>) -> JoinHandle<()> {
        let Self { wanted, parts, .. } = self;
        let (store, metrics) = (self.store.clone(), parts.metrics.clone());
        let change_log = ChangeLog::new(store, metrics, &wanted.host_label(), wanted.mode.as_str(), loaded.lister());
        self.health.spawn("change log", change_log.run(leave))
    }

    fn session_keeper(&self, leave: watch::Receiver<bool>, routes: watch::Sender<Option<String>>) -> JoinHandle<()> {
        let keeper = SessionKeeper {
            store: self.store.clone(),
            owner: self.parts.owner.clone(),
            partitions: self.partitions.clone(),
            metrics: self.parts.metrics.clone(),
            routes,
        };
        self.health.spawn("session keeper", keeper.run(leave))
    }

    fn route_keeper(&self, seen: watch::Receiver<Option<String>>) -> JoinHandle<()> {
        let keeper = RouteKeeper::new(self.store.clone(), self.listeners.clone(), self.partitions.clone(), seen);
        self.health.spawn("route keeper", keeper.run(self.stop.clone()))
    }

    /// Starts the task that tells other hosts of events to read.
    fn notifier(&self) -> JoinHandle<()> {
        let notifier = self.parts.notifier.clone();
        self.health.spawn("notifier", notifier.run(self.store.clone(), self.stop.clone()))
    }

    /// What hears other hosts.
    fn notification_receiver(&self) -> JoinHandle<()> {
        let listening = notifier::listen(self.store.clone(), self.parts.wake.clone(), self.stop.clone());
        self.health.spawn("notification receiver", listening)
    }

    fn schema_watcher(&self) -> JoinHandle<()> {
        let watch = SchemaWatch {
            store: self.store.clone(),
            fault: self.schema.clone(),
            index: self.wanted.mode.index(),
            unknown: Outage::default(),
        };
        self.health.spawn("schema watcher", watch.run(self.stop.clone()))
    }

    /// `None` where the table is not looked at for metrics.
    fn sampler(&self) -> Option<JoinHandle<()>> {
        let (store, metrics) = (self.store.clone(), self.parts.metrics.clone());
        let sampler = Sampler { store, metrics, sampled: self.sampled.clone()?, outage: Outage::default() };
        Some(self.health.spawn("sampler", sampler.run(self.stop.clone())))
    }

    /// Starts the task that notes a panic in what this outbox may share with others: the sinks and the telemetry.
    fn shared_parts(&self) -> JoinHandle<()> {
        #[cfg(feature = "sinks")]
        let sinks = {
            let monitor = self.wanted.sinks.monitor();
            async move { monitor.panicked().await }
        };
        #[cfg(not(feature = "sinks"))]
        let sinks = std::future::pending::<()>();
        #[cfg(feature = "otel")]
        let telemetry = self.wanted.telemetry.as_ref().map_or_else(Health::default, crate::telemetry::Telemetry::health);
        #[cfg(not(feature = "otel"))]
        let telemetry = Health::default();
        let (health, mut stop) = (self.health.clone(), self.stop.clone());
        self.health.spawn("watcher of sinks and telemetry", async move {
            let part = tokio::select! {
                _ = stop.wait_for(|stopped| *stopped) => return,
                () = sinks => "sender of a sink",
                part = telemetry.broken() => part,
            };
            health.note(part);
        })
    }

    /// What tells of all of them.
    pub(super) fn monitor(&self, loaded: &Loaded) -> Monitor {
        let Self { wanted, parts, .. } = self;
        Monitor(Arc::new(Watched {
            mode: wanted.mode,
            database: self.store.kind(),
            prefix: wanted.metrics.prefix.clone(),
            metrics: parts.metrics.clone(),
            queue: parts.queue.clone(),
            in_flight: parts.in_flight.clone(),
            sampled: self.sampled.clone(),
            sinks: self.sinks.clone(),
            plugins: loaded.lister(),
            #[cfg(feature = "otel")]
            spans: wanted.telemetry.as_ref().and_then(crate::telemetry::Telemetry::spans),
            stopped: self.stop.clone(),
            health: self.health.clone(),
            schema: self.schema.clone(),
            poller: wanted.delivers().then(|| (parts.poller_pulse.clone(), wanted.poller.interval)),
            flushes: wanted.delivers().then(|| parts.flushes.clone()),
            heartbeat: wanted.delivers().then(|| (parts.heartbeat_pulse.clone(), wanted.dispatcher.lease / HEARTBEATS)),
            #[cfg(feature = "wasm")]
            required: loaded.plugins.as_ref().map(|plugins| plugins.required()),
        }))
    }
}
