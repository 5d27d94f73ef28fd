//! What an outbox is made of, checked before anything starts.

use std::sync::Arc;

use tokio::sync::watch;

use super::parts::Parts;
#[cfg(feature = "wasm")]
use super::state::StoredState;
use super::{Mode, Outbox, Running};
use crate::dispatcher::{Dispatcher, DispatcherConfig, Interceptor, RecordedCosts, Shared, Visits};
use crate::event::{NameError, Route};
use crate::health::Health;
use crate::listener::{BreakerConfig, Exponential, Listener, Listeners, Owner, Registration, RetryPolicy, RouteConflict};
use crate::notifier;
use crate::order::{Order, OrderConfig, Partitions};
use crate::poller::PollerConfig;
use crate::purge::{OnDone, Purge, PurgeConfig};
use crate::routes;
use crate::settler::Keeps;
use crate::store::{Ownership, SharedStore, StoreError};
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

/// What an outbox is made of.
#[must_use = "start it"]
pub struct OutboxBuilder<S> {
    store: S,
    mode: Mode,
    dispatcher: DispatcherConfig,
    poller: PollerConfig,
    purge: PurgeConfig,
    order: OrderConfig,
    retry: Arc<dyn RetryPolicy>,
    breaker: BreakerConfig,
    listeners: Result<Vec<Registration>, NameError>,
    interceptors: Vec<Arc<dyn Interceptor>>,
    hooks: Vec<Arc<dyn WriterHook>>,
    migrate: bool,
    label: String,
    #[cfg(feature = "sinks")]
    sinks: crate::sink::Sinks,
    #[cfg(feature = "sinks")]
    relays: Result<Vec<(Route, crate::RelayConfig)>, NameError>,
    #[cfg(feature = "wasm")]
    plugins: Option<crate::wasm::PluginsConfig>,
}

impl<S: SharedStore> OutboxBuilder<S> {
    pub(super) fn new(store: S, mode: Mode) -> Self {
        Self {
            store,
            mode,
            dispatcher: DispatcherConfig::default(),
            poller: PollerConfig::default(),
            purge: PurgeConfig { enabled: mode != Mode::WriterOnly, ..PurgeConfig::default() },
            order: OrderConfig::default(),
            retry: Arc::new(Exponential::default()),
            breaker: BreakerConfig::default(),
            listeners: Ok(Vec::new()),
            interceptors: Vec::new(),
            hooks: Vec::new(),
            migrate: false,
            label: "outbox".to_owned(),
            #[cfg(feature = "sinks")]
            sinks: crate::sink::Sinks::default(),
            #[cfg(feature = "sinks")]
            relays: Ok(Vec::new()),
            #[cfg(feature = "wasm")]
            plugins: None,
        }
    }

    /// Another mode.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Adds a native listener for a route: `("Order", "OrderPlaced")`, or `"OrderPlaced"` of the global aggregate type.
    pub fn listener<R>(mut self, route: R, listener: impl Listener) -> Self
    where
        R: TryInto<Route, Error = NameError>,
    {
        self.listeners = self.listeners.and_then(|mut listeners| {
            listeners.push(Registration::new(route.try_into()?, listener));
            Ok(listeners)
        });
        self
    }

    /// Adds a native listener with settings of its own.
    pub fn registration(mut self, registration: Registration) -> Self {
        if let Ok(listeners) = &mut self.listeners {
            listeners.push(registration);
        }
        self
    }

    /// Where relays send to, and what plugins may be granted to publish to.
    #[cfg(feature = "sinks")]
    pub fn sinks(mut self, sinks: crate::sink::Sinks) -> Self {
        self.sinks = sinks;
        self
    }

    /// Sends the events of a route to a sink, unless a listener or a plugin answers the route. `*` stands for any name in each half
    /// of it, `("Order", "*")`; of several that cover a route the most exact counts.
    #[cfg(feature = "sinks")]
    pub fn relay<R>(mut self, route: R, config: crate::RelayConfig) -> Self
    where
        R: TryInto<Route, Error = NameError>,
    {
        self.relays = self.relays.and_then(|mut relays| {
            relays.push((route.try_into()?, config));
            Ok(relays)
        });
        self
    }

    /// Loads plugins from a directory, and swaps them when it changes.
    #[cfg(feature = "wasm")]
    pub fn plugins(self, directory: impl Into<std::path::PathBuf>) -> Self {
        self.plugins_config(crate::wasm::PluginsConfig { dir: directory.into(), ..crate::wasm::PluginsConfig::default() })
    }

    /// Loads plugins, with settings.
    #[cfg(feature = "wasm")]
    pub fn plugins_config(mut self, config: crate::wasm::PluginsConfig) -> Self {
        self.plugins = Some(config);
        self
    }

    /// What happens around every attempt; in the order of adding.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// What happens around every write; in the order of adding.
    pub fn hook(mut self, hook: impl WriterHook) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// When failed events are tried again, unless their listener has a policy of its own.
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.retry = Arc::new(policy);
        self
    }

    /// When a listener that keeps breaking is paused, unless it has a rule of its own.
    pub fn breaker(mut self, config: BreakerConfig) -> Self {
        self.breaker = config;
        self
    }

    /// How events are dispatched.
    pub fn dispatcher(mut self, config: DispatcherConfig) -> Self {
        self.dispatcher = config;
        self
    }

    /// How many workers; the rest as it is.
    pub fn workers(mut self, workers: usize) -> Self {
        self.dispatcher.workers = workers;
        self
    }

    /// How the table is polled.
    pub fn poller(mut self, config: PollerConfig) -> Self {
        self.poller = config;
        self
    }

    /// What is purged. An outbox made by [`writer_only`](Outbox::writer_only) purges nothing unless asked here: a service that
    /// only writes may lack the right, and whoever delivers purges. Where change data capture delivers, nobody does: set
    /// [`undelivered_retention`](PurgeConfig::undelivered_retention), or the table grows for ever.
    pub fn purge(mut self, config: PurgeConfig) -> Self {
        self.purge = config;
        self
    }

    /// What happens to the later events of an aggregate when an earlier one fails; for `ordered_by_aggregate`.
    pub fn order(mut self, config: OrderConfig) -> Self {
        self.order = config;
        self
    }

    /// Brings the schema up to date at the start. Default false: then a missing schema is an error.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// What people see in `locked_by`, a host name for example.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Checks everything, then starts everything.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing is left running.
    pub async fn start(mut self) -> Result<Outbox<S>, StartError> {
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
        let parts = Parts::new(&self.dispatcher, &self.label);
        let listeners = Arc::new(Listeners::with_breaker(self.breaker).counting_in(parts.metrics.calls.clone()));
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
            };
            let (wake, notifier) = (parts.wake.clone(), parts.notifier.clone());
            Dispatcher::start(shared, parts.in_flight.clone(), wake, notifier, &health)
        });
        let poller = dispatcher.as_ref().map(|dispatcher| {
            // Set once, here, before anybody writes.
            let _ = hot.settler.set(dispatcher.settler().clone());
            let mut poller =
                parts.poller(store.clone(), listeners.clone(), dispatcher.settler(), &self.dispatcher, self.poller);
            (poller.order, poller.partitions) = (order.clone(), partitions.clone());
            tokio::spawn(health.clone().watched("poller", poller.run(stop.clone())))
        });
        let purge = self.purge.enabled.then(|| {
            let purge = Arc::new(Purge::new(store.clone(), self.purge.clone(), parts.metrics.clone()));
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
        let ownership = Ownership { owner: parts.owner.clone(), lease: self.dispatcher.lease };
        Ok(Outbox {
            store,
            writer: Writer::new(self.store, ownership, self.hooks, hot.clone()),
            hot,
            queue: parts.queue,
            in_flight: parts.in_flight,
            listeners,
            metrics: parts.metrics,
            owner: parts.owner,
            #[cfg(feature = "http")]
            mode: self.mode,
            #[cfg(feature = "http")]
            purge: self.purge,
            running: Running {
                #[cfg(feature = "wasm")]
                plugins,
                dispatcher,
                poller,
                learner,
                purge,
                routes,
                heartbeat,
                notifiers,
                stopped,
                left,
                health,
            },
        })
    }
}
