//! Checks what an outbox is made of, and starts it.

use std::sync::{Arc, Mutex};

use tokio::sync::{OnceCell, watch};

use super::monitor::{Monitor, Watched};
use super::parts::Parts;
use super::running::{Running, Signals};
#[cfg(feature = "wasm")]
use super::state::StoredState;
use super::{Inner, Mode, Outbox};
use crate::dispatcher::{Dispatcher, DispatcherConfig, Interceptor, RecordedCosts, Shared, Visits};
use crate::event::NameError;
use crate::health::Health;
use crate::listener::{BreakerConfig, Listeners, Owner, Registration, RetryPolicy, RouteConflict};
use crate::metrics::{MetricsConfig, Sampled, Sampler};
use crate::notifier;
use crate::order::{Order, OrderConfig, Partitions};
use crate::poller::PollerConfig;
use crate::purge::{OnDone, Purge, PurgeConfig};
use crate::readiness::{SchemaFault, SchemaWatch};
use crate::routes;
use crate::settler::Keeps;
use crate::store::{Ownership, SharedStore, StoreError};
use crate::telemetry::Spans;
use crate::writer::{Writer, WriterHook};

/// Why an outbox did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Values that make no sense, all of them.
    #[error("the configuration has {} faults: {}", .0.len(), .0.join("; "))]
    Config(Vec<String>),
    /// A listener was given a name that is none.
    #[error("a listener's route is wrong")]
    Route(#[source] NameError),
    /// Two listeners for one route.
    #[error(transparent)]
    Conflict(#[from] RouteConflict),
    /// The database is not as it must be.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The plugins directory cannot be used.
    #[cfg(feature = "wasm")]
    #[error(transparent)]
    Plugins(#[from] crate::wasm::LoadError),
}

/// What was asked for.
pub(super) struct Wanted<S> {
    pub(super) store: S,
    pub(super) mode: Mode,
    pub(super) dispatcher: DispatcherConfig,
    pub(super) poller: PollerConfig,
    pub(super) purge: PurgeConfig,
    pub(super) order: OrderConfig,
    pub(super) metrics: MetricsConfig,
    pub(super) retry: Arc<dyn RetryPolicy>,
    pub(super) breaker: BreakerConfig,
    pub(super) listeners: Result<Vec<Registration>, NameError>,
    pub(super) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(super) hooks: Vec<Arc<dyn WriterHook>>,
    pub(super) migrate: bool,
    pub(super) label: String,
    pub(super) spans: Spans,
    #[cfg(feature = "otel")]
    pub(super) telemetry: Option<crate::telemetry::Telemetry>,
    #[cfg(feature = "sinks")]
    pub(super) sinks: crate::sink::Sinks,
    #[cfg(feature = "sinks")]
    pub(super) relays: Result<Vec<(crate::Route, crate::RelayConfig)>, NameError>,
    #[cfg(feature = "wasm")]
    pub(super) plugins: Option<crate::wasm::PluginsConfig>,
}

impl<S: SharedStore> Wanted<S> {
    /// Checks everything, then starts everything.
    pub(super) async fn start(mut self) -> Result<Outbox<S>, StartError> {
        if self.mode == Mode::Ordered {
            self.dispatcher.workers = 1;
            self.dispatcher.max_attempts = 1;
        }
        let mut faults = self.dispatcher.faults("dispatcher");
        faults.extend(self.poller.faults("poller"));
        faults.extend(self.breaker.faults("breaker"));
        for Registration { route, breaker, .. } in self.listeners.iter().flatten() {
            faults.extend(breaker.iter().flat_map(|breaker| breaker.faults(&format!("the breaker of {route}: breaker"))));
        }
        faults.extend(self.purge.faults("purge"));
        faults.extend(self.metrics.faults("metrics"));
        faults.extend(self.mode.purge_fault(&self.purge, "purge"));
        #[cfg(feature = "sinks")]
        let relays = {
            let relays = self.relays.map_err(StartError::Route)?;
            crate::relay::registrations(&relays, &self.sinks, self.dispatcher.lease).unwrap_or_else(|found| {
                faults.extend(found);
                Vec::new()
            })
        };
        if !faults.is_empty() {
            return Err(StartError::Config(faults));
        }
        let store = self.store.shared();
        if self.migrate {
            store.migrate_up().await?;
        }
        store.check_schema().await?;
        let parts = Parts::new(&self.dispatcher, &self.metrics, &self.label);
        let listeners = Arc::new(Listeners::with_breaker(self.breaker).counting_in(&parts.metrics));
        listeners.replace(Owner::Native, self.listeners.map_err(StartError::Route)?)?;
        #[cfg(feature = "sinks")]
        listeners.set_relays(relays)?;
        if self.mode != Mode::WriterOnly {
            routes::learn(&*store, &listeners).await?;
        }
        let health = Health::default();
        #[cfg(feature = "wasm")]
        let plugins = match self.plugins.take().filter(|_| self.mode != Mode::WriterOnly) {
            Some(config) => {
                let config = crate::wasm::PluginsConfig { sinks: self.sinks.clone(), ..config };
                let workers = self.dispatcher.workers;
                let state: Arc<dyn crate::wasm::StateSource> = Arc::new(StoredState::new(store.clone()));
                Some(crate::wasm::Plugins::start_watched(config, workers, listeners.clone(), Some(state), &health).await?)
            }
            None => None,
        };
        #[cfg(feature = "wasm")]
        let loading = plugins.as_ref().map_or(0, crate::wasm::Plugins::loading);
        #[cfg(not(feature = "wasm"))]
        let loading = 0;
        // Last of what can fail: from here on everything runs or nothing does. Before anybody learns that this host is there
        // and writes events for it: a host without these listeners must know that somebody has them.
        if self.mode != Mode::WriterOnly
            && let Err(error) = routes::note(&*store, &listeners, loading).await
        {
            #[cfg(feature = "wasm")]
            if let Some(plugins) = plugins {
                plugins.stop().await;
            }
            return Err(error.into());
        }
        let (stopped, stop) = watch::channel(false);
        let dispatches = self.mode != Mode::WriterOnly;
        let hot = parts.hot_path(self.mode.is_hot());
        let (order, partitions) = match self.mode {
            Mode::Ordered => (Some(Arc::new(Order::one_for_all())), Some(Arc::new(Partitions::single()))),
            Mode::OrderedByAggregate => {
                let order = Order::new(self.order, self.dispatcher.key_queue_limits());
                (Some(Arc::new(order)), Some(Arc::new(Partitions::of_aggregates())))
            }
            Mode::SingleNode | Mode::MultiNode | Mode::WriterOnly => (None, None),
        };
        let dispatcher = dispatches.then(|| {
            let shared = Shared {
                queue: parts.queue.clone(),
                listeners: listeners.clone(),
                interceptors: self.interceptors,
                retry: self.retry,
                config: self.dispatcher.clone(),
                metrics: parts.metrics.clone(),
                at_work: Arc::default(),
                store: store.clone(),
                keeps: Keeps {
                    erase_done: self.purge.on_done == OnDone::Delete,
                    dead_blocks: self.mode == Mode::OrderedByAggregate && self.order.dead_blocks(),
                    all_costs: self.dispatcher.record == RecordedCosts::All,
                },
                order: order.clone(),
                visits: Arc::new(Visits::new(self.dispatcher.workers)),
                spans: self.spans.clone(),
            };
            let (wake, notifier) = (parts.wake.clone(), parts.notifier.clone());
            Dispatcher::start(shared, parts.in_flight.clone(), wake, notifier, &health)
        });
        let longest_rest = self.poller.interval;
        let poller = dispatcher.as_ref().map(|dispatcher| {
            // Set once, here, before anybody writes.
            let _ = hot.settler.set(dispatcher.settler().clone());
            let mut poller =
                parts.poller(store.clone(), listeners.clone(), dispatcher.settler(), &self.dispatcher, self.poller);
            (poller.order, poller.partitions) = (order.clone(), partitions.clone());
            tokio::spawn(health.clone().watched("poller", poller.run(stop.clone())))
        });
        #[cfg(feature = "http")]
        let purge_config = self.purge.clone();
        let purge = self.purge.enabled.then(|| {
            let purge = Arc::new(Purge::new(store.clone(), self.purge, parts.metrics.clone()));
            let keeping = purge.clone().keep(parts.owner.clone(), stop.clone());
            (purge, tokio::spawn(health.clone().watched("purge", keeping)))
        });
        // In one queue of all events nothing waits behind others in the table.
        let learner = order.filter(|order| !order.is_one_for_all()).zip(partitions.clone()).map(|(order, partitions)| {
            let learner = parts.learner(store.clone(), order, partitions, self.dispatcher.lease);
            tokio::spawn(health.clone().watched("learner", learner.run(stop.clone())))
        });
        let (left, leave) = watch::channel(false);
        #[cfg(feature = "wasm")]
        let report = plugins.as_ref().map(crate::wasm::Plugins::report);
        #[cfg(not(feature = "wasm"))]
        let report = None;
        let heartbeat = parts.heartbeat(store.clone(), self.mode, &self.dispatcher, &self.label, partitions, report);
        let heartbeat = dispatches.then(|| tokio::spawn(health.clone().watched("heartbeat", heartbeat.run(leave))));
        let keeping = || routes::keep(store.clone(), listeners.clone(), stop.clone());
        let routes = dispatches.then(|| health.spawn("route keeper", keeping()));
        let mut notifiers = vec![health.spawn("notifier", parts.notifier.clone().run(store.clone(), stop.clone()))];
        let listening = || notifier::listen(store.clone(), parts.wake.clone(), stop.clone());
        notifiers.extend(dispatches.then(|| health.spawn("notification receiver", listening())));
        let schema = Arc::new(SchemaFault::default());
        let watch = SchemaWatch { store: store.clone(), fault: schema.clone() };
        let mut watchers = vec![health.spawn("schema watcher", watch.run(stop.clone()))];
        // Who only writes may lack the right to read.
        let interval = Some(self.metrics.interval).filter(|interval| dispatches && !interval.is_zero());
        let sampled = interval.map(|interval| Arc::new(Sampled::every(interval)));
        watchers.extend(sampled.clone().map(|sampled| {
            let sampler = Sampler { store: store.clone(), metrics: parts.metrics.clone(), sampled };
            health.spawn("sampler", sampler.run(stop.clone()))
        }));
        let monitor = Monitor(Arc::new(Watched {
            mode: self.mode,
            database: store.kind(),
            prefix: self.metrics.prefix,
            metrics: parts.metrics.clone(),
            queue: parts.queue.clone(),
            in_flight: parts.in_flight.clone(),
            sampled,
            #[cfg(feature = "otel")]
            spans: self.telemetry.as_ref().and_then(crate::telemetry::Telemetry::spans),
            stopped: stop.clone(),
            health: health.clone(),
            schema,
            poller: poller.as_ref().map(|_| (parts.pulse.clone(), longest_rest)),
            #[cfg(feature = "wasm")]
            plugins: plugins.as_ref().map(crate::wasm::Plugins::required),
        }));
        #[cfg(feature = "otel")]
        if let Some(telemetry) = &self.telemetry {
            telemetry.watch(monitor.clone());
        }
        let ownership = Ownership { owner: parts.owner.clone(), lease: self.dispatcher.lease };
        let workers = dispatcher.as_ref().map_or(0, Dispatcher::workers);
        let running = Running {
            #[cfg(feature = "wasm")]
            plugins: plugins.map(Arc::new),
            dispatcher,
            poller,
            learner,
            purge,
            routes,
            heartbeat,
            watchers,
            notifiers,
        };
        let inner = Inner {
            store,
            writer: Writer::new(self.store, ownership, self.hooks, hot.clone(), self.spans),
            hot,
            queue: parts.queue,
            in_flight: parts.in_flight,
            listeners,
            metrics: parts.metrics,
            monitor,
            owner: parts.owner,
            #[cfg(feature = "http")]
            mode: self.mode,
            #[cfg(feature = "http")]
            purge: purge_config,
            workers,
            health,
            signals: Signals { stopped, left },
            running: Mutex::new(Some(running)),
            ended: OnceCell::new(),
        };
        Ok(Outbox { inner: Arc::new(inner) })
    }
}
